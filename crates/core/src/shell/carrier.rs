//! The part that all unencrypted sessions share: datagrams in and out in batches, the store,
//! counters and events, the idle timeout, and the application's calls and close. The protocol's
//! part (tcp, udt4, rudp; the shell's [handshake and channel](super::Shell) for all others) is a
//! [`Connection`]; a [`Carrier`] makes a session of a connection.

use std::{net::SocketAddr, time::Duration};

use super::{batch, machine::Packet};
use crate::{
    closing::Closing,
    codec::{DecodeError, NoRoom, Writer},
    control::{Control, Token},
    datagram::{Ecn, Received, Transmit, TxBuf},
    life::Life,
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    send::Permit,
    session::{AppSide, earliest},
    stats::{Stats, Why},
    store::{Extent, ObjectId, Store},
    time::Instant,
};

/// Reason to reject a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The datagram is dropped and counted as malformed.
    Drop,
    /// Close the session: the datagram is a close or a protocol violation.
    End(CloseReason),
}

impl From<DecodeError> for Refusal {
    fn from(_: DecodeError) -> Self {
        Self::Drop
    }
}

/// Session state common to all protocols.
#[derive(Debug)]
pub struct SessionState {
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Lifecycle: open, closing or closed.
    pub life: Life<Closing>,
    /// Events and counters.
    pub app: AppSide,
    /// Extents to place from the batch being received, or to fill in the batch being sent.
    pub extents: Vec<Extent>,
    /// ECN codepoint of the batch being received.
    pub ecn: Ecn,
    /// ECN codepoint set on outgoing data.
    pub mark: Ecn,
    /// Time of the turn.
    pub now: Instant,
    /// Free space left in the store for the batch being received.
    pub(super) free: u64,
    /// Held as long as the session exists, so that its endpoint knows which ids are live.
    #[expect(dead_code, reason = "held, not read")]
    alive: Alive,
}

impl SessionState {
    /// A session with `peer`. It has no idle timeout until it is [open](Self::opened).
    pub fn new(now: Instant, peer: SocketAddr, alive: Alive) -> Self {
        Self {
            peer,
            life: Life::new(now, Duration::MAX),
            app: AppSide::default(),
            extents: Vec::new(),
            ecn: Ecn::NotEct,
            mark: Ecn::NotEct,
            now,
            free: 0,
            alive,
        }
    }

    /// The handshake is done: idle timeout `idle`, before which [keep-alives](Connection::ask) are sent.
    pub fn opened(&mut self, idle: Duration) {
        self.life = Life::new(self.now, idle);
        self.app.connected(None);
    }

    /// Reserves `len` bytes of the store's free space; false, and counted in `dropped_full`, if there are fewer.
    #[inline]
    pub fn reserve(&mut self, len: u64) -> bool {
        let left = self.free.checked_sub(len);
        self.free = left.unwrap_or(self.free);
        self.app.stats.dropped_full += u64::from(left.is_none());
        left.is_some()
    }

    /// Queues `extent` for placement, if [`Self::reserve`] allows it.
    #[inline]
    pub fn place(&mut self, extent: Extent) -> bool {
        let fits = self.reserve(extent.len.into());
        if fits {
            self.app.stats.data_received += u64::from(extent.len);
            self.extents.push(extent);
        }
        fits
    }

    /// Counts `len` bytes of extents as placed.
    pub(super) const fn placed(&mut self, len: u64) {
        self.free = self.free.saturating_sub(len);
        self.app.stats.data_received += len;
    }

    #[inline]
    fn sent(&mut self, out: &TxBuf, ecn: Ecn) -> Transmit {
        self.app.sent(out);
        let to = self.peer;
        Transmit { to, ecn }
    }
}

