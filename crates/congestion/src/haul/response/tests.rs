use farhaul_core::{
    congestion::{CongestionController, LossEvent, RateSample, Sharing, TxSnapshot},
    units::Size,
};

use super::{super::LONGEST_WAIT, *};

/// Two seconds in which a sender that could send 700 Mbit/s at most lost `loss` of it.
fn limited_by_its_sender(loss: f64) -> Haul {
    let mut law = Haul {
        phase: Phase::Cruise,
        bandwidth: Rate::gbit(1),
        ..Haul::default()
    };
    let sent = Rate::mbit(700);
    for i in 1..=400_u64 {
        let now = Instant::EPOCH + Duration::from_millis(5) * u32::try_from(i).unwrap();
        law.on_ack(&AckEvent {
            now,
            round: i / 20,
            rtt: Some(Duration::from_millis(100)),
            queue_delay: Some(Duration::ZERO),
            rate: Some(RateSample {
                packets: 1_000,
                rate: sent.scale(1.0 - loss),
                sent,
                interval: Duration::from_millis(20),
                app_limited: true,
                loss,
            }),
            path: law.path,
            ..AckEvent::default()
        });
    }
    law
}

const MS: Duration = Duration::from_millis(1);

/// Reported at `now`, of a packet sent at `sent`; a third of those before it was lost.
fn report(law: &Haul, now: u32, sent: u32) -> AckEvent {
    let rate = Rate::mbit(10);
    AckEvent {
        now: Instant::EPOCH + MS * now,
        round: u64::from(now),
        newest: Some(TxSnapshot {
            sent_at: Instant::EPOCH + MS * sent,
            ..TxSnapshot::default()
        }),
        rate: Some(RateSample {
            packets: 1_000,
            rate: rate.scale(0.6),
            sent: rate,
            interval: MS * 20,
            app_limited: false,
            loss: 0.4,
        }),
        path: law.path,
        ..AckEvent::default()
    }
}

/// Reports each 10 ms for `ms`, of a queue that the least delay of the last seconds hides; how many
/// drains began.
fn drains(law: &mut Haul, from: u32, ms: u32, rtt: impl Fn(u32) -> Duration) -> u32 {
    let mut drains = 0;
    for at in (from..from + ms).step_by(10) {
        let now = Instant::EPOCH + MS * at;
        let before = law.phase;
        law.peak = MS * 40;
        if law.until.is_some_and(|until| until <= now) && before == Phase::Drain {
            law.cruise(now);
        }
        law.on_ack(&AckEvent {
            rtt: Some(rtt(at)),
            queue_delay: Some(Duration::ZERO),
            rate: Some(RateSample {
                rate: law.bandwidth,
                loss: 0.0,
                ..report(law, at, at).rate.unwrap()
            }),
            ..report(law, at, at - 100)
        });
        drains += u32::from(law.phase == Phase::Drain && before != Phase::Drain);
    }
    drains
}

#[test]
fn a_queue_that_grows_slowly_is_drained_and_a_longer_path_once() {
    let mut law = Haul {
        phase: Phase::Cruise,
        bandwidth: Rate::gbit(1),
        probe_at: Instant::EPOCH + MS * 1_000_000,
        ..Haul::default()
    };
    law.until = Some(law.probe_at);
    assert_eq!(drains(&mut law, 11_000, 5_000, |_| MS * 100), 0);
    // Up to the target of 10 ms it may stand.
    let grows = |at| MS * 100 + MS * (at - 16_000) / 1_000;
    assert_eq!(drains(&mut law, 16_000, 10_000, grows), 0);
    assert_eq!(drains(&mut law, 26_000, 2_000, grows), 1);
    // It is as long as before: so is the path.
    assert_eq!(drains(&mut law, 28_000, 60_000, |_| MS * 112), 0);
    // It becomes shorter and longer all the time: that of the way back.
    let varies = |at: u32| MS * 100 + MS * 40 * (at / 500 % 2);
    assert!((2..=3).contains(&drains(&mut law, 88_000, 30_000, varies)));
}

