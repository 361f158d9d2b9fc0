//! Defines the input and output of a congestion law. The engine calls a law once per feedback
//! packet with everything that packet reported, losses before acknowledgements; the law returns an
//! [`Allowance`]. Sequence bookkeeping, loss detection, rtt, pacing and liveness are the engine's,
//! never the law's.

mod guard;
mod mail;
mod receiver;
mod sharing;

use std::time::Duration;

pub use guard::Guard;
pub use mail::Mail;
pub use receiver::{Arrival, ReceiverLaw};
pub use sharing::{NotASharing, Sharing};

use crate::{
    datagram::CongestionHeader,
    time::Instant,
    units::{Rate, Size},
};

/// Limits that a law sets: a window, a rate, and the most that leaves at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The most bytes in flight; [`Size::UNLIMITED`] for a law without a window.
    pub window: Size,
    /// Pacing rate.
    pub rate: Rate,
    /// The most bytes to send back to back.
    pub quantum: Size,
}

/// The path as the engine knows it; read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// UDP payload bytes of a full datagram.
    pub datagram: u32,
    /// Smoothed rtt; the initial guess before any sample.
    pub srtt: Duration,
    /// Smallest rtt in memory.
    pub min_rtt: Duration,
    /// Longest time that the receiver holds back feedback.
    pub feedback_interval: Duration,
    /// Extra delay of reordered packets that are not lost, after packets sent later, as far as
    /// learnt (RFC 8985 §6.2).
    pub reordering: Duration,
    /// Bytes in flight, after this event.
    pub in_flight: Size,
}

impl Default for PathView {
    fn default() -> Self {
        Self {
            datagram: 1_200,
            srtt: Duration::from_millis(100),
            min_rtt: Duration::from_millis(100),
            feedback_interval: Duration::from_millis(5),
            reordering: Duration::ZERO,
            in_flight: Size::ZERO,
        }
    }
}

/// Sender state when a packet was sent, returned with its acknowledgement or loss. Packets of one batch
/// share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxSnapshot {
    /// Time at which the packet was sent.
    pub sent_at: Instant,
    /// Bytes in flight, its batch included.
    pub in_flight: Size,
    /// Wire bytes acknowledged until then, ever.
    pub delivered: Size,
    /// Wire bytes believed lost until then, ever.
    pub lost: Size,
    /// True if the sender had nothing more to send after it.
    pub app_limited: bool,
}

/// Path measurements of the receiver, in protocols that have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverRates {
    /// Rate at which data arrives.
    pub arrival: Rate,
    /// Capacity of the bottleneck by packet pairs.
    pub capacity: Option<Rate>,
}

/// Delivery rate over about one rtt, measured by the receiver's own clock (after
/// draft-cheng-iccrg-delivery-rate-estimation). The rate is never above that at which the same
/// packets were sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSample {
    /// Bytes delivered per time.
    pub rate: Rate,
    /// Bytes per time at which they were sent.
    pub sent: Rate,
    /// Time that the sample covers.
    pub interval: Duration,
    /// True if the sender was not limited by the allowance: the sample may raise an estimate, not
    /// lower it.
    pub app_limited: bool,
    /// Packets sent in that time.
    pub packets: u64,
    /// Share of the packets that were lost, 0 to 1.
    pub loss: f64,
}

impl RateSample {
    /// Packets needed to conclude anything from their losses.
    const TELLING: u64 = 100;

    /// True if the sample covers enough packets to conclude from their losses that the path is
    /// full.
    pub const fn is_telling(&self) -> bool {
        self.packets >= Self::TELLING
    }
}

