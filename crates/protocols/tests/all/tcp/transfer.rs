//! Tests losses, windows and marks, one rule at a time.

use std::{cell::Cell, rc::Rc, time::Duration};

use farhaul_core::time::Instant;
use farhaul_protocols::tcp::wire::Header;
use farhaul_testkit::{Fate, Pair, Side};

use super::kit::{deliver, ms, offer, open, pair, payload, stats};

/// Drops the data segments of the client with these indices, counted from 0.
fn drop_data(pair: &mut Pair, which: &'static [u64]) {
    let mut count = 0;
    pair.set_script(move |d| {
        if d.from == Side::Server || payload(d.bytes) == 0 {
            return Fate::Deliver;
        }
        count += 1;
        Fate::drop_if(which.contains(&(count - 1)))
    });
}

/// Sends 200 kB over 20 ms with those data segments lost; the client's counters.
fn lossy(settings: &str, which: &'static [u64]) -> (Pair, farhaul_core::stats::Stats) {
    let mut pair = pair(settings, ms(10));
    open(&mut pair);
    drop_data(&mut pair, which);
    offer(&mut pair, 200_000);
    deliver(&mut pair, Duration::from_secs(30));
    assert!(pair.server.store.has(1, 200_000));
    let stats = stats(&mut pair, Side::Client);
    (pair, stats)
}

#[test]
fn every_rule_repairs_a_hole_without_a_timeout() {
    for recovery in ["rack", "rfc6675", "fack", "newreno"] {
        let (_, stats) = lossy(&format!("recovery={recovery}"), &[20]);
        assert_eq!((stats.timeouts, stats.retransmits), (0, 1), "{recovery}");
        assert_eq!((stats.packets_lost, stats.episodes), (1, 1), "{recovery}");
        assert!(stats.duplicate_acks >= 3, "{recovery}: {stats:?}");
    }
}

#[test]
fn several_holes_cost_one_episode() {
    for recovery in ["rack", "rfc6675", "fack", "newreno"] {
        let (_, stats) = lossy(&format!("recovery={recovery}"), &[20, 22, 25]);
        // When nothing is left to send, RFC 6675 sends the last segment again, to be safe.
        let rescue = u64::from(recovery == "rfc6675");
        assert_eq!(
            (stats.timeouts, stats.retransmits),
            (0, 3 + rescue),
            "{recovery}"
        );
        assert_eq!(stats.episodes, 1, "{recovery}");
    }
}

/// Sends `len` bytes, with segment 20 and its first repair lost, to a peer that takes them all.
/// Returns the timeouts, and the time from the loss of the repair to the next one.
fn lose_a_repair(recovery: &str, len: u64) -> (u64, Duration) {
    let mut pair = pair(&format!("recovery={recovery},window=8MiB"), ms(10));
    open(&mut pair);
    let sent = Rc::new(Cell::new([None; 3]));
    let noted = Rc::clone(&sent);
    let (mut count, mut hole) = (0, None);
    pair.set_script(move |d| {
        let (header, len) = Header::decode(d.bytes).expect("sessions send what they can read");
        if d.from == Side::Server || len == d.bytes.len() {
            return Fate::Deliver;
        }
        count += 1;
        if count != 21 && hole != Some(header.seq) {
            return Fate::Deliver;
        }
        hole = Some(header.seq);
        let mut times = noted.get();
        let Some(free) = times.iter().position(Option::is_none) else {
            return Fate::Deliver;
        };
        times[free] = Some(d.at);
        noted.set(times);
        Fate::drop_if(free < 2)
    });
    offer(&mut pair, len);
    deliver(&mut pair, Duration::from_secs(30));
    let [_, lost, again] = sent.get().map(|at: Option<Instant>| at.expect("sent"));
    (stats(&mut pair, Side::Client).timeouts, again.since(lost))
}

#[test]
fn a_lost_repair_needs_rack_or_fack_or_a_timeout() {
    // After 31 segments a round has ended: the next to leave is the repair of number 20.
    for (recovery, timeouts) in [("rack", 0), ("fack", 0), ("rfc6675", 1)] {
        assert_eq!(lose_a_repair(recovery, 200_000).0, timeouts, "{recovery}");
    }
}

#[test]
fn what_arrives_after_a_lost_repair_does_not_put_its_timeout_off() {
    // 5 MB last for seconds; the timeout is 220 ms.
    for (recovery, timeouts, most) in [("rack", 0, 60), ("fack", 0, 60), ("rfc6675", 1, 300)] {
        let (count, wait) = lose_a_repair(recovery, 5_000_000);
        assert_eq!(count, timeouts, "{recovery}");
        assert!(wait <= ms(most), "{recovery}: {wait:?}");
    }
}

