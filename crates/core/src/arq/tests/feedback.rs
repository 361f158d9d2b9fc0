//! Tests how often the receiver reports, and what the law requests of the receiver.

use std::time::Duration;

use super::{LEN, Receiver, Sender};
use crate::{
    congestion::{AckEvent, Allowance, CongestionController, FeedbackRequest, LossEvent},
    datagram::Ecn,
    rng::Rng,
    time::Instant,
    units::{Rate, Size},
};

/// Reports leave whenever they are due, at one instant.
#[test]
fn any_loss_is_told_in_a_bounded_number_of_reports() {
    for (loss, packets) in [(0.1, 300_000), (0.5, 300_000), (0.9, 300_000)] {
        let (mut receiver, mut rng) = (Receiver::default(), Rng::new(4));
        let mut now = Instant::from_nanos(1_000_000_000);
        receiver.on_state(0, Duration::from_millis(10));
        let (mut bytes, mut reports, mut arrived) = (0, 0, 0);
        for number in 0..packets {
            now += Duration::from_micros(1);
            if rng.chance(loss) {
                continue;
            }
            receiver.on_packet(now, number, LEN, true, Ecn::NotEct);
            arrived += u64::from(LEN);
            if number % 50_000 == 0 {
                receiver.on_want(now, 0);
            }
            while receiver.feedback_due().is_some_and(|at| at <= now) {
                let runs = receiver.report(now).expect("something arrived").runs.len();
                // Two bytes a run are more than any code of haul's takes.
                receiver.feedback_sent(now, 60 + 2 * runs);
                bytes += 60 + 2 * runs as u64;
                reports += 1;
                assert!(reports < 10_000, "it never ends");
            }
        }
        assert!(
            bytes < arrived / 100 + 20 * 1_300,
            "{loss}: {bytes} of {arrived}"
        );
    }
}

/// With more than 160 holes in an interval, reports are more frequent in proportion. Each report
/// still covers all holes of the last three, also after a pause in which the receiver read nothing,
/// and too late packets.
#[test]
fn each_hole_is_told_three_times_however_many_there_are() {
    for loss in [0.001, 0.01, 0.02, 0.05, 0.07] {
        let (mut receiver, mut rng) = (Receiver::default(), Rng::new(7));
        let mut now = Instant::from_nanos(1_000_000_000);
        receiver.on_state(0, Duration::from_micros(12_500));
        let (mut holes, mut told, mut reports) = (0_u64, 0, 0);
        for number in 0..400_000 {
            // Twenty milliseconds are read at once.
            let paused = (100_000..116_000).contains(&number);
            now += Duration::from_nanos(if paused { 1 } else { 1_200 });
            if rng.chance(loss) {
                holes += 1;
                continue;
            }
            if number % 1_000 == 999 && number > 100_000 {
                receiver.on_packet(now, number - 60_000, LEN, true, Ecn::NotEct);
            }
            receiver.on_packet(now, number, LEN, true, Ecn::NotEct);
            while receiver.feedback_due().is_some_and(|at| at <= now) {
                let report = receiver.report(now).expect("something arrived");
                told += report.runs.iter().skip(1).step_by(2).sum::<u64>();
                reports += 1;
                receiver.feedback_sent(now, 100);
            }
        }
        // Not as many as the budget allows.
        assert!(reports < 400, "{loss}: {reports}");
        let tenths = told * 10 / holes;
        assert!((28..=40).contains(&tenths), "{loss}: {tenths} tenths");
    }
}

#[test]
fn the_first_packet_after_a_pause_is_reported_at_once() {
    let ms = Duration::from_millis;
    let mut receiver = Receiver::default();
    receiver.on_state(0, ms(4));
    let mut now = Instant::EPOCH + ms(1_000);
    let mut number = 0;
    let mut packet = |receiver: &mut Receiver, after: Duration| {
        now += after;
        // The sender's state goes before its data.
        receiver.on_packet(now, number, LEN, false, Ecn::NotEct);
        receiver.on_packet(now, number + 1, LEN, true, Ecn::NotEct);
        number += 2;
        let wait = receiver.feedback_due().map(|at| at.since(now));
        if wait == Some(Duration::ZERO) {
            receiver.report(now);
        }
        wait
    };
    for _ in 0..20 {
        // The first four of a connection are, too.
        packet(&mut receiver, ms(1));
    }
    receiver.report(Instant::EPOCH + ms(1_020));
    assert_eq!(packet(&mut receiver, ms(4)), Some(ms(4)), "no pause");
    assert_eq!(packet(&mut receiver, ms(5)), Some(Duration::ZERO));
    assert_eq!(packet(&mut receiver, ms(1)), Some(ms(4)));
    receiver.on_state(0, ms(5));
    receiver.report(Instant::EPOCH + ms(1_040));
    assert_eq!(packet(&mut receiver, ms(50)), Some(ms(5)), "no trains");
}

