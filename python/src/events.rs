//! Events that a law in Python sees, and the values that it returns. They are the events of the
//! Rust traits by the same names. Times and durations are in seconds, sizes in bytes, rates in
//! bit/s; `None` where nothing is known. Values are read when asked for, since most laws look at a
//! few of them.

use std::time::Duration;

use farhaul_core::{
    congestion as rust,
    time::Instant,
    units::{Rate, Size},
};
use pyo3::{exceptions::PyValueError, prelude::*};

/// Seconds since the run's start.
pub(crate) fn seconds(at: Instant) -> f64 {
    at.since(Instant::EPOCH).as_secs_f64()
}

/// The instant so many seconds after the run's start, or none.
pub(crate) fn instant(returned: &Bound<'_, PyAny>) -> PyResult<Option<Instant>> {
    let Some(seconds) = returned.extract::<Option<f64>>()? else {
        return Ok(None);
    };
    let since = Duration::try_from_secs_f64(seconds)
        .map_err(|e| PyValueError::new_err(format!("next_tick() gave {seconds}: {e}")))?;
    Ok(Some(Instant::EPOCH + since))
}

macro_rules! view {
    ($(#[$about:meta])* $name:ident, $($(#[$doc:meta])* $field:ident: $type:ty = |$this:ident| $value:expr;)*) => {
        $(#[$about])*
        #[pyclass(frozen, module = "farhaul")]
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) rust::$name);

        #[pymethods]
        impl $name {
            $($(#[$doc])* #[getter] fn $field(&self) -> $type { let $this = &self.0; $value })*

            fn __repr__(&self) -> String {
                format!("{:?}", self.0)
            }
        }
    };
}

view! {
    /// The path as the engine knows it.
    PathView,
    /// UDP payload bytes of a full datagram.
    datagram: u32 = |p| p.datagram;
    /// Smoothed rtt, s; the initial guess before any sample.
    srtt: f64 = |p| p.srtt.as_secs_f64();
    /// Smallest rtt in memory, s.
    min_rtt: f64 = |p| p.min_rtt.as_secs_f64();
    /// Longest time that feedback is held back at the receiver, s.
    feedback_interval: f64 = |p| p.feedback_interval.as_secs_f64();
    /// Time by which packets that are not lost arrive later than packets sent after them, as far as
    /// learnt, s.
    reordering: f64 = |p| p.reordering.as_secs_f64();
    /// Bytes in flight, after this event.
    in_flight: u64 = |p| p.in_flight.bytes();
}

view! {
    /// Sender state when a packet was sent.
    TxSnapshot,
    /// Time at which the packet was sent, s.
    sent_at: f64 = |t| seconds(t.sent_at);
    /// Bytes in flight, its batch included.
    in_flight: u64 = |t| t.in_flight.bytes();
    /// Wire bytes acknowledged until then, ever.
    delivered: u64 = |t| t.delivered.bytes();
    /// Wire bytes believed lost until then, ever.
    lost: u64 = |t| t.lost.bytes();
    /// The sender had nothing more to send after it.
    app_limited: bool = |t| t.app_limited;
}

view! {
    /// Delivery rate over about one rtt.
    RateSample,
    /// Delivered per time, bit/s.
    rate: f64 = |r| r.rate.as_f64();
    /// Bytes per time at which they were sent, bit/s.
    sent: f64 = |r| r.sent.as_f64();
    /// The time it covers, s.
    interval: f64 = |r| r.interval.as_secs_f64();
    /// The sender was not limited by the allowance.
    app_limited: bool = |r| r.app_limited;
    /// Packets sent in that time.
    packets: u64 = |r| r.packets;
    /// Share of them that were lost, 0 to 1.
    loss: f64 = |r| r.loss;
}

view! {
    /// One feedback packet's acknowledgements.
    AckEvent,
    /// Time now, s.
    now: f64 = |a| seconds(a.now);
    /// Wire bytes newly acknowledged.
    acked: u64 = |a| a.acked.bytes();
    /// Packets newly acknowledged.
    packets: u32 = |a| a.packets;
    /// Rounds (packet-timed round trips) completed so far.
    round: u64 = |a| a.round;
    /// True if the acknowledgement is the first of its round.
    round_start: bool = |a| a.round_start;
    /// Bytes in flight before this feedback.
    in_flight_before: u64 = |a| a.in_flight_before.bytes();
    /// The rtt sample of this feedback, s, without the receiver's holding time.
    rtt: Option<f64> = |a| a.rtt.map(|d| d.as_secs_f64());
    /// One-way delay to the receiver above the least seen, s.
    queue_delay: Option<f64> = |a| a.queue_delay.map(|d| d.as_secs_f64());
    /// The delivery rate now.
    rate: Option<RateSample> = |a| a.rate.map(RateSample);
    /// Wire bytes acknowledged so far, ever, these included.
    delivered: u64 = |a| a.delivered.bytes();
    /// Wire bytes believed lost so far, ever.
    lost: u64 = |a| a.lost.bytes();
    /// Snapshot of the newest packet acknowledged.
    newest: Option<TxSnapshot> = |a| a.newest.map(TxSnapshot);
    /// Rate at which data arrives by the receiver's own measure, bit/s, in protocols that carry it.
    receiver_arrival: Option<f64> = |a| a.receiver.map(|r| r.arrival.as_f64());
    /// Capacity of the bottleneck by the receiver's packet pairs, bit/s.
    receiver_capacity: Option<f64> = |a| a.receiver.and_then(|r| r.capacity).map(Rate::as_f64);
    /// Packets marked "congestion experienced", newly reported.
    ce: u64 = |a| a.ce;
    /// The sender had nothing to send rather than no allowance.
    app_limited: bool = |a| a.app_limited;
    /// The path.
    path: PathView = |a| PathView(a.path);
}

view! {
    /// Packets believed lost.
    LossEvent,
    /// Time now, s.
    now: f64 = |l| seconds(l.now);
    /// Wire bytes lost.
    lost: u64 = |l| l.lost.bytes();
    /// Packets lost.
    packets: u32 = |l| l.packets;
    /// First and last packet number among them.
    span: (u64, u64) = |l| l.span;
    /// The first loss since a packet sent after the last episode began was lost: react once.
    new_episode: bool = |l| l.new_episode;
    /// Snapshot of the first of them.
    oldest: TxSnapshot = |l| TxSnapshot(l.oldest);
    /// Snapshot of the last of them.
    newest: TxSnapshot = |l| TxSnapshot(l.newest);
    /// Wire bytes believed lost so far, ever, these included.
    lost_total: u64 = |l| l.lost_total.bytes();
    /// Bytes in flight before these losses were noticed.
    in_flight_before: u64 = |l| l.in_flight_before.bytes();
    /// The path.
    path: PathView = |l| PathView(l.path);
}

view! {
    /// One received batch.
    Arrival,
    /// Time now, s.
    now: f64 = |a| seconds(a.now);
    /// Ack-eliciting datagrams.
    packets: u32 = |a| a.packets;
    /// Wire bytes of the packets.
    bytes: u64 = |a| a.bytes;
    /// Highest packet number seen plus one.
    end: u64 = |a| a.end;
    /// Packets received so far, ever; `end` less this is lost or on its way.
    received: u64 = |a| a.received;
    /// Datagrams marked "congestion experienced".
    ce: u32 = |a| a.ce;
}

/// Limits on sending: a window in bytes, or `None` for no limit, and a rate in bit/s, at which it
/// is paced. Also the most bytes back to back; by default 64 KiB.
#[pyclass(frozen, module = "farhaul")]
#[derive(Clone, Copy)]
pub(crate) struct Allowance(pub(crate) rust::Allowance);

/// The default of [`Allowance`]'s quantum.
const QUANTUM: f64 = 65_536.0;

#[pymethods]
impl Allowance {
    #[new]
    #[pyo3(signature = (window=None, rate=None, quantum=QUANTUM))]
    fn new(window: Option<f64>, rate: Option<f64>, quantum: f64) -> PyResult<Self> {
        let rate = rate.ok_or_else(|| {
            let text = "an allowance has a rate: for a law with a window that is 8 * window / srtt, with the srtt of its last event's path";
            PyValueError::new_err(text)
        })?;
        let limit = |what: &str, value: Option<f64>| match value {
            None => Ok(None),
            Some(value) if value >= 0.0 => Ok(Some(value)),
            Some(value) => Err(PyValueError::new_err(format!(
                "the {what} of an allowance is {value}, which is neither None nor 0 or more"
            ))),
        };
        Ok(Self(rust::Allowance {
            window: limit("window, bytes,", window)?.map_or(Size::UNLIMITED, size),
            rate: limit("rate, bit/s,", Some(rate))?.map_or(Rate::UNLIMITED, Rate::from_f64),
            quantum: limit("quantum, bytes,", Some(quantum))?.map_or(Size::UNLIMITED, size),
        }))
    }

    /// The most bytes in flight; `None` without a window.
    #[getter]
    fn window(&self) -> Option<u64> {
        let window = self.0.window;
        (window != Size::UNLIMITED).then(|| window.bytes())
    }

    /// Pacing rate, bit/s.
    #[getter]
    const fn rate(&self) -> f64 {
        self.0.rate.as_f64()
    }

    /// The most bytes to send back to back.
    #[getter]
    const fn quantum(&self) -> u64 {
        self.0.quantum.bytes()
    }

    fn __repr__(&self) -> String {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "None".into());
        let window = or_none(self.window().map(|w| w.to_string()));
        format!(
            "Allowance(window={window}, rate={}, quantum={})",
            self.rate(),
            self.quantum()
        )
    }
}

/// Whole bytes; more than there are numbers for is unlimited.
fn size(bytes: f64) -> Size {
    // As rates are made of floating point.
    Size::from_bytes(Rate::from_f64(bytes).bps())
}
