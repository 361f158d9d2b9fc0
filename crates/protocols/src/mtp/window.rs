//! Bounds the units in transit, and sizes requests. The window grows as long as no more is lost
//! than is tolerated, and shrinks otherwise, once in a flow timeout. The timeout is longer while
//! the flow recovers. After a loss requests are fewer and larger for one such time.

// spec: mtp §1

use std::time::Duration;

use farhaul_core::time::Instant;

/// First window, and the least, units.
const FIRST: u64 = 32;
const LEAST: u64 = 4;
/// Units that a request asks for at most.
const MOST_ASKED: u64 = 32;
/// The shortest flow timeout.
const LEAST_TIMEOUT: Duration = Duration::from_millis(10);
/// Packets over which the share of lost ones is taken.
const MEMORY: f64 = 4_096.0;

/// The window of a receiver.
#[derive(Debug)]
pub(super) struct Window {
    units: u64,
    most: u64,
    tolerated: f64,
    /// Share of packets that are lost, requests among them.
    loss: f64,
    /// True if nothing was ever lost.
    starting: bool,
    /// Time of the last adjustment, and what came and was lost since.
    since: Instant,
    came: u32,
    lost: bool,
    /// Time until which requests are larger.
    gathers: Option<Instant>,
}

impl Window {
    pub(super) fn new(most: u64, tolerated: f64) -> Self {
        Self {
            units: FIRST.min(most),
            most,
            tolerated,
            loss: 0.0,
            starting: true,
            since: Instant::EPOCH,
            came: 0,
            lost: false,
            gathers: None,
        }
    }

    /// Units that may be in transit.
    pub(super) const fn units(&self) -> u64 {
        self.units
    }

    /// A file begins.
    pub(super) const fn begin(&mut self, now: Instant) {
        (self.since, self.came, self.lost) = (now, 0, false);
    }

    /// A unit came.
    pub(super) fn on_unit(&mut self) {
        self.came += 1;
        self.loss -= self.loss / MEMORY;
    }

    /// A request left, which is as good as a unit where packets are lost.
    pub(super) fn on_request(&mut self) {
        self.loss -= self.loss / MEMORY;
    }

    /// Takes the loss of `runs` runs of units.
    pub(super) fn on_loss(&mut self, now: Instant, rtt: Duration, runs: u64) {
        for _ in 0..runs.min(self.units) {
            self.loss += (1.0 - self.loss) / MEMORY;
        }
        (self.lost, self.starting) = (true, false);
        self.gathers = Some(now + self.timeout(now, rtt));
    }

    /// The shorter flow timeout: two round trips, or as long as the window takes to come.
    fn timeout(&self, now: Instant, rtt: Duration) -> Duration {
        let units = u32::try_from(self.units).unwrap_or(u32::MAX);
        let transit = now.since(self.since).checked_div(self.came.max(1));
        let transit = transit.map_or(Duration::ZERO, |unit| unit.saturating_mul(units));
        let transit = if self.came < units {
            Duration::ZERO
        } else {
            transit
        };
        transit.max(rtt * 2).max(LEAST_TIMEOUT)
    }

    /// Adjusts the window if it is time to.
    pub(super) fn adjust(&mut self, now: Instant, rtt: Duration) {
        let timeout = self.timeout(now, rtt) * if self.lost { 2 } else { 1 };
        if now.since(self.since) < timeout {
            return;
        }
        self.units = if self.loss > self.tolerated {
            (self.units * 3 / 4).max(LEAST.min(self.most))
        } else if self.starting {
            (self.units * 2).min(self.most)
        } else {
            (self.units + (self.units / 8).max(1)).min(self.most)
        };
        self.begin(now);
    }

    /// Units that the next request asks for.
    pub(super) fn portion(&self, now: Instant) -> u64 {
        match self.gathers {
            Some(until) if now < until => self.units.div_ceil(16).min(MOST_ASKED),
            _ => 1,
        }
    }

    /// Time at which requests are small again.
    pub(super) const fn small_at(&self) -> Option<Instant> {
        self.gathers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    /// Window after `rounds` of two round trips that lose the units for which `loses` says so.
    fn after(rounds: u64, window: &mut Window, now: &mut Instant, loses: impl Fn(u64) -> bool) {
        let mut n = 0;
        for _ in 0..rounds {
            for _ in 0..2 * window.units() {
                n += 1;
                if loses(n) {
                    window.on_loss(*now, RTT, 1);
                } else {
                    window.on_unit();
                }
            }
            *now += RTT * 2;
            window.adjust(*now, RTT);
        }
    }

    #[test]
    fn it_doubles_then_keeps_within_what_is_tolerated_and_shrinks_beyond() {
        let mut now = Instant::from_nanos(1 << 40);
        let mut window = Window::new(1_024, 0.007_5);
        window.begin(now);
        let mut sizes = Vec::new();
        for _ in 0..6 {
            sizes.push(window.units());
            after(1, &mut window, &mut now, |_| false);
        }
        assert_eq!(sizes, [32, 64, 128, 256, 512, 1_024]);
        assert_eq!((window.units(), window.portion(now)), (1_024, 1));
        after(40, &mut window, &mut now, |n| n % 200 == 0);
        assert_eq!(
            (window.units(), window.portion(now.earlier_by(RTT))),
            (1_024, 32)
        );
        after(60, &mut window, &mut now, |n| n % 100 == 0);
        assert!(window.units() < 100, "{}", window.units());
        now += RTT * 4;
        assert_eq!(window.portion(now), 1, "small again in time");
        after(400, &mut window, &mut now, |_| false);
        let grown = window.units();
        assert!(grown > 100, "{grown}");
    }
}
