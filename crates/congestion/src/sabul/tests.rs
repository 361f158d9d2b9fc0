use farhaul_core::congestion::TxSnapshot;

use super::*;

const PERIOD_MS: u64 = 10;

struct Run {
    law: Sabul,
    ms: u64,
}

impl Run {
    fn new(mimd: bool) -> Self {
        let mut law = Sabul::new(mimd, 0.001, 10.0, 25_600.0);
        let path = PathView {
            datagram: 1_000,
            ..PathView::default()
        };
        law.on_start(Instant::EPOCH, &path);
        law.gap = 100.0;
        Self { law, ms: 0 }
    }

    /// A period in which `sent` packets left and `lost` were reported lost in reports of their own.
    fn period(&mut self, sent: u64, lost: u32) -> f64 {
        let bytes = Size::from_bytes(sent * 1_000);
        self.law
            .on_sent(Instant::EPOCH, bytes, &PathView::default());
        for _ in 0..lost {
            let facts = TxSnapshot {
                sent_at: Instant::from_nanos(self.ms * 1_000_000),
                ..TxSnapshot::default()
            };
            self.law.on_loss(&LossEvent {
                now: Instant::from_nanos((self.ms + 1) * 1_000_000),
                packets: 1,
                oldest: facts,
                newest: facts,
                ..LossEvent::default()
            });
        }
        self.ms += PERIOD_MS;
        self.law.on_tick(Instant::from_nanos(self.ms * 1_000_000));
        self.law.gap
    }
}

#[test]
fn without_loss_the_gap_shrinks_by_a_hundredth_each_period() {
    let mut run = Run::new(true);
    assert!(
        (run.period(100, 0) - 99.0).abs() < 1e-9,
        "at most a hundredth"
    );
    run.law.history = 0.0005 / 0.1;
    // 0.1 of 0.005 is below the limit by 0.0005: half as much.
    assert!((run.period(100, 0) / 99.0 - 0.995).abs() < 1e-9);
}

#[test]
fn beyond_the_limit_it_grows_with_the_loss() {
    let mut run = Run::new(true);
    let history: f64 = 0.9 * 0.1;
    let expected = 100.0 * (1.0 + 0.1 * (history - 0.001)) + 0.5;
    assert!((run.period(100, 10) - expected).abs() < 1e-9);
}

#[test]
fn bounds_hold() {
    let mut run = Run::new(true);
    for _ in 0..1_000 {
        run.period(100, 0);
    }
    assert!((run.law.gap - 10.0).abs() < 1e-9);
    for _ in 0..3_000 {
        run.period(1, 1);
    }
    assert!((run.law.gap - 1_000.0).abs() < 1e-9);
}

#[test]
fn an_idle_period_changes_nothing() {
    let mut run = Run::new(true);
    assert!((run.period(0, 0) - 100.0).abs() < 1e-9);
}

/// A gap of 12 us is 833 packets a period: one more each.
#[test]
fn version_2_3_adds_a_thousandth_of_the_decimal_order() {
    let mut run = Run::new(false);
    run.law.gap = 12.0;
    let gap = run.period(833, 0);
    assert!((10_000.0 / gap - 10_000.0 / 12.0 - 1.0).abs() < 1e-9);
}

#[test]
fn version_2_3_cuts_at_the_first_and_then_at_the_16th_32nd_64th_report() {
    let mut run = Run::new(false);
    let facts = TxSnapshot::default();
    let mut cuts = Vec::new();
    for report in 1..=70 {
        let before = run.law.gap;
        run.law.on_loss(&LossEvent {
            now: Instant::from_nanos(5),
            packets: 1,
            oldest: facts,
            newest: facts,
            ..LossEvent::default()
        });
        if run.law.gap > before {
            assert!((run.law.gap / before - 1.125).abs() < 1e-9);
            cuts.push(report);
        }
    }
    assert_eq!(cuts, [1, 16, 32, 64]);
    assert_eq!(
        run.law.allowance().window,
        Size::from_bytes(1_000),
        "frozen"
    );
    run.law.on_tick(Instant::from_nanos(PERIOD_MS * 1_000_000));
    assert!(run.law.allowance().window > Size::from_bytes(1_000_000));
}
