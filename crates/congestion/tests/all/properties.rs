//! Tests properties that hold whatever happens. For every law, over random operations on paths up
//! to 400 Gbit/s and beyond a second, three things hold. The window never falls below a datagram,
//! the rate is never zero, time and sizes do not overflow.

use std::time::Duration;

use farhaul_congestion::{laws, lookup};
use farhaul_core::{
    congestion::{AckEvent, CongestionController, LossEvent, PathView, RateSample, TxSnapshot},
    time::Instant,
    units::{Rate, Size},
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Permille of the window acknowledged, rtt in µs, marks, whether app-limited.
    Ack(u64, u64, u64, bool),
    /// A loss: true if it begins an episode, then packets, permille of the window in flight when
    /// they left.
    Loss(bool, u32, u64),
    Timeout(u32),
    Undo,
    Tick,
    Idle(u64),
    Datagram(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u64..1_500, 1_u64..2_000_000, 0_u64..2, any::<bool>())
            .prop_map(|(acked, rtt, ce, app)| Op::Ack(acked, rtt, ce, app)),
        2 => (any::<bool>(), 1_u32..2_000, 0_u64..1_500)
            .prop_map(|(new, packets, held)| Op::Loss(new, packets, held)),
        1 => (1_u32..8).prop_map(Op::Timeout),
        1 => Just(Op::Undo),
        1 => Just(Op::Tick),
        1 => (0_u64..100_000_000).prop_map(Op::Idle),
        1 => (500_u32..65_000).prop_map(Op::Datagram),
    ]
}

struct World {
    now: Instant,
    path: PathView,
    round: u64,
    delivered: Size,
    lost: Size,
}

impl World {
    fn new(datagram: u32) -> Self {
        Self {
            now: Instant::from_nanos(1),
            path: PathView {
                datagram,
                srtt: Duration::from_secs(1),
                min_rtt: Duration::from_millis(1),
                feedback_interval: Duration::from_millis(10),
                reordering: Duration::ZERO,
                in_flight: Size::ZERO,
            },
            round: 0,
            delivered: Size::ZERO,
            lost: Size::ZERO,
        }
    }

    fn apply(&mut self, law: &mut dyn CongestionController, op: Op) {
        // A law without a window is held to a second of 400 Gbit/s.
        let window = law.allowance().window.bytes().min(50_000_000_000);
        self.now += Duration::from_millis(1);
        match op {
            Op::Ack(permille, rtt, ce, app_limited) => {
                self.path.srtt = Duration::from_micros(rtt);
                self.path.in_flight =
                    Size::from_bytes(window / 1_000 * (1_000 - permille.min(1_000)));
                self.round += permille / 700;
                self.now += self.path.srtt / 4;
                let acked = window / 1_000 * permille + permille;
                self.delivered += Size::from_bytes(acked);
                law.on_ack(&self.ack(acked, rtt, ce, app_limited, window));
            }
            Op::Loss(new_episode, packets, held) => {
                let facts = self.facts(window / 1_000 * held);
                let lost = Size::from_bytes(u64::from(self.path.datagram) * u64::from(packets));
                self.lost += lost;
                law.on_loss(&LossEvent {
                    now: self.now,
                    lost,
                    packets,
                    span: (5, 4 + 2 * u64::from(packets)),
                    new_episode,
                    oldest: TxSnapshot {
                        sent_at: facts.sent_at.earlier_by(self.path.srtt),
                        ..facts
                    },
                    newest: facts,
                    lost_total: self.lost,
                    in_flight_before: Size::from_bytes(window),
                    path: self.path,
                });
            }
            Op::Timeout(backoff) => law.on_timeout(self.now, backoff),
            Op::Undo => law.on_undo(self.now),
            Op::Tick => law.on_tick(self.now),
            Op::Idle(ms) => {
                let idle = Duration::from_millis(ms);
                self.now += idle;
                law.on_idle_restart(self.now, idle);
            }
            Op::Datagram(bytes) => self.path.datagram = bytes,
        }
        law.on_sent(self.now, Size::from_bytes(60_000), &self.path);
    }

    /// State at the sending of a packet that left an rtt ago.
    fn facts(&self, in_flight: u64) -> TxSnapshot {
        TxSnapshot {
            sent_at: self.now.earlier_by(self.path.srtt),
            in_flight: Size::from_bytes(in_flight),
            delivered: self.delivered - Size::from_bytes(in_flight),
            lost: self.lost - Size::from_bytes(in_flight / 64),
            app_limited: in_flight.is_multiple_of(7),
        }
    }

