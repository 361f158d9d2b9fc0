//! PA-UDP's control stream: whatever decodes encodes to the same bytes.

use farhaul_protocols::pa_udp::wire::Message;

pub(crate) fn run(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((message, len))) = Message::decode(rest) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, rest[..len]);
        rest = &rest[len..];
    }
}
