//! Long datagrams: a decoded one is encoded to the same bytes.

use farhaul_core::codec::Writer;
use farhaul_haul::wire::long::{self, Kind};

pub(crate) fn run(data: &[u8]) {
    let Ok((head, kind, at)) = long::decode(data) else {
        return;
    };
    if matches!(kind, Kind::Unknown) {
        return;
    }
    let mut out = vec![0; data.len() + 8];
    let mut w = Writer::new(&mut out);
    long::encode(&mut w, head, &kind).expect("room enough");
    let n = w.len();
    // Lengths may have been longer than needed.
    assert!(n <= at);
    let again = long::decode(&out[..n]).expect("what was encoded");
    assert_eq!((again.0, again.1), (head, kind));
}