/// One feedback packet's acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckEvent {
    /// Time of the event.
    pub now: Instant,
    /// Wire bytes newly acknowledged.
    pub acked: Size,
    /// Packets newly acknowledged.
    pub packets: u32,
    /// Rounds (packet-timed round trips) completed so far.
    pub round: u64,
    /// True for the first event of its round.
    pub round_start: bool,
    /// Bytes in flight before this feedback.
    pub in_flight_before: Size,
    /// The rtt sample of this feedback, without the receiver's holding time.
    pub rtt: Option<Duration>,
    /// One-way delay to the receiver above the least seen: queueing on the way there.
    pub queue_delay: Option<Duration>,
    /// The delivery rate now.
    pub rate: Option<RateSample>,
    /// Wire bytes acknowledged so far, ever, these included.
    pub delivered: Size,
    /// Wire bytes believed lost so far, ever.
    pub lost: Size,
    /// Snapshot of the newest packet acknowledged.
    pub newest: Option<TxSnapshot>,
    /// The receiver's own measures, in protocols that carry them.
    pub receiver: Option<ReceiverRates>,
    /// Packets marked "congestion experienced", newly reported.
    pub ce: u64,
    /// True if the sender had nothing to send rather than no allowance.
    pub app_limited: bool,
    /// The path.
    pub path: PathView,
}

/// Packets believed lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossEvent {
    /// Time of the event.
    pub now: Instant,
    /// Wire bytes lost.
    pub lost: Size,
    /// Packets lost.
    pub packets: u32,
    /// First and last packet number among them.
    pub span: (u64, u64),
    /// True for the first loss of an episode, of a packet sent after the last episode began: react
    /// once.
    pub new_episode: bool,
    /// Snapshot of the first of them.
    pub oldest: TxSnapshot,
    /// Snapshot of the last of them.
    pub newest: TxSnapshot,
    /// Wire bytes believed lost so far, ever, these included.
    pub lost_total: Size,
    /// Bytes in flight before these losses were noticed.
    pub in_flight_before: Size,
    /// The path.
    pub path: PathView,
}

/// The most bytes of one message between the halves of a law.
pub const MAX_MESSAGE: usize = 255;

/// Internals for traces and plots, never for control.
#[derive(Clone, Copy, Debug, Default)]
pub struct CcState {
    /// Name of the phase the law is in.
    pub phase: &'static str,
    /// Slow-start threshold in bytes, if the law has one.
    pub ssthresh: Option<u64>,
    /// Bandwidth estimate, if the law has one.
    pub bandwidth: Option<Rate>,
}

/// Parameters of a path that a connection proved, for the next connection over the path (saved
/// parameters, RFC 9959).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPath {
    /// Delivery rate that was held, wire bytes.
    pub capacity: Rate,
    /// Smallest rtt.
    pub min_rtt: Duration,
}

impl SavedPath {
    /// True for an rtt of half to twice the saved one: the path may be the same (RFC 9959 asks for
    /// a check of the rtt before resuming).
    pub fn is_like(&self, rtt: Duration) -> bool {
        rtt * 2 >= self.min_rtt && rtt <= self.min_rtt * 2
    }
}

/// Requested feedback frequency (like QUIC's `ACK_FREQUENCY`), sent to the receiver in band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedbackRequest {
    /// Feedback interval (`None`: the engine chooses). What the law requests is looked at with each
    /// report that gives a delivery-rate sample.
    pub interval: Option<Duration>,
    /// Longest interval, if the engine chooses.
    pub longest: Option<Duration>,
    /// Least time, if the engine chooses and `longest` is no shorter; the end of the data may still
    /// have a shorter one.
    pub shortest: Duration,
    /// Shorter interval for packets sent now, of a packet train. Also looked at when the law's
    /// timer has expired.
    pub train: Option<Duration>,
    /// Most packets between reports (`None`: by time alone).
    pub packets: Option<u32>,
}

impl FeedbackRequest {
    /// Twice in a sample, or five times in one of less than 25 ms.
    pub fn for_samples(window: Option<Duration>) -> Self {
        let in_each = |window| {
            if window < Duration::from_millis(25) {
                5
            } else {
                2
            }
        };
        Self {
            longest: window.map(|window| window / in_each(window)),
            ..Self::default()
        }
    }

    /// True if the request says something of the time.
    pub fn is_timed(&self) -> bool {
        !self.shortest.is_zero() || self.interval.or(self.longest).or(self.train).is_some()
    }
}

/// Order of repairs and new data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairOrder {
    /// Repairs at once.
    #[default]
    First,
    /// Repairs when nothing new waits: rounds, as blasts do.
    Last,
}

/// A congestion controller.
pub trait CongestionController: Send {
    /// Name by which the law is chosen.
    fn name(&self) -> &'static str;