#[test]
fn a_drain_is_over_when_what_was_sent_after_it_arrives() {
    let mut law = Haul {
        phase: Phase::Cruise,
        bandwidth: Rate::gbit(1),
        ..Haul::default()
    };
    // The queue of five seconds that the round trip is taken from is gone soon after.
    law.path.srtt = MS * 5_000;
    law.drain(Instant::EPOCH + MS * 1_000, MS * 20);
    let over = u32::try_from(law.until.unwrap().since(Instant::EPOCH).as_millis()).unwrap();
    law.on_tick(law.until.unwrap());
    assert_eq!(law.phase, Phase::Cruise);
    law.on_ack(&report(&law, over + 200, over - 50));
    assert!(law.probe_at > Instant::EPOCH + MS * 6_000, "not of it");
    law.on_ack(&report(&law, over + 300, over + 200));
    let now = Instant::EPOCH + MS * (over + 300);
    assert!(law.blind_until <= now && law.probe_at < now + MS * 1_100);
    assert_eq!(law.until, Some(law.probe_at));
}

#[test]
fn what_was_sent_before_a_reduction_does_not_reduce_again() {
    let estimate = Rate::mbit(10);
    let mut law = Haul {
        phase: Phase::Cruise,
        bandwidth: estimate,
        reduced: Some((Instant::EPOCH + MS * 1_000, None)),
        ..Haul::default()
    };
    for i in 0..100 {
        law.on_ack(&report(&law, 6_000 + 50 * i, 900));
    }
    assert_eq!((law.bandwidth, law.fallen), (estimate, false));
    for i in 0..100 {
        law.on_ack(&report(&law, 11_000 + 50 * i, 1_100 + 50 * i));
    }
    assert!(law.bandwidth < estimate.scale(0.7), "{}", law.bandwidth);
}

/// Reports every 10 ms from `from` to `to` without a sample, each of `lost` packets lost and one
/// that arrived.
fn unmeasured(law: &mut Haul, from: u32, to: u32, lost: u32) {
    for at in (from..to).step_by(10) {
        let now = Instant::EPOCH + MS * at;
        law.on_loss(&LossEvent {
            now,
            packets: lost,
            path: law.path,
            ..LossEvent::default()
        });
        law.on_ack(&AckEvent {
            rate: None,
            acked: Size::from_bytes(1_250),
            packets: 1,
            ..report(law, at, at - 100)
        });
    }
}

#[test]
fn without_samples_the_estimate_halves_with_each_round_trip_that_loses_most() {
    let estimate = Rate::mbit(64);
    let mut law = Haul {
        phase: Phase::Cruise,
        bandwidth: estimate,
        ..Haul::default()
    };
    unmeasured(&mut law, 1_000, 2_000, 1);
    assert_eq!(law.bandwidth, estimate, "no more than arrives");
    unmeasured(&mut law, 2_000, 2_400, 9);
    assert!(law.bandwidth < estimate, "within some round trips");
    assert!(law.bandwidth >= estimate.scale(0.125), "{}", law.bandwidth);
    // A packet of 10,000 bits every 10 ms.
    unmeasured(&mut law, 2_400, 6_000, 90);
    let arrives = Rate::mbit(1).as_f64();
    let share = law.bandwidth.as_f64() / arrives;
    assert!((0.9..=1.2).contains(&share), "{share}");
    assert!(law.allowance().rate <= law.bandwidth.scale(1.125));
}

