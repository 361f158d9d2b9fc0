//! Slows down or holds a transfer while it runs, by a rate that any thread may set. The rate paces
//! what is sent. Content that arrives gets no more room than the rate allows, so the sender has to
//! wait.
//!
//! - A transfer that is held still moves a little, so that neither side takes the other for dead.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use farhaul_core::{
    congestion::Sharing,
    protocol::Session,
    store::{Extent, Sink},
    time::Instant,
    units::Rate,
};

use crate::lanes::Lanes;

/// The rate of a transfer that is held.
pub const HELD: Rate = Rate::from_bps(100_000);
/// Time's worth of bytes that may arrive at once under a rate: less keeps no path busy.
const BURST: Duration = Duration::from_millis(250);
/// A shard reads its socket only if 512 KiB have room.
const LEAST_BURST: u64 = 1 << 20;
/// Time between two looks at how much may arrive.
const REFILL: Duration = Duration::from_millis(10);

/// Wishes of other threads for one session.
#[derive(Debug)]
pub struct Control {
    /// Bits per second.
    rate: AtomicU64,
    /// Rate by the time of day, bits per second.
    scheduled: AtomicU64,
    held: AtomicBool,
    /// The copy that its session belongs to, as the first or a further parallel session.
    copy: OnceLock<Weak<Lanes>>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            rate: AtomicU64::new(Rate::UNLIMITED.bps()),
            scheduled: AtomicU64::new(Rate::UNLIMITED.bps()),
            held: AtomicBool::new(false),
            copy: OnceLock::new(),
        }
    }
}

impl Control {
    /// Sets the highest rate, below those of the policy. Where the session is one of several
    /// parallel ones, the rate is that of their copy.
    pub fn set_rate(&self, rate: Rate) {
        self.change(|control| control.rate.store(rate.bps(), SeqCst));
    }

    /// Sets the highest rate at this time of day, whatever else is set.
    pub fn schedule(&self, rate: Rate) {
        self.scheduled.store(rate.bps(), Relaxed);
    }

    /// Holds the session and all other sessions of its copy, or lets them go on.
    pub fn hold(&self, held: bool) {
        self.change(|control| control.held.store(held, SeqCst));
    }

    /// True if the session is held.
    pub fn is_held(&self) -> bool {
        self.look(|control| control.held.load(SeqCst))
    }

    /// The highest rate, unless it is held.
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.look(|control| control.rate.load(SeqCst)))
    }

    /// Follows the parallel sessions of a copy: settings for one of them hold for all, earlier ones
    /// too.
    pub(crate) fn follow(&self, lanes: &Arc<Lanes>) {
        let _only_once = self.copy.set(Arc::downgrade(lanes));
        let first = &lanes.brake.control;
        first.rate.fetch_min(self.rate.load(SeqCst), SeqCst);
        first.held.fetch_or(self.held.load(SeqCst), SeqCst);
    }

    fn copy(&self) -> Option<Arc<Lanes>> {
        self.copy.get()?.upgrade()
    }

    /// Applies `change` to its own settings first, and then to the copy's: a session that begins to
    /// follow meanwhile misses neither.
    fn change(&self, change: impl Fn(&Self)) {
        change(self);
        if let Some(copy) = self.copy() {
            change(&copy.brake.control);
            copy.wake_all();
        }
    }

    fn look<T>(&self, look: impl Fn(&Self) -> T) -> T {
        self.copy()
            .map_or_else(|| look(self), |copy| look(&copy.brake.control))
    }

    /// The rate now.
    fn now(&self) -> Rate {
        let scheduled = Rate::from_bps(self.scheduled.load(Relaxed));
        let rate = self.rate().min(scheduled);
        if self.is_held() { rate.min(HELD) } else { rate }
    }
}

/// Allowance of bytes that may arrive.
#[derive(Debug)]
struct Intake {
    rate: Rate,
    /// Bytes that have arrived, and that may have.
    placed: u64,
    limit: u64,
    filled: Option<Instant>,
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            rate: Rate::UNLIMITED,
            placed: 0,
            limit: 0,
            filled: None,
        }
    }
}

impl Intake {
    const fn place(&mut self, bytes: u64) {
        self.placed += bytes;
    }

    /// Allows what has become due at `rate`; the first time a burst.
    fn refill(&mut self, now: Instant, rate: Rate) {
        let most = rate.bytes_in(BURST).max(LEAST_BURST);
        let due = match self.filled {
            Some(before) if self.is_limited() => rate.bytes_in(now.since(before)),
            _ => most,
        };
        self.rate = rate;
        // A moment that is too short for a byte counts later.
        if due > 0 || self.filled.is_none() {
            self.filled = Some(now);
        }
        self.limit = self.limit.max(self.placed).saturating_add(due);
        self.limit = self.limit.min(self.placed.saturating_add(most));
    }

