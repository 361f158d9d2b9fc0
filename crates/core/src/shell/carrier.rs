//! What is the same in sessions of protocols (udt4, rudp) that have packets, opening and close of their own?
//! Datagrams in and out in batches, the store, counters and events, the application's side and the end.
//! What is left to the protocol is a [`Connection`]; a [`Carrier`] makes a session of it.

use std::{net::SocketAddr, time::Duration};

use super::{batch, machine::Packet};
use crate::{
    closing::Closing,
    codec::{DecodeError, NoRoom, Writer},
    datagram::{Ecn, Received, Transmit, TxBuf},
    life::Life,
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    send::Permit,
    session::AppSide,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
};

/// Why a datagram is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is dropped, and counted.
    Drop,
    /// The session ends: it says so, or no honest peer says this.
    End(CloseReason),
}

impl From<DecodeError> for Refusal {
    fn from(_: DecodeError) -> Self {
        Self::Drop
    }
}

/// What a session keeps whatever its protocol.
#[derive(Debug)]
pub struct SessionState {
    /// Where the peer is.
    pub peer: SocketAddr,
    /// Whether the session lives, ends or is over.
    pub life: Life<Closing>,
    /// Events and counters.
    pub app: AppSide,
    /// What is to be placed of the batch that arrives, or filled in of the one that leaves.
    pub extents: Vec<Extent>,
    /// Bytes that the store can still take of the batch that arrives.
    free: u64,
    now: Instant,
    /// Kept as long as the session lives, so that its factory can tell.
    #[expect(dead_code, reason = "held, not read")]
    alive: Alive,
}

impl SessionState {
    /// A session with `peer`. Silence is the connection's to notice.
    pub fn new(now: Instant, peer: SocketAddr, alive: Alive) -> Self {
        Self {
            peer,
            life: Life::new(now, Duration::MAX),
            app: AppSide::default(),
            extents: Vec::new(),
            free: 0,
            now,
            alive,
        }
    }

    /// Has `extent` placed; false, and it is counted, if the store has no room: it is as if it had not come.
    pub fn place(&mut self, extent: Extent) -> bool {
        let len = u64::from(extent.len);
        let fits = len <= self.free;
        if fits {
            self.free -= len;
            self.app.stats.data_received += len;
            self.extents.push(extent);
        } else {
            self.app.stats.dropped_full += 1;
        }
        fits
    }

    fn sent(&mut self, out: &TxBuf) -> Transmit {
        self.app.sent(out);
        Transmit {
            to: self.peer,
            ecn: Ecn::NotEct,
        }
    }
}