#[test]
fn an_estimate_falls_below_the_least_only_where_much_of_that_is_lost() {
    for (carried, expected) in [(900, 1_000), (500, 500), (64, 64), (10, 16)] {
        let mut law = Haul {
            phase: Phase::Cruise,
            bandwidth: LEAST.scale(1.1),
            ..Haul::default()
        };
        let carried = Rate::from_bps(carried * 1_000);
        for at in (1_000..6_000).step_by(50) {
            let sent = law.bandwidth;
            let rate = carried.min(sent);
            let loss = 1.0 - rate.as_f64() / sent.as_f64();
            let mut ack = report(&law, at, at - 50);
            ack.rate = Some(RateSample {
                rate,
                sent,
                loss,
                ..ack.rate.unwrap()
            });
            law.on_ack(&ack);
        }
        let expected = Rate::from_bps(expected * 1_000).as_f64();
        let share = law.bandwidth.as_f64() / expected;
        assert!((0.8..=1.2).contains(&share), "{carried}: {share}");
    }
}

#[test]
fn a_path_that_stops_carrying_is_not_probed_until_something_arrives() {
    let mut law = Haul {
        phase: Phase::Probe,
        until: Some(Instant::EPOCH + MS * 40),
        ..Haul::default()
    };
    let srtt = std::mem::replace(&mut law.path.srtt, MS * 14);
    law.on_timeout(Instant::EPOCH + MS * 20, 1);
    assert_eq!(law.phase, Phase::Probe, "a report may be lost");
    let mut short = law.clone();
    short.on_timeout(Instant::EPOCH + MS * 30, 2);
    assert_eq!(short.phase, Phase::Cruise);
    law.path.srtt = srtt;
    law.on_timeout(Instant::EPOCH + MS * 30, 1);
    assert_eq!((law.phase, law.next_tick()), (Phase::Cruise, None));
    law.on_ack(&report(&law, 5_000, 4_900));
    let next = Instant::EPOCH + MS * 5_500;
    assert_eq!(law.next_tick(), Some(next), "not at once");
}

#[test]
fn an_unused_estimate_is_kept_unless_much_is_lost() {
    assert_eq!(limited_by_its_sender(0.0).bandwidth, Rate::gbit(1));
    let cut = limited_by_its_sender(0.25).bandwidth;
    assert!(cut >= Rate::mbit(525) && cut < Rate::mbit(700), "{cut}");
}

#[test]
fn a_receiver_that_claims_that_all_arrived_does_not_keep_loss_from_counting() {
    for (lost, kept) in [(0.0, 1.0), (0.5, 0.55)] {
        let estimate = Rate::mbit(100);
        let mut law = Haul {
            phase: Phase::Cruise,
            bandwidth: estimate,
            ..Haul::default()
        };
        for at in (1_000..4_000).step_by(10) {
            let ack = report(&law, at, at - 100);
            let sample = RateSample {
                rate: estimate,
                sent: estimate,
                loss: lost,
                ..ack.rate.unwrap()
            };
            law.on_ack(&AckEvent {
                rate: Some(sample),
                ..ack
            });
        }
        let most = estimate.scale(kept);
        assert!(law.bandwidth <= most, "{lost}: {}", law.bandwidth);
    }
}

/// Cruises at 100 Mbit/s; the last reports saw queues of `queue`, the longest lately was 10 ms, and
/// `loss` is usual.
fn before_a_loss(queue: Duration, loss: f64) -> Haul {
    let mut law = Haul {
        phase: Phase::Cruise,
        bandwidth: Rate::mbit(100),
        peak: MS * 10,
        ..Haul::default()
    };
    law.shortest_queue.update(Instant::EPOCH, Duration::ZERO);
    for i in 0..40 {
        law.least_queue.take(queue);
        let mut epoch = Epoch::new(None, 0);
        let mut ack = report(&law, i, i);
        ack.rate = ack.rate.map(|sample| RateSample { loss, ..sample });
        ack.packets = 1_000;
        epoch.take(&ack, None);
        law.usual_loss.take(&epoch);
    }
    law
}