/// Samples over this time, and requests feedback as such a law does.
struct Measuring(Option<Duration>);

impl CongestionController for Measuring {
    fn name(&self) -> &'static str {
        "measuring"
    }
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn sample_window(&self) -> Option<Duration> {
        self.0
    }
    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::UNLIMITED,
            rate: Rate::gbit(10),
            quantum: Size::from_bytes(1 << 16),
        }
    }
}

#[test]
fn the_receiver_learns_first_how_often_it_is_to_report() {
    let ms = Duration::from_millis;
    for (window, expected) in [(None, None), (Some(ms(10)), Some(ms(2)))] {
        let law = Measuring(window);
        let mut sender = Sender::new(Box::new(law), Rate::UNLIMITED);
        sender.start(Instant::EPOCH, 1_200, ms(64));
        let told = sender.state_due().then(|| sender.interval());
        assert_eq!(told, expected, "{window:?}");
    }
}

/// A law that makes this request.
struct Requesting(FeedbackRequest);

impl CongestionController for Requesting {
    fn name(&self) -> &'static str {
        "requesting"
    }
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn feedback_request(&self) -> FeedbackRequest {
        self.0
    }
    fn allowance(&self) -> Allowance {
        Measuring(None).allowance()
    }
}

#[test]
fn so_it_does_from_a_law_that_requests_a_time_without_samples() {
    let ms = Duration::from_millis;
    let none = FeedbackRequest::default();
    let some = Some(ms(3));
    for (request, expected) in [
        (none, None),
        (
            FeedbackRequest {
                packets: Some(2),
                ..none
            },
            None,
        ),
        (
            FeedbackRequest {
                interval: some,
                ..none
            },
            some,
        ),
        (
            FeedbackRequest {
                longest: some,
                ..none
            },
            some,
        ),
        (
            FeedbackRequest {
                shortest: ms(12),
                ..none
            },
            Some(ms(12)),
        ),
        (
            FeedbackRequest {
                shortest: ms(12),
                longest: some,
                ..none
            },
            some,
        ),
        (
            FeedbackRequest {
                train: some,
                ..none
            },
            some,
        ),
    ] {
        let mut sender = Sender::new(Box::new(Requesting(request)), Rate::UNLIMITED);
        sender.start(Instant::EPOCH, 1_200, ms(64));
        let told = sender.state_due().then(|| sender.take_state());
        assert_eq!(told, expected, "{request:?}");
    }
}

/// Sends a train from 100 to 103 ms, with a report each millisecond.
struct Train(Instant);

impl CongestionController for Train {
    fn name(&self) -> &'static str {
        "train"
    }
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn on_tick(&mut self, now: Instant) {
        self.0 = now;
    }
    fn next_tick(&self) -> Option<Instant> {
        [100, 103]
            .map(|ms| Instant::EPOCH + Duration::from_millis(ms))
            .into_iter()
            .find(|at| *at > self.0)
    }
    fn feedback_request(&self) -> FeedbackRequest {
        let until = self.next_tick().map(|at| at.since(self.0));
        let ms = Duration::from_millis;
        FeedbackRequest {
            train: until.filter(|left| *left == ms(3)).map(|_| ms(1)),
            ..FeedbackRequest::default()
        }
    }
    fn allowance(&self) -> Allowance {
        Measuring(None).allowance()
    }
}

#[test]
fn a_train_is_reported_on_as_often_as_requested_and_nothing_else() {
    let ms = |n| Instant::EPOCH + Duration::from_millis(n);
    let mut sender = Sender::new(Box::new(Train(Instant::EPOCH)), Rate::UNLIMITED);
    sender.start(ms(0), 1_200, Duration::from_millis(64));
    let usual = sender.interval();
    sender.send(0, 0, 1);
    for (at, told) in [
        (99, None),
        (100, Some(Duration::from_millis(1))),
        (101, None),
        (103, Some(usual)),
        (104, None),
    ] {
        sender.on_timeout(ms(at));
        let due = sender.state_due().then(|| sender.take_state());
        assert_eq!(due, told, "{at} ms");
        assert_eq!(sender.interval(), usual, "timeouts are reckoned with it");
    }
}

#[test]
fn without_data_no_train_is_announced_and_one_that_was_is_withdrawn() {
    let ms = |n| Instant::EPOCH + Duration::from_millis(n);
    for announced in [false, true] {
        let mut sender = Sender::new(Box::new(Train(Instant::EPOCH)), Rate::UNLIMITED);
        sender.start(ms(0), 1_200, Duration::from_millis(64));
        let usual = sender.interval();
        if announced {
            sender.send(0, 0, 1);
        }
        sender.on_timeout(ms(100));
        assert_eq!(sender.state_due(), announced);
        if announced {
            sender.take_state();
            sender.cancel_unsent();
        }
        sender.on_timeout(ms(103));
        let told = sender.state_due().then(|| sender.take_state());
        assert_eq!(told, announced.then_some(usual));
    }
}
