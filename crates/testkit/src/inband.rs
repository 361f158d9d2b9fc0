//! What does a listener without a control lane do with anything? Its session is opened by an honest peer, sends, and
//! then hears bytes of a fuzzer's making, on the control channel and in datagrams.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{datagram::TxBuf, protocol::Protocol, rng::Rng, store::Hollow, time::Instant};

use crate::Driver;

/// Pieces heard at most.
const MAX_PIECES: usize = 80;
/// UDP payload of a full datagram.
const DATAGRAM: u16 = 1_472;

fn datagram(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 1, 2, 3, 4][..], body].concat()
}

/// Opens a session of `protocol`, then lets it hear `data`: pieces that end with 0xfe, of which the first byte says
/// whether the rest comes on the control channel (even) or in a datagram, and of which type.
///
/// # Panics
/// If the session does not open, or does not come to rest.
pub fn fuzz_inband_session(protocol: Box<dyn Protocol>, data: &[u8]) {
    let from: SocketAddr = ([192, 0, 2, 1], 1).into();
    let mut now = Instant::from_nanos(1 << 40);
    let mut end = Driver::new(protocol, ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let mut hello = datagram(0x40, &DATAGRAM.to_be_bytes());
    end.admit(now, from, &hello);
    end.feed(now, from, &mut hello);
    let mut out = TxBuf::default();
    let welcome = end.drain(now, &mut out);
    end.feed(now, from, &mut datagram(0x42, &welcome[0].bytes[5..13]));
    end.session().send(1, 0, 200_000);
    end.session().write(b"some words");
    let mut offset = 0_u64;
    for piece in data.split(|b| *b == 0xfe).take(MAX_PIECES) {
        now += Duration::from_millis(7);
        match piece.split_first() {
            Some((kind, frames)) if kind & 1 == 0 => {
                let body = [&[0; 8][..], &offset.to_be_bytes(), frames].concat();
                end.feed(now, from, &mut datagram(0x43, &body));
                offset += frames.len() as u64;
            }
            Some((kind, body)) => end.feed(now, from, &mut datagram(0x40 | kind >> 4, body)),
            None => {}
        }
        end.expire(now);
        end.drain(now, &mut out);
        end.listen(now);
    }
}
