//! An RBUDP session in mid-transfer, with datagrams and control bytes of the fuzzer's making.
#![no_main]

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    control::{Control, ROOM},
    datagram::TxBuf,
    rng::Rng,
    shell::frame::Frame,
    store::Hollow,
    time::Instant,
};
use farhaul_protocols::rbudp::{Config, OVERLAP, server};
use farhaul_testkit::Driver;
use libfuzzer_sys::fuzz_target;

type End = Driver<Hollow>;

fn drain(end: &mut End, now: Instant, out: &mut TxBuf) {
    end.expire(now);
    for _ in 0..2_000 {
        let mut said = Vec::new();
        end.session().poll_control(now, ROOM, &mut said);
        assert!(said.len() <= ROOM);
        if end.drain(now, out).is_empty() && said.is_empty() {
            return end.listen(now);
        }
    }
    panic!("the session does not come to rest");
}

fuzz_target!(|data: &[u8]| {
    let (from, mut now): (SocketAddr, _) = ("192.0.2.1:1".parse().expect("an address"), Instant::from_nanos(1 << 40));
    let config = Config { window: 3, block: 60_000, ..Config::default() };
    let mut end = Driver::new(Box::new(server(&OVERLAP, &config)), ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let join = [&[0xff, 0xff, 0xff, 0xf0][..], &[1; 16]].concat();
    end.admit(now, from, &join);
    assert!(end.session.is_some());
    let mut out = TxBuf::default();
    end.control(now, Control::Opened);
    let mut greeting = Vec::new();
    Frame::Hello(1_472, &[]).encode(&mut greeting);
    end.control(now, Control::Bytes(&greeting));
    drain(&mut end, now, &mut out);
    greeting.clear();
    Frame::Ready.encode(&mut greeting);
    end.control(now, Control::Bytes(&greeting));
    end.session().send(1, 0, 200_000);
    end.session().write(b"some words");
    for piece in data.split(|b| *b == 0xfe).take(80) {
        now += Duration::from_millis(7);
        drain(&mut end, now, &mut out);
        match piece.split_first() {
            Some((kind, bytes)) if kind & 1 == 0 => end.control(now, Control::Bytes(bytes)),
            Some((_, bytes)) if !bytes.is_empty() => end.feed(now, from, &mut bytes.to_vec()),
            _ => {}
        }
        drain(&mut end, now, &mut out);
    }
});
