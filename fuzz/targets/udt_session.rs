//! A UDT listener, a session it made, and datagrams of the fuzzer's making for both.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{codec::Writer, datagram::TxBuf, rng::Rng, store::Hollow, time::Instant};
use farhaul_protocols::udt::{
    Framing, Behaviour, Udt, UdtConfig,
    wire::{Control, Handshake, Packet, Request, SocketType, decode},
};
use farhaul_testkit::Driver;

const ISN: u32 = 0x7fff_fff0;

fn hello(request: Request, cookie: u32, socket: SocketType) -> [u8; 64] {
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
    let mut bytes = [0; 64];
    Control::Handshake(hello).encode(0, &mut Writer::new(&mut bytes)).expect("64 bytes");
    bytes
}

pub(crate) fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let framing = match kind % 3 {
        0 => Framing::Records,
        1 => Framing::Stream,
        _ => Framing::Messages { ttl: Some(Duration::from_millis(9)), in_order: kind & 64 != 0 },
    };
    let config = UdtConfig {
        behaviour: if kind & 128 == 0 { Behaviour::Libudt } else { Behaviour::Fixed },
        framing,
        cookie_key: Some([1, 2]),
        ..UdtConfig::default()
    };
    let socket = if framing == Framing::Stream { SocketType::STREAM } else { SocketType::DGRAM };
    let (from, mut now): (SocketAddr, _) = ("192.0.2.1:1".parse().expect("an address"), Instant::from_nanos(1 << 40));
    let udt = Box::new(Udt::server(config).expect("a valid configuration"));
    let mut end = Driver::new(udt, ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let reply = end.on_datagram(now, from, &mut hello(Request::CONNECT, 0, socket)).expect("a cookie");
    let Ok(Packet::Control(_, Control::Handshake(answer))) = decode(&reply) else { panic!("a cookie") };
    end.on_datagram(now, from, &mut hello(Request::RESPONSE, answer.cookie, socket));
    let id = u32::try_from(end.id().expect("a session")).expect("ids have 31 bits").to_be_bytes();
    let mut out = TxBuf::default();
    end.session().send(1, 0, 20_000);
    end.session().write(b"some words");
    for packet in data.split(|b| *b == 0xff).take(80) {
        now += Duration::from_millis(7);
        end.expire(now);
        end.drain(now, &mut out);
        let (mut bytes, mut reply) = (packet.to_vec(), Vec::new());
        end.protocol.accept(now, &mut end.rng, from, &bytes, &mut reply);
        assert!(reply.len() <= bytes.len());
        if let Some(to) = bytes.get_mut(12..16) {
            to.copy_from_slice(&id);
        }
        if bytes.is_empty() {
            continue;
        }
        end.feed(now, from, &mut bytes);
        end.drain(now, &mut out);
    }
}
