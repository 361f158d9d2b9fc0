//! Two plain sessions, connected, and then datagrams of the fuzzer's making for one of them. The
//! sessions are plain, so that datagrams are opened and every frame is reached.

use std::time::Duration;

use farhaul_core::{codec::Writer, datagram::TxBuf, rng::Rng, store::Hollow, time::Instant};
use farhaul_haul::{
    Haul, HaulConfig,
    wire::{TAG, short::Short},
};
use farhaul_testkit::Driver;

type End = Driver<Hollow>;

fn end(server: bool) -> End {
    let config = HaulConfig {
        plain: true,
        law: "cubic".into(),
        ..HaulConfig::new([7; 32])
    };
    let haul = if server { Haul::server(config) } else { Haul::client(config) };
    let address = if server { "10.0.0.2:2" } else { "10.0.0.1:1" }.parse().expect("an address");
    Driver::new(Box::new(haul.expect("a valid configuration")), address, Hollow, Rng::new(3))
}

fn drain(from: &mut End, to: &mut End, now: Instant, out: &mut TxBuf) {
    for _ in 0..1_000 {
        from.expire(now);
        let sent = from.drain(now, out);
        if sent.is_empty() {
            return;
        }
        for mut sent in sent {
            if let Some(mut reply) = to.on_datagram(now, from.address, &mut sent.bytes) {
                from.on_datagram(now, to.address, &mut reply);
            }
        }
    }
    panic!("the session does not come to rest");
}

pub(crate) fn run(data: &[u8]) {
    let (mut client, mut server, mut out) = (end(false), end(true), TxBuf::default());
    let mut now = Instant::from_nanos(1 << 40);
    client.connect(now, server.address, Some(1_500));
    for round in 0..8 {
        now += Duration::from_millis(6);
        drain(&mut client, &mut server, now, &mut out);
        drain(&mut server, &mut client, now, &mut out);
        if round == 4 {
            client.session().send(1, 0, 20_000);
            client.session().write(b"some words");
        }
    }
    let to = u32::try_from(server.id().unwrap_or(0)).expect("ids have four bytes");
    for (i, payload) in data.split(|b| *b == 0xff).enumerate().take(50) {
        let mut bytes = vec![0; 9 + payload.len() + TAG];
        let number = 1_000 + u32::try_from(i).expect("few");
        let header = Short { phase: i % 7 == 6, to, number };
        header.encode(&mut Writer::new(&mut bytes)).expect("room enough");
        bytes[9..9 + payload.len()].copy_from_slice(payload);
        server.on_datagram(now, client.address, &mut bytes);
        drain(&mut server, &mut client, now, &mut out);
        now += Duration::from_millis(3);
    }
    drain(&mut client, &mut server, now, &mut out);
}
