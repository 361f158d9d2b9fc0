//! Tests that a connection opens, whatever is lost, and not where it must not.

use farhaul_core::protocol::CloseReason;
use farhaul_protocols::udt::{Behaviour, Framing, UdtConfig};
use farhaul_testkit::{Driver, Fate, Pair, Side};

use super::{LIMIT, MANNERS, config, ends, ms, pair};

#[test]
fn each_of_the_first_packets_may_be_lost() {
    for behaviour in MANNERS {
        for lost in 0..4 {
            for from in [Side::Client, Side::Server] {
                let mut pair = pair(&config(behaviour, Framing::Records), ms(10))
                    .with_script(move |d| Fate::drop_if(d.from == from && d.index == lost));
                pair.connect(Some(1_500));
                let open = pair.run(LIMIT, |p| p.client.connected() && p.server.connected());
                assert!(open, "{behaviour:?} {from:?} {lost}");
                pair.server.session().send(1, 0, 10_000);
                assert!(
                    pair.run(LIMIT, |p| p.client.store.has(1, 10_000)),
                    "{from:?} {lost}"
                );
            }
        }
    }
}

#[test]
fn equals_meet_whatever_is_lost_first() {
    for behaviour in MANNERS {
        for lost in 0..6 {
            for from in [Side::Client, Side::Server] {
                let equal = UdtConfig {
                    rendezvous: true,
                    ..config(behaviour, Framing::Stream)
                };
                let mut pair = pair(&equal, ms(10))
                    .with_script(move |d| Fate::drop_if(d.from == from && d.index == lost));
                pair.connect(Some(1_500));
                let open = pair.run(LIMIT, |p| p.client.connected() && p.server.connected());
                assert!(open, "{behaviour:?} {from:?} {lost}");
                pair.server.session().write(b"from here");
                pair.client.session().write(b"and from there");
                let heard = pair.run(LIMIT, |p| {
                    p.client.stream == b"from here" && p.server.stream == b"and from there"
                });
                assert!(heard, "{behaviour:?} {from:?} {lost}");
            }
        }
    }
}

#[test]
fn the_other_kind_of_socket_is_refused_with_a_reason() {
    let (client, _) = ends(&config(Behaviour::Fixed, Framing::Stream));
    let (_, server) = ends(&config(Behaviour::Fixed, Framing::Records));
    let mut pair = Pair::new(client, server, ms(5), 1);
    pair.connect(None);
    pair.run(LIMIT, |p| p.client.closed().is_some());
    let Some(CloseReason::Protocol(text)) = pair.client.closed() else {
        panic!("{:?}", pair.client.events);
    };
    assert!(
        text.contains("1002") && text.contains("kind of socket"),
        "{text}"
    );
}

#[test]
fn nobody_there_is_noticed_after_three_seconds() {
    let config = UdtConfig {
        answer: ms(3_000),
        ..config(Behaviour::Libudt, Framing::Stream)
    };
    let mut pair = pair(&config, ms(5)).with_script(|_| Fate::Drop);
    let start = pair.now;
    pair.connect(None);
    pair.until(LIMIT, |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(&CloseReason::NoAnswer));
    assert_eq!((pair.now - start).as_secs(), 3);
}

#[test]
fn ipv6_offers_packets_that_fit() {
    use farhaul_core::{datagram::TxBuf, rng::Rng, store::Hollow, time::Instant};
    use farhaul_protocols::udt::wire::{Control, Packet, decode};
    let now = Instant::EPOCH;
    for (peer, mss) in [("192.0.2.1:9", 1_500), ("[2001:db8::1]:9", 1_480)] {
        let (client, _) = ends(&config(Behaviour::Libudt, Framing::Stream));
        let mut end = Driver::new(client, Side::Client.address(), Hollow, Rng::new(1));
        end.connect(now, peer.parse().unwrap(), Some(1_500));
        let first = end.drain(now, &mut TxBuf::default()).remove(0);
        let Ok(Packet::Control(0, Control::Handshake(h))) = decode(&first.bytes) else {
            panic!("a request comes first");
        };
        assert_eq!(h.mss, mss);
    }
}
