//! Tests the worst that a peer, or a stranger, does to us: never a panic, never a hang, never
//! memory.

use std::{fmt::Debug, net::SocketAddr};

use farhaul_core::{
    codec::Writer,
    datagram::TxBuf,
    protocol::{Accepted, CloseReason, Protocol, Route},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_protocols::udt::{
    Behaviour, Framing, Udt, UdtConfig,
    wire::{
        AckState, Control, DataHeader, Handshake, LossList, Packet, Request, SocketType, decode,
    },
};
use farhaul_testkit::{Admitted, Driver};
use proptest::prelude::*;

use super::{MANNERS, config, ms};

fn peer() -> SocketAddr {
    "192.0.2.1:9000".parse().expect("an address")
}

/// An end whose peer is this test.
struct End {
    at: Driver<Hollow>,
    id: u32,
    now: Instant,
    out: TxBuf,
}

const ISN: u32 = 0x7fff_fff0;

fn hello(request: Request, cookie: u32) -> Handshake {
    Handshake {
        version: 4,
        socket: SocketType::DGRAM,
        isn: ISN,
        mss: 1_500,
        window: 1_000,
        request,
        id: 77,
        cookie,
        address: [0; 4],
    }
}

fn bytes(to: u32, control: &Control<'_>) -> Vec<u8> {
    let mut out = [0; 1_500];
    let mut w = Writer::new(&mut out);
    control.encode(to, &mut w).expect("room enough");
    let n = w.len();
    out[..n].to_vec()
}

fn ask(udt: &mut Udt, now: Instant, from: SocketAddr, h: Handshake) -> (Accepted, Vec<u8>) {
    let mut reply = Vec::new();
    let datagram = bytes(0, &Control::Handshake(h));
    let accepted = udt.accept(now, &mut Rng::new(9), from, &datagram, &mut reply);
    assert!(reply.len() <= datagram.len(), "no more than was asked");
    (accepted, reply)
}

fn handshake(reply: &[u8]) -> Handshake {
    match decode(reply) {
        Ok(Packet::Control(77, Control::Handshake(h))) => h,
        other => panic!("{other:?}"),
    }
}

fn accepted(config: UdtConfig) -> End {
    let mut end = End::new(Udt::server(config));
    let ask = |h| bytes(0, &Control::Handshake(h));
    let mut first = ask(hello(Request::CONNECT, 0));
    let reply = end
        .at
        .on_datagram(end.now, peer(), &mut first)
        .expect("a cookie");
    let cookie = handshake(&reply).cookie;
    let again = ask(hello(Request::RESPONSE, cookie));
    let admitted = end.at.admit(end.now, peer(), &again);
    assert_eq!(admitted, Admitted::Session, "a right cookie is accepted");
    let id = end.at.id().expect("just made");
    end.id = u32::try_from(id).expect("ids have 31 bits");
    end.drain();
    end
}

impl End {
    fn new(udt: Result<Udt, impl Debug>) -> Self {
        let udt = Box::new(udt.expect("a valid configuration"));
        Self {
            at: Driver::new(udt, ([192, 0, 2, 7], 9).into(), Hollow, Rng::new(3)),
            id: 0,
            now: Instant::from_nanos(1 << 40),
            out: TxBuf::default(),
        }
    }

    /// Datagrams of the session until it rests.
    fn drain(&mut self) -> Vec<Vec<u8>> {
        let said = self.at.drain(self.now, &mut self.out);
        said.into_iter().map(|sent| sent.bytes).collect()
    }

    fn on_datagram(&mut self, from: SocketAddr, bytes: &mut [u8]) -> Vec<Vec<u8>> {
        self.at.feed(self.now, from, bytes);
        self.drain()
    }

    fn control(&mut self, control: &Control<'_>) -> Vec<Vec<u8>> {
        let mut datagram = bytes(self.id, control);
        self.on_datagram(peer(), &mut datagram)
    }

    fn data(&mut self, seq: u32, payload: &[u8]) -> Vec<Vec<u8>> {
        let mut datagram = vec![0; 16 + payload.len()];
        let header = DataHeader {
            seq,
            first: true,
            last: true,
            in_order: false,
            message: 1,
            timestamp: 0,
            to: self.id,
        };
        header
            .encode(&mut Writer::new(&mut datagram))
            .expect("room enough");
        datagram[16..].copy_from_slice(payload);
        self.on_datagram(peer(), &mut datagram)
    }

    fn delivered(&mut self) -> bool {
        self.at.listen(self.now);
        self.at.delivered()
    }

    fn closed(&mut self) -> Option<&CloseReason> {
        self.at.listen(self.now);
        self.at.closed()
    }
}

/// libudt sends packets of the size in the last handshake it heard, which may be the one before both
/// knew each other's.
#[test]
fn an_equal_may_send_packets_as_large_as_it_was_told_first() {
    for behaviour in MANNERS {
        let equal = UdtConfig {
            rendezvous: true,
            ..config(behaviour, Framing::Stream)
        };
        let mut end = End::new(Udt::client(equal));
        end.at.connect(end.now, peer(), Some(9_000));
        let said = end.drain();
        let Ok(Packet::Control(0, Control::Handshake(ours))) = decode(&said[0]) else {
            panic!("{said:?}");
        };
        assert_eq!(ours.mss, 9_000);
        let theirs = |request| Handshake {
            socket: SocketType::STREAM,
            ..hello(request, 0)
        };
        let mut both = bytes(0, &Control::Handshake(theirs(Request::RENDEZVOUS)));
        both.extend(bytes(
            ours.id,
            &Control::Handshake(theirs(Request::RESPONSE)),
        ));
        let half = both.len() / 2;
        end.on_datagram(peer(), &mut both[..half]);
        end.on_datagram(peer(), &mut both[half..]);
        end.id = ours.id;
        let large = ours.mss as usize - 28 - 16;
        end.data(ISN, &vec![7; large]);
        assert_eq!(
            end.at.session().stats().data_received,
            large as u64,
            "{behaviour:?}"
        );
        end.data(ISN + 1, &vec![7; large + 1]);
        assert_eq!(
            end.at.session().stats().data_received,
            large as u64,
            "{behaviour:?}"
        );
    }
}

#[test]
fn strangers_get_a_cookie_a_refusal_or_silence() {
    let mut udt = Udt::server(config(Behaviour::Libudt, Framing::Records)).unwrap();
    let now = Instant::from_nanos(1 << 40);
    let cookie = handshake(&ask(&mut udt, now, peer(), hello(Request::CONNECT, 0)).1).cookie;
    let right = hello(Request::RESPONSE, cookie);
    let other: SocketAddr = "192.0.2.2:9000".parse().unwrap();
    let silent = |udt: &mut Udt, at, from, h| matches!(ask(udt, at, from, h).0, Accepted::Drop);
    assert!(silent(&mut udt, now, other, right), "another's cookie");
    assert!(silent(
        &mut udt,
        now,
        peer(),
        Handshake {
            cookie: cookie ^ 1,
            ..right
        }
    ));
    assert!(
        silent(&mut udt, now + ms(180_000), peer(), right),
        "a stale cookie"
    );
    assert!(silent(
        &mut udt,
        now,
        peer(),
        Handshake {
            request: Request::RENDEZVOUS,
            ..right
        }
    ));
    for bad in [
        Handshake {
            version: 5,
            ..right
        },
        Handshake {
            socket: SocketType::STREAM,
            ..right
        },
        Handshake { mss: 40, ..right },
        Handshake { window: 0, ..right },
        Handshake {
            isn: 1 << 31,
            ..right
        },
    ] {
        let (accepted, reply) = ask(&mut udt, now, peer(), bad);
        assert!(matches!(accepted, Accepted::Reply));
        assert_eq!(handshake(&reply).request, Request::REJECTED);
    }
    let (first, _) = ask(&mut udt, now, peer(), right);
    let Accepted::Session(id, _session) = first else {
        panic!("the right one")
    };
    let (again, reply) = ask(&mut udt, now, peer(), right);
    assert!(
        matches!(again, Accepted::Reply),
        "the same connection, answered again"
    );
    assert_eq!(u64::from(handshake(&reply).id), id);
}

#[test]
fn what_was_never_sent_ends_the_session_with_words() {
    for behaviour in MANNERS {
        let state = AckState {
            rtt_us: 1_000,
            var_us: 10,
            window: 500,
            speed: None,
        };
        let beyond = Control::Ack {
            number: 1,
            next: ISN + 1,
            state: Some(state),
        };
        let mut end = accepted(config(behaviour, Framing::Records));
        let said = end.control(&beyond);
        assert!(matches!(end.closed(), Some(CloseReason::Protocol(t)) if t.contains("never sent")));
        let last = said.last().map(|s| decode(s));
        assert!(matches!(
            last,
            Some(Ok(Packet::Control(77, Control::Shutdown(_))))
        ));

        let mut end = accepted(config(behaviour, Framing::Records));
        end.control(&Control::Nak(LossList::new(&ISN.to_be_bytes()).unwrap()));
        assert!(matches!(end.closed(), Some(CloseReason::Protocol(t)) if t.contains("never sent")));
    }
}

/// libudt hands to its reader what it has acknowledged in full, and throws the rest away at a shutdown.
#[test]
fn what_is_acknowledged_lightly_is_not_delivered_yet() {
    for behaviour in MANNERS {
        let mut end = accepted(config(behaviour, Framing::Records));
        end.at.session().send(1, 0, 1_000);
        end.control(&Control::KeepAlive);
        let ack = |number, state| Control::Ack {
            number,
            next: ISN + 1,
            state,
        };
        end.control(&ack(0, None));
        assert!(!end.delivered(), "{behaviour:?}");
        let state = AckState {
            rtt_us: 1_000,
            var_us: 10,
            window: 500,
            speed: None,
        };
        end.control(&ack(1, Some(state)));
        assert!(end.delivered(), "{behaviour:?}");
    }
}

#[test]
fn reversed_ranges_oversize_and_spoofed_datagrams_change_nothing() {
    for behaviour in MANNERS {
        let mut end = accepted(config(behaviour, Framing::Records));
        let mut reversed = bytes(end.id, &Control::KeepAlive);
        reversed[1] = 3;
        reversed.splice(16.., [0x80, 0, 0, 9, 0, 0, 0, 1]);
        assert!(end.on_datagram(peer(), &mut reversed).is_empty());
        assert!(
            end.data(ISN, &[0; 1_457]).is_empty(),
            "longer than was agreed"
        );
        let mut spoofed = bytes(end.id, &Control::Shutdown(&[]));
        let other = "192.0.2.9:9000".parse().unwrap();
        assert!(end.on_datagram(other, &mut spoofed).is_empty());
        assert!(
            end.data(ISN + 200_000, &[0; 20]).is_empty(),
            "beyond the window"
        );
        for runt in 0..16 {
            end.on_datagram(peer(), &mut vec![0x80; runt]);
        }
        assert!(end.closed().is_none());
        assert!(end.at.session().stats().dropped_malformed >= 3);
        end.control(&Control::Shutdown(&[]));
        assert!(end.closed().is_some());
        assert!(end.data(ISN, &[0; 20]).is_empty(), "data after the end");
        assert!(end.at.session().is_closed());
    }
}

#[test]
fn a_payload_that_is_no_record_ends_the_session() {
    let mut end = accepted(config(Behaviour::Fixed, Framing::Records));
    end.data(ISN, b"hello");
    assert!(matches!(end.closed(), Some(CloseReason::Protocol(t)) if t.contains("record")));
}

#[test]
fn routing_is_by_socket_id() {
    let end = accepted(config(Behaviour::Libudt, Framing::Records));
    let route = |to| end.at.protocol.route(&bytes(to, &Control::KeepAlive));
    assert_eq!(route(0), Route::New);
    assert_eq!(route(end.id), Route::Known(end.id.into()));
    assert_eq!(route(1 << 31), Route::Foreign, "negative for libudt");
    assert_eq!(end.at.protocol.route(&[0x80; 15]), Route::Foreign);
}

proptest! {
    #[test]
    fn nothing_makes_a_session_panic_or_hang(
        packets in proptest::collection::vec((0_u8..10, any::<u32>(), proptest::collection::vec(any::<u32>(), 0..8), 0_u64..50), 1..60),
        tuned: bool,
        stream in 0_u8..3,
        sends: bool,
    ) {
        let framing = match stream {
            0 => Framing::Records,
            1 => Framing::Messages { ttl: Some(ms(20)), in_order: false },
            _ => Framing::Messages { ttl: None, in_order: true },
        };
        let mut end = accepted(config(if tuned { Behaviour::Fixed } else { Behaviour::Libudt }, framing));
        if sends {
            end.at.session().send(1, 0, 50_000);
            end.at.session().write(b"words");
        }
        for (kind, info, words, pause) in packets {
            end.now += ms(pause);
            let now = end.now;
            let (session, mut turn) = end.at.turn(now).expect("accepted");
            session.handle_timeout(&mut turn);
            end.drain();
            // Words are near the numbers in use, or anywhere.
            let near = |w: u32| if w.is_multiple_of(4) { w } else { ISN.wrapping_add(w % 64) & 0x7fff_ffff | w & 1 << 31 };
            let first = if kind == 9 { near(info) & 0x7fff_ffff } else { 0x8000_0000 | u32::from(kind) << 16 };
            let mut datagram: Vec<u8> = [first, info, 0, end.id].into_iter()
                .chain(words.into_iter().map(near))
                .flat_map(u32::to_be_bytes)
                .collect();
            end.on_datagram(peer(), &mut datagram);
        }
    }
}
