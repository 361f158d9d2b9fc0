use farhaul_core::{
    congestion::{ReceiverRates, TxSnapshot},
    units::Size,
};

use super::*;

const PACKET: u32 = 1_472;

fn path() -> PathView {
    PathView {
        datagram: PACKET,
        ..PathView::default()
    }
}

fn started() -> Daimd {
    let mut law = Daimd::new(25_600.0, 1.125, true);
    law.on_start(Instant::EPOCH, &path());
    law
}

fn packets(per_second: u64) -> Rate {
    Rate::from_bps(per_second * u64::from(PACKET) * 8)
}

fn ack(ms: u64, arrival: u64, capacity: Option<u64>) -> AckEvent {
    AckEvent {
        now: Instant::from_nanos(ms * 1_000_000),
        packets: 1,
        receiver: Some(ReceiverRates {
            arrival: packets(arrival),
            capacity: capacity.map(packets),
        }),
        path: path(),
        ..AckEvent::default()
    }
}

/// A loss of one packet sent at `sent_ms`, reported at `ms`.
fn loss(ms: u64, sent_ms: u64) -> LossEvent {
    let facts = TxSnapshot {
        sent_at: Instant::from_nanos(sent_ms * 1_000_000),
        ..TxSnapshot::default()
    };
    LossEvent {
        now: Instant::from_nanos(ms * 1_000_000),
        lost: Size::from_bytes(u64::from(PACKET)),
        packets: 1,
        oldest: facts,
        newest: facts,
        path: path(),
        ..LossEvent::default()
    }
}

/// Most of a burst is lost.
fn overflow(ms: u64, sent_ms: u64) -> LossEvent {
    LossEvent {
        packets: 100,
        ..loss(ms, sent_ms)
    }
}

/// Packets per second after one report of `speed` and then a burst that is lost.
fn after_an_early_loss(seeds: bool, speed: u64) -> f64 {
    let mut law = Daimd::new(25_600.0, 1.125, seeds);
    law.on_start(Instant::EPOCH, &path());
    law.on_ack(&ack(10, speed, Some(speed)));
    law.on_loss(&overflow(11, 1));
    1.0 / law.period
}

#[test]
fn without_seeds_an_early_loss_leaves_what_arrived() {
    assert!((after_an_early_loss(false, 100_000) - 100_000.0).abs() < 1.0);
    let seeded = after_an_early_loss(true, 100_000);
    assert!(
        (12_400.0..12_600.0).contains(&seeded),
        "an eighth: {seeded}"
    );
}

#[test]
fn without_seeds_and_reports_an_early_loss_leaves_the_window_per_rtt() {
    let mut law = Daimd::new(25_600.0, 1.125, false);
    law.on_start(Instant::EPOCH, &path());
    let rtt = path().srtt.as_secs_f64();
    law.on_loss(&overflow(1, 0));
    assert!(
        (law.period - (rtt + SYN) / FIRST_WINDOW).abs() < 1e-9,
        "{}",
        law.period
    );
}

/// Tests the values printed by libudt 4.11's perfmon after a single early loss.
#[test]
fn the_vector_of_libudt() {
    let mut law = started();
    law.on_ack(&ack(5, 1, Some(1_000)));
    assert_eq!((law.arrival, law.capacity), (14, 125));
    law.on_loss(&loss(6, 1));
    assert!((law.period * 1e6 - 71_428.57).abs() < 0.01);
    law.on_ack(&ack(10, 0, Some(1_000)));
    assert_eq!(law.capacity, 234);
    assert!(
        (law.period * 1e6 - 66_666.67).abs() < 0.01,
        "{}",
        law.period
    );
}

#[test]
fn the_step_follows_the_decimal_order_of_the_spare_capacity() {
    for (spare_mbit, packets_per_syn) in [
        (9_000.0, 10.0),
        (1_100.0, 10.0),
        (900.0, 1.0),
        (110.0, 1.0),
        (90.0, 0.1),
        (11.0, 0.1),
        (9.0, 0.01),
        (0.5, 0.01),
    ] {
        let mut law = started();
        law.period = 1.0;
        law.last_decrease_period = 2.0;
        law.capacity = size(spare_mbit * 1e6 / 12_000.0 + 1.0).bytes();
        let step = law.step();
        assert!(
            (step / packets_per_syn - 1.0).abs() < 1e-9,
            "{spare_mbit}: {step}"
        );
    }
}

#[test]
fn after_a_decrease_the_spare_capacity_is_a_ninth_at_most() {
    let mut law = started();
    law.slow_start = false;
    law.capacity = 100_000;
    law.period = 1e-3;
    law.last_decrease_period = 1e-3;
    assert!((law.step() - 10.0).abs() < 1e-9);
    law.period = 1.125e-3;
    // 1.2 Gbit/s / 9 = 133 Mbit/s.
    assert!((law.step() - 1.0).abs() < 1e-9);
}

#[test]
fn an_epoch_is_cut_five_times_at_most() {
    let mut law = started();
    law.slow_start = false;
    law.period = 1e-4;
    law.on_loss(&loss(10, 5));
    assert!(
        (law.period - 1.13e-4).abs() < 1e-9,
        "rounded up: {}",
        law.period
    );
    for _ in 0..100 {
        law.on_loss(&loss(11, 6));
    }
    let worst = 1e-4 * 1.125_f64.powi(5);
    assert!(law.period <= worst + 5e-6, "{} {worst}", law.period);
    let before = law.period;
    law.on_loss(&loss(50, 20));
    assert!((law.period / before - 1.125).abs() < 0.01, "a new epoch");
}

