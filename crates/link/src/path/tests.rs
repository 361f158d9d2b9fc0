use farhaul_core::units::Rate;
use proptest::{prop_assert, proptest};

use super::*;
use crate::{
    config::{Aqm, QueueLimit, Reorder},
    loss::Loss,
};

const MS: Duration = Duration::from_millis(1);

fn path(config: &PathConfig) -> Path {
    config.validate().unwrap();
    Path::new(config, &Rng::new(42))
}

fn at(verdict: Verdict) -> Instant {
    match verdict {
        Verdict::Pass { at, .. } | Verdict::Twice { at, .. } => at,
        Verdict::Drop(cause) => panic!("dropped: {cause:?}"),
    }
}

fn us(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000)
}

#[test]
fn propagation_is_never_queue() {
    for delay in [0, 1, 50, 400] {
        let mut path = path(&PathConfig {
            rate: Rate::UNLIMITED,
            delay: MS * delay,
            queue: QueueLimit::Bytes(Size::from_bytes(9_000)),
            mtu: Some(9_000),
            ..PathConfig::default()
        });
        for i in 0..10_000 {
            let now = us(i);
            assert_eq!(at(path.offer(now, 9_000, Ecn::NotEct)), now + MS * delay);
            assert_eq!(
                (path.queued(now), path.wait(now)),
                (Size::ZERO, Duration::ZERO)
            );
        }
        assert_eq!(path.counters().max_wait, Duration::ZERO);
    }
}

#[test]
fn a_full_queue_drops_and_drains_at_the_rate() {
    let mut path = path(&PathConfig {
        rate: Rate::gbit(10),
        delay: MS,
        queue: QueueLimit::Bytes(Size::from_bytes(90_000)),
        ..PathConfig::default()
    });
    let mut drops = 0;
    for _ in 0..20 {
        if path.offer(us(0), 9_000, Ecn::NotEct) == Verdict::Drop(DropCause::Queue) {
            drops += 1;
        }
    }
    assert_eq!(drops, 10);
    assert_eq!(path.counters().max_queue, Size::from_bytes(90_000));
    assert_eq!(path.wait(us(0)), Duration::from_micros(72));
    assert_eq!(at(path.offer(us(72), 1_250, Ecn::NotEct)), us(1_073));
}

#[test]
fn mtu_policer_blackout_and_loss_have_their_own_causes() {
    let mut path = path(&PathConfig {
        mtu: Some(1_500),
        policer: Some(Policer {
            rate: Rate::mbit(8),
            burst: Size::from_bytes(3_000),
        }),
        blackouts: vec![Window {
            from: MS * 100,
            lasts: MS * 100,
        }],
        ..PathConfig::default()
    });
    let mut offer = |ms: u64, len| path.offer(us(ms * 1_000), len, Ecn::NotEct);
    assert_eq!(offer(0, 1_501), Verdict::Drop(DropCause::Mtu));
    assert!(matches!(offer(0, 1_500), Verdict::Pass { .. }));
    assert!(matches!(offer(0, 1_500), Verdict::Pass { .. }));
    assert_eq!(offer(1, 1_500), Verdict::Drop(DropCause::Policer));
    assert!(matches!(offer(2, 1_500), Verdict::Pass { .. }));
    assert_eq!(offer(150, 1_500), Verdict::Drop(DropCause::Blackout));
    assert!(matches!(offer(200, 1_500), Verdict::Pass { .. }));
    let counters = path.counters();
    assert_eq!(counters.dropped_in_all(), 3);
    assert_eq!(
        counters.offered,
        counters.passed + counters.dropped_in_all()
    );
}

#[test]
fn loss_on_the_wire_uses_capacity_and_loss_at_ingress_does_not() {
    let run = |loss_place| {
        let mut path = path(&PathConfig {
            loss: Loss::Random(0.5),
            loss_place,
            ..PathConfig::default()
        });
        for _ in 0..1_000 {
            let _ = path.offer(us(0), 1_250, Ecn::NotEct);
        }
        path.wait(us(0))
    };
    assert_eq!(run(LossPlace::Wire), MS);
    assert!(run(LossPlace::Ingress) < MS * 6 / 10);
}

#[test]
fn jitter_keeps_order_by_default() {
    for reorder in [false, true] {
        let mut path = path(&PathConfig {
            delay: MS,
            jitter: Some(Jitter {
                spread: MS,
                reorder,
            }),
            ..PathConfig::default()
        });
        let times: Vec<_> = (0..1_000)
            .map(|i| at(path.offer(us(i * 10), 1_000, Ecn::NotEct)))
            .collect();
        assert_eq!(times.is_sorted(), !reorder);
        assert!(times.iter().zip(0..).all(|(t, i)| *t >= us(i * 10) + MS));
        assert!(
            times
                .iter()
                .zip(0..)
                .all(|(t, i)| *t <= us(i * 10 + 1) + MS * 2)
        );
    }
}

