//! Does a connection open whenever it should, and only then?

mod pair;

use std::{cell::RefCell, rc::Rc, time::Duration};

use farhaul_core::{
    codec::Writer,
    protocol::{CloseReason, Event, Protocol, Route},
    rng::Rng,
};
use farhaul_haul::{
    Haul, HaulConfig, Identity, PeerPolicy,
    wire::{
        BASE_DATAGRAM,
        long::{self, Head, Kind},
    },
};
use farhaul_testkit::{Fate, Side};
use pair::{address, config, ms, pair};
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(20);

fn public(seed: u8) -> farhaul_haul::PublicKey {
    Identity::from_seed(&[seed; 32]).expect("32 bytes").public()
}

fn trusting(seed: u8, whom: u8) -> HaulConfig {
    HaulConfig {
        peers: PeerPolicy::Keys(vec![public(9), public(whom)]),
        ..config(seed)
    }
}

#[test]
fn opens_in_two_round_trips_and_knows_the_rtt() {
    for plain in [false, true] {
        let with = |seed, whom| HaulConfig {
            plain,
            app: vec![seed; 60],
            ..trusting(seed, whom)
        };
        let mut pair = pair(with(1, 2), with(2, 1), ms(50));
        let start = pair.now;
        pair.until(LIMIT, |p| p.client.connected());
        assert_eq!(pair.now.since(start), ms(200), "two round trips");
        pair.until(LIMIT, |p| p.server.connected());
        assert_eq!(pair.now.since(start), ms(250));
        let key = |seed| Event::Connected {
            peer_key: Some(public(seed).as_bytes().to_vec()),
        };
        assert_eq!(pair.client.events, [key(2)]);
        assert_eq!(pair.server.events, [key(1)]);
        assert_eq!(pair.client.session().peer_app(), [2; 60]);
        assert_eq!(pair.server.session().peer_app(), [1; 60]);
        pair.client.session().send(1, 0, 100_000);
        pair.until(LIMIT, |p| p.client.delivered());
        let rtt = pair.client.session().stats().rtt_min.unwrap();
        assert!((ms(99)..ms(110)).contains(&rtt), "{rtt:?}");
        assert!(pair.client.session().stats().timeouts == 0);
    }
}

/// Datagrams of a handshake without loss on a short path.
const FLIGHTS: u64 = 6;

#[test]
fn any_one_handshake_datagram_may_be_lost() {
    for from in [Side::Client, Side::Server] {
        for lost in 0..FLIGHTS {
            let mut pair = pair(config(1), config(2), ms(5));
            let start = pair.now;
            pair.set_script(move |d| Fate::drop_if((d.from, d.index) == (from, lost)));
            pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
            assert!(
                pair.now.since(start) < ms(320),
                "{from:?} {lost}: {}",
                pair.now
            );
            pair.client.session().send(1, 0, 10_000);
            pair.until(LIMIT, |p| p.client.delivered());
        }
    }
}

#[test]
fn two_percent_loss_at_400_ms_connects_without_fuss() {
    let mut rng = Rng::new(11);
    let mut late = 0;
    for _ in 0..200 {
        let mut pair = pair(config(1), config(2), ms(200));
        let start = pair.now;
        let mut path = rng.fork("path");
        rng.next_u64();
        pair.set_script(move |_| Fate::drop_if(path.chance(0.02)));
        pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
        late += u32::from(pair.now.since(start) > ms(1_400));
    }
    assert!(late <= 4, "{late} of 200 took more than 3.5 round trips");
}

#[test]
fn strangers_are_refused_on_either_side() {
    for plain in [false, true] {
        let with = |config| HaulConfig { plain, ..config };
        let cases = [
            (with(trusting(1, 3)), with(config(2)), true),
            (with(config(1)), with(trusting(2, 3)), false),
        ];
        for (client, server, client_refuses) in cases {
            let mut pair = pair(client, server, ms(5));
            pair.until(LIMIT, |p| {
                p.client.closed().is_some() && p.server.closed().is_some()
            });
            for (end, refuses) in [
                (&pair.client, client_refuses),
                (&pair.server, !client_refuses),
            ] {
                let said = match end.closed() {
                    Some(CloseReason::Auth(_)) => refuses,
                    Some(CloseReason::Denied(_)) => !refuses,
                    _ => false,
                };
                assert!(said, "each end knows whose check failed: {:?}", end.events);
            }
            pair.pass(LIMIT);
            assert!(pair.client.session().is_closed() && pair.server.session().is_closed());
        }
    }
}

