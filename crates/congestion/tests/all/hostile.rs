//! Tests that every law holds whatever its input: the fuzz target `feedback_laws`, by random
//! inputs, and its findings.

use proptest::{collection::vec, prelude::*};

proptest! {
    #[test]
    fn every_law_allows_what_is_possible_whatever_it_is_told(data in vec(any::<u8>(), 0..2_000)) {
        crate::drive::feed(&data);
    }
}

#[test]
fn what_the_fuzzer_found_holds() {
    // BBR, of a path that delivers next to nothing.
    crate::drive::feed(include_bytes!("drive/bbr-rate"));
}
