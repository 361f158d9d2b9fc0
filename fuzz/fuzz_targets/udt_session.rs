//! A UDT listener, a session it made, and datagrams of the fuzzer's making for both.
#![no_main]

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    codec::Writer,
    datagram::{Ecn, Received, TxBuf},
    protocol::{Accepted, Protocol, Session, Turn},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_protocols::udt::{
    Framing, Manner, Udt, UdtConfig,
    wire::{Control, Handshake, Packet, Request, SocketType, decode},
};
use libfuzzer_sys::fuzz_target;

const ISN: u32 = 0x7fff_fff0;

fn ask(udt: &mut Udt, now: Instant, from: SocketAddr, request: Request, cookie: u32, socket: SocketType) -> (Accepted, Vec<u8>) {
    let hello = Handshake {
        version: 4,
        socket,
        isn: ISN,
        mss: 1_500,
        window: 100,
        request,
        id: 77,
        cookie,
        address: [0; 4],
    };
    let (mut bytes, mut reply) = ([0; 64], Vec::new());
    Control::Handshake(hello).encode(0, &mut Writer::new(&mut bytes)).expect("64 bytes");
    let accepted = udt.accept(now, &mut Rng::new(1), from, &bytes, &mut reply);
    (accepted, reply)
}

fn drain(session: &mut dyn Session, now: Instant, out: &mut TxBuf) {
    let mut turn = Turn { now, rng: &mut Rng::new(2), store: &mut Hollow };
    if session.poll_timeout().is_some_and(|(at, _)| at <= now) {
        session.handle_timeout(&mut turn);
    }
    for _ in 0..2_000 {
        if session.poll_transmit(&mut turn, out).is_none() {
            return;
        }
    }
    panic!("the session does not come to rest");
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let framing = match kind % 3 {
        0 => Framing::Records,
        1 => Framing::Stream,
        _ => Framing::Messages { ttl: Some(Duration::from_millis(9)), in_order: kind & 64 != 0 },
    };
    let config = UdtConfig {
        manner: if kind & 128 == 0 { Manner::Libudt } else { Manner::Tuned },
        framing,
        cookie_key: Some([1, 2]),
        ..UdtConfig::default()
    };
    let socket = if framing == Framing::Stream { SocketType::Stream } else { SocketType::Dgram };
    let mut udt = Udt::server(config).expect("a valid configuration");
    let (from, mut now) = ("192.0.2.1:1".parse().expect("an address"), Instant::from_nanos(1 << 40));
    let (_, reply) = ask(&mut udt, now, from, Request::Connect, 0, socket);
    let Ok(Packet::Control(_, Control::Handshake(answer))) = decode(&reply) else { panic!("a cookie") };
    let (accepted, _) = ask(&mut udt, now, from, Request::Response, answer.cookie, socket);
    let Accepted::Session(id, mut session) = accepted else { panic!("a session") };
    let (id, mut out) = (u32::try_from(id).expect("ids have 31 bits").to_be_bytes(), TxBuf::default());
    session.send(1, 0, 20_000);
    session.write(b"some words");
    for packet in data.split(|b| *b == 0xff).take(80) {
        now += Duration::from_millis(7);
        drain(&mut *session, now, &mut out);
        let mut bytes = packet.to_vec();
        let mut reply = Vec::new();
        udt.accept(now, &mut Rng::new(3), from, &bytes, &mut reply);
        assert!(reply.len() <= bytes.len());
        if let Some(to) = bytes.get_mut(12..16) {
            to.copy_from_slice(&id);
        }
        if bytes.is_empty() {
            continue;
        }
        let segment = bytes.len();
        let mut turn = Turn { now, rng: &mut Rng::new(4), store: &mut Hollow };
        session.handle_datagrams(&mut turn, Received { from, ecn: Ecn::NotEct, segment, bytes: &mut bytes, waited: std::time::Duration::ZERO, granted: None });
        drain(&mut *session, now, &mut out);
    }
});
