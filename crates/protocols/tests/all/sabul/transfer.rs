//! Tests that everything arrives, and that every transfer ends.

use std::time::Duration;

use farhaul_core::protocol::CloseReason;
use farhaul_testkit::{Fate, Side, assert_live, seeds};

use super::ends::{config, ends, ms, open, pair};

#[test]
fn either_end_sends_and_a_stream_goes_beside() {
    let mut pair = pair(&config("sabul"), ms(20));
    open(&mut pair);
    for side in [Side::Client, Side::Server] {
        pair.node(side).session().write(b"words beside");
        pair.offer(side, 3_000_000);
        pair.deliver(side, Duration::from_secs(5));
        assert!(pair.node(side.other()).store.has(1, 3_000_000));
        assert_eq!(pair.node(side.other()).stream, b"words beside");
    }
    pair.client.session().close(pair.now, 3, "enough");
    pair.settle(Side::Client);
    let (code, text) = (3, "enough".into());
    assert_eq!(
        pair.end(Side::Server, ms(100)),
        CloseReason::Peer { code, text }
    );
    assert!(pair.run(ms(100), |p| p.client.session().is_closed()));
}

#[test]
fn a_loss_is_told_at_once_and_one_that_nobody_sees_after_a_second() {
    let mut pair = pair(&config("sabul"), ms(20));
    open(&mut pair);
    let first = std::cell::Cell::new(true);
    pair.set_script(move |d| match (d.bytes.len(), d.bytes[3]) {
        // The third packet, and the last one, once each.
        (1_472, 2) if first.replace(false) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let start = pair.now;
    pair.offer(Side::Client, 50 * 1_456);
    pair.deliver(Side::Client, ms(900));
    let took = pair.now.since(start);
    assert!(took < ms(200), "repaired in a round trip: {took:?}");
    let stats = pair.client.session().stats();
    assert_eq!(
        (stats.packets_lost, stats.retransmits, stats.timeouts),
        (1, 1, 0)
    );
    let last = std::cell::Cell::new(true);
    pair.set_script(move |d| Fate::drop_if(d.bytes.len() == 116 && last.replace(false)));
    pair.client.session().send(2, 0, 14_560 + 100);
    pair.client.events.clear();
    pair.deliver(Side::Client, ms(1_500));
    let stats = pair.client.session().stats();
    assert_eq!(stats.timeouts, 1, "nothing came after it");
    assert!(pair.server.store.has(2, 14_660));
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    assert_live(|_| ends(&config("sabul")), seeds(30));
    assert_live(|_| ends(&config("sabul:variant=aimd")), seeds(12));
    let small = farhaul_protocols::sabul::Config {
        window: 16,
        mss: 9_000,
        ..config("cubic")
    };
    assert_live(|_| ends(&small), seeds(12));
}
