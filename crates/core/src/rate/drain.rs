//! Detects a receiving host that does not keep up with the network. Such a host collects packets in
//! its socket, where they are neither in the network's queue nor read, until it drops them. Its
//! reports come late. Packets that wait there a whole round are more than the host needs to be
//! busy, and are taken from what may be in flight. Once a round ends with nothing left waiting, the
//! grant grows, until the congestion law's window is the smaller one.

use std::time::Duration;

use crate::units::Rate;

/// Time after a report is due within which a busy host may look at what arrived.
const SOON: Duration = Duration::from_millis(10);
/// A round is a round trip, or this.
const ROUND: Duration = Duration::from_millis(100);
/// The grant grows by such a part in a round.
const GROWTH: u64 = 8;
/// The least grant, in datagrams.
const LEAST: u64 = 16;

/// Receive state of the reporting host.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Time of the report, by the receiver's clock, µs.
    pub at_us: u64,
    /// Wire bytes taken by then.
    pub bytes: u64,
    /// Time from the arrival of the newest packet to `at_us`.
    pub delay: Duration,
}

/// Sender's view of the path.
#[derive(Clone, Copy, Debug)]
pub struct RatePath {
    /// Round trip without the time at the host.
    pub rtt: Duration,
    /// Between reports.
    pub interval: Duration,
    /// Wire bytes of a full datagram.
    pub datagram: u32,
    /// Wire bytes in flight, taken or not, before the report.
    pub in_flight: u64,
    /// Bytes that the congestion law would have in flight.
    pub window: u64,
}

impl RatePath {
    /// Time until packets sent now have been reported on.
    pub(super) const fn round(&self) -> Duration {
        self.rtt.saturating_add(self.interval)
    }
}

/// A round.
#[derive(Clone, Copy, Debug)]
struct Round {
    since_us: u64,
    /// Drained before.
    bytes: u64,
    /// The least delay of its reports.
    least: Duration,
}

/// Grant of bytes for the receiving host.
#[derive(Clone, Debug, Default)]
pub struct DrainEstimate {
    round: Option<Round>,
    granted: Option<u64>,
}

impl DrainEstimate {
    /// Handles a report newer than all before.
    pub fn update(&mut self, taken: Drained, way: &RatePath) {
        let begins = |since_us| Round {
            since_us,
            bytes: taken.bytes,
            least: Duration::MAX,
        };
        let round = self.round.get_or_insert_with(|| begins(taken.at_us));
        let Some(passed_us) = taken.at_us.checked_sub(round.since_us) else {
            *round = begins(round.since_us);
            return;
        };
        round.least = round.least.min(taken.delay);
        let passed = Duration::from_micros(passed_us);
        if passed < way.rtt.max(ROUND) {
            return;
        }
        let rate = Rate::of(taken.bytes.saturating_sub(round.bytes), passed);
        let usual = way.interval + SOON;
        let surplus = round.least.saturating_sub(usual);
        // What was too much is still on its way, or waits: not until it is gone is there news.
        let settles = if surplus.is_zero() {
            Duration::ZERO
        } else {
            way.rtt
        };
        let settles_us = u64::try_from(settles.as_micros()).unwrap_or(u64::MAX);
        *round = begins(taken.at_us.saturating_add(settles_us));
        if surplus.is_zero() {
            self.grow(way.window);
        } else {
            self.cut(rate, surplus, way);
        }
    }

    /// Bytes that may be in flight, as far as the host is concerned.
    pub fn granted(&self) -> u64 {
        self.granted.unwrap_or(u64::MAX)
    }

    /// The host takes `rate`, and there was never less than `surplus` too much of it.
    fn cut(&mut self, rate: Rate, surplus: Duration, way: &RatePath) {
        let least = rate.bytes_in(way.rtt).max(LEAST * u64::from(way.datagram));
        let from = self.granted().min(way.in_flight);
        let cut = from.saturating_sub(rate.bytes_in(surplus)).max(least);
        self.granted = Some(cut);
    }

    fn grow(&mut self, window: u64) {
        let grown = self.granted.map(|g| g.saturating_add(g / GROWTH));
        self.granted = grown.filter(|g| *g < window);
    }
}

#[cfg(test)]
mod tests;
