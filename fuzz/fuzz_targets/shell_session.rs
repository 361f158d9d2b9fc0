//! A session of the shell without a control lane, in mid-transfer: datagrams of any type, and frames of
//! any kind in order.
#![no_main]

use std::{net::SocketAddr, time::Duration};

use farhaul_congestion::lookup;
use farhaul_core::{datagram::TxBuf, rng::Rng, shell::frame::Frame, store::Hollow, time::Instant};
use farhaul_testkit::{Driver, bare};
use libfuzzer_sys::fuzz_target;

fn datagram(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 1, 2, 3, 4][..], body].concat()
}

fn frames(mut bytes: &[u8]) {
    while let Ok(Some((frame, len))) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes[..len]);
        bytes = &bytes[len..];
    }
}

fuzz_target!(|data: &[u8]| {
    frames(data);
    let (from, mut now): (SocketAddr, _) = (([192, 0, 2, 1], 1).into(), Instant::from_nanos(1 << 40));
    let law = lookup("reno").expect("a known law");
    let protocol = Box::new(bare(move || law.make(), 1_500));
    let mut end = Driver::new(protocol, ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let mut hello = datagram(0x40, &1_472_u16.to_be_bytes());
    end.admit(now, from, &hello);
    end.feed(now, from, &mut hello);
    let mut out = TxBuf::default();
    let welcome = end.drain(now, &mut out);
    end.feed(now, from, &mut datagram(0x42, &welcome[0].bytes[5..13]));
    end.session().send(1, 0, 200_000);
    end.session().write(b"some words");
    let mut offset = 0_u64;
    for piece in data.split(|b| *b == 0xfe).take(80) {
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
});
