//! Tests the model of RWTP against itself, with nothing in between but a script.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use farhaul_core::{protocol::Protocol, units::Rate};
use farhaul_protocols::rwtp::{
    Config, client, server,
    wire::{LOSS, STATUS},
};
use farhaul_testkit::{Fate, Pair, Side, assert_live, seeds};

use crate::shared::{self, ms};

/// A packet of 1,472 bytes of UDP payload each 147.2 us.
fn config() -> Config {
    Config {
        rate: Rate::mbit(80),
        mtu: 1_500,
        ..Config::default()
    }
}

fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (Box::new(client(config)), Box::new(server(config)))
}

fn open(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    let mut pair = Pair::new(client, server, delay, 7);
    pair.connect(Some(1_500));
    pair.open();
    pair
}

#[test]
fn either_end_sends_and_a_stream_goes_beside() {
    let mut pair = open(&config(), ms(20));
    shared::both_ends_send(&mut pair, 1_234_567, Duration::from_secs(5));
    let stats = pair.client.session().stats();
    assert_eq!(
        (stats.data_acked, stats.repaired, stats.in_flight),
        (1_234_567, 0, 0)
    );
}

/// Datagrams of each type that crossed.
fn counted(
    pair: &mut Pair,
    loses: impl Fn(u64, &[u8]) -> bool + 'static,
) -> Rc<RefCell<BTreeMap<u8, u64>>> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let seen = Rc::clone(&counts);
    pair.set_script(move |d| {
        let mut seen = seen.borrow_mut();
        let count = seen.entry(d.bytes[0]).or_insert(0_u64);
        *count += 1;
        Fate::drop_if(loses(*count, d.bytes))
    });
    counts
}

/// Inferred: a missing packet is reported at once and every 10 ms for a round trip, and sent again
/// once.
#[test]
fn a_missing_packet_is_told_of_every_ten_ms_for_a_round_trip() {
    let mut pair = open(&config(), ms(50));
    let counts = counted(&mut pair, |n, bytes| bytes[0] == 0x48 && n == 100);
    pair.offer(Side::Client, 3_000_000);
    pair.deliver(Side::Client, Duration::from_secs(3));
    assert!(pair.server.store.has(1, 3_000_000));
    let told = counts.borrow()[&LOSS];
    assert!((10..=12).contains(&told), "{told}");
    assert_eq!(pair.client.session().stats().retransmits, 1);
    // 304 ms of sending.
    let statuses = counts.borrow()[&STATUS];
    assert!((30..=50).contains(&statuses), "{statuses}");
}

/// Fitted: each message about a missing packet keeps the sender from sending for 48 us, also here.
#[test]
fn what_is_told_of_costs_time_unless_it_is_set_to_cost_none() {
    let took = |blocked| {
        let config = Config {
            blocked: Duration::from_micros(blocked),
            ..config()
        };
        let mut pair = open(&config, ms(50));
        let counts = counted(&mut pair, |n, bytes| bytes[0] == 0x48 && n % 50 == 7);
        let start = pair.now;
        pair.offer(Side::Client, 10_000_000);
        pair.deliver(Side::Client, Duration::from_secs(9));
        let told = counts.borrow()[&LOSS];
        (pair.now.since(start), told)
    };
    let ((free, _), (costly, told)) = (took(0), took(480));
    let cost = Duration::from_micros(480) * u32::try_from(told).unwrap();
    let more = costly.saturating_sub(free);
    assert!(
        more > cost / 2 && more < cost + ms(50),
        "{more:?} of {cost:?}"
    );
}

/// Losses at the very end show by nothing.
#[test]
fn the_last_packets_are_sent_again_without_being_asked_for() {
    let mut pair = open(&config(), ms(10));
    counted(&mut pair, |n, bytes| {
        bytes[0] == 0x48 && (65..=69).contains(&n)
    });
    pair.offer(Side::Client, 100_000);
    pair.deliver(Side::Client, ms(500));
    assert!(pair.server.store.has(1, 100_000));
}

/// No more than the buffer holds leaves before its first packet has come.
#[test]
fn what_is_beyond_the_buffer_waits() {
    let config = Config {
        buffer: 20 * 1_472,
        ..config()
    };
    let mut pair = open(&config, ms(50));
    pair.offer(Side::Client, 1_000_000);
    pair.run(ms(60), |_| false);
    assert_eq!(pair.client.session().stats().data_sent, 20 * 1_451);
    pair.deliver(Side::Client, Duration::from_secs(9));
}

#[test]
fn reports_of_what_was_never_sent_are_dropped() {
    let mut pair = open(&config(), ms(10));
    pair.offer(Side::Client, 50_000);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&seen);
    pair.set_script(move |d| {
        noted.borrow_mut().push(d.bytes.to_vec());
        Fate::Deliver
    });
    pair.run(ms(40), |_| false);
    let id = seen.borrow()[0][1..5].to_vec();
    let lies: [Vec<u8>; 4] = [
        [&[LOSS][..], &id, &[0, 9, 9, 9], &[0; 13]].concat(),
        [&[STATUS][..], &id, &[0, 9, 9, 9, 0, 9, 9, 9], &[0; 5]].concat(),
        [&[STATUS][..], &id, &[0, 0, 0, 2, 0, 0, 0, 1], &[0; 5]].concat(),
        [&[LOSS][..], &id, &[0; 3]].concat(),
    ];
    for lie in lies {
        pair.inject(Side::Client, lie);
    }
    pair.run(ms(500), |_| false);
    assert_eq!(pair.client.session().stats().dropped_malformed, 4);
    assert!(pair.client.delivered());
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    let cramped = Config {
        buffer: 20_000,
        ..config()
    };
    for config in [config(), cramped] {
        assert_live(|_| ends(&config), seeds(20));
    }
    shared::three_tenths_may_be_lost(&mut open(&config(), ms(20)), 1_000_000);
}
