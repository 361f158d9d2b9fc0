//! The parts that all window laws share. The shell [`Windowed`] turns "grow on ack, keep on loss"
//! into a whole controller, so that Reno, CUBIC and their kin are only their formulas.
//!
//! Invariants: the window is at least two datagrams (one after a timeout) and at most
//! [`MAX_WINDOW`]. It grows only if it was in use, and is cut once per loss episode. The last cut
//! can be undone; the pacing rate is never zero.

use std::time::Duration;

use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CcState, CongestionController, FeedbackRequest, LossEvent, PathView,
    },
    time::Instant,
    units::{Rate, Size},
};

use crate::slow_start::{SlowStart, Start};

/// The most a window may be, bytes: 400 Gbit/s times 20 s.
pub(crate) const MAX_WINDOW: f64 = 1e12;
/// Pacing over `window / rtt` while the window doubles each round.
const GAIN_SLOW_START: f64 = 2.0;
/// Pacing over `window / rtt` afterwards: enough to use the window up in spite of jitter.
const GAIN_AVOIDANCE: f64 = 1.25;
/// The most bytes sent back to back.
const MAX_QUANTUM: f64 = 65_536.0;
/// The rtt assumed by pacing at least, so that a rate stays finite.
const MIN_RTT: Duration = Duration::from_micros(1);

/// A congestion window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    bytes: f64,
    ssthresh: f64,
    datagram: f64,
}

impl Window {
    /// The initial window of RFC 6928 for datagrams of `datagram` bytes.
    pub fn initial(datagram: u32) -> Self {
        let datagram = f64::from(datagram.max(1));
        Self {
            bytes: (10.0 * datagram).min((2.0 * datagram).max(14_600.0)),
            ssthresh: f64::INFINITY,
            datagram,
        }
    }

    /// Bytes.
    pub const fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Full datagrams, with fraction.
    pub fn packets(&self) -> f64 {
        self.bytes / self.datagram
    }

    /// Bytes of a full datagram.
    pub const fn datagram(&self) -> f64 {
        self.datagram
    }

    /// Threshold below which the window grows exponentially, bytes; infinite before the first
    /// congestion.
    pub const fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// Bytes by which the window grows over `acked` bytes if a round adds `alpha` full datagrams:
    /// dw/da = alpha mss / w, integrated.
    pub fn additive(&self, acked: Size, alpha: f64) -> f64 {
        let twice = 2.0 * alpha * self.datagram * float(acked.bytes());
        // No `mul_add`: without FMA in the target it is a call.
        twice / ((self.bytes * self.bytes + twice).sqrt() + self.bytes)
    }

    /// `bytes` in full datagrams.
    pub fn count(&self, bytes: Size) -> f64 {
        float(bytes.bytes()) / self.datagram
    }

    fn set(&mut self, bytes: f64, floor_packets: f64) {
        self.bytes = bytes.clamp(floor_packets * self.datagram, MAX_WINDOW);
    }
}

/// Cause of a smaller window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets were lost.
    Loss,
    /// Packets were marked "congestion experienced".
    Mark,
    /// A timeout occurred.
    Timeout,
}

/// One reduction of the window.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Time of the cut.
    pub now: Instant,
    /// Cause of the cut.
    pub cause: Cause,
}

/// A law of the window family.
pub trait Growth: Clone + Send {
    /// Name by which the law is chosen.
    fn name(&self) -> &'static str;

    /// True if the law makes up for packets acknowledged together, when a sender counts
    /// acknowledgements instead of bytes ([`Counting::Acks`]). Then it grows by one datagram per
    /// acknowledgement at most; otherwise each acknowledgement counts as one packet.
    const COMPENSATES: bool = false;

    /// True if a part of the growth is once per round and not per acknowledgement: counting these
    /// then does not bound the growth.
    const BY_ROUND: bool = false;

    /// Every acknowledgement, in every phase, before [`Self::grow`]: for laws that measure.
    fn watch(&mut self, _window: &Window, _ack: &AckEvent) {}

    /// Bytes to add for `ack`, which may cover many packets: integrate over them. Negative: bytes
    /// to take away; slow start does not bring them back.
    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64;

    /// The fraction of `window` kept, once per episode.
    fn keep(&mut self, window: &Window, cut: &Cut) -> f64;

    /// Requested feedback intervals.
    fn feedback_request(&self) -> FeedbackRequest {
        FeedbackRequest::default()
    }

    /// Slow start ended without a loss.
    fn on_slow_start_exit(&mut self, _window: &Window) {}

    /// An acknowledgement was received while the window was not in use: no growth.
    fn on_unused(&mut self, _now: Instant) {}
}

/// Event by which a window grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Bytes acknowledged (RFC 3465 without its limit: the sender is paced).
    #[default]
    Bytes,
    /// Acknowledgements, each as if it were for one packet, while two thirds of the window are in
    /// use: Linux before 3.x, at an interface that segments.
    Acks,
}

