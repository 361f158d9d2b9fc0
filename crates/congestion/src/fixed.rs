//! What if the rate is simply given? A blast: one rate, no window, whatever is lost. For protocols
//! that were told the path's rate, and as the yardstick of a path.

use farhaul_core::{
    congestion::{AckEvent, Allowance, CcState, CongestionController, LossEvent},
    units::{Rate, Size},
};

use crate::registry::{Kind, Law, Parameter, Values};

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
            about: "bytes sent back to back",
            kind: Kind::Size,
            default: "64KiB",
        },
    ],
    make: |values: &Values| -> Box<dyn CongestionController> {
        Box::new(Fixed {
            rate: values.rate("rate"),
            quantum: values.size("quantum"),
        })
    },
};

/// Sends at one rate.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// The rate.
    pub rate: Rate,
    /// Bytes sent back to back.
    pub quantum: Size,
}

impl CongestionController for Fixed {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_ack(&mut self, _ack: &AckEvent) {}

    fn on_loss(&mut self, _loss: &LossEvent) {}

    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::UNLIMITED,
            rate: self.rate,
            quantum: self.quantum,
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
