use farhaul_core::{
    congestion::{AckEvent, CongestionController, SavedPath},
    time::Instant,
    units::Size,
};

use super::{super::Haul, *};

const DATAGRAM: u32 = 9_000;

/// Sends a burst: at most `carried` of it arrives, and the share `lost` does not.
fn after(start: &mut Start, carried: Rate, lost: f64) -> bool {
    let sent = start.proven.scale(start.gain());
    let lasts = start.length(start.proven, DATAGRAM);
    start.burst(lasts);
    start.on_sent(sent.bytes_in(lasts));
    start.sample(&RateSample {
        packets: 1_000,
        rate: sent.scale(1.0 - lost).min(carried),
        sent,
        interval: lasts.mul_f64(0.8),
        app_limited: false,
        loss: lost,
    });
    start.is_full(Duration::ZERO)
}

#[test]
fn two_bursts_measure_ten_gigabits() {
    let mut start = Start::default();
    let ten = Rate::gbit(10).scale(0.99);
    let mut sent = Vec::new();
    loop {
        let rate = start.proven.scale(start.gain());
        sent.push((rate, start.length(start.proven, DATAGRAM)));
        if after(&mut start, ten, 0.0) {
            break;
        }
    }
    let ms = Duration::from_millis;
    let expected = [
        (Rate::mbit(832), Duration::from_micros(1_250)),
        (Rate::mbit(16_640), ms(4)),
    ];
    assert_eq!(sent, expected);
    assert_eq!(start.proven, ten);
}

#[test]
fn a_burst_that_arrives_spread_out_ends_the_start_at_what_it_measured() {
    let mut start = Start::default();
    assert!(!after(&mut start, Rate::gbit(1), 0.0));
    assert!(after(&mut start, Rate::gbit(1), 0.0));
    assert_eq!(start.proven, Rate::gbit(1));
}

#[test]
fn a_burst_that_overran_the_queue_is_not_repeated() {
    let mut start = Start::default();
    assert!(!after(&mut start, Rate::gbit(1), 0.0));
    assert!(after(&mut start, Rate::gbit(1), 0.7));
    assert!(start.proven < Rate::gbit(1), "{}", start.proven);
    assert!(start.proven >= Rate::mbit(800), "{}", start.proven);
}

#[test]
fn random_loss_ends_nothing() {
    let mut start = Start::default();
    assert!(!after(&mut start, Rate::gbit(100), 0.15));
    assert!(!after(&mut start, Rate::gbit(100), 0.02));
    assert!(start.proven > Rate::gbit(2), "{}", start.proven);
}

#[test]
fn a_later_start_is_gentle() {
    let mut start = Start::from(Rate::mbit(20));
    assert_eq!(start.proven.scale(start.gain()), Rate::mbit(80));
    assert!(start.length(start.proven, 1_200) >= Duration::from_millis(20));
    assert!(!after(&mut start, Rate::gbit(10), 0.0));
    assert_eq!(start.proven.scale(start.gain()), Rate::mbit(320));
}

#[test]
fn a_burst_without_reports_is_repeated_and_proves_nothing() {
    let mut start = Start::default();
    for _ in 0..MAX_UNHEARD {
        let lasts = start.length(start.proven, DATAGRAM);
        start.burst(lasts);
        assert!(!start.is_full(Duration::ZERO));
        assert_eq!(start.proven, UNPROVEN);
    }
}

/// Sends a burst whose only feedback is that `lost` packets of it did not arrive, and `arrived`
/// did.
fn unheard(start: &mut Start, arrived: u32, lost: u32) -> bool {
    start.burst(start.length(start.proven, DATAGRAM));
    start.on_loss(lost);
    let bytes = u64::from(arrived * DATAGRAM);
    start.on_ack(arrived, Size::from_bytes(bytes));
    start.is_full(Duration::ZERO)
}

