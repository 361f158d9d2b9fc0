//! A SABUL session in mid-transfer, with datagrams and control bytes of the fuzzer's making.
#![no_main]

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    control::{Control, ROOM},
    datagram::{Ecn, Received, TxBuf},
    protocol::{Accepted, Protocol, Session, Turn},
    rng::Rng,
    shell::frame::Frame,
    store::Hollow,
    time::Instant,
};
use farhaul_protocols::sabul::{Config, server, wire::Options};
use libfuzzer_sys::fuzz_target;

fn drain(session: &mut dyn Session, now: Instant, out: &mut TxBuf) {
    let mut turn = Turn { now, rng: &mut Rng::new(2), store: &mut Hollow };
    if session.poll_timeout().is_some_and(|(at, _)| at <= now) {
        session.handle_timeout(&mut turn);
    }
    for _ in 0..2_000 {
        let mut said = Vec::new();
        session.poll_control(now, ROOM, &mut said);
        assert!(said.len() <= ROOM);
        if session.poll_transmit(&mut turn, out).is_none() && said.is_empty() {
            while session.poll_event().is_some() {}
            session.read(&mut said);
            return;
        }
    }
    panic!("the session does not come to rest");
}

fn hear(session: &mut dyn Session, now: Instant, bytes: &[u8]) {
    let mut turn = Turn { now, rng: &mut Rng::new(3), store: &mut Hollow };
    session.handle_control(&mut turn, Control::Bytes(bytes));
}

fuzz_target!(|data: &[u8]| {
    let (from, mut now): (SocketAddr, _) = ("192.0.2.1:1".parse().expect("an address"), Instant::from_nanos(1 << 40));
    let mut sabul = server(&Config::default()).expect("a valid configuration");
    let join = [&[0xff, 0xff, 0xff, 0xf0][..], &[1; 16]].concat();
    let Accepted::Session(_, mut session) = sabul.accept(now, &mut Rng::new(1), from, &join, &mut Vec::new()) else {
        panic!("a session")
    };
    let mut out = TxBuf::default();
    session.handle_control(&mut Turn { now, rng: &mut Rng::new(3), store: &mut Hollow }, Control::Opened);
    let (mut options, mut greeting) = (Vec::new(), Vec::new());
    Options::new(1_472, 100).encode(&mut options);
    Frame::Hello(1_472, &options).encode(&mut greeting);
    hear(&mut *session, now, &greeting);
    drain(&mut *session, now, &mut out);
    greeting.clear();
    Frame::Ready.encode(&mut greeting);
    hear(&mut *session, now, &greeting);
    session.send(1, 0, 200_000);
    session.write(b"some words");
    for piece in data.split(|b| *b == 0xfe).take(80) {
        now += Duration::from_millis(7);
        drain(&mut *session, now, &mut out);
        match piece.split_first() {
            Some((kind, bytes)) if kind & 1 == 0 => hear(&mut *session, now, bytes),
            Some((_, bytes)) if !bytes.is_empty() => {
                let mut bytes = bytes.to_vec();
                let segment = bytes.len();
                let mut turn = Turn { now, rng: &mut Rng::new(4), store: &mut Hollow };
                session.handle_datagrams(&mut turn, Received { from, ecn: Ecn::NotEct, segment, bytes: &mut bytes, waited: std::time::Duration::ZERO, granted: None });
            }
            _ => {}
        }
        drain(&mut *session, now, &mut out);
    }
});
