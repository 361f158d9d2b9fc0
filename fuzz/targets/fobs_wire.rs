//! FOBS' control stream and packets: whatever decodes encodes to the same again.

use farhaul_core::codec::Writer;
use farhaul_protocols::fobs::wire::{HEADER, Header, Message};

pub(crate) fn run(data: &[u8]) {
    if let Ok(header) = Header::decode(data) {
        let mut out = [0; HEADER];
        header.encode(&mut Writer::new(&mut out)).expect("it fits");
        assert_eq!(out, data[..HEADER]);
    }
    let mut rest = data;
    while let Ok(Some((message, len))) = Message::decode(rest) {
        let mut out = Vec::new();
        message.encode(&mut out);
        match &message {
            // Bits need not be encoded as briefly as they are here.
            Message::Ack(_, have) | Message::Feedback(_, _, have) => {
                let (again, _) = Message::decode(&out).expect("what was written").expect("all of it");
                let (Message::Ack(_, same) | Message::Feedback(_, _, same)) = again else {
                    panic!("another message");
                };
                assert_eq!(have.end(), same.end());
                assert!((0..have.end()).all(|n| have.contains(n) == same.contains(n)));
            }
            _ => assert_eq!(out, rest[..len]),
        }
        rest = &rest[len..];
    }
}