#[test]
fn an_unheard_burst_of_which_most_was_lost_is_followed_by_no_more_than_before() {
    let mut start = Start::default();
    assert!(!unheard(&mut start, 100, 10));
    assert_eq!((start.proven, start.least), (UNPROVEN, LEAST));
    for part in [0.25, 0.25 * 0.25] {
        assert!(!unheard(&mut start, 1, 100));
        assert_eq!(start.proven, UNPROVEN.scale(part));
        assert!(start.gain() <= GENTLE.gain);
    }
    assert_eq!(start.least, BARE, "nothing is known to be carried");
}

#[test]
fn a_first_burst_into_a_very_slow_link_measures_it() {
    let mut start = Start::default();
    start.burst(start.length(start.proven, 1_200));
    start.on_sent(130_000);
    start.on_loss(99);
    start.on_ack(2, Size::from_bytes(2_400));
    // From the first packet to one that left long after: a busy receiver's reports are as far
    // apart, but it loses little.
    let sample = RateSample {
        packets: 110,
        rate: Rate::from_bps(62_500),
        sent: Rate::mbit(26),
        interval: Duration::from_millis(154),
        app_limited: false,
        loss: 0.9,
    };
    start.sample(&sample);
    assert!(start.is_full(Duration::ZERO));
    assert_eq!((start.proven, start.least), (sample.rate, BARE));
}

/// Reports on a burst to a law: nothing finer than `interval`.
fn heard_within(start: &mut Start, interval: Duration) {
    start.burst(start.length(start.proven, DATAGRAM));
    let rate = start.proven.scale(0.9);
    let sample = RateSample {
        packets: 1_000,
        rate,
        sent: rate,
        interval,
        app_limited: false,
        loss: 0.0,
    };
    assert!(!start.sample(&sample));
    assert!(!start.is_full(Duration::ZERO));
}