    fn is_limited(&self) -> bool {
        self.rate != Rate::UNLIMITED
    }

    /// Limits `sink` to the rate.
    fn within(&self, sink: Sink) -> Sink {
        if !self.is_limited() || sink.is_endless() {
            return sink;
        }
        Sink {
            free: sink.free.min(self.limit.saturating_sub(self.placed)),
            ..sink
        }
    }
}

/// Keeps a transfer to the rate of now.
pub(crate) struct Brake {
    pub(crate) control: Arc<Control>,
    /// The highest rate by policy and request, and the share of a link.
    pub(crate) rate: Rate,
    pub(crate) sharing: Sharing,
    /// The parallel sessions of its copy, if there are several: together they keep to the rates,
    /// and claim one share.
    pub(crate) lanes: Option<Arc<Lanes>>,
    /// Rate, sharing and number of parallel sessions that the session was last governed with.
    governed: Option<(Rate, Sharing, u32)>,
    intake: Intake,
}

impl Brake {
    /// Makes a brake for a session that is governed with this share already.
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self {
            control: Arc::default(),
            rate: Rate::UNLIMITED,
            sharing,
            lanes: None,
            governed: Some((Rate::UNLIMITED, sharing, 1)),
            intake: Intake::default(),
        }
    }

    /// Passes the current rate on to a session that sends, or limits one that receives. False if
    /// the session cannot be governed so.
    pub(crate) fn keep(&mut self, now: Instant, sends: bool, session: &mut dyn Session) -> bool {
        let (mut rate, mut lanes) = (self.own(), 1);
        if let Some(all) = &self.lanes {
            lanes = all.sharing();
            rate = rate.min(all.brake.own());
            if rate != Rate::UNLIMITED {
                rate = Rate::from_bps(rate.bps() / u64::from(lanes));
            }
        }
        if !sends {
            self.intake.refill(now, rate);
            return true;
        }
        let wanted = Some((rate, self.sharing, lanes));
        if self.governed == wanted {
            return true;
        }
        self.governed = wanted;
        session.govern(rate, self.sharing) && session.split(lanes)
    }

    /// Forgets how the session was governed, as somebody else may have governed it: the next call
    /// governs it again.
    pub(crate) const fn forget(&mut self) {
        self.governed = None;
    }

    /// The highest rate now, of all parallel sessions together.
    fn own(&self) -> Rate {
        self.control.now().min(self.rate)
    }

    /// Makes a brake with the same limits, for all parallel sessions of a copy.
    pub(crate) fn of_all(&self) -> Self {
        let mut brake = Self::new(self.sharing);
        brake.control = Arc::clone(&self.control);
        brake.rate = self.rate;
        brake
    }

    /// Counts content that arrived.
    pub(crate) fn place(&mut self, extents: &[Extent]) {
        if self.intake.is_limited() {
            let bytes = extents.iter().map(|e| u64::from(e.len)).sum();
            self.intake.place(bytes);
        }
    }

    /// Limits `sink` to what may arrive.
    pub(crate) fn within(&self, sink: Sink) -> Sink {
        self.intake.within(sink)
    }

    /// Time at which more may arrive.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.intake.is_limited().then(|| now + REFILL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_keeps_to_the_rate_whatever_the_room() {
        let (mut intake, rate) = (Intake::default(), Rate::mbit(80));
        let roomy = Sink {
            free: 64 << 20,
            drained: 0,
        };
        assert_eq!(intake.within(roomy), roomy);
        let (mut now, mut placed) = (Instant::EPOCH, 0);
        for _ in 0..1_000 {
            intake.refill(now, rate);
            let free = intake.within(roomy).free;
            intake.place(free);
            placed += free;
            now += REFILL;
        }
        // 10 s of 10 MB/s, after the burst.
        let expected = rate.bytes_in(Duration::from_secs(10)) + rate.bytes_in(BURST);
        assert!(
            placed <= expected && placed > expected / 100 * 98,
            "{placed}"
        );
        intake.refill(now, Rate::UNLIMITED);
        assert_eq!(intake.within(roomy), roomy);
        assert_eq!(intake.within(Sink::ENDLESS), Sink::ENDLESS);
    }

    #[test]
    fn one_that_was_idle_saves_up_a_burst_and_no_more() {
        let mut intake = Intake::default();
        intake.refill(Instant::EPOCH, HELD);
        intake.refill(Instant::EPOCH + Duration::from_hours(1), HELD);
        let sink = Sink {
            free: u64::MAX - 1,
            drained: 0,
        };
        assert_eq!(intake.within(sink).free, LEAST_BURST);
    }
}
