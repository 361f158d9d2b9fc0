//! A session of Reliable UDP in mid-transfer, and segments of the fuzzer's making, whose checksums are put right.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    codec::{Writer, internet_checksum},
    datagram::TxBuf,
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_protocols::rudp::{
    Config, Rudp,
    wire::{Kind, Segment, Syn},
};
use farhaul_testkit::Driver;

fn segment(number: u8, acked: Option<u8>, kind: Kind<'_>) -> Vec<u8> {
    let mut out = [0; 255];
    let mut w = Writer::new(&mut out);
    let segment = Segment { number, acked, kind };
    segment.encode(&mut w).expect("a header has at most 255 bytes");
    let len = w.len();
    out[..len].to_vec()
}

pub(crate) fn run(data: &[u8]) {
    let (from, mut now): (SocketAddr, _) = (([192, 0, 2, 1], 1).into(), Instant::from_nanos(1 << 40));
    let rudp = Box::new(Rudp::server(&Config { mtu: 1_500, ..Config::default() }));
    let mut end = Driver::new(rudp, ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let syn = Syn {
        version: 1,
        outstanding: 255,
        segment: 1_472,
        retransmit: 600,
        ack_delay: 300,
        null: 2_000,
        ack_every: 3,
        eak_after: 3,
        ..Syn::default()
    };
    let mut hello = segment(9, None, Kind::Syn(syn));
    let mut out = TxBuf::default();
    end.admit(now, from, &hello);
    end.feed(now, from, &mut hello);
    let answer = end.drain(now, &mut out);
    let answer = answer.first().map(|sent| sent.bytes[2]);
    let own = answer.expect("a SYN");
    end.feed(now, from, &mut segment(10, Some(own), Kind::Ack));
    end.session().send(1, 0, 200_000);
    end.session().write(b"some words");
    for piece in data.split(|b| *b == 0xfe).take(80) {
        now += Duration::from_millis(7);
        let mut bytes = piece.to_vec();
        // So that they are near enough to mean something.
        if let [_, _, _, acked, ..] = &mut bytes[..] {
            *acked = acked.wrapping_add(own);
        }
        let len = bytes.get(1).map_or(0, |len| usize::from(*len)).min(bytes.len());
        if len >= 6 {
            bytes[len - 2..len].fill(0);
            let covered = if bytes[0] & 4 == 0 { len } else { bytes.len() };
            let sum = internet_checksum(&bytes[..covered]).to_be_bytes();
            bytes[len - 2..len].copy_from_slice(&sum);
        }
        if !bytes.is_empty() {
            end.feed(now, from, &mut bytes);
        }
        end.expire(now);
        end.drain(now, &mut out);
        end.listen(now);
    }
}