    /// Sets the share of contended links to claim; false if the law does not support it.
    fn set_sharing(&mut self, sharing: Sharing) -> bool {
        sharing == Sharing::Fair
    }

    /// Makes the flow one of `lanes` that claim the share of one together; false if the law does
    /// not support it.
    fn set_lanes(&mut self, lanes: u32) -> bool {
        lanes == 1
    }

    /// The connection opened, or moved to another path; the path is known as far as the handshake
    /// shows it.
    fn on_start(&mut self, _now: Instant, _path: &PathView) {}

    /// An earlier connection over this path proved `saved`: called after [`Self::on_start`], before
    /// anything is sent. A law that resumes begins with a part of it and has to confirm it (RFC
    /// 9959).
    fn resume(&mut self, _now: Instant, _saved: &SavedPath) {}

    /// Parameters of the path that this connection has proved: none while the connection is
    /// starting; the resumed ones until they are confirmed or refuted.
    fn saved(&self) -> Option<SavedPath> {
        None
    }

    /// The connection closes.
    fn on_close(&mut self, _now: Instant) {}

    /// Called once per batch sent.
    fn on_sent(&mut self, _now: Instant, _bytes: Size, _path: &PathView) {}

    /// Called once per feedback packet, after its losses.
    fn on_ack(&mut self, ack: &AckEvent);

    /// Called once per feedback packet or timer that revealed losses.
    fn on_loss(&mut self, loss: &LossEvent);

    /// No feedback for a whole timeout; `backoff` counts them in a row.
    fn on_timeout(&mut self, _now: Instant, _backoff: u32) {}

    /// The losses of the last episode proved spurious.
    fn on_undo(&mut self, _now: Instant) {}

    /// Sending resumes after `idle` with nothing in flight.
    fn on_idle_restart(&mut self, _now: Instant, _idle: Duration) {}

    /// Receiving half that this law requires at the peer; the handshake fails if the peer
    /// does not have it.
    fn receiver(&self) -> Option<&'static str> {
        None
    }

    /// Handles a message of the law's receiving half; see [`Self::message`].
    fn on_message(&mut self, _now: Instant, _bytes: &[u8]) {}

    /// Writes a message to the law's receiving half: appended to `into`, at most
    /// [`MAX_MESSAGE`] bytes. Called after every event; messages are sealed, small, unordered and may
    /// be lost.
    fn message(&mut self, _now: Instant, _into: &mut Vec<u8>) {}

    /// The law's own timer.
    fn on_tick(&mut self, _now: Instant) {}

    /// Time to call [`Self::on_tick`].
    fn next_tick(&self) -> Option<Instant> {
        None
    }

    /// Time over which a delivery-rate sample should reach (`None`: about one rtt).
    fn sample_window(&self) -> Option<Duration> {
        None
    }

    /// Requested feedback intervals: as samples need them, unless the law overrides this method.
    fn feedback_request(&self) -> FeedbackRequest {
        FeedbackRequest::for_samples(self.sample_window())
    }

    /// Time within which a late sender, or one that had nothing to send, sends back to back what is
    /// due, besides a quantum. The default is the most that the pacer permits.
    fn max_lag(&self) -> Duration {
        Duration::MAX
    }

    /// Silence after which the engine calls [`Self::on_timeout`] and probes (`None`: its own, after
    /// RFC 9002 §6.2). Asked again for each; the engine doubles it for each in a row.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Congestion header of each datagram of a batch, for laws with router feedback; called
    /// once per batch. Only the simulator has such routers: a law that returns one is refused
    /// on real sockets.
    fn congestion_header(&self) -> Option<CongestionHeader> {
        None
    }

    /// Order of repairs and new data.
    fn repair_order(&self) -> RepairOrder {
        RepairOrder::First
    }

    /// Window, rate and quantum allowed now.
    fn allowance(&self) -> Allowance;

    /// Takes a short description of an internal fault, if there was one.
    fn fault(&mut self) -> Option<&'static str> {
        None
    }

    /// Internals, for traces and plots.
    fn observe(&self) -> CcState {
        CcState::default()
    }
}