#[test]
fn a_loss_at_the_longest_queue_seen_reduces_where_nothing_else_is_lost() {
    let lost = |law: &Haul, ms| LossEvent {
        now: Instant::EPOCH + MS * ms,
        packets: 1,
        path: law.path,
        ..LossEvent::default()
    };
    for (queue, usual, kept) in [
        (MS * 9, 0.0, OVERFLOW),
        (MS * 5, 0.0, 1.0),
        (MS * 9, 0.005, 1.0),
    ] {
        let mut law = before_a_loss(queue, usual);
        let expected = law.bandwidth.scale(kept);
        law.on_loss(&lost(&law, 100));
        assert_eq!(law.bandwidth, expected, "{queue:?}, {usual}");
        law.on_loss(&lost(&law, 2_000));
        assert_eq!(law.bandwidth, expected, "once from probe to probe");
        let shared = if kept < 1.0 { SHARED } else { 0 };
        assert_eq!(law.shared_probes, shared, "{queue:?}, {usual}");
    }
    // A sender that has nothing to send fills no queue; a delay that never varies is none.
    let mut law = before_a_loss(MS * 9, 0.0);
    let mut idle = lost(&law, 100);
    idle.newest.app_limited = true;
    law.on_loss(&idle);
    law.shortest_queue.forget();
    law.shortest_queue.update(Instant::EPOCH, MS * 8);
    law.on_loss(&lost(&law, 200));
    assert_eq!(law.bandwidth, Rate::mbit(100));
}

/// A law that has all of a short queue that it shares, with shortened probes, at 1200 packets in
/// flight.
fn most_of_a_short_queue() -> Haul {
    let mut law = before_a_loss(MS * 5, 0.0);
    law.peak = MS * 7;
    law.path.min_rtt = MS * 120;
    law.path.datagram = 1_250;
    law.probe.set_halvings(4);
    law.shared_probes = 3;
    law
}

/// Wait for the next probe, in s, if longer than usual, after this part of a probe was delivered.
fn wait_after(law: &mut Haul, delivered: f64) -> Option<f64> {
    let now = Instant::EPOCH + MS * 100;
    law.full = Some((now, law.bandwidth));
    law.probe(now);
    let sent = law.bandwidth.scale(1.0 + law.probe.gain);
    law.probe.sample(&RateSample {
        packets: 1_000,
        rate: sent.scale(delivered),
        sent,
        interval: MS,
        app_limited: false,
        loss: 0.0,
    });
    let judged = now + MS * 130;
    law.judge_probe(judged);
    assert_eq!(law.until, Some(law.probe_at));
    law.waits.then(|| law.probe_at.since(judged).as_secs_f64())
}

#[test]
fn who_has_most_of_a_short_queue_leaves_others_time() {
    let wait = |change: fn(&mut Haul)| {
        let mut law = most_of_a_short_queue();
        change(&mut law);
        (wait_after(&mut law, 0.92), law.probe.share)
    };
    let near = |(waits, _): (Option<f64>, f64), k: f64| {
        assert!(
            waits.is_some_and(|w| (0.75 * k..1.3 * k).contains(&w)),
            "{waits:?}"
        );
    };
    // ((1 - 0.7) 1200 / 0.4)^(1/3) s, and what the probe found.
    let most = wait(|_| {});
    near(most, 900_f64.cbrt());
    near(wait(|law| law.bandwidth = Rate::gbit(10)), LONGEST_WAIT);
    let less = wait(|law| law.probe.share = 0.75);
    let ratio = less.0.expect("a wait") / most.0.expect("a wait");
    assert!((ratio - (less.1 - 0.6) / 0.2).abs() < 0.01, "{ratio}");
    near(
        wait(|law| {
            law.probe.share = 0.45;
            law.behaviour.lanes = 2;
        }),
        900_f64.cbrt(),
    );
    let usual: [fn(&mut Haul); 6] = [
        |law| law.probe.share = 0.2,
        |law| law.probe.set_halvings(0),
        |law| law.shared_probes = 1,
        |law| law.peak = MS * 9,
        |law| law.behaviour.sharing = Sharing::High,
        |law| law.behaviour.sharing = Sharing::Low,
    ];
    for (i, change) in usual.into_iter().enumerate() {
        assert_eq!(wait(change).0, None, "{i}");
    }
    assert_eq!(
        wait_after(&mut most_of_a_short_queue(), 1.0),
        None,
        "a free link"
    );
}