#[test]
fn what_is_barely_overtaken_is_repaired_when_nothing_is_left_to_send() {
    // 200 kB are 141 segments: one above number 139 is not enough to show that it is lost, and
    // nothing is above number 140. Rule 3 of NextSeg sends the one again, rule 4 the other.
    for tail in [&[120, 139][..], &[120, 140], &[120, 137, 139, 140]] {
        let (_, stats) = lossy("recovery=rfc6675", tail);
        assert_eq!((stats.timeouts, stats.episodes), (0, 1), "{tail:?}");
        let beyond = stats.retransmits - tail.len() as u64;
        assert!(beyond <= 2, "{tail:?}: {beyond} in vain");
    }
    let (_, stats) = lossy("recovery=fack", &[120, 140]);
    assert_eq!(stats.timeouts, 1);
}

#[test]
fn deferral_sends_the_same_in_fewer_and_larger_bursts() {
    let bursts = |settings: &str| {
        let mut pair = pair(settings, ms(10));
        open(&mut pair);
        let seen = Rc::new(Cell::new((0_u64, None)));
        let counted = Rc::clone(&seen);
        // Acknowledgements come one by one.
        let mut acks = 0;
        pair.set_script(move |d| {
            if d.from == Side::Server {
                acks += 1;
                return Fate::Late(Duration::from_micros(20 * (acks % 64)));
            }
            let (bursts, last) = counted.get();
            if last != Some(d.at) {
                counted.set((bursts + 1, Some(d.at)));
            }
            Fate::Deliver
        });
        offer(&mut pair, 2_000_000);
        deliver(&mut pair, Duration::from_secs(30));
        assert!(pair.server.store.has(1, 2_000_000));
        assert_eq!(stats(&mut pair, Side::Client).retransmits, 0);
        (seen.get().0, pair.now)
    };
    let (plain, deferred) = (bursts("stretch=off"), bursts("stretch=off,defer=on"));
    assert!(2 * deferred.0 < plain.0, "{deferred:?} {plain:?}");
    assert!(deferred.1 < plain.1 + ms(40), "{deferred:?} {plain:?}");
}

#[test]
fn a_lost_tail_is_probed_in_two_round_trips() {
    // 200 kB are 141 segments; the last is never followed by anything.
    let last = &[140];
    let (pair, stats) = lossy("", last);
    assert_eq!(
        (stats.timeouts, stats.retransmits, stats.episodes),
        (0, 1, 1)
    );
    assert!(
        pair.now < Instant::from_nanos(600_000_000),
        "{:?}",
        pair.now
    );
    let (_, stats) = lossy("tlp=off", last);
    assert_eq!((stats.timeouts, stats.retransmits), (1, 1));
}

#[test]
fn reordering_is_not_loss() {
    let mut pair = pair("", ms(20));
    open(&mut pair);
    let mut count = 0_u64;
    pair.set_script(move |d| {
        count += 1;
        if d.from == Side::Client && count.is_multiple_of(7) {
            Fate::Late(ms(8))
        } else {
            Fate::Deliver
        }
    });
    offer(&mut pair, 1_000_000);
    deliver(&mut pair, Duration::from_secs(30));
    let learnt = stats(&mut pair, Side::Client);
    pair.client.events.clear();
    offer(&mut pair, 2_000_000);
    deliver(&mut pair, Duration::from_secs(30));
    let stats = stats(&mut pair, Side::Client);
    assert_eq!(stats.timeouts, 0, "{stats:?}");
    assert_eq!(stats.packets_lost, learnt.packets_lost, "it happens once");
    assert_eq!(stats.ssthresh, None, "and is taken back: {stats:?}");
}

#[test]
fn a_timeout_for_nothing_is_taken_back() {
    let run = |settings: &str| {
        let mut pair = pair(settings, ms(20));
        open(&mut pair);
        offer(&mut pair, 3_000_000);
        pair.run(ms(200), |_| false);
        let window = stats(&mut pair, Side::Client).window;
        // Everything is held up for longer than the timeout, and then arrives.
        let until = pair.now + ms(600);
        pair.set_script(move |d| Fate::Late(until.since(d.at)));
        pair.run(ms(700), |_| false);
        pair.set_script(|_| Fate::Deliver);
        pair.run(ms(100), |_| false);
        let after = stats(&mut pair, Side::Client);
        assert!(after.timeouts > 0);
        (window, after.window)
    };
    let (before, after) = run("tlp=off");
    assert!(after >= before, "{before} {after}");
    let (before, after) = run("tlp=off,undo=off");
    assert!(after < before, "{before} {after}");
}

