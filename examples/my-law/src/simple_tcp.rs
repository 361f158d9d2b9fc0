//! Simplified TCP, after Gu & Grossman, "Optimizing UDP-based protocol implementations", Fig. 5:
//! a window without slow start, 1/cwnd more for each acknowledgement, of which the receiver sends one
//! per two packets; half of it for each loss.
//!
//! Where the figure's window starts at two segments, the shell's starts at ten (RFC 6928); and where
//! the figure halves for every report of losses, the shell does once per episode.

use farhaul_congestion::{Cut, Growth, Law, Skip, Window, Windowed};
use farhaul_core::congestion::{AckEvent, FeedbackRequest};

/// How it is chosen by name.
pub const SIMPLE_TCP: Law = Law {
    name: "simple-tcp",
    summary: "a window that grows by one in an rtt and is halved by a loss",
    citation: "Gu, Grossman, Optimizing UDP-based protocol implementations, PFLDnet, 2005, Fig. 5",
    parameters: &[],
    paced: false,
    receiver: None,
    make: |_| Box::new(Windowed::new(Skip, SimpleTcp)),
};

/// The law, all of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimpleTcp;

impl Growth for SimpleTcp {
    fn name(&self) -> &'static str {
        SIMPLE_TCP.name
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let acks = f64::from(ack.packets) / 2.0;
        window.datagram() * acks / window.packets()
    }

    fn feedback_request(&self) -> FeedbackRequest {
        FeedbackRequest {
            packets: Some(2),
            ..FeedbackRequest::default()
        }
    }

    fn keep(&mut self, _window: &Window, _cut: &Cut) -> f64 {
        0.5
    }
}