#[test]
fn nothing_grows_in_a_period_with_a_loss() {
    let mut law = started();
    law.slow_start = false;
    law.period = 1e-3;
    law.on_loss(&loss(5, 1));
    let cut = law.period;
    law.on_ack(&ack(12, 900, Some(10_000)));
    assert!((law.period - cut).abs() < 1e-12);
    law.on_ack(&ack(18, 900, Some(10_000)));
    assert!((law.period - cut).abs() < 1e-12, "too early");
    law.on_ack(&ack(23, 900, Some(10_000)));
    assert!(law.period < cut);
}

#[test]
fn slow_start_ends_at_the_flow_window() {
    let mut law = Daimd::new(100.0, 1.125, true);
    law.on_start(Instant::EPOCH, &path());
    let mut event = ack(10, 1_000, Some(5_000));
    event.packets = 50;
    law.on_ack(&event);
    assert!(law.slow_start);
    assert!((law.window - 67.0).abs() < 1e-9, "16 and 50 and 1");
    event.now = Instant::from_nanos(20_000_000);
    law.on_ack(&event);
    assert!(!law.slow_start);
    assert_eq!(law.observe().phase, "avoidance");
}

#[test]
fn without_seeds_a_pair_without_spacing_gives_twice_the_arrival_rate() {
    let mut law = Daimd::new(25_600.0, 1.125, false);
    law.on_start(Instant::EPOCH, &path());
    law.on_ack(&ack(10, 100_000, Some(1_000_000)));
    assert_eq!(law.capacity, 200_000);
    // libudt's first report says one packet per second, to which slow start must not be held.
    assert!(law.slow_start);
    assert!((law.period - MIN_PERIOD).abs() < 1e-12, "{}", law.period);
    for ms in 2..100 {
        law.on_ack(&ack(10 * ms, 50_000, Some(1_000)));
    }
    assert_eq!(law.capacity, 100_000, "what once arrived can arrive again");
}

/// Reports of libudt's receiver on bursts: half a million packets per second where 50,000 arrive.
#[test]
fn without_seeds_what_arrives_is_not_far_above_what_is_delivered() {
    let mut law = Daimd::new(25_600.0, 1.125, false);
    law.on_start(Instant::EPOCH, &path());
    let reported = |ms, arrival, delivered| AckEvent {
        rate: Some(RateSample {
            packets: 1_000,
            rate: packets(delivered),
            sent: packets(delivered),
            interval: Duration::from_millis(10),
            app_limited: false,
            loss: 0.0,
        }),
        ..ack(ms, arrival, Some(500_000))
    };
    law.on_ack(&reported(10, 1, 1_000));
    assert_eq!(
        law.arrival, 1_000,
        "what libudt invents at first is ignored"
    );
    law.on_ack(&reported(20, 500_000, 50_000));
    law.on_loss(&overflow(21, 1));
    let left = 1.0 / law.period;
    assert!((49_999.0..50_001.0).contains(&left), "{left}");
    law.on_ack(&reported(31, 500_000, 50_000));
    assert_eq!((law.arrival, law.capacity), (50_000, 500_000));
    law.on_ack(&reported(41, 20_000, 50_000));
    assert_eq!(
        law.arrival, 46_250,
        "the median of a receiver that keeps up"
    );

    let mut seeded = started();
    seeded.on_ack(&reported(10, 500_000, 50_000));
    assert!(
        seeded.arrival > 60_000,
        "libudt believes it: {}",
        seeded.arrival
    );
}

#[test]
fn without_seeds_slow_start_ends_at_the_fastest_arrival() {
    let mut law = Daimd::new(25_600.0, 1.125, false);
    law.on_start(Instant::EPOCH, &path());
    for (ms, arrival) in [(10, 1_000), (20, 50_000), (30, 100_000), (40, 60_000)] {
        law.on_ack(&ack(ms, arrival, Some(1_000_000)));
    }
    law.on_loss(&overflow(41, 1));
    let left = 1.0 / law.period;
    assert!((94_000.0..=100_000.0).contains(&left), "{left}");
}

#[test]
fn without_seeds_the_burst_that_ended_slow_start_is_counted_once() {
    for (seeds, counted) in [(false, false), (true, true)] {
        let mut law = Daimd::new(25_600.0, 1.125, seeds).with_cuts(1.0);
        law.on_start(Instant::EPOCH, &path());
        law.on_ack(&ack(10, 100_000, Some(100_000)));
        law.on_loss(&overflow(11, 1));
        let left = law.period;
        law.on_loss(&loss(12, 2));
        assert_eq!(law.period > left, counted, "seeds: {seeds}");
        let before = law.period;
        law.on_loss(&loss(50, 20));
        let cut = law.period;
        assert!(cut > before, "sent after it");
        law.on_loss(&loss(51, 21));
        assert!((law.period - cut).abs() < 1e-12, "once per epoch");
    }
}

#[test]
fn without_seeds_a_loss_here_and_there_does_not_end_slow_start() {
    for (seeds, ends) in [(false, false), (true, true)] {
        let mut law = Daimd::new(25_600.0, 1.125, seeds);
        law.on_start(Instant::EPOCH, &path());
        for round in 1..=20 {
            let mut event = ack(10 * round, 10_000, Some(100_000));
            event.packets = 50;
            law.on_ack(&event);
            law.on_loss(&loss(10 * round + 1, 10 * round));
        }
        assert_eq!(!law.slow_start, ends, "one packet in fifty, seeds: {seeds}");
        law.on_loss(&overflow(300, 290));
        assert!(!law.slow_start, "a tenth of a thousand");
    }
}
