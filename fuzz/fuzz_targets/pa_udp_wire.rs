//! PA-UDP's control stream: whatever decodes encodes to the same bytes.
#![no_main]

use farhaul_protocols::pa_udp::wire::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((message, len))) = Message::decode(rest) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, rest[..len]);
        rest = &rest[len..];
    }
});