#[test]
fn a_client_that_disconnects_at_once_does_not_delay_the_server() {
    for plain in [false, true] {
        let with = |seed| HaulConfig {
            plain,
            ..config(seed)
        };
        let mut pair = pair(with(1), with(2), ms(5));
        pair.client.reaction = Some(Box::new(|now, event, session| {
            if matches!(event, Event::Connected { .. }) {
                session.close(now, 15, "not the one I know");
            }
        }));
        let start = pair.now;
        pair.until(LIMIT, |p| p.server.closed().is_some());
        let reason = CloseReason::Peer {
            code: 15,
            text: "not the one I know".into(),
        };
        assert_eq!(pair.server.closed(), Some(&reason));
        assert!(pair.now.since(start) < ms(100), "{}", pair.now);
        pair.pass(LIMIT);
        assert!(pair.client.session().is_closed());
    }
}

#[test]
fn a_server_that_stops_in_the_handshake_is_not_reported_as_unreachable() {
    let mut pair = pair(config(1), config(2), ms(5));
    // Its first word, which costs it nothing, comes; all that would follow does not.
    pair.set_script(|d| Fate::drop_if(d.from == Side::Server && d.index > 0));
    pair.until(LIMIT, |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(&CloseReason::Unfinished));
}

#[test]
fn no_answer_is_an_error_and_costs_little() {
    let mut pair = pair(config(1), config(2), ms(5));
    let start = pair.now;
    pair.set_script(|_| Fate::Drop);
    pair.until(LIMIT, |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(&CloseReason::NoAnswer));
    assert_eq!(pair.now.since(start), Duration::from_secs(5));
    assert!(pair.client.sent <= 8, "{} hellos", pair.client.sent);
    assert!(pair.client.session().is_closed());
}

#[test]
fn a_session_closed_before_it_began_sends_nothing() {
    let mut pair = pair(config(1), config(2), ms(5));
    let now = pair.now;
    pair.client.session().close(now, 3, "changed my mind");
    pair.settle(Side::Client);
    assert_eq!((pair.client.sent, pair.server.sent), (0, 0));
    assert!(pair.client.session().is_closed());
    let reason = CloseReason::Local {
        code: 3,
        text: "changed my mind".into(),
    };
    assert_eq!(pair.client.events, [Event::Closed(reason)]);
}

fn hello(version: u32) -> Vec<u8> {
    let mut bytes = vec![0; BASE_DATAGRAM];
    let head = Head {
        version,
        to: 0,
        from: 77,
    };
    long::encode(
        &mut Writer::new(&mut bytes),
        head,
        &Kind::Hello { attempt: 0 },
    )
    .expect("a hello fits");
    bytes
}

#[test]
fn another_version_is_sent_the_supported_ones() {
    let mut pair = pair(config(1), config(2), ms(5));
    let from = Side::Client.address();
    let reply = pair
        .intrude(Side::Server, from, hello(0x6668_0009))
        .unwrap();
    let (head, kind, _) = long::decode(&reply).unwrap();
    assert_eq!((head.version, head.to), (0, 77));
    let list = farhaul_haul::wire::VERSION.to_be_bytes();
    assert_eq!(kind, Kind::Versions { list: &list });
    assert!(
        pair.intrude(Side::Server, from, hello(0x6668_0009)[..1_000].to_vec())
            .is_none()
    );

    // A client that is told of other versions only gives up at once.
    let mut list = vec![0; 17];
    let to = u32::try_from(pair.client.id().unwrap()).unwrap();
    let head = Head {
        version: 0,
        to,
        from: 0,
    };
    let other = 0x6668_0009_u32.to_be_bytes();
    long::encode(
        &mut Writer::new(&mut list),
        head,
        &Kind::Versions { list: &other },
    )
    .unwrap();
    pair.settle(Side::Client);
    pair.intrude(Side::Client, Side::Server.address(), list);
    assert!(matches!(
        pair.client.closed(),
        Some(CloseReason::Version(_))
    ));
}