/// The protocol-specific part of a session. Input from the peer is untrusted.
pub trait Connection: Send + 'static {
    /// Largest control packet, bytes.
    fn control(&self) -> usize;

    /// UDP payload of a full datagram, and header bytes of a data packet.
    fn shape(&self) -> (usize, usize);

    /// Lets the connection query the store's free space; called before each received batch and each
    /// attempt to send.
    fn on_store(&mut self, _now: Instant, _store: &dyn Store) {}

    /// Handles a datagram at offset `at` of its batch; queues in `state` the bytes to be placed.
    fn on_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        state: &mut SessionState,
        datagram: &[u8],
        at: usize,
    ) -> Result<(), Refusal>;

    /// A datagram from the peer was received after the close.
    fn on_late(&mut self, _now: Instant, _life: &mut Life<Closing>, _datagram: &[u8]) {}

    /// All datagrams of a batch have been handled.
    fn batch_received(&mut self, _now: Instant) {}

    /// Writes one control packet, if one is due; false if not.
    fn poll_control(
        &mut self,
        _now: Instant,
        _state: &mut SessionState,
        _w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        Ok(false)
    }

    /// Writes a batch of control packets of equal length; by default one packet.
    fn poll_controls(&mut self, state: &mut SessionState, out: &mut TxBuf) -> bool {
        let now = state.now;
        batch::single(self.control(), out, |w| self.poll_control(now, state, w))
    }

    /// Writes control packets that are due only if no data is sent.
    fn poll_idle(&mut self, _now: Instant, _out: &mut TxBuf) -> bool {
        false
    }

    /// Starts closing in `life`; a close with `reason` is sent to the peer where possible.
    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason);

    /// True if the close is sent in a datagram rather than over the control lane.
    fn closes_in_datagrams(&self) -> bool {
        true
    }

    /// Writes the close packet.
    fn write_close(
        &mut self,
        now: Instant,
        close: &Closing,
        w: &mut Writer<'_>,
    ) -> Result<(), NoRoom>;

    /// Permit to send data now.
    fn permit(&mut self, now: Instant) -> Permit;

    /// True if another packet may join the batch, with `sent` bytes written and `allowed`
    /// permitted.
    fn extends_batch(&self, sent: u64, allowed: u64) -> bool {
        sent < allowed
    }

    /// Writes the next data packet; false if none may be sent.
    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool;

    /// The packets written since the last call were sent, `bytes` in total.
    fn batch_sent(&mut self, now: Instant, bytes: u64);

    /// Time to call [`Self::on_timer`], and why.
    fn deadline(&self) -> Option<(Instant, Why)>;

    /// The deadline expired; an error closes the session.
    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason>;

    /// Sends a keep-alive, as nothing was received for a while.
    fn ask(&mut self) {}

    /// Reason to close the session: the congestion law failed.
    fn failure(&self) -> Option<CloseReason>;

    /// Queues data of an object, or bytes.
    fn send(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64);
    /// Bytes of objects queued and never sent.
    fn unsent(&self) -> u64;
    /// Discards object data queued and never sent.
    fn cancel_unsent(&mut self);
    /// Appends to the ordered stream.
    fn write(&mut self, now: Instant, bytes: &[u8]);
    /// Bytes of the ordered stream not yet acknowledged.
    fn unwritten(&self) -> usize;
    /// Appends received data of the ordered stream.
    fn read(&mut self, into: &mut Vec<u8>);
    /// True if everything queued and written has been acknowledged.
    fn is_delivered(&self) -> bool;

    /// Token that associates a client's datagrams with its control lane, if it has one.
    fn token(&self) -> Option<Token> {
        None
    }

    /// Handles an event of the control lane; an error closes the session.
    fn on_lane(&mut self, _: &mut SessionState, _: Control<'_>) -> Result<(), CloseReason> {
        Ok(())
    }

    /// Appends data to send on the control lane, at most `room` bytes.
    fn poll_lane(&mut self, _: &mut SessionState, _room: usize, _into: &mut Vec<u8>) {}

    /// True if ICMP "port unreachable" is ignored, as the peer may not have started yet.
    fn ignores_port_unreachable(&self) -> bool {
        false
    }

    /// Adds the connection's counters.
    fn fill_stats(&self, stats: &mut Stats);
}

/// A session around a [`Connection`].
pub struct Carrier<C: Connection> {
    connection: C,
    state: SessionState,
}

impl<C: Connection> Carrier<C> {
    /// A session of `connection`.
    pub const fn new(connection: C, state: SessionState) -> Self {
        Self { connection, state }
    }

    /// Ends the session for `reason`.
    fn fail(&mut self, now: Instant, reason: CloseReason) {
        if self.state.life.is_open() {
            self.connection.close(now, &mut self.state.life, &reason);
            self.state.app.close(now, reason);
        }
    }

    /// Tells the application when all it gave has arrived.
    fn settle(&mut self) {
        self.state.app.settle(self.connection.is_delivered());
    }

    /// Settles the turn, and ends the session if `done` is an error.
    fn settle_or_fail(&mut self, done: Result<(), CloseReason>) {
        self.settle();
        if let Err(reason) = done {
            self.fail(self.state.now, reason);
        }
    }

    /// Packets without data.
    #[inline]
    fn control(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let written = if self.state.life.is_open() {
            self.connection.poll_controls(&mut self.state, out)
        } else if self.connection.closes_in_datagrams() {
            let close = self.state.life.take_closing()?;
            let size = self.connection.control();
            batch::single(size, out, |w| {
                self.connection.write_close(now, &close, w).map(|()| true)
            })
        } else {
            false
        };
        written.then(|| self.state.sent(out, Ecn::NotEct))
    }

    /// Writes what is due only if no data leave.
    fn idle(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let written = self.connection.poll_idle(now, out);
        written.then(|| self.state.sent(out, Ecn::NotEct))
    }

