//! Measures how much of the processor a law takes. A [`Stopwatch`] wraps every call into the law,
//! as the engine makes them, and adds up. The time of a call that does nothing is measured
//! beforehand and left out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use farhaul_congestion::Wrap;
use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CcState, CongestionController, FeedbackRequest, LossEvent, PathView,
        RepairOrder, SavedPath, Sharing,
    },
    datagram::CongestionHeader,
    time::{Instant, nanos},
    units::Size,
};
use farhaul_io::clock;

/// Counts calls into laws, and the time spent there.
#[derive(Clone, Debug)]
pub struct Stopwatch(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    calls: AtomicU64,
    nanos: AtomicU64,
    /// ns that an empty call takes by this clock, in thousandths.
    empty: u64,
}

/// Empty calls made to learn what they take.
const TRIALS: u64 = 10_000;

impl Default for Stopwatch {
    fn default() -> Self {
        let trial = Self(Arc::default());
        for _ in 0..TRIALS {
            trial.time(|| std::hint::black_box(()));
        }
        Self(Arc::new(Count {
            empty: trial.0.nanos.load(Ordering::Relaxed) * 1_000 / TRIALS,
            ..Count::default()
        }))
    }
}

impl Stopwatch {
    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// Time spent in these calls, less that of the clock.
    pub fn spent(&self) -> Duration {
        let clock = self.calls().saturating_mul(self.0.empty) / 1_000;
        let all = self.0.nanos.load(Ordering::Relaxed);
        Duration::from_nanos(all.saturating_sub(clock))
    }

    /// Puts this stopwatch around laws.
    pub fn wrap(&self) -> Wrap {
        let watch = self.clone();
        Wrap::new(move |law| {
            Box::new(Timed {
                law,
                watch: watch.clone(),
            })
        })
    }

    fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let begin = clock::now();
        let answer = call();
        let took = clock::now().since(begin);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.0.nanos.fetch_add(nanos(took), Ordering::Relaxed);
        answer
    }
}

/// A law with a stopwatch around it.
struct Timed {
    law: Box<dyn CongestionController>,
    watch: Stopwatch,
}

impl CongestionController for Timed {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn set_sharing(&mut self, sharing: Sharing) -> bool {
        self.law.set_sharing(sharing)
    }

    fn set_lanes(&mut self, lanes: u32) -> bool {
        self.law.set_lanes(lanes)
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        self.watch.time(|| self.law.on_start(now, path));
    }

    fn resume(&mut self, now: Instant, saved: &SavedPath) {
        self.watch.time(|| self.law.resume(now, saved));
    }

    fn saved(&self) -> Option<SavedPath> {
        self.law.saved()
    }

    fn on_close(&mut self, now: Instant) {
        self.watch.time(|| self.law.on_close(now));
    }

    fn on_sent(&mut self, now: Instant, bytes: Size, path: &PathView) {
        self.watch.time(|| self.law.on_sent(now, bytes, path));
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.watch.time(|| self.law.on_ack(ack));
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.watch.time(|| self.law.on_loss(loss));
    }

    fn on_timeout(&mut self, now: Instant, backoff: u32) {
        self.watch.time(|| self.law.on_timeout(now, backoff));
    }

    fn on_undo(&mut self, now: Instant) {
        self.watch.time(|| self.law.on_undo(now));
    }

    fn on_idle_restart(&mut self, now: Instant, idle: Duration) {
        self.watch.time(|| self.law.on_idle_restart(now, idle));
    }

    fn receiver(&self) -> Option<&'static str> {
        self.law.receiver()
    }

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        self.watch.time(|| self.law.on_message(now, bytes));
    }

    fn message(&mut self, now: Instant, into: &mut Vec<u8>) {
        self.watch.time(|| self.law.message(now, into));
    }

    fn on_tick(&mut self, now: Instant) {
        self.watch.time(|| self.law.on_tick(now));
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

    fn timeout(&self) -> Option<Duration> {
        self.law.timeout()
    }

    fn congestion_header(&self) -> Option<CongestionHeader> {
        self.law.congestion_header()
    }

    fn repair_order(&self) -> RepairOrder {
        self.law.repair_order()
    }

    fn allowance(&self) -> Allowance {
        self.watch.time(|| self.law.allowance())
    }

    fn fault(&mut self) -> Option<&'static str> {
        self.law.fault()
    }

    fn observe(&self) -> CcState {
        self.law.observe()
    }
}

#[cfg(test)]
mod tests {
    use farhaul_congestion::lookup;

    use super::*;

    #[test]
    fn calls_are_counted_and_answered_as_before() {
        let watch = Stopwatch::default();
        let plain = lookup("reno").unwrap();
        let mut timed = plain.clone().wrapped(watch.wrap()).make();
        let mut plain = plain.make();
        let ack = AckEvent {
            acked: Size::from_bytes(1_200),
            packets: 1,
            in_flight_before: Size::from_bytes(1 << 20),
            ..AckEvent::default()
        };
        for law in [&mut timed, &mut plain] {
            law.on_start(ack.now, &ack.path);
            law.on_ack(&ack);
        }
        assert_eq!(timed.allowance(), plain.allowance());
        assert_eq!((timed.name(), watch.calls()), ("reno", 3));
    }
}
