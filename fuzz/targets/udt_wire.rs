//! A UDT datagram: whatever decodes as a control packet encodes to what decodes the same.

use farhaul_core::codec::Writer;
use farhaul_protocols::udt::wire::{Control, Packet, decode};

pub(crate) fn run(data: &[u8]) {
    let Ok(packet) = decode(data) else { return };
    let Packet::Control(to, control) = packet else { return };
    if let Control::Nak(losses) = control {
        assert!(losses.runs().count() * 4 <= data.len());
    }
    let mut out = vec![0; data.len() + 20];
    let mut w = Writer::new(&mut out);
    control.encode(to, &mut w).expect("as long as what was read, or a word longer");
    let n = w.len();
    if !matches!(control, Control::Shutdown([])) {
        assert_eq!(decode(&out[..n]), Ok(packet));
    }
}
