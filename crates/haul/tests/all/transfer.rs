//! Tests that data arrives, whole and in order, whatever the path does.

use std::time::Duration;

use crate::pair::{config, ms, pair};
use farhaul_core::{protocol::Event, rng::Rng};
use farhaul_testkit::{Datagram, Fate, Side};
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn objects_and_stream_arrive_over_a_clean_path() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.open();
    let text: Vec<u8> = (0..100_000_u32).map(|i| i.to_be_bytes()[3]).collect();
    pair.client.session().send(3, 0, 3_000_000);
    pair.client.session().send(4, 7, 10);
    pair.client.session().write(&text);
    pair.server.session().send(9, 0, 500_000);
    pair.until(MINUTE, |p| p.client.delivered() && p.server.delivered());
    assert_eq!(pair.server.store.prefix(3), 3_000_000);
    assert_eq!(pair.server.store.placed(4), [(7, 17)]);
    assert_eq!(pair.client.store.prefix(9), 500_000);
    assert_eq!(pair.server.stream, text);
    let stats = pair.client.session().stats();
    assert_eq!((stats.packets_lost, stats.timeouts), (0, 0));
    assert!(stats.repaired < 100_000, "only the tail is sent twice");
    assert_eq!(stats.datagram_size, 1_472);
    assert_eq!(stats.data_sent, 3_000_010 + 100_000);
    assert_eq!(pair.client.session().unwritten(), 0);
    assert_eq!(
        pair.client
            .events
            .iter()
            .filter(|e| **e == Event::Delivered)
            .count(),
        1
    );
    let feedback = pair.server.session().stats().feedback_sent;
    assert!(feedback < 12_000, "{feedback}");
}

/// A receiver that is busy fetches datagrams late. That is no queue on the path.
#[test]
fn what_lies_in_the_receivers_host_is_not_the_paths() {
    for waited in [ms(0), ms(30)] {
        let mut pair = pair(config(1), config(2), ms(20));
        pair.server.waited = waited;
        pair.set_script(move |d| match d.from {
            Side::Client => Fate::Late(waited),
            Side::Server => Fate::Deliver,
        });
        pair.until(MINUTE, |p| p.client.connected());
        pair.client.session().send(3, 0, 3_000_000);
        pair.until(MINUTE, |p| p.client.delivered());
        let stats = pair.client.session().stats();
        let smoothed = stats.rtt_smoothed.expect("it was measured");
        assert!(smoothed < ms(50), "{waited:?}: {smoothed:?}");
    }
}

#[test]
fn the_reader_decides_how_far_the_stream_runs_ahead() {
    let mut pair = pair(config(1), config(2), ms(5));
    pair.open();
    pair.server.reads = false;
    pair.client.session().write(&vec![1; 10 << 20]);
    pair.pass(Duration::from_secs(20));
    assert_eq!(pair.client.session().unwritten(), 6 << 20);
    let mut rng = Rng::new(1);
    // Credits are lost too.
    pair.set_script(move |_| Fate::drop_if(rng.chance(0.2)));
    let mut read = Vec::new();
    for _ in 0..600 {
        pair.server.session().read(&mut read);
        pair.pass(ms(100));
    }
    assert_eq!(read.len(), 10 << 20);
    assert!(pair.client.delivered());
}

