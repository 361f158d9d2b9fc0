//! Tests that the test tools distinguish right from wrong: a live session passes, one that repairs
//! nothing does not, and a pair repeats itself.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use farhaul_congestion::{laws, lookup};
use farhaul_core::{
    protocol::{CloseReason, Event, Protocol, Session as _},
    time::Instant,
    units::Rate,
};
use farhaul_testkit::{FakeSession, Fate, Pair, Side, Steady, assert_live, bare, seeds};

const STEADY: Steady = Steady::new(Rate::mbit(100), 1_500);

fn both(steady: Steady) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (Box::new(steady.endpoint()), Box::new(steady.endpoint()))
}

#[test]
fn a_session_that_repairs_is_live() {
    assert_live(|_| both(STEADY), seeds(60));
}

#[test]
fn the_skeleton_is_live_under_every_law() {
    for law in laws() {
        let make = |_| {
            let bare = || {
                Box::new(bare(
                    move || lookup(law.name).expect("listed").make(),
                    1_500,
                ))
            };
            (bare() as Box<dyn Protocol>, bare() as Box<dyn Protocol>)
        };
        assert_live(make, seeds(25));
    }
}

#[test]
fn a_session_that_does_not_repair_is_found_out() {
    let mut lossy = STEADY;
    lossy.repair = false;
    let verdict = catch_unwind(AssertUnwindSafe(|| assert_live(|_| both(lossy), 0..20)));
    let message = *verdict.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("FARHAUL_SEED="), "{message}");
}

fn transfer(seed: u64) -> Pair {
    let (client, server) = both(STEADY);
    let mut pair =
        Pair::new(client, server, Duration::from_millis(10), seed).with_script(|d| {
            match (d.from, d.index) {
                (Side::Client, 5..8) => Fate::Drop,
                (Side::Client, 20) => Fate::Late(Duration::from_millis(3)),
                (Side::Client, 30) => Fate::Twice(Duration::from_millis(1)),
                (Side::Server, 1) => Fate::Mark,
                _ => Fate::Deliver,
            }
        });
    pair.connect(None);
    pair.until(Duration::from_secs(1), |p| p.client.connected());
    pair.client.session().send(7, 0, 200_000);
    pair.settle(Side::Client);
    pair.until(Duration::from_secs(5), |p| p.client.delivered());
    pair
}

#[test]
fn a_scripted_transfer_arrives_and_repeats_itself() {
    let mut first = transfer(1);
    assert!(first.server.store.has(7, 200_000));
    assert!(first.server.store.repeated() > 0);
    assert_eq!(first.client.session().stats().repaired, 3 * 1_447);
    let second = transfer(1);
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}

#[test]
fn damage_is_noticed_by_the_store_of_an_unsealed_session() {
    let (client, server) = both(STEADY);
    let mut pair = Pair::new(client, server, Duration::from_millis(1), 1);
    pair.connect(None);
    pair.until(Duration::from_secs(1), |p| p.client.connected());
    pair.set_script(|d| match d.from {
        Side::Client => Fate::Corrupt(1_000),
        Side::Server => Fate::Deliver,
    });
    pair.client.session().send(0, 0, 1_400);
    pair.settle(Side::Client);
    let refused = |e: &Event| matches!(e, Event::Closed(CloseReason::Store(_)));
    assert!(pair.run(Duration::from_secs(1), |p| {
        p.server.events.iter().any(refused)
    }));
}

#[test]
fn an_end_that_moves_hears_only_what_is_sent_to_where_it_is() {
    let (client, server) = both(STEADY);
    let mut pair = Pair::new(client, server, Duration::from_millis(1), 1);
    pair.connect(None);
    pair.open();
    pair.server.session().send(0, 0, 1_000);
    pair.settle(Side::Server);
    pair.client.address = "192.0.2.1:1".parse().unwrap();
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.client.store.received(0), 0);
    pair.client.address = Side::Client.address();
    pair.until(Duration::from_secs(1), |p| p.server.delivered());
    assert_eq!(pair.client.store.placed(0), [(0, 1_000)]);
}

#[test]
fn what_the_path_does_not_carry_is_lost_and_what_it_changes_arrives_changed() {
    let (client, server) = both(STEADY);
    let mut pair = Pair::new(client, server, Duration::from_millis(1), 1);
    pair.connect(None);
    pair.open();
    pair.largest = 1_000;
    pair.client.session().send(0, 0, 3 * 1_447);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.server.store.received(0), 0);
    pair.largest = usize::MAX;
    pair.server.store.trust();
    pair.set_script(|d| {
        let mut bytes = d.bytes.to_vec();
        bytes[d.solid..].fill(0);
        Fate::Change(bytes)
    });
    pair.until(Duration::from_secs(1), |p| p.client.delivered());
    assert_eq!(pair.server.store.prefix(0), 3 * 1_447);
    pair.server.store.fails = true;
    pair.client.session().send(0, 0, 1);
    pair.until(Duration::from_secs(1), |p| p.server.closed().is_some());
}

#[test]
fn an_end_reacts_before_it_sends() {
    let (client, server) = both(STEADY);
    let mut pair = Pair::new(client, server, Duration::from_millis(1), 1);
    pair.client.reaction = Some(Box::new(|now, event, session| {
        if matches!(event, Event::Connected { .. }) {
            session.close(now, 1, "at once");
        }
    }));
    pair.connect(None);
    pair.until(Duration::from_secs(1), |p| p.server.closed().is_some());
    pair.until(Duration::from_secs(3), |p| p.client.is_closed());
    assert!(!pair.client.delivered());
}

#[test]
fn a_fake_session_keeps_what_it_is_asked_for() {
    let mut session = FakeSession::default();
    session.write(b"said");
    session.send(7, 5, 100);
    session.arrived.extend_from_slice(b"heard");
    session.close(Instant::EPOCH, 3, "first");
    session.close(Instant::EPOCH, 4, "second");
    let mut read = Vec::new();
    session.read(&mut read);
    assert_eq!(
        (&read[..], &session.written[..]),
        (&b"heard"[..], &b"said"[..])
    );
    assert_eq!(
        (session.unsent(), session.sends.pop_front()),
        (100, Some((7, 5, 100)))
    );
    assert_eq!(session.closed, Some((3, "first".into())));
    assert!(session.is_closed());
}
