//! Lets a law have a half at the receiver. Protocols whose receivers decide (a rate requested, a
//! credit granted, a share of what several flows may use) have a second half there. That half sees
//! what arrives, has timers of its own, and talks with the sending half by small sealed messages.
//! The sender asks for it by name when the connection opens.
//!
//! Halves that belong together, such as all flows into one host, share their state through the
//! factory that makes them. The halves lock that state once per event and never per packet.

use std::time::Duration;

use crate::time::Instant;

/// Datagrams of one received batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrival {
    /// Time of arrival.
    pub now: Instant,
    /// Ack-eliciting datagrams.
    pub packets: u32,
    /// Wire bytes of the datagrams.
    pub bytes: u64,
    /// Highest packet number seen plus one.
    pub end: u64,
    /// Packets received so far, ever; `end` less this is lost or on its way.
    pub received: u64,
    /// Datagrams marked "congestion experienced".
    pub ce: u32,
    /// Bytes by which routers change the sender's window, in sum; `None` where none wrote.
    pub granted: Option<f64>,
}

/// The receiving half of a law.
pub trait ReceiverLaw: Send {
    /// Name by which a sender requests it.
    fn name(&self) -> &'static str;

    /// The connection opened; `rtt` as the handshake showed it.
    fn on_start(&mut self, _now: Instant, _rtt: Duration) {}

    /// Called once per received batch.
    fn on_arrival(&mut self, arrival: &Arrival);

    /// Handles a message of the law's sending half.
    fn on_message(&mut self, _now: Instant, _bytes: &[u8]) {}

    /// The timer.
    fn on_tick(&mut self, _now: Instant) {}

    /// Time to call [`Self::on_tick`].
    fn next_tick(&self) -> Option<Instant> {
        None
    }

    /// Writes a message to the law's sending half: appended to `into`, at most
    /// [`MAX_MESSAGE`](super::MAX_MESSAGE) bytes. Called after every event; it is sent at once and may
    /// be lost.
    fn message(&mut self, _now: Instant, _into: &mut Vec<u8>) {}

    /// The connection closed.
    fn on_close(&mut self, _now: Instant) {}
}
