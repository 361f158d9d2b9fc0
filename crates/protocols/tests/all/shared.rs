//! Behaviour that several protocols share, each with its own bounds.

use std::{
    cell::Cell,
    ops::{Range, RangeInclusive},
    rc::Rc,
    time::Duration,
};

use farhaul_core::{protocol::CloseReason, rng::Rng};
use farhaul_testkit::{Fate, Pair, Side};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Each end sends `bytes`, and words on the ordered stream, within `limit`; returns the time that each took.
pub(crate) fn both_ends_send(pair: &mut Pair, bytes: u64, limit: Duration) -> [Duration; 2] {
    [Side::Client, Side::Server].map(|side| {
        let began = pair.now;
        pair.node(side).session().write(b"words beside");
        pair.offer(side, bytes);
        pair.deliver(side, limit);
        assert!(pair.node(side.other()).store.has(1, bytes));
        assert_eq!(pair.node(side.other()).stream, b"words beside");
        pair.now.since(began)
    })
}

/// Each end sends `bytes` in `time`, and nothing twice.
pub(crate) fn both_ends_send_at_rate(pair: &mut Pair, bytes: u64, time: &Range<Duration>) {
    let took = both_ends_send(pair, bytes, Duration::from_secs(5));
    assert!(took.iter().all(|took| time.contains(took)), "{took:?}");
    let stats = pair.client.session().stats();
    assert_eq!((stats.data_sent, stats.repaired), (bytes, 0));
    assert_eq!(stats.data_acked, bytes);
}

/// Fourteen units of a megabyte are lost, among them the `last`, and sent once more.
pub(crate) fn missing_units_are_sent_once(pair: &mut Pair, last: RangeInclusive<u64>) {
    let seen = Cell::new(0_u64);
    pair.set_script(move |d| {
        let data = d.bytes.len() > 1_000;
        seen.set(seen.get() + u64::from(data));
        let lost = matches!(seen.get(), 10..=19 | 100) || last.contains(&seen.get());
        Fate::drop_if(data && lost)
    });
    pair.offer(Side::Client, 1_000_000);
    pair.until(Duration::from_secs(3), |p| p.client.delivered());
    assert!(pair.server.store.has(1, 1_000_000));
    let stats = pair.client.session().stats();
    assert_eq!((stats.retransmits, stats.packets_lost), (14, 14));
    assert_eq!(pair.server.session().stats().dropped_duplicate, 0);
}

/// An object that is cancelled ends early, and the next begins.
pub(crate) fn the_next_follows_a_cancelled_one(pair: &mut Pair) {
    pair.offer(Side::Client, 10_000_000);
    pair.pass(ms(300));
    pair.client.session().cancel_unsent();
    assert_eq!(pair.client.session().unsent(), 0);
    pair.until(ms(300), |p| p.client.delivered());
    let sent = pair.client.session().stats().data_sent;
    assert!(sent > 2_000_000 && sent < 3_000_000, "{sent}");
    pair.client.session().send(2, 0, 5_000);
    pair.client.events.clear();
    pair.until(ms(200), |p| p.client.delivered());
    assert!(pair.server.store.has(2, 5_000));
}

/// For half a second nothing passes, in the middle of a file. Lost units are sent again, and those
/// on their way around the gap, not all that were still to come.
pub(crate) fn a_blackout_costs_what_it_swallows(pair: &mut Pair, limit: Duration) {
    let (mut swallowed, mut until) = (0_u64, None);
    let lost = Rc::new(Cell::new(0));
    let counted = Rc::clone(&lost);
    pair.set_script(move |d| {
        let data = d.bytes.len() > 1_000;
        let begin = *until.get_or_insert(d.at + ms(500));
        let dark = d.at >= begin && d.at < begin + ms(500);
        swallowed += u64::from(data && dark);
        counted.set(swallowed);
        Fate::drop_if(data && dark)
    });
    pair.offer(Side::Client, 20_000_000);
    pair.until(limit, |p| p.client.delivered());
    assert!(pair.server.store.has(1, 20_000_000));
    let again = pair.client.session().stats().retransmits;
    let lost = lost.get();
    assert!(lost > 0 && again >= lost);
    assert!(again <= lost * 3 / 2, "{again} again of {lost} lost");
}

/// Packets that belong to nothing, by `bytes` of their number, are counted and left.
pub(crate) fn strays_are_counted(pair: &mut Pair, bytes: impl Fn(u32) -> [u8; 4]) {
    for number in [0, 7, 1 << 31, u32::MAX] {
        let mut packet = bytes(number).to_vec();
        packet.extend([1; 1_000]);
        pair.inject(Side::Server, packet);
    }
    pair.run(ms(50), |_| false);
    let stats = pair.server.session().stats();
    assert_eq!((stats.dropped_duplicate, stats.dropped_malformed), (2, 2));
    assert!(pair.server.closed().is_none());
}

/// A path that carries nothing is given up, and named.
pub(crate) fn a_path_that_carries_nothing_is_given_up(pair: &mut Pair) {
    pair.set_script(|_| Fate::Drop);
    pair.offer(Side::Client, 100_000);
    let reason = pair.end(Side::Client, Duration::from_secs(40));
    assert!(
        matches!(&reason, CloseReason::Lane(text) if text.contains("blocks UDP")),
        "{reason:?}"
    );
}

/// Three tenths of all datagrams are lost, and everything arrives.
pub(crate) fn three_tenths_may_be_lost(pair: &mut Pair, bytes: u64) {
    let mut rng = Rng::new(1);
    pair.set_script(move |_| Fate::drop_if(rng.chance(0.3)));
    pair.offer(Side::Client, bytes);
    pair.deliver(Side::Client, Duration::from_mins(1));
}
