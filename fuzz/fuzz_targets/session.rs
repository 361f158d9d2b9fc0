//! Two plain sessions, connected, and then datagrams of the fuzzer's making for one of them: plain, so
//! that they are opened and every frame is reached.
#![no_main]

use std::net::SocketAddr;

use farhaul_core::{
    codec::Writer,
    datagram::{Ecn, Received, TxBuf},
    protocol::{Accepted, Protocol, Route, Session, Turn},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{
    Haul, HaulConfig,
    wire::{TAG, short::Short},
};
use libfuzzer_sys::fuzz_target;

struct End {
    haul: Haul,
    session: Option<Box<dyn Session>>,
    id: u64,
    address: SocketAddr,
}

fn end(server: bool) -> End {
    let config = HaulConfig {
        plain: true,
        law: "cubic".into(),
        ..HaulConfig::new([7; 32])
    };
    let haul = if server { Haul::server(config) } else { Haul::client(config) };
    End {
        haul: haul.expect("a valid configuration"),
        session: None,
        id: 0,
        address: if server { "10.0.0.2:2" } else { "10.0.0.1:1" }.parse().expect("an address"),
    }
}

fn arrive(end: &mut End, now: Instant, from: SocketAddr, bytes: &mut [u8]) -> Vec<u8> {
    let (mut reply, mut rng) = (Vec::new(), Rng::new(3));
    if end.session.is_none()
        && end.haul.route(bytes) == Route::New
        && let Accepted::Session(id, session) = end.haul.accept(now, &mut rng, from, bytes, &mut reply)
    {
        (end.id, end.session) = (id, Some(session));
    }
    if let Some(session) = &mut end.session
        && !bytes.is_empty()
    {
        let segment = bytes.len();
        let mut turn = Turn { now, rng: &mut rng, store: &mut Hollow };
        session.handle_datagrams(&mut turn, Received { from, ecn: Ecn::NotEct, segment, bytes, waited: std::time::Duration::ZERO, granted: None });
    }
    reply
}

fn drain(from: &mut End, to: &mut End, now: Instant, out: &mut TxBuf) {
    for _ in 0..1_000 {
        let Some(session) = &mut from.session else { return };
        let mut turn = Turn { now, rng: &mut Rng::new(4), store: &mut Hollow };
        if session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            session.handle_timeout(&mut turn);
        }
        if session.poll_transmit(&mut turn, out).is_none() {
            return;
        }
        let mut replies = Vec::new();
        for (segment, _) in out.segments() {
            replies.push(arrive(to, now, from.address, &mut segment.to_vec()));
        }
        for mut reply in replies {
            arrive(from, now, to.address, &mut reply);
        }
    }
    panic!("the session does not come to rest");
}

fuzz_target!(|data: &[u8]| {
    let (mut client, mut server, mut out) = (end(false), end(true), TxBuf::default());
    let mut now = Instant::from_nanos(1 << 40);
    let (id, session) = client.haul.connect(now, &mut Rng::new(5), server.address, Some(1_500));
    (client.id, client.session) = (id, Some(session));
    for round in 0..8 {
        now += std::time::Duration::from_millis(6);
        drain(&mut client, &mut server, now, &mut out);
        drain(&mut server, &mut client, now, &mut out);
        if round == 4 && let Some(session) = &mut client.session {
            session.send(1, 0, 20_000);
            session.write(b"some words");
        }
    }
    let to = u32::try_from(server.id).expect("ids have four bytes");
    for (i, payload) in data.split(|b| *b == 0xff).enumerate().take(50) {
        let mut bytes = vec![0; 9 + payload.len() + TAG];
        let number = 1_000 + u32::try_from(i).expect("few");
        let header = Short { phase: i % 7 == 6, to, number };
        header.encode(&mut Writer::new(&mut bytes)).expect("room enough");
        bytes[9..9 + payload.len()].copy_from_slice(payload);
        arrive(&mut server, now, client.address, &mut bytes);
        drain(&mut server, &mut client, now, &mut out);
        now += std::time::Duration::from_millis(3);
    }
    drain(&mut client, &mut server, now, &mut out);
});
