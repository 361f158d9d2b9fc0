//! Models a router that knows its link. An XCP router measures, over one mean rtt of the flows that
//! cross it, the spare rate and the queue that does not drain. In the headers of the packets of the
//! next interval it shares out, or takes back, what they leave.
//!
//! Efficiency and fairness are apart. The aggregate depends on rate and queue alone; gains are
//! shared out equally between flows and losses in proportion to their rates. A tenth of the traffic
//! is always dealt anew, so that shares become equal. The router is the half of a congestion law
//! that is in the network, so it reckons in floats as laws do. The link's own time does not depend
//! on it.
//!
//! Invariants: nothing written is NaN or infinite; a link without headers is only watched.
//!
//! Source: Katabi, Handley, Rohrs, SIGCOMM 2002, §3.5, with its constants. Other than there: an
//! interval ends with the first packet after it, so all is reckoned for the time that really
//! passed. The feedback of an interval is bounded as in the authors' own simulator.

use farhaul_core::{
    datagram::CongestionHeader,
    time::{Instant, nanos},
    units::{Rate, Size},
};

use crate::bottleneck::Arrival;

/// Share of the spare rate given out per interval.
const ALPHA: f64 = 0.4;
/// Share of the standing queue taken back per interval.
const BETA: f64 = 0.226;
/// Share of the traffic dealt anew per interval.
const GAMMA: f64 = 0.1;
/// The interval before any rtt is known, and the bounds of one, s.
const FIRST_INTERVAL: f64 = 0.1;
const INTERVALS: (f64, f64) = (1e-4, 10.0);
/// No rtt is less, s.
const LEAST_RTT: f64 = 1e-6;

/// Sums over an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Bytes offered, of any sender.
    input: f64,
    /// Bytes with a header.
    bytes: f64,
    /// Sum over packets with a header: rtt · bytes / window, which counts each flow once per its
    /// rtt.
    rtts: f64,
    /// Sum of rtt² · bytes / window over the same packets.
    square_rtts: f64,
}

/// Feedback shared out in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Deal {
    /// A packet's part, over what it counts by.
    scale: f64,
    /// Rate left to share, bytes/s: flows that are new since the last interval do not add to it.
    left: f64,
}

impl Deal {
    /// Bytes of window for a packet that counts for `weight`, of a flow whose rtt is `rtt`.
    fn take(&mut self, weight: f64, rtt: f64) -> f64 {
        let taken = (self.scale * weight / rtt).min(self.left);
        self.left -= taken;
        taken * rtt
    }
}

/// The router in front of one link.
#[derive(Clone, Debug)]
pub(crate) struct XcpRouter {
    /// Time at which the interval began.
    began: Instant,
    /// Length of the interval, s.
    interval: f64,
    sums: Sums,
    /// Least queue in the interval, bytes.
    queue: f64,
    gains: Deal,
    losses: Deal,
}

impl Default for XcpRouter {
    fn default() -> Self {
        Self {
            began: Instant::EPOCH,
            interval: FIRST_INTERVAL,
            sums: Sums::default(),
            queue: f64::INFINITY,
            gains: Deal::default(),
            losses: Deal::default(),
        }
    }
}

impl XcpRouter {
    /// A packet of `len` bytes arrives at a link of `rate`.
    pub(crate) fn pass(
        &mut self,
        now: Instant,
        len: u32,
        arrival: &Arrival,
        rate: Rate,
        header: Option<&mut CongestionHeader>,
    ) {
        let elapsed = seconds(nanos(now.since(self.began)));
        // An interval without a header would not measure the flows: it continues until one is received.
        if elapsed >= self.interval && self.sums.rtts > 0.0 {
            self.end(elapsed, rate.as_f64() / 8.0);
            self.began = now;
        }
        let before = arrival.queued() - Size::from_bytes(u64::from(len));
        self.queue = self.queue.min(bytes(before));
        self.sums.input += f64::from(len);
        if let Some(header) = header {
            self.write(f64::from(len), header);
        }
    }

    /// The interval is over after `elapsed` seconds at `capacity` bytes per second.
    fn end(&mut self, elapsed: f64, capacity: f64) {
        let sums = std::mem::take(&mut self.sums);
        let queue = std::mem::replace(&mut self.queue, f64::INFINITY);
        let d = (sums.square_rtts / sums.rtts).clamp(INTERVALS.0, INTERVALS.1);
        self.interval = d;
        let per_interval = d / elapsed;
        let input = sums.input * per_interval;
        let aggregate = aggregate(d, capacity - sums.input / elapsed, queue);
        let shuffled = (GAMMA * input - aggregate.abs()).max(0.0);
        let deal = |bytes: f64, weights: f64| Deal {
            scale: bytes / (d * weights * per_interval),
            left: bytes / d,
        };
        self.gains = deal(shuffled + aggregate.max(0.0), sums.rtts);
        self.losses = deal(shuffled + (-aggregate).max(0.0), sums.bytes);
    }

    /// Records the values of a header and lowers its feedback to this router's.
    fn write(&mut self, len: f64, header: &mut CongestionHeader) {
        let rtt = seconds(nanos(header.rtt)).max(LEAST_RTT);
        let share = rtt * len / bytes(header.window).max(len);
        self.sums.bytes += len;
        self.sums.rtts += share;
        self.sums.square_rtts += share * rtt;
        let change = self.gains.take(rtt * share, rtt) - self.losses.take(rtt * len, rtt);
        header.feedback = header.feedback.min(change);
        header.written = true;
    }
}

/// Bytes per interval of `d` seconds to give out, or to take back if negative.
fn aggregate(d: f64, spare: f64, queue: f64) -> f64 {
    ALPHA * d * spare - BETA * queue
}

#[expect(clippy::cast_precision_loss, reason = "intervals of a law")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}

#[expect(clippy::cast_precision_loss, reason = "laws do not count single bytes")]
fn bytes(size: Size) -> f64 {
    size.bytes() as f64
}

#[cfg(test)]
mod tests;