#[test]
fn tokens_make_one_session_and_only_at_their_address() {
    let mut pair = pair(config(1), config(2), ms(5));
    let initials = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&initials);
    pair.set_script(move |d| {
        if d.from == Side::Client && d.index > 0 && d.bytes[0] == 0x82 {
            seen.borrow_mut().push(d.bytes.to_vec());
        }
        Fate::Deliver
    });
    pair.until(LIMIT, |p| p.server.connected());
    let initials = initials.take();
    assert_eq!(initials.len(), 2);
    let replay = initials[0].clone();
    assert_eq!(
        pair.server.protocol.route(&replay),
        Route::Known(pair.server.id().unwrap())
    );
    pair.server.session = None;
    let elsewhere = address("192.0.2.66:5000");
    assert!(
        pair.intrude(Side::Server, elsewhere, replay.clone())
            .is_none()
    );
    assert!(pair.server.session.is_none(), "not from elsewhere");
    pair.now += Duration::from_secs(11);
    pair.intrude(Side::Server, Side::Client.address(), replay);
    assert!(pair.server.session.is_none(), "not after ten seconds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is thrown at both ends while they connect and talk, they do.
    #[test]
    fn noise_at_every_stage_is_dropped(
        seed: u64,
        noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..30),
    ) {
        let mut rng = Rng::new(seed);
        let seen = Rc::new(RefCell::new(Vec::<(Side, Vec<u8>)>::new()));
        let noted = Rc::clone(&seen);
        let mut pair = pair(config(1), config(2), ms(5));
        pair.set_script(move |d| {
            noted.borrow_mut().push((d.from, d.bytes.to_vec()));
            Fate::Deliver
        });
        let mut sent = false;
        for round in 0..400 {
            pair.pass(ms(1));
            if pair.client.connected() && !sent {
                sent = true;
                pair.client.session().send(1, 0, 200_000);
            }
            // Random, truncated, corrupted and replayed datagrams, to the right ids and from anywhere.
            for _ in 0..2 {
                let pick = rng.below(seen.borrow().len() as u64);
                let (by, mut bytes) = seen.borrow()[usize::try_from(pick).unwrap()].clone();
                match rng.below(4) {
                    0 => bytes.truncate(usize::try_from(rng.below(bytes.len() as u64)).unwrap()),
                    1 => {
                        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                        bytes[at] ^= u8::try_from(1 + rng.below(255)).unwrap();
                    }
                    2 => {
                        let tail = &noise[round % noise.len()];
                        bytes.truncate(usize::try_from(rng.below(20)).unwrap());
                        bytes.extend(tail);
                    }
                    _ => {}
                }
                let from = if rng.chance(0.3) { address("192.0.2.99:9") } else { by.address() };
                // A version list is believed, as it must be before there are keys.
                if !(bytes.first() == Some(&0x84) && bytes.get(1..5) == Some(&[0; 4])) {
                    pair.intrude(by.other(), from, bytes);
                }
            }
        }
        prop_assert!(pair.client.delivered(), "{:?}", pair.client.events);
        prop_assert!(pair.client.closed().is_none() && pair.server.closed().is_none());
        prop_assert_eq!(pair.server.store.prefix(1), 200_000);
        let stats = pair.server.session().stats();
        prop_assert!(stats.dropped_unauthentic + stats.dropped_malformed > 0);
        prop_assert!(stats.dropped_duplicate > 0);
    }

    #[test]
    fn the_listener_takes_any_bytes(data in proptest::collection::vec(any::<u8>(), 0..1_400), first: u8, plain: bool) {
        let mut haul = Haul::server(HaulConfig { plain, ..config(2) }).unwrap();
        let mut data = data;
        if let Some(b) = data.first_mut() {
            *b = first;
        }
        let mut reply = Vec::new();
        let _ = haul.route(&data);
        haul.accept(farhaul_core::time::Instant::EPOCH, &mut Rng::new(1), Side::Client.address(), &data, &mut reply);
        prop_assert!(reply.len() <= 3 * data.len());
    }
}
