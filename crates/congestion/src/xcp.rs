//! XCP's sender, which follows explicit feedback of routers. It adds to its window what the headers
//! of its packets brought to the receiver, and paces by window over rtt. All else of the law is in
//! the router (`crates/link`), which real paths do not have. So this law is for the simulator, and
//! endpoints on real sockets refuse it.
//!
//! Two halves: [`Xcp`] sends; [`XcpReceiver`] adds up what routers granted. The receiver sends the
//! sum a few times per rtt, so that a message lost costs nothing.
//!
//! Invariants: the window is at least a datagram and finite. Where no router wrote, the window does
//! not grow, and stays at its initial value except for losses.
//!
//! Source: Katabi, Handley, Rohrs, SIGCOMM 2002, §3.2 to §3.4. Differences: the receiver's feedback
//! is sent in messages of its own and not with each acknowledgement. A loss halves the window, once
//! per episode, as in the paper for losses by any other cause.

use std::time::Duration;

use farhaul_core::{
    congestion::{
        AckEvent, Allowance, Arrival, CcState, CongestionController, LossEvent, PathView,
        ReceiverLaw,
    },
    datagram::CongestionHeader,
    time::Instant,
    units::Rate,
};

use crate::{
    law::Law,
    parameters::Values,
    window::{MAX_WINDOW, Window, size},
};

pub(crate) const LAW: Law = Law {
    name: "xcp",
    summary: "explicit feedback of routers; needs routers that only the simulator has",
    citation: "Katabi, Handley, Rohrs, SIGCOMM 2002",
    parameters: &[],
    paced: false,
    receiver: Some(|| Box::new(|| Box::<XcpReceiver>::default())),
    make: |_: &Values| -> Box<dyn CongestionController> { Box::new(Xcp::new()) },
};

/// Messages of the receiving half per rtt, and bounds of the time between them.
const PER_RTT: u32 = 4;
const BETWEEN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(25));
/// Bytes of a message: how many there were, and the sum.
const MESSAGE: usize = 16;
/// The share of the window kept on a loss.
const KEEP: f64 = 0.5;
/// The most bytes sent back to back.
const MAX_QUANTUM: f64 = 65_536.0;
/// The least rtt, s.
const MIN_RTT: f64 = 1e-6;

/// The sending half.
#[derive(Clone, Debug)]
pub struct Xcp {
    path: PathView,
    /// Bytes.
    window: f64,
    /// Number of the newest message, and the bytes ever granted by then.
    heard: (u64, f64),
    /// True if there is more to send than may be sent.
    hungry: bool,
    fault: Option<&'static str>,
}

impl Default for Xcp {
    fn default() -> Self {
        Self::new()
    }
}

impl Xcp {
    /// A sender without feedback of routers.
    pub fn new() -> Self {
        let path = PathView::default();
        Self {
            window: Window::initial(path.datagram).bytes(),
            path,
            heard: (0, 0.0),
            hungry: true,
            fault: None,
        }
    }

    fn datagram(&self) -> f64 {
        f64::from(self.path.datagram.max(1))
    }

    /// Time from a packet to the effect of what it brought: a round trip, and the waits of reports
    /// and of messages, on average. The window is the bytes sent in it, not all of which are in
    /// flight.
    fn rtt(&self) -> Duration {
        self.path.srtt + (self.path.feedback_interval + between(self.path.srtt)) / 2
    }

    fn set_window(&mut self, bytes: f64) {
        self.window = bytes.clamp(self.datagram(), MAX_WINDOW);
    }

    /// Bytes per second.
    fn rate(&self) -> f64 {
        self.window / self.rtt().as_secs_f64().max(MIN_RTT)
    }
}

impl CongestionController for Xcp {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, _now: Instant, path: &PathView) {
        let heard = self.heard;
        *self = Self {
            path: *path,
            heard,
            ..Self::new()
        };
        self.window = Window::initial(path.datagram).bytes();
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.path = ack.path;
        self.hungry = !ack.app_limited;
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.path = loss.path;
        if loss.new_episode {
            self.set_window(KEEP * self.window);
        }
    }

    fn on_timeout(&mut self, _now: Instant, backoff: u32) {
        if backoff <= 1 {
            self.set_window(KEEP * self.window);
        }
    }

    fn receiver(&self) -> Option<&'static str> {
        Some(LAW.name)
    }

    fn on_message(&mut self, _now: Instant, bytes: &[u8]) {
        let Some((number, sum)) = parse(bytes) else {
            self.fault = Some("to be sent a sum that is none");
            return;
        };
        let (last, before) = self.heard;
        if number > last {
            self.heard = (number, sum);
            self.set_window(self.window + (sum - before));
        }
    }

    fn congestion_header(&self) -> Option<CongestionHeader> {
        Some(CongestionHeader {
            window: size(self.window),
            rtt: self.rtt(),
            // A sender with little to send requests no more.
            feedback: if self.hungry { MAX_WINDOW } else { 0.0 },
            written: false,
        })
    }

    fn allowance(&self) -> Allowance {
        let (rate, least) = (self.rate(), 2.0 * self.datagram());
        let quantum = (rate * 1e-3).min(MAX_QUANTUM).max(least);
        // Pacing holds the rate; the window, with room for a report that is late and for a burst, only
        // stops a sender without feedback.
        let room = rate * self.path.feedback_interval.as_secs_f64();
        Allowance {
            window: size((self.window + room + quantum).min(MAX_WINDOW)),
            rate: Rate::from_f64((rate * 8.0).max(1_000.0)),
            quantum: size(quantum),
        }
    }

    fn fault(&mut self) -> Option<&'static str> {
        self.fault.take()
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: if self.heard.0 > 0 { "told" } else { "untold" },
            ..CcState::default()
        }
    }
}

