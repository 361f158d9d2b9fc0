//! Policies of the share of a link that the flow claims. `fair` is the law as it is; `high` takes
//! larger steps up, and among window laws the window of two; `low` steps aside.
//!
//! A low flow whose probe shows that the link is full, and not by itself alone, takes a step
//! *down*. It gives way to a queue half as long, gives up more, never competes, and remembers for
//! ten minutes how short the path was (as LEDBAT++ does). So it does not forget a flow that keeps a
//! queue full for as long.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, Sharing},
    units::Rate,
};

use super::CAUTIOUS;
use crate::{cubic::Cubic, ledbat::Delay};

/// A low flow with less than this share of a full link is not alone on it.
const BESIDE: f64 = 0.6;
/// Share of the estimate that a low flow keeps when a probe shows that others fill the link too.
pub(super) const KEPT_BESIDE: f64 = 0.85;
/// A high flow's steps over a fair one's. With steps `k` times as large, `x / (1 - x)` of two flows
/// differ by `k` where they settle (`docs/laws/haul.md`). Two flows have 1.7 to 1, and one among
/// many `k` to 1.
const LARGER: f64 = 3.0;
/// Factor of a low flow for a standing queue, in addition to the measured one.
const QUEUE_FACTOR: f64 = 0.7;
/// Share of the estimate that a low flow keeps when draining did not empty the queue.
const KEPT_IN_VAIN: f64 = 0.5;
/// A low flow's queue is shorter by this.
const SHORT: u32 = 2;
/// Time for which a low flow holds still when draining did not help.
pub(super) const ASIDE: Duration = Duration::from_secs(1);
/// CUBIC's `beta` and `c` for a flow that drains at intervals to check for others. The mean window
/// is proportional to the fourth root of `c (3 + beta) / (4 (1 - beta))` (RFC 9438 §5.1). These
/// values make it half as large again as CUBIC's, which is the cost of the checks.
const LOOKING: (f64, f64) = (0.8, 1.5);
/// CUBIC's `beta` and `c`, as [`LOOKING`], for the window of more than one and a half of those.
const LOOKING_LARGER: (f64, f64) = (0.88, 6.0);

/// Share of the largest estimate that stays from probe to probe: half in ten minutes.
const FADING: f64 = 0.9994;
/// A low flow with this share of its largest estimate may be alone.
const MAYBE_ALONE: f64 = 0.5;

/// Evidence whether a low flow shares the link. A probe shows the same where others fill it and
/// where there is room, but not the next, once the room was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    Unseen,
    /// There is room, or there are others.
    Doubtful,
    There,
}

/// Claim of the flow, and its memory for the claim.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    pub(super) sharing: Sharing,
    /// Count of flows that have one share together, this one included.
    pub(super) lanes: u32,
    delay: Delay,
    others: Others,
    /// The largest estimate of the last minutes.
    most: Rate,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::new(Sharing::default())
    }
}

impl Behaviour {
    pub(super) const fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            lanes: 1,
            delay: Delay::new(),
            others: Others::Unseen,
            most: Rate::ZERO,
        }
    }

    /// Behaviour with the same claim, but without memory.
    pub(super) const fn anew(&self) -> Self {
        Self {
            lanes: self.lanes,
            ..Self::new(self.sharing)
        }
    }

    const fn is_low(&self) -> bool {
        matches!(self.sharing, Sharing::Low)
    }

    /// True if a queue that others fill is fought for.
    pub(super) const fn competes(&self) -> bool {
        !self.is_low()
    }

    /// Part of a probe's find that is taken on a link that was full lately.
    pub(super) fn step(&self) -> f64 {
        let step = match self.sharing {
            Sharing::Low | Sharing::Fair => CAUTIOUS,
            Sharing::High => LARGER * CAUTIOUS,
        };
        step / f64::from(self.lanes)
    }

    /// Takes what a probe from `estimate` on showed: this `share` of a full link, or a link that is
    /// not full.
    pub(super) fn on_probe(&mut self, share: Option<f64>, estimate: Rate) -> Others {
        self.most = self.most.scale(FADING).max(estimate);
        let seen = self.is_low() && share.is_some_and(|share| share < BESIDE);
        self.others = match self.others {
            _ if !seen => Others::Unseen,
            Others::Unseen if estimate >= self.most.scale(MAYBE_ALONE) => Others::Doubtful,
            _ => Others::There,
        };
        self.others
    }

    /// Factor for a standing queue, in addition to the measured one.
    pub(super) const fn kept(&self) -> f64 {
        match self.others {
            Others::There => QUEUE_FACTOR,
            Others::Unseen | Others::Doubtful => 1.0,
        }
    }

    /// Share kept when draining did not empty the queue; `fair` for flows that then compete.
    pub(super) const fn kept_in_vain(&self, fair: f64) -> f64 {
        if self.is_low() { KEPT_IN_VAIN } else { fair }
    }

    /// The queue that is given way to.
    pub(super) fn target(&self, fair: Duration) -> Duration {
        if self.is_low() { fair / SHORT } else { fair }
    }

    /// The window law among window laws.
    pub(super) fn rival(&self) -> Cubic {
        let (beta, c) = match self.sharing {
            Sharing::High => LOOKING_LARGER,
            Sharing::Low | Sharing::Fair => LOOKING,
        };
        // A window is proportional to the fourth root of `c`.
        Cubic::new(beta, c / f64::from(self.lanes).powi(4))
    }

    /// Queue that the law should assume for this feedback.
    pub(super) fn queue(&mut self, ack: &AckEvent) -> Option<Duration> {
        if !self.is_low() {
            return ack.queue_delay;
        }
        self.delay.update(ack);
        let remembered = Duration::try_from_secs_f64(self.delay.queue()).ok();
        ack.queue_delay
            .max(remembered.filter(|_| ack.rtt.is_some()))
    }
}
