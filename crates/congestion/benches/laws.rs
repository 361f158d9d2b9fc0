//! Benchmarks the cost of a law: nanoseconds per feedback packet, for every law with its defaults.
//! A feedback packet is all input to the law (losses, acknowledgements, ticks that are due, a batch
//! that left) and the question for its allowance after each input. `start` is its first second on a
//! path. `steady` is what it does for most of its life: its start is over, and one packet in a
//! thousand is lost at random. `guarded` is `steady` behind the engine's guard, with all that the
//! engine asks: the difference is the framework's.
//!
//! A law is run once on a fluid path. Its input there is repeated, with the clock running, to
//! another of its kind. Packets that left between two feedback packets are one batch. Events lie in
//! the nearest cache, as they do in a session, which makes them just before.

use std::{hint::black_box, time::Duration};

use criterion::{
    Criterion, criterion_group, criterion_main,
    measurement::{Measurement, WallTime},
};
use farhaul_congestion::{Law, laws, lookup};
use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CongestionController, FeedbackRequest, Guard, LossEvent, PathView,
    },
    time::Instant,
    units::{Rate, Size},
};

#[allow(
    dead_code,
    clippy::cast_precision_loss,
    reason = "the tests use all of it; counts are small"
)]
#[path = "../tests/all/rates/fluid.rs"]
mod fluid;

use fluid::FluidPath;

/// Phases of a start, by what laws call them.
const STARTS: [&str; 6] = [
    "burst",
    "confirm",
    "startup",
    "drain",
    "slow start",
    "conservative slow start",
];
/// Duration of the `start`.
const START: Duration = Duration::from_secs(1);
/// Time at which steady work begins, and how much of it is repeated: a few cycles of any law.
const SETTLED: Duration = Duration::from_secs(4);
const STEADY: Duration = Duration::from_secs(3);

/// Events repeated in one go: no more than the nearest cache holds.
const NEAR: usize = 64;

/// Input of a law.
#[derive(Clone, Copy)]
enum Input {
    Sent(Instant, Size, PathView),
    Ack(AckEvent),
    Loss(LossEvent),
    Tick(Instant),
}

/// A law, and its input.
struct Heard {
    law: Box<dyn CongestionController>,
    inputs: Vec<Input>,
}

impl CongestionController for Heard {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        self.law.on_start(now, path);
    }

    fn on_sent(&mut self, now: Instant, bytes: Size, path: &PathView) {
        if let Some(Input::Sent(at, sum, view)) = self.inputs.last_mut() {
            (*at, *sum, *view) = (now, *sum + bytes, *path);
        } else {
            self.inputs.push(Input::Sent(now, bytes, *path));
        }
        self.law.on_sent(now, bytes, path);
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.inputs.push(Input::Ack(*ack));
        self.law.on_ack(ack);
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.inputs.push(Input::Loss(*loss));
        self.law.on_loss(loss);
    }

    fn on_tick(&mut self, now: Instant) {
        self.inputs.push(Input::Tick(now));
        self.law.on_tick(now);
    }

    fn next_tick(&self) -> Option<Instant> {
        self.law.next_tick()
    }

    fn sample_window(&self) -> Option<Duration> {
        self.law.sample_window()
    }

    fn feedback_request(&self) -> FeedbackRequest {
        self.law.feedback_request()
    }

    fn max_lag(&self) -> Duration {
        self.law.max_lag()
    }

    fn allowance(&self) -> Allowance {
        self.law.allowance()
    }
}

/// Inputs that are repeated: first unmeasured, then measured.
struct Story {
    began: (Instant, PathView),
    before: Vec<Input>,
    then: Vec<Input>,
}

