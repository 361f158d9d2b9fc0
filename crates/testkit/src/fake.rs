//! Tests an application alone, on a session that is nothing but its queues. The application's
//! requests are recorded, and the test, or a model of the peer, decides what arrives.

use std::collections::VecDeque;

use farhaul_core::{
    datagram::{Received, Transmit, TxBuf},
    protocol::{Event, Session, Turn},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
    units::Rate,
};

/// A session without a network; [`Self::default`] is one on which nothing has happened.
#[derive(Clone, Debug, Default)]
pub struct FakeSession {
    /// Data that wait to be sent: object, first byte, length.
    pub sends: VecDeque<(ObjectId, u64, u64)>,
    /// True if data to be sent leave at once, and are only counted.
    pub swallows: bool,
    /// Bytes that were to be sent so far.
    pub sent: u64,
    /// Bytes written to the ordered stream that have not been taken away.
    pub written: Vec<u8>,
    /// Bytes that arrived on the ordered stream and have not been read.
    pub arrived: Vec<u8>,
    /// Events that are pending.
    pub events: VecDeque<Event>,
    /// Code and text of the first close.
    pub closed: Option<(u32, String)>,
    /// True if the session is not over when it was closed.
    pub lingers: bool,
    /// Count of parallel sessions that the application made this one of.
    pub lanes: u32,
    /// Constant rate that the application asked for.
    pub constant: Option<Rate>,
    /// Counters of the session.
    pub stats: Stats,
    /// Declaration of the peer's application.
    pub peer_app: Vec<u8>,
    /// Batches after which the peer's address is validated.
    pub validated_after: u32,
}

impl Session for FakeSession {
    fn handle_datagrams(&mut self, _: &mut Turn<'_>, _: Received<'_>) {
        self.validated_after = self.validated_after.saturating_sub(1);
    }

    fn is_address_validated(&self) -> bool {
        self.validated_after == 0
    }

    fn handle_timeout(&mut self, _: &mut Turn<'_>) {}

    fn poll_transmit(&mut self, _: &mut Turn<'_>, _: &mut TxBuf) -> Option<Transmit> {
        None
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.sent = self.sent.saturating_add(len);
        if !self.swallows {
            self.sends.push_back((object, offset, len));
        }
    }

    fn unsent(&self) -> u64 {
        let lens = self.sends.iter().map(|(_, _, len)| *len);
        lens.fold(0, u64::saturating_add)
    }

    fn cancel_unsent(&mut self) {
        self.sends.clear();
    }

    fn write(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
    }

    fn unwritten(&self) -> usize {
        self.written.len()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.arrived);
    }

    fn send_constantly(&mut self, _: Instant, rate: Rate) -> bool {
        self.constant = Some(rate);
        true
    }

    fn split(&mut self, lanes: u32) -> bool {
        self.lanes = lanes;
        true
    }

    fn peer_app(&self) -> &[u8] {
        &self.peer_app
    }

    fn close(&mut self, _: Instant, code: u32, text: &str) {
        self.closed.get_or_insert((code, text.into()));
    }

    fn is_closed(&self) -> bool {
        self.closed.is_some() && !self.lingers
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}
