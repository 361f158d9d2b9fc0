//! A scripted path for laws: the window goes out in each round and comes back as some feedback
//! packets; losses happen when the test says.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, CongestionController, LossEvent, PathView},
    time::Instant,
    units::Size,
};

pub(crate) struct ScriptedPath {
    pub(crate) now: Instant,
    pub(crate) rtt: Duration,
    pub(crate) datagram: u32,
    /// Feedback packets per round.
    pub(crate) feedbacks: u32,
    round: u64,
    packets: u64,
    /// Part of a packet not acknowledged yet, bytes.
    rest: f64,
}

impl ScriptedPath {
    pub(crate) fn new(rtt_ms: u64, datagram: u32, feedbacks: u32) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000_000),
            rtt: Duration::from_millis(rtt_ms),
            datagram,
            feedbacks,
            round: 0,
            packets: 0,
            rest: 0.0,
        }
    }

    pub(crate) fn view(&self, in_flight: u64) -> PathView {
        PathView {
            datagram: self.datagram,
            srtt: self.rtt,
            min_rtt: self.rtt,
            feedback_interval: Duration::ZERO,
            reordering: Duration::ZERO,
            in_flight: Size::from_bytes(in_flight),
        }
    }

    pub(crate) fn start(&self, law: &mut dyn CongestionController) {
        law.on_start(self.now, &self.view(0));
    }

    /// One round: what the window held is acknowledged, spread over the rtt.
    pub(crate) fn round(&mut self, law: &mut dyn CongestionController) {
        self.round_with(law, 1.0);
    }

    /// One round in which only `use_of` of the window was in flight.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows in tests are small"
    )]
    pub(crate) fn round_with(&mut self, law: &mut dyn CongestionController, use_of: f64) {
        let flight = law.allowance().window.bytes() as f64 * use_of;
        self.round += 1;
        for _ in 0..self.feedbacks {
            self.now += self.rtt / self.feedbacks;
            let share = flight / f64::from(self.feedbacks) + self.rest;
            let packets = (share / f64::from(self.datagram)).floor();
            let acked = packets * f64::from(self.datagram);
            self.rest = share - acked;
            self.packets += packets as u64;
            let in_flight = law.allowance().window.bytes() as f64 * use_of;
            law.on_ack(&AckEvent {
                now: self.now,
                acked: Size::from_bytes(acked as u64),
                packets: packets as u32,
                round: self.round,
                in_flight_before: Size::from_bytes(in_flight as u64),
                rtt: Some(self.rtt),
                queue_delay: None,
                rate: None,
                ce: 0,
                app_limited: use_of < 1.0,
                path: self.view(in_flight as u64),
                ..AckEvent::default()
            });
        }
    }

    pub(crate) fn loss(&self, law: &mut dyn CongestionController, new_episode: bool) {
        let in_flight = law.allowance().window;
        law.on_loss(&LossEvent {
            now: self.now,
            lost: Size::from_bytes(u64::from(self.datagram)),
            packets: 1,
            span: (self.packets, self.packets),
            new_episode,
            in_flight_before: in_flight,
            path: self.view(in_flight.bytes()),
            ..LossEvent::default()
        });
    }

    /// Packets acknowledged so far.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// The window in packets.
    #[expect(clippy::cast_precision_loss, reason = "windows in tests are small")]
    pub(crate) fn window(&self, law: &dyn CongestionController) -> f64 {
        law.allowance().window.bytes() as f64 / f64::from(self.datagram)
    }
}