#[test]
fn delay_steps_apply_to_packets_sent_after_them() {
    let mut path = path(&PathConfig {
        rate: Rate::UNLIMITED,
        delay: MS * 10,
        delay_steps: vec![Step {
            at: MS * 5,
            to: MS * 2,
        }],
        ..PathConfig::default()
    });
    assert_eq!(at(path.offer(us(4_999), 100, Ecn::NotEct)), us(14_999));
    assert_eq!(at(path.offer(us(5_000), 100, Ecn::NotEct)), us(7_000));
}

#[test]
fn shares_of_copies_damage_and_reordering_are_as_configured() {
    let mut path = path(&PathConfig {
        rate: Rate::UNLIMITED,
        duplicate: 0.01,
        corrupt: 0.02,
        reorder: Some(Reorder {
            share: 0.05,
            by: MS,
        }),
        ..PathConfig::default()
    });
    for i in 0..100_000 {
        let _ = path.offer(us(i), 1_000, Ecn::NotEct);
    }
    let counters = path.counters();
    assert!((900..1_100).contains(&counters.duplicated));
    assert!((1_850..2_150).contains(&counters.corrupted));
    assert!((4_800..5_200).contains(&counters.reordered));
}

#[test]
fn queue_management_marks_what_can_be_marked() {
    for aqm in ["codel", "red"] {
        let aqm: Aqm = aqm.parse().unwrap();
        for ecn in [Ecn::Ect0, Ecn::NotEct] {
            let mut path = path(&PathConfig {
                rate: Rate::mbit(100),
                aqm: Some(aqm),
                ..PathConfig::default()
            });
            // 105 Mbit/s offered for a second: the queue would stand at 50 ms in the end.
            for i in 0..8_750 {
                let _ = path.offer(us(i * 114), 1_500, ecn);
            }
            let counters = path.counters();
            let dropped = counters.dropped(DropCause::QueueManagement);
            if ecn == Ecn::Ect0 {
                assert!(counters.marked > 5, "{aqm:?} {counters:?}");
            } else {
                assert!(dropped > 5, "{aqm:?} {counters:?}");
                assert_eq!(counters.marked, 0);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_fate() {
    let config = PathConfig {
        loss: Loss::bursts(0.01, 4.0),
        jitter: Some(Jitter {
            spread: MS,
            reorder: true,
        }),
        duplicate: 0.01,
        ..PathConfig::default()
    };
    let run = || {
        let mut path = path(&config);
        let fates: Vec<_> = (0..10_000)
            .map(|i| path.offer(us(i), 9_000, Ecn::NotEct))
            .collect();
        (fates, path.counters().clone())
    };
    assert_eq!(run(), run());
}

proptest! {
    /// Against a naive twin that keeps every packet: the same departures and the same drops.
    #[test]
    fn the_virtual_queue_is_a_queue(
        gaps in proptest::collection::vec((0_u64..20_000, 40_u32..9_000), 1..200),
        rate in 50_u64..20_000,
        limit in 9_000_u64..100_000,
    ) {
        let rate = Rate::mbit(rate);
        let mut path = path(&PathConfig {
            rate,
            queue: QueueLimit::Bytes(Size::from_bytes(limit)),
            ..PathConfig::default()
        });
        let mut naive = NaiveQueue { rate: rate.bps(), limit, queue: Vec::new() };
        let mut now = 0;
        for (gap, len) in gaps {
            now += gap;
            let verdict = path.offer(Instant::from_nanos(now), len, Ecn::NotEct);
            match (naive.offer(now, len), verdict) {
                (Some(ideal), Verdict::Pass { at, .. }) => {
                    let error = ideal - NaiveQueue::ns(at);
                    prop_assert!((-0.01..1.01).contains(&error), "{error}");
                }
                (None, Verdict::Drop(DropCause::Queue)) => {}
                other => prop_assert!(naive.close(now, len), "{other:?}"),
            }
        }
    }
}

/// A queue that keeps (departure in ns, bytes) of every packet it took.
struct NaiveQueue {
    rate: u64,
    limit: u64,
    queue: Vec<(f64, u32)>,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers in a test")]
impl NaiveQueue {
    fn ns(at: Instant) -> f64 {
        at.as_nanos() as f64
    }

    fn free(&self, now: u64) -> f64 {
        self.queue
            .last()
            .map_or(now as f64, |last| last.0.max(now as f64))
    }

    fn work_after(&self, now: u64, len: u32) -> f64 {
        (self.free(now) - now as f64) * self.rate as f64 / 8e9 + f64::from(len)
    }

    fn offer(&mut self, now: u64, len: u32) -> Option<f64> {
        if self.work_after(now, len) > self.limit as f64 + 1e-6 {
            return None;
        }
        let leaves = self.free(now) + f64::from(len) * 8e9 / self.rate as f64;
        self.queue.push((leaves, len));
        Some(leaves)
    }

    /// True if float rounding decides.
    fn close(&self, now: u64, len: u32) -> bool {
        (self.work_after(now, len) - self.limit as f64).abs() < 1e-3
    }
}
