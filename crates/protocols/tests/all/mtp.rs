//! Tests the model of MTP against itself, with nothing in between but a script.

use std::{cell::RefCell, rc::Rc, time::Duration};

use farhaul_core::{
    protocol::{CloseReason, Protocol},
    rng::Rng,
};
use farhaul_protocols::mtp::{Config, FIRST, client, server, wire::REQUEST};
use farhaul_testkit::{Fate, Pair, Side, assert_live, seeds};

use crate::shared::{self, ms};

const DATA: u8 = 0x48;

/// Packets of usual size, and a host that takes no time.
fn config() -> Config {
    Config {
        mtu: 1_500,
        unit_cost: Duration::ZERO,
        request_cost: Duration::ZERO,
        ..Config::default()
    }
}

fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (
        Box::new(client(&FIRST, config)),
        Box::new(server(&FIRST, config)),
    )
}

fn open(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    let mut pair = Pair::new(client, server, delay, 7);
    pair.connect(Some(1_500));
    pair.open();
    pair
}

/// Datagrams that crossed: types, and units asked for.
type Seen = Rc<RefCell<Vec<(u8, u16)>>>;

fn watched(pair: &mut Pair, mut loses: impl FnMut(u64, &[u8]) -> bool + 'static) -> Seen {
    let seen = Seen::default();
    let noted = Rc::clone(&seen);
    pair.set_script(move |d| {
        let mut noted = noted.borrow_mut();
        let kind = d.bytes[0];
        let count = (kind == REQUEST).then(|| u16::from_be_bytes([d.bytes[17], d.bytes[18]]));
        noted.push((kind, count.unwrap_or(0)));
        let nth = noted.iter().filter(|(k, _)| *k == kind).count() as u64;
        Fate::drop_if(loses(nth, d.bytes))
    });
    seen
}

fn count(seen: &Seen, kind: u8) -> usize {
    seen.borrow().iter().filter(|(k, _)| *k == kind).count()
}

#[test]
fn either_end_sends_and_a_stream_goes_beside() {
    let mut pair = open(&config(), ms(20));
    shared::both_ends_send(&mut pair, 1_234_567, Duration::from_secs(5));
    let stats = pair.client.session().stats();
    assert_eq!((stats.data_acked, stats.repaired), (1_234_567, 0));
}

/// Claimed: each piece that arrives is answered by a request for as much.
#[test]
fn without_loss_there_is_a_request_for_each_unit() {
    let mut pair = open(&config(), ms(20));
    let seen = watched(&mut pair, |_, _| false);
    pair.offer(Side::Client, 1_000_000);
    pair.deliver(Side::Client, Duration::from_secs(5));
    assert_eq!(count(&seen, DATA), count(&seen, REQUEST));
    assert!(seen.borrow().iter().all(|(_, units)| *units <= 1));
}

/// Inferred: after a loss requests are fewer. Claimed: a lost unit leaves the window, which moves
/// on meanwhile.
#[test]
fn after_a_loss_requests_are_fewer_and_the_window_moves_on() {
    let mut pair = open(&config(), ms(20));
    let mut lost = None;
    let seen = watched(&mut pair, move |n, bytes| {
        let unit = &bytes[5..13];
        let is_lost = bytes[0] == DATA && *lost.get_or_insert_with(|| unit.to_vec()) == unit;
        is_lost && n < 2_000
    });
    pair.offer(Side::Client, 9_000_000);
    pair.deliver(Side::Client, Duration::from_secs(9));
    assert!(pair.server.store.has(1, 9_000_000));
    let (units, requests) = (count(&seen, DATA), count(&seen, REQUEST));
    assert!(requests * 10 < units * 9, "{requests} for {units}");
    assert!(seen.borrow().iter().any(|(_, units)| *units >= 16));
    assert!(
        pair.client.session().stats().retransmits >= 1,
        "the first was asked for again"
    );
}

/// Derived: the window in a round trip; fitted: 12.4 us for a unit and its request.
#[test]
fn the_rate_is_the_window_in_a_round_trip_or_what_the_host_takes() {
    let took = |config: &Config, len| {
        let mut pair = open(config, ms(50));
        pair.offer(Side::Client, len);
        let start = pair.now;
        pair.deliver(Side::Client, Duration::from_secs(30));
        pair.now.since(start).as_secs_f64()
    };
    let small = Config {
        window: 32,
        ..config()
    };
    let units = 3_200.0;
    let took_small = took(&small, 3_200 * 1_459);
    assert!(
        (took_small / (units / 32.0 * 0.1) - 1.0).abs() < 0.05,
        "{took_small}"
    );
    let slow = Config {
        unit_cost: Duration::from_micros(820),
        request_cost: Duration::from_micros(420),
        ..config()
    };
    let took_slow = took(&slow, 3_200 * 1_459);
    assert!(
        (took_slow / (units * 1.24e-3) - 1.0).abs() < 0.1,
        "{took_slow}"
    );
}

#[test]
fn what_was_not_asked_for_and_what_is_no_request_is_dropped() {
    let mut pair = open(&config(), ms(10));
    pair.offer(Side::Client, 3_000_000);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&seen);
    pair.set_script(move |d| {
        noted.borrow_mut().push(d.bytes.to_vec());
        Fate::Deliver
    });
    pair.run(ms(60), |_| false);
    let unit = seen.borrow().iter().find(|d| d[0] == DATA).unwrap().clone();
    let ask = seen
        .borrow()
        .iter()
        .find(|d| d[0] == REQUEST)
        .unwrap()
        .clone();
    let with = |of: &[u8], at: usize, to: &[u8]| {
        let mut bytes = of.to_vec();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    pair.inject(Side::Server, with(&unit, 5, &2_000_u64.to_be_bytes()));
    pair.inject(Side::Server, unit[..20].to_vec());
    pair.inject(Side::Client, with(&ask, 9, &9_000_u64.to_be_bytes()));
    pair.inject(Side::Client, with(&ask, 17, &[0, 65]));
    pair.run(ms(1), |_| false);
    assert_eq!(pair.client.session().stats().dropped_malformed, 2);
    assert_eq!(pair.server.session().stats().dropped_malformed, 2);
    pair.deliver(Side::Client, Duration::from_secs(9));
    assert!(pair.server.store.has(1, 3_000_000));
}

#[test]
fn who_offers_and_sends_nothing_is_left() {
    let mut pair = open(&config(), ms(10));
    pair.set_script(|d| Fate::drop_if(d.bytes[0] == DATA));
    pair.offer(Side::Client, 100_000);
    pair.until(Duration::from_secs(40), |p| p.server.closed().is_some());
    let reason = pair.server.closed().expect("just seen");
    assert!(
        matches!(reason, CloseReason::Lane(text) if text.contains("nothing has come")),
        "{reason:?}"
    );
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    let cramped = Config {
        window: 4,
        ..config()
    };
    let slow = Config {
        unit_cost: Duration::from_micros(50),
        request_cost: Duration::from_micros(50),
        ..config()
    };
    for config in [config(), cramped, slow] {
        assert_live(|_| ends(&config), seeds(20));
    }
    let mut pair = open(&config(), ms(20));
    let mut rng = Rng::new(1);
    pair.set_script(move |_| Fate::drop_if(rng.chance(0.3)));
    pair.offer(Side::Client, 300_000);
    pair.deliver(Side::Client, Duration::from_mins(5));
}
