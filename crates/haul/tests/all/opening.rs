//! Tests that a connection opens whenever it should, and only then.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use crate::pair::{address, config, ms, pair};
use farhaul_core::{
    codec::Writer,
    datagram::TxBuf,
    protocol::{Accepted, CloseReason, Event, Protocol, Route, Turn},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{
    Haul, HaulConfig, Identity, PeerPolicy,
    wire::{
        BASE_DATAGRAM,
        long::{self, Head, Kind},
    },
};
use farhaul_testkit::{Fate, Pair, Side};
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
fn opens_in_one_round_trip_or_with_a_token_in_two_and_knows_the_rtt() {
    for (plain, max_unvalidated, round_trips) in
        [(false, 64, 1), (true, 64, 1), (false, 0, 2), (true, 0, 2)]
    {
        let with = |seed, whom| HaulConfig {
            plain,
            max_unvalidated,
            app: vec![seed; 60],
            ..trusting(seed, whom)
        };
        let mut pair = pair(with(1, 2), with(2, 1), ms(50));
        let start = pair.now;
        pair.until(LIMIT, |p| p.client.connected());
        assert_eq!(pair.now.since(start), ms(100) * round_trips);
        pair.until(LIMIT, |p| p.server.connected());
        assert_eq!(pair.now.since(start), ms(100) * round_trips + ms(50));
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

/// A server that begins this many sessions without a token.
fn limited(max_unvalidated: usize) -> HaulConfig {
    HaulConfig {
        max_unvalidated,
        ..config(2)
    }
}

/// Datagrams of a handshake without loss on a short path.
const FLIGHTS: u64 = 6;

#[test]
fn any_one_handshake_datagram_may_be_lost() {
    for (from, max_unvalidated) in [
        (Side::Client, 64),
        (Side::Server, 64),
        (Side::Client, 0),
        (Side::Server, 0),
    ] {
        for lost in 0..FLIGHTS {
            let mut pair = pair(config(1), limited(max_unvalidated), ms(5));
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
fn what_arrives_before_there_are_keys_is_not_counted_as_unauthentic() {
    let mut pair = pair(config(1), config(2), ms(50));
    // The client's last flight arrives after its first data.
    pair.set_script(|d| {
        let long = d.bytes.first().is_some_and(|first| first & 0x80 != 0);
        if d.from == Side::Client && d.index > 0 && long {
            Fate::Late(ms(30))
        } else {
            Fate::Deliver
        }
    });
    pair.until(LIMIT, |p| p.client.connected());
    pair.client.session().send(1, 0, 100_000);
    pair.until(LIMIT, |p| p.client.delivered());
    let stats = pair.server.session().stats();
    assert!(stats.dropped_early > 0, "{stats:?}");
    assert_eq!(stats.dropped_unauthentic, 0);
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
    assert!(
        pair.client.sent <= 16,
        "{} first messages",
        pair.client.sent
    );
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
    let versions = farhaul_haul::wire::VERSIONS;
    let list: Vec<u8> = versions.iter().flat_map(|v| v.to_be_bytes()).collect();
    assert_eq!(kind, Kind::Versions { list: &list });
    assert!(
        pair.intrude(Side::Server, from, hello(0x6668_0009)[..1_000].to_vec())
            .is_none()
    );

    // A client that hears of other versions only gives up at once.
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
    let mut pair = pair(config(1), limited(0), ms(5));
    let initials = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&initials);
    pair.set_script(move |d| {
        if let (Side::Client, Ok((_, Kind::Initial { token, .. }, _))) =
            (d.from, long::decode(d.bytes))
            && !token.is_empty()
        {
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
    let is_answered_by_another = |pair: &mut Pair, from| {
        let reply = pair.intrude(Side::Server, from, replay.clone()).unwrap();
        assert!(matches!(
            long::decode(&reply),
            Ok((_, Kind::Retry { .. }, _))
        ));
        pair.server.session.is_none()
    };
    assert!(is_answered_by_another(&mut pair, elsewhere));
    pair.now += Duration::from_secs(11);
    assert!(
        is_answered_by_another(&mut pair, Side::Client.address()),
        "not after ten seconds"
    );
}

/// The first flight of some client.
fn first_flight(seed: u64) -> Vec<Vec<u8>> {
    let mut client = Haul::client(config(9)).expect("valid");
    let (mut rng, now) = (Rng::new(seed), Instant::EPOCH);
    let (_, mut session) = client.connect(now, &mut rng, Side::Server.address(), None);
    let mut turn = Turn {
        now,
        rng: &mut rng,
        store: &mut Hollow,
    };
    let mut out = TxBuf::default();
    std::iter::from_fn(|| {
        session.poll_transmit(&mut turn, &mut out)?;
        Some(out.bytes().to_vec())
    })
    .collect()
}

/// The listener of `pair` gets first flights of `hosts`; how many began a session. It keeps none of them.
fn flood(pair: &mut Pair, hosts: impl Iterator<Item = SocketAddr>) -> usize {
    let (mut rng, now) = (Rng::new(3), pair.now);
    let mut begun = 0;
    for (seed, host) in (100..).zip(hosts) {
        let flight = first_flight(seed);
        let mut reply = Vec::new();
        let server = &mut pair.server.protocol;
        assert_eq!(server.route(&flight[0]), Route::New);
        match server.accept(now, &mut rng, host, &flight[0], &mut reply) {
            Accepted::Session(_, session) => {
                assert!(!session.is_address_validated());
                begun += 1;
            }
            Accepted::Reply => assert!(3 * reply.len() <= flight[0].len()),
            Accepted::Drop => panic!("a client is refused"),
        }
    }
    begun
}

#[test]
fn spoofed_first_flights_lock_nobody_out() {
    for network in ["10.0.0.1", "2001:db8::"] {
        let mut pair = pair(config(1), config(2), ms(5));
        let host = |i: u16| match network.parse().unwrap() {
            IpAddr::V4(host) => SocketAddr::from((host, i)),
            IpAddr::V6(network) => {
                SocketAddr::from((Ipv6Addr::from(u128::from(network) + u128::from(i)), 4_000))
            }
        };
        assert_eq!(flood(&mut pair, (1..200).map(host)), 16, "of one source");
        if network != "10.0.0.1" {
            let client = host(7);
            let to = pair.server.address;
            pair.client.address = client;
            pair.client.connect(pair.now, to, Some(1_500));
        }
        let start = pair.now;
        pair.until(LIMIT, |p| p.client.connected());
        assert_eq!(pair.now.since(start), ms(20), "a token, and then in");
        pair.until(LIMIT, |p| p.server.connected());
    }
}

#[test]
fn so_many_sessions_are_begun_without_a_token_and_again_after_their_time() {
    let mut pair = pair(config(1), config(2), ms(5));
    let hosts = |i: u16| SocketAddr::from(([192, 0, 2, u8::try_from(i % 200).unwrap()], i));
    assert_eq!(flood(&mut pair, (0..150).map(hosts)), 64);
    pair.now += Duration::from_secs(15);
    assert_eq!(flood(&mut pair, (150..160).map(hosts)), 10);
}

#[test]
fn those_who_finish_leave_their_places_to_others() {
    let mut pair = pair(config(1), config(2), ms(5));
    for round in 0..40 {
        let start = pair.now;
        pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
        assert_eq!(pair.now.since(start), ms(15), "{round}");
        pair.server.session = None;
        pair.client.events.clear();
        pair.server.events.clear();
        let to = pair.server.address;
        pair.client.connect(pair.now, to, Some(1_500));
    }
}

#[test]
fn a_server_that_asks_for_a_token_when_the_flight_is_repeated_gets_it() {
    let mut pair = pair(config(1), config(2), ms(5));
    // The first flight is lost, and then there is no room.
    pair.set_script(|d| Fate::drop_if(d.from == Side::Client && d.index < 2));
    pair.pass(ms(100));
    let hosts = (1..100).map(|i| SocketAddr::from(([10, 0, 0, 1], i)));
    assert_eq!(flood(&mut pair, hosts), 16);
    pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
    pair.client.session().send(1, 0, 10_000);
    pair.until(LIMIT, |p| p.client.delivered());
}

#[test]
fn a_token_of_a_server_that_restarted_is_none() {
    for max_unvalidated in [64, 0] {
        let mut pair = pair(config(1), limited(0), ms(5));
        // The client has its token, and then the server forgets its key.
        pair.pass(ms(12));
        assert!(pair.server.session.is_none() && !pair.client.connected());
        pair.server.protocol = Box::new(Haul::server(limited(max_unvalidated)).unwrap());
        pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
        pair.client.session().send(1, 0, 10_000);
        pair.until(LIMIT, |p| p.client.delivered());
    }
}

#[test]
fn flights_may_be_repeated_and_reordered() {
    for max_unvalidated in [64, 0] {
        for from in [Side::Client, Side::Server] {
            for index in 0..FLIGHTS {
                for fate in [Fate::Late(ms(3)), Fate::Late(ms(400)), Fate::Twice(ms(7))] {
                    let mut pair = pair(config(1), limited(max_unvalidated), ms(5));
                    pair.set_script(move |d| {
                        if (d.from, d.index) == (from, index) {
                            fate.clone()
                        } else {
                            Fate::Deliver
                        }
                    });
                    pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
                    pair.client.session().send(1, 0, 10_000);
                    pair.until(LIMIT, |p| p.client.delivered());
                }
            }
        }
    }
}

#[test]
fn a_client_that_chose_the_id_of_another_session_gets_a_token() {
    let mut server = Haul::server(config(2)).unwrap();
    let mut rng = Rng::new(1);
    let now = Instant::EPOCH;
    let (ours, other) = (first_flight(1), first_flight(2));
    let mut taken = ours[0].clone();
    // The ids are in clear.
    taken[9..13].copy_from_slice(&other[0][9..13]);
    let mut reply = Vec::new();
    let first = server.accept(now, &mut rng, Side::Client.address(), &ours[0], &mut reply);
    assert!(matches!(first, Accepted::Session(..)));
    assert!(matches!(server.route(&ours[1]), Route::Known(_)));
    assert_eq!(server.route(&taken), Route::New);
    let second = server.accept(now, &mut rng, address("192.0.2.8:1"), &taken, &mut reply);
    assert!(matches!(second, Accepted::Reply));
    let (head, ..) = long::decode(&reply).unwrap();
    assert_ne!(head.from.to_be_bytes(), taken[5..9]);
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
                // A copy of the first messages that overtakes them begins the session in their place.
                let begins = bytes.first() == Some(&0x82);
                let elsewhere = !begins && rng.chance(0.3);
                let from = if elsewhere { address("192.0.2.99:9") } else { by.address() };
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
        haul.accept(Instant::EPOCH, &mut Rng::new(1), Side::Client.address(), &data, &mut reply);
        prop_assert!(reply.len() <= 3 * data.len());
    }
}
