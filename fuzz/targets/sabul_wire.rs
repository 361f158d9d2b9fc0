//! SABUL's control stream and datagrams: whatever decodes encodes to the same bytes, and no more than a
//! message is waited for.

use farhaul_core::{codec::Writer, shell::Record};
use farhaul_protocols::sabul::wire::{HEADER, MAX_MESSAGE, Message, OPTIONS, Options};

pub(crate) fn run(data: &[u8]) {
    if let Ok(header) = Record::decode(data) {
        let mut out = [0; HEADER];
        let mut w = Writer::new(&mut out);
        header.encode(&mut w).expect("heads are short");
        let n = w.len();
        assert_eq!(out[..n], data[..n]);
    }
    if let Some(Ok(options)) = data.first_chunk::<OPTIONS>().map(Options::decode) {
        let mut out = Vec::new();
        options.encode(&mut out);
        assert_eq!(out, data[..OPTIONS]);
    }
    let mut rest = data;
    while let Ok(decoded) = Message::decode(rest) {
        let Some((message, len)) = decoded else {
            assert!(rest.len() < MAX_MESSAGE);
            return;
        };
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, rest[..len]);
        rest = &rest[len..];
    }
}
