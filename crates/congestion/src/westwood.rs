//! Westwood+, which shrinks not to half but to what the path delivered, times its least rtt
//! (Grieco, Mascolo, CCR 34(2), 2004). It grows as Reno does. Filter: Linux's `tcp_westwood`.
//!
//! The bandwidth is measured by the acknowledgements' times at the sender, as in the original.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, CongestionController},
    time::Instant,
};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    rounds::Base,
    window::{Cut, Growth, Window, float},
};

pub(crate) const LAW: Law = Law {
    name: "westwood",
    summary: "Reno that falls back to the measured bandwidth",
    citation: "Grieco, Mascolo, Westwood+, CCR 34(2), 2004; Linux tcp_westwood",
    parameters: &[
        Parameter {
            name: "interval_ms",
            about: "least time over which bandwidth is sampled, ms",
            kind: Kind::Number(1.0, 10_000.0),
            default: "50",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let interval = Duration::from_secs_f64(values.number("interval_ms") / 1e3);
        with_start(values, Westwood::new(interval))
    },
};

/// Weight of one sample, in each of the two filters.
const WEIGHT: f64 = 1.0 / 8.0;

/// Westwood+'s congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Westwood {
    interval: Duration,
    since: Option<Instant>,
    /// Bytes acknowledged since then.
    bytes: f64,
    /// Bytes per second, filtered once and twice.
    bandwidth: Option<(f64, f64)>,
    base: Base,
}

impl Westwood {
    /// Samples bandwidth over an rtt, but `interval` at least.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            since: None,
            bytes: 0.0,
            bandwidth: None,
            base: Base::default(),
        }
    }
}

impl Growth for Westwood {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, _window: &Window, ack: &AckEvent) {
        self.base.on_ack(ack);
        // What the first acknowledgement covers was delivered before the clock ran.
        let Some(since) = self.since else {
            self.since = Some(ack.now);
            return;
        };
        self.bytes += float(ack.acked.bytes());
        let elapsed = ack.now.since(since);
        if elapsed < self.interval.max(ack.path.srtt) {
            return;
        }
        let sample = self.bytes / elapsed.as_secs_f64();
        self.bandwidth = Some(self.bandwidth.map_or((sample, sample), |(once, twice)| {
            let once = once + WEIGHT * (sample - once);
            (once, twice + WEIGHT * (once - twice))
        }));
        self.since = Some(ack.now);
        self.bytes = 0.0;
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        window.additive(ack.acked, 1.0)
    }

    fn keep(&mut self, window: &Window, _cut: &Cut) -> f64 {
        match (self.bandwidth, self.base.seconds()) {
            (Some((_, bandwidth)), Some(rtt_min)) => {
                (bandwidth * rtt_min / window.bytes()).min(1.0)
            }
            _ => 0.5,
        }
    }
}
