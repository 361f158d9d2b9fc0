//! The messages of the model of MTP: whatever decodes encodes to the same bytes.

use farhaul_core::codec::Writer;
use farhaul_protocols::mtp::wire::{Message, REQUEST_LEN, Request};

pub(crate) fn run(data: &[u8]) {
    if let Ok(request) = Request::decode(data) {
        let mut out = [0; REQUEST_LEN];
        request.encode(&mut Writer::new(&mut out)).expect("it fits");
        assert_eq!(out[..14], data[..14]);
    }
    let mut rest = data;
    while let Ok(Some((message, len))) = Message::decode(rest) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, rest[..len]);
        rest = &rest[len..];
    }
}
