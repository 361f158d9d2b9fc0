//! GTP's messages: whatever decodes encodes to the same bytes.

use farhaul_core::codec::{Reader, Writer};
use farhaul_protocols::gtp::wire::{Command, Message};

pub(crate) fn run(data: &[u8]) {
    if let Ok(command) = Command::take(&mut Reader::new(data)) {
        let mut out = [0; 16];
        command.put(&mut Writer::new(&mut out)).expect("it fits");
        assert_eq!(out, data[..16]);
    }
    let mut rest = data;
    while let Ok(Some((message, len))) = Message::decode(rest) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, rest[..len]);
        rest = &rest[len..];
    }
}
