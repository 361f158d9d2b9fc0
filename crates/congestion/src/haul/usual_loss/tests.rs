use std::time::Duration;

use farhaul_core::{
    congestion::{RateSample, TxSnapshot},
    units::Rate,
};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn sample(packets: u64, loss: f64) -> RateSample {
    RateSample {
        packets,
        rate: Rate::mbit(10).scale(1.0 - loss),
        sent: Rate::mbit(10),
        interval: MS * 20,
        app_limited: false,
        loss,
    }
}

/// A report on `packets` packets, the newest of which was sent at `sent_at`, and the loss among
/// them.
fn report(packets: u32, loss: f64, sent_at: Instant) -> AckEvent {
    AckEvent {
        rate: Some(sample(u64::from(packets), loss)),
        packets,
        newest: Some(TxSnapshot {
            sent_at,
            ..TxSnapshot::default()
        }),
        ..AckEvent::default()
    }
}

/// An epoch of `packets` packets that lost the share `loss`.
fn epoch(packets: u32, loss: f64) -> Epoch {
    let mut epoch = Epoch::new(None, 0);
    epoch.take(&report(packets, loss, Instant::EPOCH), None);
    epoch
}

fn lost(loss: f64) -> Epoch {
    epoch(1_000, loss)
}

fn at(ms: u32) -> Instant {
    Instant::EPOCH + MS * ms
}

/// State after 32 epochs of `packets` packets that lost by turns `low` and `high`, with
/// `at_low_load` lost at low load between them.
fn after(packets: u32, (low, high): (f64, f64), at_low_load: f64) -> UsualLoss {
    let mut usual = UsualLoss::default();
    for n in 0..32 {
        usual.begin_low_load(at(n * 100), at(n * 100 + 40));
        usual.on_ack(&report(1_000, at_low_load, at(n * 100 + 30)), false);
        usual.take(&epoch(packets, if n % 2 == 0 { low } else { high }));
    }
    usual
}

#[test]
fn one_epoch_beyond_the_usual_exceeds_it_and_three_insist() {
    let mut usual = UsualLoss::default();
    assert!(!usual.is_exceeded());
    for insists in [false, false, true, true] {
        assert_eq!(usual.take(&lost(0.2)), insists);
        assert!(usual.is_exceeded());
    }
    assert!(!usual.take(&lost(0.0)));
    assert!(!usual.is_exceeded(), "it is over");
    assert!(!usual.take(&lost(0.2)), "and counted anew");
}

#[test]
fn loss_that_is_usual_exceeds_nothing() {
    let usual = after(1_000, (0.02, 0.02), 0.02);
    assert!((usual.share() - 0.02).abs() < 1e-9);
    for (loss, exceeded) in [(0.0, false), (0.02, false), (0.0299, false), (0.0301, true)] {
        let mut usual = usual.clone();
        usual.take(&lost(loss));
        assert_eq!(usual.is_exceeded(), exceeded, "{loss}");
    }
}

#[test]
fn an_epoch_that_lost_most_insists_alone() {
    let mut usual = UsualLoss::default();
    assert!(usual.take(&lost(0.6)));
    assert!(usual.is_exceeded());
}

#[test]
fn three_epochs_tell_what_is_lost_lately() {
    let mut usual = UsualLoss::default();
    for (loss, lately) in [(0.4, 0.4), (0.2, 0.3), (0.6, 0.4), (0.1, 0.3)] {
        usual.take(&lost(loss));
        assert!((usual.lately() - lately).abs() < 1e-9, "{loss}");
    }
}

