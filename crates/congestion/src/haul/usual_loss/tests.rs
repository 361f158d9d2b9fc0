use std::time::Duration;

use farhaul_core::{congestion::AckEvent, units::Rate};

use super::*;

const MS: Duration = Duration::from_millis(1);
const PACKETS: u64 = 1_000;

fn sample(loss: f64) -> RateSample {
    RateSample {
        packets: PACKETS,
        rate: Rate::mbit(10).scale(1.0 - loss),
        sent: Rate::mbit(10),
        interval: MS * 20,
        app_limited: false,
        loss,
    }
}

/// An epoch in which so much was lost, in samples of many packets.
fn lost(loss: f64) -> Epoch {
    let mut epoch = Epoch::new(None, 0);
    let ack = AckEvent {
        rate: Some(sample(loss)),
        packets: 1_000,
        ..AckEvent::default()
    };
    epoch.take(&ack, None);
    epoch
}

fn at(ms: u32) -> Instant {
    Instant::EPOCH + MS * ms
}

/// What is held for usual after epochs that lost by turns `low` and `high`, and rests in which `at_rest` was lost.
fn usual_after(low: f64, high: f64, at_rest: f64) -> UsualLoss {
    let mut usual = UsualLoss::default();
    for n in 0..32 {
        usual.rest(at(n * 100), at(n * 100 + 40));
        usual.sample(&sample(at_rest), at(n * 100 + 30));
        usual.take(&lost(if n % 2 == 0 { low } else { high }));
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
    let usual = usual_after(0.02, 0.02, 0.02);
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
fn what_is_lost_at_rest_is_usual_up_to_a_tenth_if_it_is_steady() {
    for (low, high, at_rest, expected) in [
        (0.01, 0.01, 0.0, 0.0),
        (0.01, 0.01, 0.006, 0.006),
        (0.01, 0.01, 0.02, 0.01),
        (0.05, 0.05, 0.0, 0.0),
        (0.05, 0.05, 0.03, 0.03),
        (0.05, 0.05, 0.05, 0.05),
        (0.05, 0.06, 0.055, 0.05),
        (0.05, 0.12, 0.08, MAX_USUAL),
        (0.3, 0.3, 0.3, MAX_PROVEN),
    ] {
        let share = usual_after(low, high, at_rest).share();
        assert!((share - expected).abs() < 1e-9, "{low}, {at_rest}: {share}");
    }
    // Where nothing is known of rests.
    for (loss, expected) in [(0.01, 0.01), (0.05, MAX_USUAL)] {
        let mut usual = UsualLoss::default();
        for _ in 0..MEMORY {
            usual.take(&lost(loss));
        }
        assert!((usual.share() - expected).abs() < 1e-9, "{loss}");
    }
}

#[test]
fn loss_that_a_full_link_could_cause_is_doubtful() {
    for (loss, doubtful) in [(0.009, false), (0.011, true), (0.2, true)] {
        assert_eq!(usual_after(loss, loss, loss).is_doubtful(), doubtful);
    }
}

#[test]
fn only_samples_within_a_rest_are_of_it() {
    let mut usual = UsualLoss::default();
    usual.rest(at(100), at(150));
    // Each of them is of the 20 ms before.
    for (sent_at, loss) in [(119, 0.0), (120, 0.05), (150, 0.05), (151, 0.0)] {
        usual.sample(&sample(loss), at(sent_at));
    }
    assert!((usual.rest.loss().unwrap() - 0.05).abs() < 1e-9);
}

#[test]
fn of_rests_the_last_count_most() {
    let mut usual = UsualLoss::default();
    for n in 0..40 {
        usual.rest(at(n * 100), at(n * 100 + 40));
        usual.sample(&sample(if n < 20 { 0.08 } else { 0.0 }), at(n * 100 + 30));
    }
    let loss = usual.rest.loss().unwrap();
    assert!(loss < 0.01, "{loss}");
}
