//! Frames: a decoded frame is encoded and decoded to the same.

use farhaul_core::codec::{Reader, Writer};
use farhaul_haul::wire::frame;

pub(crate) fn run(data: &[u8]) {
    let mut r = Reader::new(data);
    while let Ok(Some(f)) = frame::next(&mut r) {
        let mut out = vec![0; data.len() + 64];
        let mut w = Writer::new(&mut out);
        frame::encode(&mut w, &f).expect("room enough");
        let n = w.len();
        let mut again = Reader::new(&out[..n]);
        assert_eq!(frame::next(&mut again), Ok(Some(f)));
    }
}