#[test]
fn what_is_lost_at_low_load_is_usual_up_to_a_tenth_if_it_is_steady() {
    for (packets, low, high, at_low_load, expected) in [
        (1_000, 0.01, 0.01, 0.0, 0.0),
        (1_000, 0.01, 0.01, 0.006, 0.006),
        (1_000, 0.01, 0.01, 0.02, 0.01),
        (1_000, 0.05, 0.05, 0.03, 0.03),
        (1_000, 0.05, 0.06, 0.055, 0.05),
        (1_000, 0.05, 0.12, 0.08, MAX_USUAL),
        (1_000, 0.3, 0.3, 0.3, MAX_STEADY),
        // Of few packets each, that is no more than chance; of too few nothing is known.
        (100, 0.04, 0.08, 0.05, 0.04),
        (1_000, 0.04, 0.08, 0.05, MAX_USUAL),
        (29, 0.05, 0.05, 0.05, MAX_USUAL),
    ] {
        let share = after(packets, (low, high), at_low_load).share();
        assert!(
            (share - expected).abs() < 1e-9,
            "{packets}, {low}, {at_low_load}: {share}"
        );
    }
}

#[test]
fn without_samples_at_low_load_little_is_usual() {
    for (loss, expected) in [(0.01, 0.01), (0.05, MAX_USUAL)] {
        let mut usual = UsualLoss::default();
        for _ in 0..EPOCHS {
            usual.take(&lost(loss));
        }
        assert!((usual.share() - expected).abs() < 1e-9, "{loss}");
    }
}

#[test]
fn fewer_than_four_epochs_are_not_steady() {
    for (epochs, expected) in [(3, MAX_USUAL), (4, 0.05), (5, 0.05), (6, 0.05)] {
        let mut usual = UsualLoss::default();
        usual.begin_low_load(at(0), at(40));
        usual.on_ack(&report(1_000, 0.05, at(30)), false);
        for _ in 0..epochs {
            usual.take(&lost(0.05));
        }
        assert!((usual.share() - expected).abs() < 1e-9, "{epochs}");
    }
}

#[test]
fn loss_that_a_full_link_could_cause_is_doubtful() {
    for (loss, doubtful) in [(0.009, false), (0.011, true), (0.2, true)] {
        let usual = after(1_000, (loss, loss), loss);
        assert_eq!(usual.is_doubtful(), doubtful);
    }
}

#[test]
fn of_steady_loss_a_probe_is_allowed_less_than_is_usual() {
    for (loss, allowed) in [(0.02, 0.02), (0.09, MAX_ALLOWED)] {
        let usual = after(1_000, (loss, loss), loss);
        assert!((usual.allowed() - allowed).abs() < 1e-9, "{loss}");
    }
}

#[test]
fn only_samples_within_a_time_of_low_load_and_without_a_queue_are_of_it() {
    let mut usual = UsualLoss::default();
    usual.begin_low_load(at(100), at(160));
    // Each is of the 20 ms before; of those that overlap one counts.
    for (sent_at, loss, queued) in [
        (119, 0.0, false),
        (120, 0.05, false),
        (125, 0.0, false),
        (140, 0.0, true),
        (145, 0.05, false),
        (161, 0.0, false),
    ] {
        usual.on_ack(&report(60, loss, at(sent_at)), queued);
    }
    assert!((usual.low_load.loss().unwrap() - 0.05).abs() < 1e-9);
    let mut few = UsualLoss::default();
    few.begin_low_load(at(100), at(160));
    few.on_ack(&report(99, 0.05, at(130)), false);
    assert_eq!(few.low_load.loss(), None);
    let mut limited = report(1_000, 0.05, at(155));
    limited.rate.as_mut().unwrap().app_limited = true;
    few.on_ack(&limited, false);
    assert_eq!(few.low_load.loss(), None, "no less was sent");
}

#[test]
fn the_last_times_of_low_load_count_most() {
    let mut usual = UsualLoss::default();
    for n in 0..40 {
        usual.begin_low_load(at(n * 100), at(n * 100 + 40));
        let loss = if n < 20 { 0.08 } else { 0.0 };
        usual.on_ack(&report(1_000, loss, at(n * 100 + 30)), false);
    }
    let loss = usual.low_load.loss().unwrap();
    assert!(loss < 0.01, "{loss}");
}