    fn ack(&self, acked: u64, rtt: u64, ce: u64, app_limited: bool, window: u64) -> AckEvent {
        AckEvent {
            now: self.now,
            acked: Size::from_bytes(acked),
            packets: u32::try_from(acked / u64::from(self.path.datagram)).unwrap_or(u32::MAX),
            round: self.round,
            in_flight_before: Size::from_bytes(window),
            rtt: Some(Duration::from_micros(rtt)),
            queue_delay: Some(Duration::from_micros(rtt / 2)),
            rate: Some(RateSample {
                packets: 1_000,
                rate: Rate::of(acked, Duration::from_micros(rtt)),
                sent: Rate::gbit(400),
                interval: Duration::from_micros(rtt),
                app_limited,
                loss: 0.0,
            }),
            delivered: self.delivered,
            lost: self.lost,
            newest: Some(self.facts(window)),
            ce,
            app_limited,
            path: self.path,
            ..AckEvent::default()
        }
    }
}

proptest! {
    #[test]
    fn every_law_keeps_its_bounds(
        ops in proptest::collection::vec(op(), 1..400),
        datagram in 500_u32..65_000,
        which in 0..laws().len(),
    ) {
        let name = laws()[which].name;
        let mut law = lookup(name).unwrap().make();
        let mut world = World::new(datagram);
        law.on_start(world.now, &world.path);
        let mut smallest = datagram;
        for op in ops {
            world.apply(law.as_mut(), op);
            smallest = smallest.min(world.path.datagram);
            let allowed = law.allowance();
            prop_assert!(allowed.window.bytes() >= u64::from(smallest), "{name} {op:?} {allowed:?}");
            prop_assert!(allowed.rate > Rate::ZERO, "{name} {op:?} {allowed:?}");
            prop_assert!(allowed.quantum > Size::ZERO, "{name} {op:?} {allowed:?}");
            prop_assert!(!law.observe().phase.is_empty());
            prop_assert_eq!(law.fault(), None, "{} {:?}", name, op);
        }
    }

    #[test]
    fn a_window_of_400_gbit_and_a_second_is_reached_and_survives(datagram in 1_200_u32..9_000) {
        for spec in ["reno:slow_start=classic", "cubic:slow_start=classic"] {
            let mut law = lookup(spec).unwrap().make();
            let mut world = World::new(datagram);
            world.path.srtt = Duration::from_secs(1);
            law.on_start(world.now, &world.path);
            for _ in 0..40 {
                world.apply(law.as_mut(), Op::Ack(1_000, 1_000_000, 0, false));
            }
            let window = law.allowance().window.bytes();
            prop_assert!(window >= 50_000_000_000, "{spec} {window}");
            prop_assert!(law.allowance().rate >= Rate::gbit(400));
            world.apply(law.as_mut(), Op::Loss(true, 1, 1_000));
            world.apply(law.as_mut(), Op::Idle(1_000_000_000));
            world.apply(law.as_mut(), Op::Ack(1_000, 1_000_000, 0, false));
            prop_assert!(law.allowance().window.bytes() >= window / 2);
        }
    }

    #[test]
    fn laws_of_rates_never_need_their_guard(
        ops in proptest::collection::vec(op(), 1..400),
        datagram in 500_u32..65_000,
        which in 0..RATES.len(),
    ) {
        let name = RATES[which];
        let mut law = lookup(name).unwrap().make();
        let mut world = World::new(datagram);
        law.on_start(world.now, &world.path);
        for op in ops {
            world.apply(law.as_mut(), op);
            let allowed = law.allowance();
            prop_assert!(allowed.window.bytes() <= 2_000_000_000_000, "{name} {op:?} {allowed:?}");
            prop_assert!(allowed.rate >= Rate::from_bps(100), "{name} {op:?} {allowed:?}");
            prop_assert!(allowed.rate <= Rate::gbit(100_000), "{name} {op:?} {allowed:?}");
            prop_assert!(allowed.quantum.bytes() <= 1 << 20, "{name} {op:?} {allowed:?}");
        }
    }
}

/// Laws that control a rate.
const RATES: [&str; 4] = ["bbr", "daimd", "sabul", "tfrc"];
