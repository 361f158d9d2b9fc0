//! What does a role see that has no network? A session whose other end is the driver.

use farhaul_core::{
    datagram::{Received, Transmit, TxBuf},
    protocol::{Event, Session, Turn},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
};

/// A session whose other end is the driver.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) written: Vec<u8>,
    pub(crate) arrived: Vec<u8>,
    pub(crate) closed: Option<(u32, String)>,
    /// What it was told to send: first byte and length.
    pub(super) sends: Vec<(u64, u64)>,
}

impl Session for Line {
    fn handle_datagrams(&mut self, _: &mut Turn<'_>, _: Received<'_>) {}
    fn handle_timeout(&mut self, _: &mut Turn<'_>) {}
    fn poll_transmit(&mut self, _: &mut Turn<'_>, _: &mut TxBuf) -> Option<Transmit> {
        None
    }
    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
    fn send(&mut self, _: ObjectId, offset: u64, len: u64) {
        self.sends.push((offset, len));
    }
    fn unsent(&self) -> u64 {
        self.sends
            .iter()
            .fold(0, |sum, (_, len)| sum.saturating_add(*len))
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
    fn close(&mut self, _: Instant, code: u32, text: &str) {
        self.closed.get_or_insert((code, text.to_string()));
    }
    fn is_closed(&self) -> bool {
        self.closed.is_some()
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
}