#[test]
fn acknowledgements_are_held_back_by_number_and_time() {
    let acks = |settings: &str, len: u64| {
        let mut pair = pair(settings, ms(10));
        open(&mut pair);
        let count = Rc::new(Cell::new(0_u64));
        let counter = Rc::clone(&count);
        pair.set_script(move |d| {
            if d.from == Side::Server {
                counter.set(counter.get() + 1);
            }
            Fate::Deliver
        });
        offer(&mut pair, len);
        deliver(&mut pair, Duration::from_secs(30));
        (count.get(), pair.now)
    };
    // 100 segments.
    let len = 100 * 1_428;
    let every = |n: u64| acks(&format!("stretch=off,quickack=0,delack={n}"), len).0;
    assert!((100..=102).contains(&every(1)), "{}", every(1));
    assert!((50..=66).contains(&every(2)), "{}", every(2));
    assert!(every(8) < 30, "{}", every(8));
    let quick = acks("stretch=off,quickack=1000,window=16MiB", len).0;
    assert!((100..=102).contains(&quick), "{quick}");
    assert!(acks("stretch=on,quickack=0", len).0 < 30);
    let wait = |settings: &str| acks(settings, 100).1;
    let slow = wait("quickack=0,delack_ms=200").since(wait("quickack=0,delack_ms=40"));
    assert_eq!(slow, ms(160));
}

#[test]
fn a_fixed_window_limits_and_autotuning_grows() {
    let longest = |settings: &str| {
        let mut pair = pair(settings, ms(50));
        open(&mut pair);
        offer(&mut pair, 20_000_000);
        let mut most = 0;
        pair.run(Duration::from_secs(4), |p| {
            most = most.max(stats(p, Side::Client).in_flight);
            false
        });
        assert_eq!(stats(&mut pair, Side::Client).retransmits, 0);
        most
    };
    let fixed = longest("window=256KiB");
    assert!((200_000..=280_000).contains(&fixed), "{fixed}");
    let tuned = longest("");
    assert!(tuned > 4_000_000, "{tuned}");
    let ramped = longest("profile=linux-2.6.29");
    assert!(ramped > 2_000_000, "{ramped}");
}

#[test]
fn a_reader_that_stops_shuts_the_window_and_is_asked() {
    let mut pair = pair("window=32KiB", ms(10));
    open(&mut pair);
    let written: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    pair.client.session().write(&written);
    pair.server.reads = false;
    pair.run(Duration::from_secs(20), |_| false);
    let shut = stats(&mut pair, Side::Client);
    assert!(shut.data_acked <= 33_000, "{shut:?}");
    assert_eq!(shut.peer_window.map(|w| w < 1_500), Some(true));
    assert_eq!(shut.timeouts, 0, "asking is no timeout");
    // Even if the news of the open window are lost, the next question brings them.
    pair.set_script(|d| Fate::drop_if(d.from == Side::Server));
    pair.server.reads = true;
    pair.settle(Side::Server);
    pair.set_script(|_| Fate::Deliver);
    deliver(&mut pair, Duration::from_mins(2));
    assert_eq!(pair.server.stream, written);
}

#[test]
fn a_slow_application_limits_the_rate_and_its_window_updates_repair_nothing() {
    for recovery in ["rack", "fack", "newreno"] {
        let settings = format!("recovery={recovery},profile=windows-xp-x64,window=1MiB");
        let mut pair = pair(&settings, ms(10));
        open(&mut pair);
        offer(&mut pair, 10_000_000);
        let began = pair.now;
        deliver(&mut pair, Duration::from_secs(30));
        // At 200 Mbit/s, but for what the buffer holds at the end.
        let took = pair.now.since(began);
        assert!((ms(350)..ms(650)).contains(&took), "{recovery}: {took:?}");
        let stats = stats(&mut pair, Side::Client);
        assert_eq!((stats.retransmits, stats.timeouts), (0, 0), "{recovery}");
        assert!(stats.duplicate_acks > 300, "{recovery}: {stats:?}");
    }
}