    /// A batch of data, if it may leave.
    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let bytes = match self.connection.permit(now) {
            Permit::Send { bytes } => bytes,
            Permit::Hold(why) => {
                self.state.app.hold(now, why);
                return self.idle(now, out);
            }
        };
        let (datagram, header) = self.connection.shape();
        let (connection, extents) = (&mut self.connection, &mut self.state.extents);
        let sent = batch::compose((header, datagram), out, extents, |packet, sent| {
            connection.extends_batch(sent, bytes) && connection.next_packet(now, packet)
        });
        if sent == 0 {
            // What was to leave was given up: what is said of it comes first.
            return self.control(now, out).or_else(|| self.idle(now, out));
        }
        // What was written alone needs no store.
        if !self.state.extents.is_empty()
            && let Err(error) = turn.store.fill(&self.state.extents, out.raw())
        {
            self.fail(now, CloseReason::Store(error.0));
            return self.control(now, out);
        }
        self.connection.batch_sent(now, sent);
        self.state.app.stats.held.set(now, None);
        Some(self.state.sent(out, self.state.mark))
    }
}

impl<C: Connection> Session for Carrier<C> {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        let (now, state) = (turn.now, &mut self.state);
        state.now = now;
        let segment = batch.segment.max(1);
        let datagrams = batch.bytes.chunks(segment);
        if batch.from != state.peer {
            state.app.stats.dropped_malformed += datagrams.len() as u64;
            return;
        }
        if !state.life.is_open() {
            datagrams.for_each(|late| self.connection.on_late(now, &mut state.life, late));
            return;
        }
        self.connection.on_store(now, turn.store);
        state.extents.clear();
        state.free = turn.store.sink().free;
        state.ecn = batch.ecn;
        let mut done = Ok(());
        for (i, datagram) in datagrams.enumerate() {
            let (state, at) = (&mut self.state, i * segment);
            match self.connection.on_datagram(turn, state, datagram, at) {
                Ok(()) => state.life.on_heard(now),
                Err(Refusal::End(reason)) => done = Err(reason),
                Err(Refusal::Drop) => {
                    state.app.stats.dropped_malformed += 1;
                    continue;
                }
            }
            state.app.received(datagram.len());
            if done.is_err() {
                break;
            }
        }
        // What came before the end counts.
        self.connection.batch_received(now);
        if !self.state.extents.is_empty()
            && let Err(error) = turn.store.place(&self.state.extents, batch.bytes)
        {
            done = Err(CloseReason::Store(error.0));
        }
        self.settle_or_fail(done);
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let (now, state) = (turn.now, &mut self.state);
        state.now = now;
        state.life.on_timeout(now);
        if !state.life.is_open() {
            return;
        }
        let mut done = Err(CloseReason::TimedOut);
        if now < state.life.idle_at() {
            if state.life.ping(now) {
                self.connection.ask();
            }
            done = self.connection.on_timer(now);
        }
        self.settle_or_fail(done);
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        self.state.now = turn.now;
        self.connection.on_store(turn.now, turn.store);
        if let Some(reason) = self.connection.failure() {
            self.fail(turn.now, reason);
        }
        let control = self.control(turn.now, out);
        if control.is_some() || !self.state.life.is_open() {
            return control;
        }
        self.data(turn, out)
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        let own = self.connection.deadline();
        earliest([
            self.state.life.deadline(),
            own.filter(|_| self.state.life.is_open()),
        ])
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.state.app.poll_event()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        if self.state.app.give(object, len) {
            self.connection.send(self.state.now, object, offset, len);
        }
    }

    fn unsent(&self) -> u64 {
        self.connection.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.connection.cancel_unsent();
        self.settle();
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.state.app.write(bytes) {
            self.connection.write(self.state.now, bytes);
        }
    }

    fn unwritten(&self) -> usize {
        self.connection.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.connection.read(into);
    }

    fn ignores_port_unreachable(&self) -> bool {
        self.connection.ignores_port_unreachable()
    }

    fn control_token(&self) -> Option<Token> {
        self.connection.token()
    }

    fn handle_control(&mut self, turn: &mut Turn<'_>, control: Control<'_>) {
        self.state.now = turn.now;
        let done = self.connection.on_lane(&mut self.state, control);
        self.settle_or_fail(done);
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        self.state.now = now;
        self.connection.poll_lane(&mut self.state, room, into);
        self.settle();
    }

    fn close(&mut self, now: Instant, code: u32, text: &str) {
        let text = text.to_owned();
        self.fail(now, CloseReason::Local { code, text });
    }

    fn is_closed(&self) -> bool {
        self.state.life.is_over()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.state.app.stats;
        self.connection.fill_stats(&mut stats);
        stats
    }
}

#[cfg(test)]
mod tests;