/// State that a cut overwrote.
#[derive(Clone, Debug)]
struct Saved<S, G> {
    window: Window,
    start: S,
    law: G,
}

/// A window law with everything around it; see the module's invariants.
#[derive(Clone, Debug)]
pub struct Windowed<S, G> {
    window: Window,
    start: S,
    law: G,
    counting: Counting,
    saved: Option<Saved<S, G>>,
    /// Time before which acknowledged packets were sent before the last cut.
    recovery_until: Option<Instant>,
    /// One rtt as the sender experiences it: with half the receiver's holding time.
    rtt: Duration,
    /// Smoothed rtt, s.
    rtt_s: f64,
    /// The allowance: computed when something changes, since it is read more often.
    allowance: Allowance,
    fault: Option<&'static str>,
}

impl<S: SlowStart, G: Growth> Windowed<S, G> {
    /// `law` after the slow start `start`.
    pub fn new(start: S, law: G) -> Self {
        let mut new = Self {
            window: Window::initial(1_200),
            start,
            law,
            counting: Counting::default(),
            saved: None,
            recovery_until: None,
            rtt: Duration::from_millis(100),
            rtt_s: 0.1,
            allowance: Allowance {
                window: Size::ZERO,
                rate: Rate::ZERO,
                quantum: Size::ZERO,
            },
            fault: None,
        };
        new.allow();
        new
    }

    /// Makes the window grow according to `counting`.
    #[must_use]
    pub const fn counting(mut self, counting: Counting) -> Self {
        self.counting = counting;
        self
    }

    /// `law` in its avoidance, with a window of `bytes`.
    pub(crate) fn resumed(start: S, law: G, bytes: f64, datagram: u32) -> Self {
        let mut resumed = Self::new(start, law);
        resumed.window = Window::initial(datagram);
        resumed.window.set(bytes, 2.0);
        resumed.window.ssthresh = resumed.window.bytes;
        resumed.allow();
        resumed
    }

    /// The window.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    fn learn(&mut self, path: &PathView) {
        self.window.datagram = f64::from(path.datagram.max(1));
        let rtt = (path.srtt + path.feedback_interval / 2).max(MIN_RTT);
        if rtt != self.rtt {
            self.rtt = rtt;
            self.rtt_s = rtt.as_secs_f64();
        }
    }

    const fn in_slow_start(&self) -> bool {
        self.window.bytes < self.window.ssthresh
    }

    /// True if the window was what limited the sender. Pacing and batching leave a part of the
    /// window free; a segment of 64 KiB that waits until it is full leaves a third of it at most.
    fn in_use(&self, ack: &AckEvent) -> bool {
        let flight = float(ack.in_flight_before.bytes());
        let share = match self.counting {
            // `tcp_is_cwnd_limited` of Linux in 2008 (from copies of its source, which release they
            // are of is inferred), with the default 3 of `tcp_tso_win_divisor`.
            Counting::Acks => 2.0 / 3.0,
            Counting::Bytes if self.in_slow_start() => 0.5,
            Counting::Bytes => 0.75,
        };
        flight >= share * self.window.bytes
            || flight + 3.0 * self.window.datagram >= self.window.bytes
    }

    fn cut(&mut self, cut: &Cut) {
        self.saved = Some(Saved {
            window: self.window,
            start: self.start.clone(),
            law: self.law.clone(),
        });
        let mut kept = self.law.keep(&self.window, cut).clamp(0.0, 1.0);
        if kept.is_nan() {
            self.fault = Some("to keep a share of the window that is not a number");
            kept = 0.5;
        }
        let bytes = self.window.bytes * kept;
        self.window.set(bytes, 2.0);
        self.window.ssthresh = self.window.bytes;
        self.start.on_congestion();
        self.recovery_until = Some(cut.now + self.rtt);
    }

    fn grow(&mut self, ack: &AckEvent) {
        let by_acks = self.counting == Counting::Acks;
        let one = size(self.window.datagram);
        if self.in_slow_start() {
            let counted = if by_acks {
                ack.acked.min(one)
            } else {
                ack.acked
            };
            let rest = self.slow_start(counted, ack);
            if rest > 0.0 {
                self.avoid(&AckEvent {
                    acked: size(rest),
                    ..*ack
                });
            }
        } else if by_acks && !G::COMPENSATES {
            self.avoid(&AckEvent {
                acked: ack.acked.min(one),
                ..*ack
            });
        } else {
            self.avoid(ack);
        }
    }

    /// Grows by the law.
    fn avoid(&mut self, ack: &AckEvent) {
        let mut change = self.law.grow(&self.window, ack);
        if !change.is_finite() {
            self.fault = Some("a growth that is infinite or not a number");
            change = 0.0;
        }
        if self.counting == Counting::Acks && !G::BY_ROUND {
            change = change.min(self.window.datagram);
        }
        self.change(change);
    }

    /// Changes the window by `bytes`; the threshold follows it down.
    fn change(&mut self, bytes: f64) {
        if bytes >= 0.0 {
            self.window.set(self.window.bytes + bytes, 1.0);
        } else {
            let floor = self.window.packets().min(2.0);
            self.window.set(self.window.bytes + bytes, floor);
            self.window.ssthresh = self.window.ssthresh.min(self.window.bytes);
        }
    }

    /// Grows exponentially by `acked`; returns the rest of it for the law.
    fn slow_start(&mut self, acked: Size, ack: &AckEvent) -> f64 {
        let acked = float(acked.bytes());
        match self.start.on_ack(&self.window, ack) {
            Start::Leave => {
                self.window.ssthresh = self.window.bytes;
                self.law.on_slow_start_exit(&self.window);
                acked
            }
            Start::Grow(share) => {
                let room = self.window.ssthresh - self.window.bytes;
                let used = smaller(room / share, acked);
                self.window.set(self.window.bytes + used * share, 1.0);
                acked - used
            }
        }
    }

    fn pacing_rate(&self) -> f64 {
        let gain = if self.in_slow_start() {
            GAIN_SLOW_START
        } else {
            GAIN_AVOIDANCE
        };
        (gain * self.window.bytes * 8.0 / self.rtt_s).max(1_000.0)
    }

    /// Bytes sent in a ms at `rate`, bit/s; but two datagrams at least, and [`MAX_QUANTUM`] at
    /// most.
    fn burst(&self, rate: f64) -> f64 {
        let least = 2.0 * self.window.datagram;
        // Divides only between the bounds.
        if rate <= 8_000.0 * least {
            return least;
        }
        let burst = if rate >= 8_000.0 * MAX_QUANTUM {
            MAX_QUANTUM
        } else {
            rate / 8_000.0
        };
        larger(burst, least)
    }

    fn allow(&mut self) {
        let rate = self.pacing_rate();
        self.allowance = Allowance {
            window: size(self.window.bytes),
            rate: Rate::from_f64(rate),
            quantum: size(self.burst(rate)),
        };
    }

    fn hear(&mut self, ack: &AckEvent) {
        self.learn(&ack.path);
        self.law.watch(&self.window, ack);
        if self.recovery_until.is_some_and(|end| ack.now < end) {
            return;
        }
        self.recovery_until = None;
        if ack.ce > 0 {
            self.cut(&Cut {
                now: ack.now,
                cause: Cause::Mark,
            });
        } else if self.in_use(ack) {
            self.grow(ack);
        } else {
            self.law.on_unused(ack.now);
        }
    }
}

