//! Sends at a given rate, as a blast: one rate, no window, whatever is lost. For protocols with a
//! configured rate, and as the reference of a path.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, Allowance, CcState, CongestionController, LossEvent, PathView},
    time::Instant,
    units::{Rate, Size},
};

use crate::{
    law::Law,
    parameters::{Kind, Parameter, Values},
};

pub(crate) const LAW: Law = Law {
    name: "fixed",
    summary: "a given rate, whatever is lost",
    citation: "-",
    parameters: &[
        Parameter {
            name: "rate",
            about: "bits per second of UDP payload",
            kind: Kind::Rate,
            default: "1Gbit",
        },
        Parameter {
            name: "quantum",
            about: "most bytes sent back to back, within a ms of the rate",
            kind: Kind::Size,
            default: "64KiB",
        },
    ],
    paced: true,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        Box::new(Fixed::new(values.rate("rate"), values.size("quantum")))
    },
};

/// Sends at one rate.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    rate: Rate,
    quantum: Size,
    datagram: u32,
}

impl Fixed {
    /// Sends at `rate`, at most `quantum` back to back.
    pub const fn new(rate: Rate, quantum: Size) -> Self {
        Self {
            rate,
            quantum,
            datagram: 1_472,
        }
    }
}

impl CongestionController for Fixed {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, _now: Instant, path: &PathView) {
        self.datagram = path.datagram;
    }

    fn on_ack(&mut self, _ack: &AckEvent) {}

    fn on_loss(&mut self, _loss: &LossEvent) {}

    fn allowance(&self) -> Allowance {
        let ms = Size::from_bytes(self.rate.bytes_in(Duration::from_millis(1)));
        let least = Size::from_bytes(2 * u64::from(self.datagram));
        Allowance {
            window: Size::UNLIMITED,
            rate: self.rate,
            quantum: self.quantum.min(ms.max(least)),
        }
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: "fixed",
            ssthresh: None,
            bandwidth: Some(self.rate),
        }
    }
}
