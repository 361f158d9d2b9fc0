//! Segments of Reliable UDP: whatever decodes and is encoded again decodes to the same.

use farhaul_core::codec::Writer;
use farhaul_protocols::rudp::wire::Segment;

pub(crate) fn run(data: &[u8]) {
    if let Ok(segment) = Segment::decode(data) {
        let mut out = [0; 255];
        let mut w = Writer::new(&mut out);
        segment.encode(&mut w).expect("a header has at most 255 bytes");
        let len = w.len();
        // Data are not part of it, and what has no data is something else.
        let again = Segment::decode(&out[..len]).expect("just encoded");
        assert_eq!((again.number, again.acked), (segment.number, segment.acked));
    }
}