impl<S: SlowStart, G: Growth> CongestionController for Windowed<S, G> {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn on_start(&mut self, _now: Instant, path: &PathView) {
        self.learn(path);
        self.window = Window::initial(path.datagram);
        self.allow();
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.hear(ack);
        self.allow();
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.learn(&loss.path);
        if loss.new_episode {
            self.cut(&Cut {
                now: loss.now,
                cause: Cause::Loss,
            });
        }
        self.allow();
    }

    fn on_timeout(&mut self, now: Instant, backoff: u32) {
        // RFC 5681: the threshold falls once per timeout, not again for each repetition of it.
        if backoff <= 1 {
            self.cut(&Cut {
                now,
                cause: Cause::Timeout,
            });
        }
        self.window.set(0.0, 1.0);
        self.recovery_until = None;
        self.allow();
    }

    fn on_undo(&mut self, _now: Instant) {
        if let Some(saved) = self.saved.take()
            && saved.window.bytes > self.window.bytes
        {
            let datagram = self.window.datagram;
            self.window = Window {
                datagram,
                ..saved.window
            };
            self.window.set(self.window.bytes, 1.0);
            self.start = saved.start;
            self.law = saved.law;
            self.recovery_until = None;
            self.allow();
        }
    }

    fn allowance(&self) -> Allowance {
        self.allowance
    }

    fn feedback_request(&self) -> FeedbackRequest {
        self.law.feedback_request()
    }

    fn fault(&mut self) -> Option<&'static str> {
        self.fault.take()
    }

    fn observe(&self) -> CcState {
        let phase = match (self.recovery_until, self.in_slow_start()) {
            (Some(_), _) => "recovery",
            (None, true) => self.start.phase(),
            (None, false) => "avoidance",
        };
        CcState {
            phase,
            ssthresh: Some(self.window.ssthresh)
                .filter(|s| s.is_finite())
                .map(|s| size(s).bytes()),
            bandwidth: None,
        }
    }
}

/// The larger of two numbers; `b` if `a` is none. One instruction: `f64::max` takes five, for it asks of
/// both whether they are numbers.
pub(crate) const fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The smaller of two numbers; `b` if `a` is none. See [`larger`].
pub(crate) const fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Bytes as a float.
#[expect(clippy::cast_precision_loss, reason = "laws do not count single bytes")]
pub(crate) const fn float(bytes: u64) -> f64 {
    bytes as f64
}

/// A float as bytes; negative and NaN become zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float-to-int `as` saturates, which is what is wanted"
)]
pub(crate) const fn size(bytes: f64) -> Size {
    Size::from_bytes(bytes as u64)
}