/// A protocol's part of a session. It may be told anything by the peer.
pub trait Connection: Send + 'static {
    /// Bytes of the longest packet without data.
    const CONTROL: usize;

    /// UDP payload of a full datagram, and how much of a data packet comes before its data.
    fn shape(&self) -> (usize, usize);

    /// A datagram, at `at` in its batch; adds what is to be placed.
    fn on_datagram(
        &mut self,
        now: Instant,
        state: &mut SessionState,
        datagram: &[u8],
        at: usize,
    ) -> Result<(), Refusal>;

    /// All of a batch were taken.
    fn batch_received(&mut self, _now: Instant) {}

    /// Writes one packet without data, if one is due; false if not.
    fn poll_control(
        &mut self,
        now: Instant,
        state: &mut SessionState,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom>;

    /// Begins the end in `state`; the peer is told of `reason` if it should and can be.
    fn close(&mut self, now: Instant, state: &mut Life<Closing>, reason: &CloseReason);

    /// Writes what tells the peer.
    fn write_close(&mut self, close: &Closing, w: &mut Writer<'_>) -> Result<(), NoRoom>;

    /// May data leave?
    fn permit(&mut self, now: Instant) -> Permit;

    /// The next packet belongs into the same batch, whatever was allowed.
    fn extends_batch(&self) -> bool {
        false
    }

    /// Writes the next packet; false if none may leave.
    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool;

    /// The packets written last left, `bytes` in all.
    fn batch_sent(&mut self, now: Instant, bytes: u64);

    /// When to call [`Self::on_timer`], and why.
    fn deadline(&self) -> Option<(Instant, Why)>;

    /// The deadline passed; why the session must end, if it must.
    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason>;

    /// Why the session must end: its law has failed.
    fn failure(&self) -> Option<CloseReason>;

    /// Queues data of an object, or bytes.
    fn send(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64);
    /// Bytes of objects queued and not sent once.
    fn unsent(&self) -> u64;
    /// Forgets them.
    fn cancel_unsent(&mut self);
    /// Appends to the ordered stream.
    fn write(&mut self, now: Instant, bytes: &[u8]);
    /// Bytes of it that are not acknowledged.
    fn unwritten(&self) -> usize;
    /// Appends what arrived of it.
    fn read(&mut self, into: &mut Vec<u8>);
    /// All that was given is acknowledged.
    fn is_delivered(&self) -> bool;

    /// Whether "port unreachable" may mean that the peer has yet to start.
    fn ignores_port_unreachable(&self) -> bool {
        false
    }

    /// Adds its counters.
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

    /// A datagram that `write` fills, if it writes anything.
    fn single(
        &mut self,
        out: &mut TxBuf,
        write: impl FnOnce(&mut Self, &mut Writer<'_>) -> Result<bool, NoRoom>,
    ) -> Option<Transmit> {
        out.begin(C::CONTROL);
        let mut w = Writer::new(out.next_segment());
        if write(self, &mut w) != Ok(true) {
            return None;
        }
        let len = w.len();
        out.commit(len, len);
        Some(self.state.sent(out))
    }

    /// A packet without data.
    fn control(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        if let Some(close) = self.state.life.take_closing() {
            return self.single(out, |this, w| {
                this.connection.write_close(&close, w).map(|()| true)
            });
        }
        if !self.state.life.is_open() {
            return None;
        }
        self.single(out, |this, w| {
            this.connection.poll_control(now, &mut this.state, w)
        })
    }

    /// A batch of data, if it may leave.
    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let bytes = match self.connection.permit(now) {
            Permit::Send { bytes } => bytes,
            Permit::Hold(why) => {
                self.state.app.hold(now, why);
                return None;
            }
        };
        let (datagram, header) = self.connection.shape();
        let (connection, extents) = (&mut self.connection, &mut self.state.extents);
        let sent = batch::compose((&[], header, datagram), out, extents, |packet, sent| {
            (sent < bytes || connection.extends_batch()) && connection.next_packet(now, packet)
        });
        if sent == 0 {
            // What was to leave was given up: what is said of it comes first.
            return self.control(now, out);
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
        Some(self.state.sent(out))
    }
}

impl<C: Connection> Session for Carrier<C> {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        let (now, state) = (turn.now, &mut self.state);
        state.now = now;
        if !state.life.is_open() {
            return;
        }
        if batch.from != state.peer {
            state.app.stats.dropped_malformed += 1;
            return;
        }
        state.extents.clear();
        state.free = turn.store.sink().free;
        let segment = batch.segment.max(1);
        for (i, datagram) in batch.bytes.chunks(segment).enumerate() {
            let at = i * segment;
            let taken = self
                .connection
                .on_datagram(now, &mut self.state, datagram, at);
            if taken == Err(Refusal::Drop) {
                self.state.app.stats.dropped_malformed += 1;
                continue;
            }
            self.state.app.received(datagram.len());
            if let Err(Refusal::End(reason)) = taken {
                // What it acknowledged with that counts.
                self.settle();
                self.fail(now, reason);
                return;
            }
        }
        self.connection.batch_received(now);
        if !self.state.extents.is_empty()
            && let Err(error) = turn.store.place(&self.state.extents, batch.bytes)
        {
            self.fail(now, CloseReason::Store(error.0));
        }
        self.settle();
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.state.now = turn.now;
        self.state.life.on_timeout(turn.now);
        if self.state.life.is_open()
            && let Err(reason) = self.connection.on_timer(turn.now)
        {
            self.fail(turn.now, reason);
        }
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        self.state.now = turn.now;
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
        if self.state.life.is_open() {
            return self.connection.deadline();
        }
        self.state.life.deadline()
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