impl Story {
    fn of(law: &Law, settled: Duration, lasts: Duration) -> Self {
        let mut path = FluidPath::new(Rate::gbit(1), 100, 8_948, 12_500_000);
        path.lose_one_in = 1_000;
        let mut heard = Heard {
            law: lookup(law.name).expect("listed").make(),
            inputs: Vec::new(),
        };
        let began = (path.now, path.view());
        path.start(&mut heard);
        path.run(&mut heard, settled);
        let before = std::mem::take(&mut heard.inputs);
        let phase = heard.law.observe().phase;
        assert!(
            settled.is_zero() || !STARTS.contains(&phase),
            "{} is still in its {phase}",
            law.name
        );
        path.run(&mut heard, lasts);
        let acks = heard.inputs.iter().filter(|t| matches!(t, Input::Ack(_)));
        assert!(acks.count() > 10, "{} hears nothing", law.name);
        Self {
            began,
            before,
            then: heard.inputs,
        }
    }

    /// A law that has had the input before.
    fn opened<T: Teller>(&self, law: &Law) -> T {
        let mut made = lookup(law.name).expect("listed").make();
        made.on_start(self.began.0, &self.began.1);
        let mut feeder = T::from(made);
        for inputs in &self.before {
            feeder.feed(inputs);
        }
        feeder
    }

    /// Tells a law `feedbacks` feedback packets of it; the time that takes.
    fn timed<T: Teller>(&self, law: &Law, feedbacks: u64) -> Duration {
        let clock = WallTime;
        let (mut left, mut spent) = (feedbacks, clock.zero());
        let mut near = Vec::with_capacity(NEAR);
        while left > 0 {
            let mut feeder: T = self.opened(law);
            for part in self.then.chunks(NEAR) {
                near.clear();
                near.extend_from_slice(part);
                let began = clock.start();
                for inputs in &near {
                    if left == 0 {
                        break;
                    }
                    left -= u64::from(matches!(inputs, Input::Ack(_)));
                    feeder.feed(black_box(inputs));
                }
                spent = clock.add(&spent, &clock.end(began));
            }
        }
        spent
    }
}

/// Caller that passes input to a law, and asks for the law's allowance.
trait Teller: From<Box<dyn CongestionController>> {
    fn feed(&mut self, inputs: &Input);
}

struct Bare(Box<dyn CongestionController>);

impl From<Box<dyn CongestionController>> for Bare {
    fn from(law: Box<dyn CongestionController>) -> Self {
        Self(law)
    }
}

impl Teller for Bare {
    fn feed(&mut self, inputs: &Input) {
        match inputs {
            Input::Sent(now, bytes, path) => self.0.on_sent(*now, *bytes, path),
            Input::Ack(ack) => self.0.on_ack(ack),
            Input::Loss(loss) => self.0.on_loss(loss),
            Input::Tick(now) => self.0.on_tick(*now),
        }
        black_box(self.0.allowance());
    }
}

struct Guarded(Guard);

impl From<Box<dyn CongestionController>> for Guarded {
    fn from(law: Box<dyn CongestionController>) -> Self {
        Self(Guard::new(law))
    }
}

impl Teller for Guarded {
    fn feed(&mut self, inputs: &Input) {
        match inputs {
            Input::Sent(now, bytes, path) => self.0.on_sent(*now, *bytes, path),
            Input::Ack(ack) => self.0.on_ack(ack),
            Input::Loss(loss) => self.0.on_loss(loss),
            Input::Tick(now) => self.0.notify(*now, |law| law.on_tick(*now)),
        }
        black_box(self.0.allowance());
    }
}

fn measure<T: Teller>(c: &mut Criterion, phase: &str, settled: Duration, lasts: Duration) {
    let mut group = c.benchmark_group(phase);
    for law in laws() {
        let story = Story::of(law, settled, lasts);
        group.bench_function(law.name, |b| {
            b.iter_custom(|feedbacks| story.timed::<T>(law, feedbacks));
        });
    }
    group.finish();
}

fn start(c: &mut Criterion) {
    measure::<Bare>(c, "start", Duration::ZERO, START);
}

fn steady(c: &mut Criterion) {
    measure::<Bare>(c, "steady", SETTLED, STEADY);
}

fn guarded(c: &mut Criterion) {
    measure::<Guarded>(c, "guarded", SETTLED, STEADY);
}

criterion_group!(benches, start, steady, guarded);
criterion_main!(benches);