/// Loses, repeats, delays and corrupts at random.
fn rough(seed: u64, loss: f64) -> impl FnMut(&Datagram<'_>) -> Fate {
    let mut rng = Rng::new(seed);
    move |d| {
        if rng.chance(loss) {
            Fate::Drop
        } else if rng.chance(loss / 4.0) {
            Fate::Twice(ms(1))
        } else if rng.chance(loss / 2.0) {
            Fate::Late(ms(rng.below(60)))
        } else if rng.chance(loss / 5.0) {
            let mut bytes = d.bytes.to_vec();
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap_or_default();
            bytes[at] ^= 1 << rng.below(8);
            Fate::Change(bytes)
        } else {
            Fate::Deliver
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn everything_arrives_over_rough_paths(seed: u64, loss in 0.0..0.25_f64, delay in 0_u64..200) {
        let with_timeout = |seed| farhaul_haul::HaulConfig {
            answer: MINUTE,
            ..config(seed)
        };
        let mut pair = pair(with_timeout(1), with_timeout(2), ms(delay));
        pair.set_script(rough(seed, loss));
        pair.until(MINUTE * 4, |p| p.client.connected());
        let text: Vec<u8> = (0..30_000_u32).map(|i| i.to_be_bytes()[2]).collect();
        pair.client.session().send(1, 0, 400_000);
        pair.client.session().write(&text);
        pair.until(MINUTE * 4, |p| p.client.delivered());
        prop_assert_eq!(pair.server.store.prefix(1), 400_000);
        prop_assert!(pair.server.stream == text);
    }
}

/// The promise that every session makes, over patterns of loss that end.
#[test]
fn any_transfer_ends() {
    for plain in [false, true] {
        farhaul_testkit::assert_live(
            |_| {
                let with = |seed| farhaul_haul::HaulConfig {
                    plain,
                    law: "cubic".into(),
                    ..config(seed)
                };
                let client = farhaul_haul::Haul::client(with(1));
                let server = farhaul_haul::Haul::server(with(2));
                (Box::new(client.unwrap()), Box::new(server.unwrap()))
            },
            farhaul_testkit::seeds(40),
        );
    }
}

#[test]
fn a_simulator_need_carry_only_what_is_solid() {
    let plain = |seed| farhaul_haul::HaulConfig {
        plain: true,
        ..config(seed)
    };
    let mut pair = pair(plain(1), plain(2), ms(20));
    pair.client.store.trust();
    pair.server.store.trust();
    let hollow = |d: &Datagram<'_>| {
        let mut bytes = d.bytes.to_vec();
        bytes[d.solid..].fill(0xa5);
        Fate::Change(bytes)
    };
    pair.set_script(hollow);
    pair.open();
    pair.client.session().send(1, 0, 5_000_000);
    pair.client.session().write(b"said");
    let mut rng = Rng::new(5);
    pair.set_script(move |d| {
        if rng.chance(0.02) {
            Fate::Drop
        } else {
            hollow(d)
        }
    });
    pair.until(MINUTE, |p| p.client.delivered());
    assert_eq!(pair.server.store.prefix(1), 5_000_000);
    assert_eq!(pair.server.stream, b"said");
}

#[test]
fn keys_are_updated_both_ways_under_reordering() {
    let frequent = |seed| farhaul_haul::HaulConfig {
        // Longer than a round trip and what is late: 30 ms.
        key_update_after: 250,
        ..config(seed)
    };
    let mut pair = pair(frequent(1), frequent(2), ms(10));
    pair.open();
    let mut rng = Rng::new(1);
    pair.set_script(move |_| {
        if rng.chance(0.1) {
            Fate::Late(ms(rng.below(4)))
        } else {
            Fate::Deliver
        }
    });
    pair.client.session().send(1, 0, 8_000_000);
    pair.server.session().send(2, 0, 8_000_000);
    pair.until(MINUTE, |p| p.client.delivered() && p.server.delivered());
    for end in [&mut pair.client, &mut pair.server] {
        let stats = end.session().stats();
        assert!(stats.key_updates > 10, "{}", stats.key_updates);
        assert_eq!(stats.dropped_unauthentic, 0);
    }
}

#[test]
fn a_blackout_of_ten_seconds_is_survived() {
    let cubic = farhaul_haul::HaulConfig {
        law: "cubic".into(),
        ..config(1)
    };
    let mut pair = pair(cubic, config(2), ms(50));
    pair.open();
    pair.client.session().send(1, 0, 20_000_000);
    pair.pass(ms(300));
    pair.set_script(|_| Fate::Drop);
    pair.pass(Duration::from_secs(10));
    pair.set_script(|_| Fate::Deliver);
    pair.until(MINUTE, |p| p.client.delivered());
    assert_eq!(
        pair.client.session().stats().datagram_size,
        1_472,
        "found again"
    );
}