/// Sends 2 MB to a host that takes `cost` ns per segment looked at. Every second of `holes` segments
/// from number 600 on is lost, and of the first hole the repair, too. Returns the time it takes.
fn with_holes(cost: u32, holes: u64) -> Instant {
    let mut pair = pair(&format!("recovery=fack,sack_cost={cost}"), ms(10));
    open(&mut pair);
    let (mut count, mut first, mut losses) = (0, None, 0);
    pair.set_script(move |d| {
        let (header, len) = Header::decode(d.bytes).expect("sessions send what they can read");
        if d.from == Side::Server || len == d.bytes.len() {
            return Fate::Deliver;
        }
        if count == 600 {
            first = Some(header.seq);
        }
        let early = (600..600 + holes).contains(&count) && count % 2 == 0;
        let again = first == Some(header.seq) && losses < 2;
        count += 1;
        losses += u32::from(again);
        Fate::drop_if(early || again)
    });
    offer(&mut pair, 2_000_000);
    deliver(&mut pair, Duration::from_secs(30));
    assert!(pair.server.store.has(1, 2_000_000));
    pair.now
}

#[test]
fn news_below_the_highest_block_cost_a_slow_host_time() {
    // While the first hole is open, each other repair is searched from there.
    let (free, slow) = (with_holes(0, 100), with_holes(100_000, 100));
    assert!(slow > free + ms(50), "{free:?} {slow:?}");
    // A repair of the first hole moves the acknowledgement: nothing is searched.
    let (free, slow) = (with_holes(0, 1), with_holes(100_000, 1));
    assert_eq!(free, slow);
}

#[test]
fn marks_are_echoed_and_reacted_to_once() {
    let mut pair = pair("ecn=on", ms(10));
    open(&mut pair);
    let mut count = 0;
    pair.set_script(move |d| {
        count += u64::from(d.from == Side::Client);
        if d.from == Side::Client && (40..60).contains(&count) {
            Fate::Mark
        } else {
            Fate::Deliver
        }
    });
    offer(&mut pair, 100_000);
    pair.run(ms(60), |_| false);
    let grown = stats(&mut pair, Side::Client).window;
    deliver(&mut pair, Duration::from_secs(5));
    let stats = stats(&mut pair, Side::Client);
    assert!(
        stats.ssthresh.is_some(),
        "the law was told: {grown} {stats:?}"
    );
    assert_eq!(stats.retransmits, 0);
}

#[test]
fn a_narrow_path_is_found_out() {
    let mut pair = pair("mtu=9000", ms(10));
    pair.connect(Some(9_000));
    pair.set_script(|d| Fate::drop_if(d.bytes.len() > 1_472));
    let connected = |p: &mut Pair| !p.server.events.is_empty();
    assert!(pair.run(Duration::from_secs(5), connected));
    offer(&mut pair, 100_000);
    deliver(&mut pair, Duration::from_mins(1));
    assert_eq!(stats(&mut pair, Side::Client).datagram_size, 1_472);
    assert!(pair.server.store.has(1, 100_000));
}

#[test]
fn both_directions_and_the_stream_share_a_connection() {
    let mut pair = pair("stretch=off", ms(10));
    open(&mut pair);
    let mut count = 0_u64;
    pair.set_script(move |_| {
        count += 1;
        Fate::drop_if(count.is_multiple_of(41))
    });
    for side in [Side::Client, Side::Server] {
        let session = pair.node(side).session();
        session.send(3, 5, 900_000);
        session.write(b"words");
        session.send(4, 0, 10);
        session.write(b", in order");
        pair.settle(side);
    }
    pair.until(Duration::from_mins(1), |p| {
        p.client.delivered() && p.server.delivered()
    });
    for node in [&pair.client, &pair.server] {
        assert_eq!(node.store.received(3), 900_000);
        assert_eq!(node.store.received(4), 10);
        assert_eq!(node.stream, b"words, in order");
    }
}

/// A store that has no space is no dead path: what it drops is answered, so that the sender goes on asking.
#[test]
fn a_full_store_delays_a_transfer_and_does_not_end_it() {
    let mut pair = pair("", ms(10));
    open(&mut pair);
    pair.server.store.room = Some(0);
    let before = stats(&mut pair, Side::Client).datagrams_received;
    offer(&mut pair, 20_000);
    pair.pass(Duration::from_secs(30));
    let stuck = stats(&mut pair, Side::Client);
    assert!(stuck.timeouts >= 3, "{}", stuck.timeouts);
    assert!(stuck.datagrams_received - before >= stuck.timeouts);
    pair.pass(Duration::from_mins(3));
    pair.server.store.room = None;
    deliver(&mut pair, Duration::from_mins(2));
    assert!(pair.server.store.has(1, 20_000));
}
