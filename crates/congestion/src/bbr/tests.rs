use super::*;

const DATAGRAM: u32 = 1_000;

fn bbr() -> Bbr {
    let made = |name| {
        let parameter = LAW.parameters.iter().find(|p| p.name == name).unwrap();
        parameter.default.parse::<f64>().unwrap()
    };
    let mut bbr = Bbr::new(Settings {
        loss: made("loss"),
        keep: made("keep"),
        headroom: made("headroom"),
        startup_gain: made("startup_gain"),
        drain_gain: made("drain_gain"),
        up_gain: made("up_gain"),
        down_gain: made("down_gain"),
        wait: made("wait"),
    });
    let path = PathView {
        datagram: DATAGRAM,
        ..PathView::default()
    };
    bbr.on_start(Instant::from_nanos(1), &path);
    bbr
}

/// 1,000 packets in flight, 100 ms, and 10 MB/s known.
fn probing() -> Bbr {
    let mut bbr = bbr();
    bbr.model.update(
        &Sample {
            now: Instant::from_nanos(2),
            acked: 0.0,
            bandwidth: Some(1e7),
            app_limited: false,
            rtt: None,
            delivered: Size::ZERO,
            lost: Size::ZERO,
            newest: None,
            round_start: true,
            in_flight: 1e6,
            window_limited: true,
            hold: 0.0,
        },
        &bbr.set,
        true,
        1e6,
    );
    bbr.run_floor(&Sample {
        rtt: Some(Duration::from_millis(100)),
        ..sample(0, 0, 0)
    });
    bbr.model.full.reached = true;
    bbr.window = 2e6;
    bbr
}

fn sample(in_flight: u64, delivered_then: u64, delivered: u64) -> Sample {
    Sample {
        now: Instant::from_nanos(3),
        acked: 0.0,
        bandwidth: None,
        app_limited: false,
        rtt: None,
        delivered: Size::from_bytes(delivered),
        lost: Size::ZERO,
        newest: Some(TxSnapshot {
            in_flight: Size::from_bytes(in_flight),
            delivered: Size::from_bytes(delivered_then),
            ..TxSnapshot::default()
        }),
        round_start: false,
        in_flight: 1e6,
        window_limited: true,
        hold: 0.0,
    }
}

fn loss(lost: u64, in_flight: u64, lost_then: u64, total: u64) -> LossEvent {
    let facts = TxSnapshot {
        in_flight: Size::from_bytes(in_flight),
        lost: Size::from_bytes(lost_then),
        ..TxSnapshot::default()
    };
    LossEvent {
        now: Instant::from_nanos(4),
        lost: Size::from_bytes(lost),
        packets: 1,
        oldest: facts,
        newest: facts,
        lost_total: Size::from_bytes(total),
        ..LossEvent::default()
    }
}

#[test]
fn two_percent_lost_since_a_packet_was_sent_bounds_what_is_in_flight() {
    for (total, bounded) in [(20_000, false), (21_000, true)] {
        let mut bbr = probing();
        bbr.in_a_probe();
        bbr.on_loss(&loss(1_000, 1_000_000, 0, total));
        assert_eq!(bbr.model.inflight_hi.is_finite(), bounded, "{total}");
        assert_eq!(bbr.phase == Phase::Down, bounded, "the probe is over");
    }
}

#[test]
fn the_bound_is_where_the_losses_crossed_the_threshold() {
    // 1,900 packets before this report's, 10 of them lost; the report covers 100 more.
    let mut bbr = probing();
    bbr.in_a_probe();
    bbr.on_loss(&loss(100_000, 2_000_000, 0, 110_000));
    let (before, lost_before) = (1_900_000.0, 10_000.0);
    let expected = before + (0.02 * before - lost_before) / 0.98;
    let bound = bbr.model.inflight_hi;
    assert!((bound - expected).abs() < 1.0, "{bound} {expected}");
    // Once per probe.
    bbr.on_loss(&loss(100_000, 1_000_000, 0, 300_000));
    assert!((bbr.model.inflight_hi - bound).abs() < 1.0);
}

#[test]
fn a_bound_keeps_seven_tenths_of_the_target() {
    let mut bbr = probing();
    bbr.in_a_probe();
    bbr.on_loss(&loss(100_000, 200_000, 0, 200_000));
    // The product of 10 MB/s and 100 ms is 1 MB.
    assert!((bbr.model.inflight_hi - 700_000.0).abs() < 1.0);
    assert!((bbr.with_headroom() - (700_000.0 - 0.15 * (700_000.0 - bbr.waiting()))).abs() < 1.0);
}

#[test]
fn a_round_with_losses_lowers_by_no_more_than_three_tenths() {
    let mut bbr = probing();
    bbr.phase = Phase::Cruise;
    bbr.model.advance_latest(&sample(0, 0, 0));
    bbr.model.reset_signals();
    bbr.model.note_loss(1);
    // The first feedback begins the loss round, the second ends it.
    let set = bbr.set;
    bbr.model
        .update(&sample(1_000_000, 0, 500_000), &set, false, 1e6);
    let slow = Sample {
        bandwidth: Some(5e6),
        ..sample(1_000_000, 500_000, 1_000_000)
    };
    bbr.model.update(&slow, &set, false, 1e6);
    assert!(
        (bbr.model.bandwidth() - 7e6).abs() < 1.0,
        "{}",
        bbr.model.bandwidth()
    );
    bbr.model.reset_short_term();
    assert!((bbr.model.bandwidth() - 1e7).abs() < 1.0);
}

#[test]
fn spurious_losses_give_the_bounds_back() {
    let mut bbr = probing();
    bbr.in_a_probe();
    let mut event = loss(100_000, 1_000_000, 0, 300_000);
    event.new_episode = true;
    bbr.on_loss(&event);
    assert_eq!(bbr.phase, Phase::Down);
    bbr.on_undo(event.now);
    assert!(bbr.model.inflight_hi.is_infinite());
    assert_eq!(bbr.phase, Phase::Up);
}

impl Bbr {
    /// Puts the law into the middle of a probe.
    fn in_a_probe(&mut self) {
        self.cycle.begin_samples();
        self.start_up();
    }
}
