//! Feeds bytes that a fuzzer draws to a session of the shell without a control lane. The session is
//! opened, has something to send, and is then given frames of the control channel in order, and
//! datagrams of any type.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{datagram::TxBuf, protocol::Protocol, rng::Rng, store::Hollow, time::Instant};

use crate::Driver;

/// Pieces of the input that are used.
const MAX_PIECES: usize = 80;

/// Opens a listener's session of `protocol`, whose peer greets with `greeting`, and feeds it
/// `data`. The data are cut at each 0xfe; the first byte of a piece is its type.
///
/// # Panics
/// If the session cannot be opened.
pub fn fuzz_datagram_session(protocol: Box<dyn Protocol>, greeting: &[u8], data: &[u8]) {
    let (from, mut now): (SocketAddr, _) =
        (([192, 0, 2, 1], 1).into(), Instant::from_nanos(1 << 40));
    let at = ([192, 0, 2, 2], 2).into();
    let mut end = Driver::new(protocol, at, Hollow, Rng::new(1));
    let hello = [&1_472_u16.to_be_bytes()[..], greeting].concat();
    let mut hello = datagram(0x40, &hello);
    end.admit(now, from, &hello);
    end.feed(now, from, &mut hello);
    let mut out = TxBuf::default();
    let welcome = end.drain(now, &mut out);
    let nonce = welcome.first().and_then(|sent| sent.bytes.get(5..13));
    let nonce = nonce.expect("a welcome");
    end.feed(now, from, &mut datagram(0x42, nonce));
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

fn datagram(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 1, 2, 3, 4][..], body].concat()
}
