//! Tests that a session holds on any path, and when it closes: the fuzz targets `handshake_sealed`
//! and `closing`, by random inputs, and their findings.

use proptest::{collection::vec, prelude::*};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_handshake_survives_any_path(data in vec(any::<u8>(), 0..400)) {
        crate::drive::handshake(&data);
    }

    #[test]
    fn a_session_that_closes_survives_anything(data in vec(any::<u8>(), 0..600)) {
        crate::drive::closing(&data);
    }
}

#[test]
fn a_path_that_only_delivers_is_no_trouble() {
    crate::drive::handshake(&[0; 20]);
    crate::drive::closing(&[0xff, 0, 0, 0]);
}

#[test]
fn what_the_fuzzer_found_holds() {
    // Closed in the handshake: the flight and the close frame are sent again, within bounds.
    let mut closes = vec![
        0, 47, 103, 103, 103, 103, 103, 103, 10, 48, 0, 0, 0, 255, 7, 15, 0, 3, 0, 13, 0, 254, 255,
        255, 255, 252, 255,
    ];
    closes.resize(81, 0);
    closes.extend([0xf0, 0xf2, 0xf3]);
    crate::drive::handshake(&closes);
    // Nothing more arrives while content is on its way: both ends end all the same.
    crate::drive::handshake(&[
        0, 0, 0, 3, 126, 253, 251, 243, 43, 43, 43, 43, 43, 243, 0, 12, 165, 0,
    ]);
}