#[test]
fn a_reduction_ends_the_wait_for_others_and_brings_nothing_else_forward() {
    let now = Instant::EPOCH + MS * 1_000;
    let waiting = || {
        let mut law = most_of_a_short_queue();
        assert!(wait_after(&mut law, 0.92).is_some_and(|wait| wait > 5.0));
        law
    };
    let mut law = waiting();
    law.cut(now, OVERFLOW, LEAST);
    assert_eq!(law.probe_at, now + CYCLE);
    assert_eq!(law.until, Some(law.probe_at));
    let over: [fn(&mut Haul, Instant); 3] = [
        |law, now| law.cut(now, OVERFLOW, LEAST),
        |law, now| law.drain(now, MS * 5),
        Haul::probe,
    ];
    for end in over {
        let mut law = waiting();
        end(&mut law, now);
        law.probe_at = now + CYCLE * 3;
        law.cut(now, OVERFLOW, LEAST);
        assert_eq!(law.probe_at, now + CYCLE * 3);
    }
}

#[test]
fn a_probe_that_was_shorter_than_usual_raises_the_estimate_by_less() {
    // A probe with loss makes the next one shorter, the sixteenth without loss makes it longer.
    for (mbit, halvings, loss, grown) in [
        (100, 0, 0.0, 2.0),
        (100, 0, 0.02, 1.96),
        (100, 1, 0.0, 1.25),
        (100, 1, 0.02, 1.25),
        // Of so few packets all take as long.
        (1, 1, 0.0, 2.0),
    ] {
        let mut law = before_a_loss(Duration::ZERO, 0.0);
        law.bandwidth = Rate::mbit(mbit);
        law.probe.gain = 1.0;
        law.probe.set_halvings(halvings);
        law.probe(Instant::EPOCH);
        let base = law.base();
        law.probe.sample(&RateSample {
            packets: 1_000,
            rate: base.scale(2.0 * (1.0 - loss)),
            sent: base.scale(2.0),
            interval: law.train() / 2,
            app_limited: false,
            loss,
        });
        law.judge_probe(Instant::EPOCH + MS * 500);
        assert_eq!(
            law.bandwidth,
            Rate::mbit(mbit).scale(grown),
            "{mbit} Mbit/s, {halvings}, {loss}"
        );
    }
}

/// A receiver that says that a competing flow's queue is not full is believed until most is lost.
#[test]
fn what_most_is_lost_of_is_reduced_beside_others_whatever_the_queue_seems() {
    let window = |law: &Haul| law.rival.as_ref().map(|rival| rival.allowance().window);
    for (lost, looks, phase) in [
        (8, false, Phase::Compete),
        (12, false, Phase::Look),
        (12, true, Phase::Look),
    ] {
        let mut law = Haul {
            bandwidth: Rate::mbit(100),
            ..Haul::default()
        };
        law.compete(Instant::EPOCH + MS * 1_000);
        if looks {
            law.look(Instant::EPOCH + MS * 1_000);
        }
        let mut before = window(&law);
        for at in (1_000..1_500).step_by(10) {
            if looks && at == 1_200 {
                law.compete_on(Instant::EPOCH + MS * 1_200);
                before = window(&law);
            }
            if law.phase == Phase::Look && (!looks || at > 1_200) {
                break;
            }
            let lost = if looks && at >= 1_200 { 0 } else { lost };
            let queue = if at == 1_000 { MS * 40 } else { MS * 26 };
            let ack = AckEvent {
                packets: 10,
                rtt: Some(MS * 100 + queue),
                ..report(&law, at, at - 100)
            };
            law.on_loss(&LossEvent {
                now: ack.now,
                packets: lost,
                path: law.path,
                ..LossEvent::default()
            });
            law.on_ack(&ack);
        }
        assert_eq!(law.phase, phase, "{lost} lost beside 10");
        assert_eq!(window(&law) < before, lost == 12, "{lost} lost beside 10");
    }
}