/// The time between messages.
fn between(rtt: Duration) -> Duration {
    (rtt / PER_RTT).clamp(BETWEEN.0, BETWEEN.1)
}

fn parse(bytes: &[u8]) -> Option<(u64, f64)> {
    let (number, sum) = bytes.split_first_chunk()?;
    let sum = f64::from_le_bytes(sum.try_into().ok()?);
    sum.is_finite()
        .then_some((u64::from_le_bytes(*number), sum))
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct XcpReceiver {
    between: Duration,
    /// Bytes granted so far.
    sum: f64,
    /// Messages so far.
    number: u64,
    due: Option<Instant>,
    speaks: bool,
}

impl Default for XcpReceiver {
    fn default() -> Self {
        Self {
            between: BETWEEN.1,
            sum: 0.0,
            number: 0,
            due: None,
            speaks: false,
        }
    }
}

impl XcpReceiver {
    /// The name by which the sending half requests it.
    pub const NAME: &'static str = LAW.name;
}

impl ReceiverLaw for XcpReceiver {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn on_start(&mut self, _now: Instant, rtt: Duration) {
        self.between = between(rtt);
    }

    fn on_arrival(&mut self, arrival: &Arrival) {
        if let Some(granted) = arrival.granted {
            self.sum += granted;
            self.due.get_or_insert(arrival.now + self.between);
        }
    }

    fn on_tick(&mut self, now: Instant) {
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            self.speaks = true;
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        self.due
    }

    fn message(&mut self, _now: Instant, into: &mut Vec<u8>) {
        if std::mem::take(&mut self.speaks) {
            self.number += 1;
            into.reserve(MESSAGE);
            into.extend_from_slice(&self.number.to_le_bytes());
            into.extend_from_slice(&self.sum.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Size;

    use super::*;

    const PATH: PathView = PathView {
        datagram: 1_000,
        srtt: Duration::from_millis(80),
        min_rtt: Duration::from_millis(80),
        feedback_interval: Duration::from_millis(10),
        reordering: Duration::ZERO,
        in_flight: Size::ZERO,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn started() -> Xcp {
        let mut law = Xcp::new();
        law.on_start(at(0), &PATH);
        law
    }

    /// The receiver's message after these grants.
    fn said(receiver: &mut XcpReceiver, ms: u64, grants: &[f64]) -> Vec<u8> {
        for granted in grants {
            receiver.on_arrival(&Arrival {
                now: at(ms),
                granted: Some(*granted),
                ..Arrival::default()
            });
        }
        let mut message = Vec::new();
        receiver.message(at(ms), &mut message);
        assert!(message.is_empty(), "not before its time");
        let due = receiver.next_tick().expect("something was granted");
        receiver.on_tick(due);
        receiver.message(due, &mut message);
        assert_eq!(receiver.next_tick(), None);
        message
    }

    #[test]
    fn the_window_changes_by_what_was_granted_however_messages_fare() {
        let (mut law, mut receiver) = (started(), XcpReceiver::default());
        receiver.on_start(at(0), Duration::from_millis(40));
        let first = said(&mut receiver, 0, &[500.0, 250.0]);
        let second = said(&mut receiver, 100, &[4_000.0]);
        let third = said(&mut receiver, 200, &[-2_750.0]);
        assert_eq!(size(law.window), Size::from_bytes(10_000));
        law.on_message(at(10), &first);
        assert_eq!(size(law.window), Size::from_bytes(10_750));
        // The second is late: the third has its sum.
        law.on_message(at(210), &third);
        assert_eq!(size(law.window), Size::from_bytes(12_000));
        law.on_message(at(220), &second);
        law.on_message(at(230), &third);
        assert_eq!(size(law.window), Size::from_bytes(12_000));
    }

    #[test]
    fn it_paces_its_window_over_an_rtt_and_requests_by_the_same() {
        let mut law = started();
        let header = law.congestion_header().unwrap();
        assert_eq!(header.window, Size::from_bytes(10_000));
        assert_eq!(header.rtt, Duration::from_millis(95));
        assert!(!header.written && header.feedback > 1e9);
        assert_eq!(law.allowance().rate, Rate::from_bps(842_105));
        law.on_ack(&AckEvent {
            app_limited: true,
            path: PATH,
            ..AckEvent::default()
        });
        assert!(law.congestion_header().unwrap().feedback.abs() < 1.0);
    }

    #[test]
    fn nothing_takes_the_last_datagram() {
        let (mut law, mut receiver) = (started(), XcpReceiver::default());
        law.on_message(at(0), &said(&mut receiver, 0, &[-1e9]));
        assert_eq!(size(law.window), Size::from_bytes(1_000));
        law.on_timeout(at(1), 1);
        assert_eq!(size(law.window), Size::from_bytes(1_000));
    }

    #[test]
    fn what_is_no_sum_is_refused_and_named() {
        for bytes in [&[0; 15][..], &[0; 17], &[0xff; 16], &[]] {
            let mut law = started();
            law.on_message(at(0), bytes);
            assert_eq!(size(law.window), Size::from_bytes(10_000));
            assert!(law.fault().is_some());
        }
    }
}
