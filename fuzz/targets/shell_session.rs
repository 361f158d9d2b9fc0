//! A session of the shell without a control lane, in mid-transfer: datagrams of any type, and frames of
//! any kind in order.

use farhaul_congestion::lookup;
use farhaul_core::shell::frame::Frame;
use farhaul_testkit::{bare, fuzz_datagram_session};

fn frames(mut bytes: &[u8]) {
    while let Ok(Some((frame, len))) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes[..len]);
        bytes = &bytes[len..];
    }
}

pub(crate) fn run(data: &[u8]) {
    frames(data);
    let law = lookup("reno").expect("a known law");
    fuzz_datagram_session(Box::new(bare(move || law.make(), 1_500)), &[], data);
}
