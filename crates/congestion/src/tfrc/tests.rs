use super::*;

const RTT: Duration = Duration::from_millis(100);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-3
}

#[test]
fn the_equation() {
    // By hand: 1460 / (0.1 * 0.081650 + 0.4 * 3 * 0.061237 * 0.01 * 1.0032).
    assert!(close(throughput(1_460.0, 0.1, 0.01), 164_004.0));
    // For small p it is the square-root law, 1.2247 / sqrt(p) packets per rtt.
    assert!(close(throughput(1.0, 1.0, 1e-8), 12_247.0));
    // A tenth lost: timeouts dominate.
    assert!(throughput(1.0, 1.0, 0.1) < 1.2247 / 0.1_f64.sqrt() / 2.0);
}

#[test]
fn the_equation_is_inverted() {
    for p in [1e-8, 1e-5, 1e-3, 0.05, 0.7] {
        let rate = throughput(1_460.0, 0.05, p);
        assert!(close(loss_for(1_460.0, 0.05, rate), p), "{p}");
    }
}

#[test]
fn losses_within_an_rtt_are_one_event() {
    let mut intervals = Intervals::default();
    intervals.begin(500.0);
    for (number, ms) in [(100, 0), (110, 10), (150, 100), (200, 101)] {
        intervals.lost(number, at(ms), RTT);
    }
    // The made-up interval of 500 and one of 100 packets.
    assert!(close(1.0 / intervals.rate().unwrap(), 300.0));
}

#[test]
fn eight_intervals_count_the_older_the_less() {
    let mut intervals = Intervals::default();
    intervals.begin(1_000_000.0);
    let mut number = 0;
    for i in 0..=8_u64 {
        intervals.lost(number, at(200 * i), RTT);
        number += 100;
    }
    assert!(
        close(1.0 / intervals.rate().unwrap(), 100.0),
        "the first is forgotten"
    );
    intervals.lost(number + 600, at(2_000), RTT);
    // 700 instead of 100 with weight 1 of 6.
    assert!(close(1.0 / intervals.rate().unwrap(), 200.0));
}

#[test]
fn a_long_time_without_loss_counts_at_once_and_the_past_less_and_less() {
    let mut intervals = Intervals::default();
    intervals.begin(100.0);
    for i in 0..=8 {
        intervals.lost(i * 100, at(200 * i), RTT);
    }
    intervals.passed(150.0);
    // (150 + 100 * 5) / 6: seven of the eight closed ones weigh 5 - with the last left out.
    let plain = (150.0 + 100.0 * 4.8 + 20.0) / 6.0;
    assert!(close(1.0 / intervals.rate().unwrap(), plain));
    intervals.passed(250.0);
    // 400 is four times the mean: the past counts for half.
    let discounted = (400.0 + 100.0 * 5.0 * 0.5) / (1.0 + 5.0 * 0.5);
    assert!(close(1.0 / intervals.rate().unwrap(), discounted));
}

fn ack(ms: u64, rate: Rate) -> AckEvent {
    AckEvent {
        now: at(ms),
        packets: 10,
        rtt: Some(RTT),
        rate: Some(farhaul_core::congestion::RateSample {
            packets: 1_000,
            rate,
            sent: rate,
            interval: RTT,
            app_limited: false,
            loss: 0.0,
        }),
        path: PathView {
            datagram: 1_000,
            ..PathView::default()
        },
        ..AckEvent::default()
    }
}

#[test]
fn slow_start_doubles_once_per_rtt_up_to_twice_what_arrives() {
    let mut law = Tfrc::new();
    law.on_start(at(0), &ack(0, Rate::ZERO).path);
    law.on_ack(&ack(100, Rate::gbit(1)));
    let first = law.rate;
    law.on_ack(&ack(150, Rate::gbit(1)));
    assert!(close(law.rate, first), "half an rtt later");
    law.on_ack(&ack(201, Rate::gbit(1)));
    assert!(close(law.rate, 2.0 * first));
    for i in 3..10 {
        law.on_ack(&ack(i * 101, Rate::mbit(1)));
    }
    assert!(close(law.rate, 250_000.0), "{}", law.rate);
}

#[test]
fn the_first_loss_halves_what_arrives() {
    let mut law = Tfrc::new();
    law.on_start(at(0), &ack(0, Rate::ZERO).path);
    for i in 1..30 {
        law.on_ack(&ack(i * 101, Rate::mbit(80)));
    }
    law.on_loss(&LossEvent {
        now: at(3_100),
        packets: 1,
        path: ack(0, Rate::ZERO).path,
        ..LossEvent::default()
    });
    assert!(close(law.rate, 5_000_000.0), "{}", law.rate);
    assert_eq!(law.observe().phase, "equation");
}

#[test]
fn missing_feedback_halves_and_never_stops() {
    let mut law = Tfrc::new();
    law.on_start(at(0), &ack(0, Rate::ZERO).path);
    let before = law.rate;
    law.on_timeout(at(500), 1);
    assert!(close(law.rate, before / 2.0));
    for backoff in 2..200 {
        law.on_timeout(at(1_000), backoff);
    }
    assert!(close(law.rate, 1_000.0 / 64.0), "a datagram in 64 s");
}