#[test]
fn a_first_burst_that_is_too_short_twice_is_made_longer_and_gentler() {
    let mut start = Start::default();
    let mut sent = Vec::new();
    for _ in 0..4 {
        let lasts = start.length(start.proven, DATAGRAM);
        sent.push((start.proven.scale(start.gain()), lasts));
        heard_within(&mut start, Duration::from_millis(200));
    }
    let us = Duration::from_micros;
    let usual = Rate::mbit(52).time_for(32 * u64::from(DATAGRAM));
    let expected = [
        (Rate::mbit(832), us(1_250)),
        (Rate::mbit(832), us(1_250)),
        (Rate::mbit(52), usual * 2),
        (Rate::mbit(52), usual * 4),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn a_host_that_cannot_send_as_fast_as_a_burst_measures_with_what_it_sends() {
    let sample = |rate, sent| RateSample {
        packets: 1_000,
        rate: Rate::gbit(rate),
        sent: Rate::gbit(sent),
        interval: Duration::from_millis(6),
        app_limited: false,
        loss: 0.0,
    };
    let burst = || {
        let mut start = Start::from(Rate::gbit(4));
        let lasts = start.length(start.proven, DATAGRAM);
        start.burst(lasts);
        start.on_sent(Rate::gbit(7).bytes_in(lasts));
        start
    };
    let mut start = burst();
    assert!(!start.sample(&sample(5, 7)));
    assert!(!start.is_heard(), "16 Gbit/s were to be sent");
    assert!(start.is_full(Duration::ZERO), "spread from 7 to 5 Gbit/s");
    assert_eq!(start.proven, Rate::gbit(5));
    // What is sent between bursts proves nothing of one.
    let mut start = burst();
    assert!(!start.sample(&sample(3, 4)));
    assert!(!start.is_full(Duration::ZERO));
}

#[test]
fn a_resumed_rate_is_judged_when_some_of_its_burst_arrived() {
    let resumed = |arrived: Rate, interval| {
        let mut start = Start::resume(Rate::gbit(10));
        start.burst(start.length(start.proven, DATAGRAM));
        let sample = RateSample {
            packets: 1_000,
            rate: arrived,
            sent: Rate::gbit(10),
            interval: Duration::from_millis(interval),
            app_limited: false,
            loss: 0.0,
        };
        let at_once = start.sample(&sample);
        (start, at_once)
    };
    // The receiver got no processor for 15 ms: awaited once.
    let (mut start, _) = resumed(Rate::mbit(600), 15);
    assert!(start.waits());
    assert!(!start.waits());
    // A tenth of the capacity: enough arrived.
    let (mut start, _) = resumed(Rate::gbit(1), 20);
    assert!(!start.waits());
    assert!(start.is_full(Duration::ZERO));
    assert_eq!(start.proven, Rate::mbit(850), "safe retreat");
    // Nearly all was delivered at once: the next samples would show the rest.
    let (mut start, at_once) = resumed(Rate::mbit(9_100), 16);
    assert!(at_once && start.is_full(Duration::ZERO));
    assert_eq!(start.proven, Rate::gbit(10));
}

#[test]
fn a_burst_lasts_from_its_first_packet() {
    let ms = Duration::from_millis;
    let mut law = Haul::default();
    let path = law.path;
    law.on_start(Instant::EPOCH, &path);
    assert_eq!(law.next_tick(), None, "nothing to send so far");
    let now = Instant::EPOCH + ms(700);
    law.on_tick(now);
    let pace = law.allowance().rate;
    assert!(pace >= Rate::mbit(800), "{pace}");
    law.on_sent(now, Size::from_bytes(104_000), &path);
    let burst = Duration::from_micros(1_250);
    assert_eq!(law.next_tick(), Some(now + burst));
    law.on_sent(now + burst / 2, Size::from_bytes(2_400), &path);
    assert_eq!(law.next_tick(), Some(now + burst));
    // Nothing but the burst is in the reports on it.
    law.on_tick(now + burst);
    let pace = law.allowance().rate;
    assert!(pace < Rate::mbit(1), "{pace}");
}

#[test]
fn a_connection_without_data_proves_nothing_and_keeps_what_was_proved() {
    let ms = Duration::from_millis;
    let saved = SavedPath {
        capacity: Rate::gbit(10),
        min_rtt: ms(100),
    };
    for resumed in [None, Some(saved)] {
        let mut law = Haul::default();
        let path = law.path;
        law.on_start(Instant::EPOCH, &path);
        if let Some(saved) = &resumed {
            law.resume(Instant::EPOCH, saved);
        }
        let mut now = Instant::EPOCH;
        while now < Instant::EPOCH + Duration::from_mins(1) {
            now = law.next_tick().map_or(now + ms(10), |at| at.max(now));
            law.on_tick(now);
            now += ms(1);
            law.on_ack(&AckEvent {
                now,
                rtt: Some(ms(100)),
                queue_delay: Some(Duration::ZERO),
                rate: Some(RateSample {
                    packets: 1_000,
                    rate: Rate::mbit(1),
                    sent: Rate::mbit(1),
                    interval: ms(20),
                    app_limited: true,
                    loss: 0.0,
                }),
                path,
                ..AckEvent::default()
            });
        }
        assert_eq!(law.saved(), resumed, "{law:?}");
    }
}

#[test]
fn a_burst_spread_by_what_the_path_reorders_does_not_end_the_start() {
    let ms = Duration::from_millis;
    for (reordering, full) in [(0, true), (5, true), (15, false), (20, false)] {
        let mut start = Start::default();
        let sent = start.proven.scale(start.gain());
        let lasts = start.length(start.proven, DATAGRAM);
        let arrived = sent.scale(lasts.as_secs_f64() / (lasts + ms(15)).as_secs_f64());
        start.burst(lasts);
        start.on_sent(sent.bytes_in(lasts));
        start.sample(&RateSample {
            packets: 80,
            rate: arrived,
            sent,
            interval: lasts + ms(15),
            app_limited: false,
            loss: 0.0,
        });
        assert_eq!(start.is_full(ms(reordering)), full, "{reordering} ms");
    }
}
