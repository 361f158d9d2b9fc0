//! Competes with flows that keep the queue full, to which yielding would only give more. The law
//! then follows CUBIC's window, and cuts the window for losses while the queue is near its recent
//! most. A loss with a shorter queue is random and ignored, unless most is lost.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, Allowance, CongestionController, LossEvent, PathView},
    time::Instant,
};

use crate::{cubic::Cubic, slow_start::Classic, window::Windowed};

/// Losses while the queue is above this part of its recent most are taken for congestion.
pub(super) const NEAR_FULL: f64 = 0.7;
/// The first time, earlier: the route may have become longer, without competing flows.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// A queue that shrinks by less while room is made is none.
const TOUCHED: Duration = Duration::from_millis(1);
/// Time for which the rtt without a queue is remembered.
const RTT_WINDOW: Duration = Duration::from_mins(1);
/// A queue below this part of its recent maximum shows that another flow has reduced its rate.
const DIP: f64 = 0.6;
/// Time without a loss after which competing flows are checked for.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The window that follows CUBIC.
#[derive(Clone, Debug)]
pub(super) struct Rival {
    window: Windowed<Classic, Cubic>,
    /// The rtt without a queue; stored, since the queue is not empty for long here.
    pub(super) empty_rtt: Duration,
    /// Time at which that is too old to be true.
    renew_at: Instant,
    queue: Duration,
    peak: Duration,
    /// The longest queue since the last check.
    pub(super) crest: Duration,
    /// The least rtt of the last epoch in competition, and while looking.
    competed: Option<Duration>,
    looked: Option<Duration>,
    /// The delay at the end of the last check.
    floor: Option<Duration>,
    /// Time before which losses belong to the last cut.
    deaf_until: Instant,
    /// Time to check for competing flows, with or without losses.
    pub(super) look_at: Instant,
}

impl Rival {
    /// Begins at `bytes`.
    pub(super) fn new(now: Instant, bytes: f64, path: &PathView, law: Cubic) -> Self {
        Self {
            window: Windowed::resumed(Classic, law, bytes, path.datagram),
            empty_rtt: path.min_rtt,
            renew_at: now + RTT_WINDOW,
            queue: Duration::ZERO,
            peak: Duration::ZERO,
            crest: Duration::ZERO,
            competed: None,
            looked: None,
            floor: None,
            deaf_until: now,
            look_at: now + FIRST_LOOK,
        }
    }

    /// Competes on with at least `bytes`: since the last time the estimate may have grown.
    pub(super) fn widen(&mut self, bytes: f64, path: &PathView, law: Cubic) {
        if bytes > self.window.window().bytes() {
            self.window = Windowed::resumed(Classic, law, bytes, path.datagram);
        }
    }

    pub(super) fn on_ack(&mut self, ack: &AckEvent) {
        if ack.now >= self.renew_at {
            self.empty_rtt = ack.path.min_rtt;
            self.renew_at = ack.now + RTT_WINDOW;
        }
        self.empty_rtt = self.empty_rtt.min(ack.path.min_rtt);
        if let Some(rtt) = ack.rtt {
            let queue = rtt.saturating_sub(self.empty_rtt);
            self.queue = queue;
            // Forgotten by a thousandth per report: within some seconds.
            self.peak = queue.max(self.peak.mul_f64(0.999));
            self.crest = self.crest.max(queue);
        }
        self.window.on_ack(ack);
    }

    /// Takes losses; true if the window was cut for them.
    pub(super) fn on_loss(&mut self, loss: &LossEvent) -> bool {
        let full = self.queue >= self.peak.mul_f64(NEAR_FULL);
        let cuts = full && !self.is_deaf(loss.now);
        if cuts {
            self.cut(loss.now, &loss.path);
        }
        cuts
    }

    /// True if losses belong to the last cut.
    pub(super) fn is_deaf(&self, now: Instant) -> bool {
        now < self.deaf_until
    }

    /// Cuts for losses.
    pub(super) fn cut(&mut self, now: Instant, path: &PathView) {
        self.window.on_loss(&LossEvent {
            now,
            path: *path,
            new_episode: true,
            ..LossEvent::default()
        });
        self.deaf_until = now + path.srtt;
        self.look_at = now + CHECK_INTERVAL;
    }

    /// The queue at an rtt of `rtt`.
    pub(super) const fn queue(&self, rtt: Duration) -> Duration {
        rtt.saturating_sub(self.empty_rtt)
    }

    /// Takes the least rtt of an epoch, in competition or while looking.
    pub(super) const fn epoch(&mut self, rtt: Duration, looking: bool) {
        if looking {
            self.looked = Some(rtt);
        } else {
            self.competed = Some(rtt);
        }
    }

    /// True if another flow has reduced its rate, given that the shortest recent queue is `least`.
    pub(super) fn dipped(&self, least: Duration) -> bool {
        least < self.crest.mul_f64(DIP)
    }

    /// Continues after a check. If draining changed nothing, or led to the delay of the last check,
    /// the path itself has become longer.
    pub(super) fn resume(&mut self, now: Instant, srtt: Duration) {
        // Returning makes a queue, and losses, of its own.
        self.deaf_until = now + srtt * 2;
        if let Some(after) = self.looked.take() {
            let unmoved = self.competed.is_some_and(|rtt| after + TOUCHED >= rtt);
            let again = self.floor.is_some_and(|rtt| rtt.abs_diff(after) < TOUCHED);
            if unmoved || again {
                self.empty_rtt = after;
            }
            self.floor = Some(after);
        }
        self.crest = Duration::ZERO;
        self.look_at = now + CHECK_INTERVAL;
    }

    pub(super) fn allowance(&self) -> Allowance {
        self.window.allowance()
    }
}
