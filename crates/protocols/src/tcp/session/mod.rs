//! What is one connection? Sender and receiver joined by sequence numbers, an ordered stream and a
//! life. `send` writes what leaves, `recv` takes what arrives.

mod recv;
mod send;

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    closing::Closing,
    datagram::{MAX_SEGMENTS, Received, Transmit, TxBuf},
    life::Life,
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    send::STREAM,
    session::{AppSide, earliest},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    stream::{Incoming, Outgoing},
    time::Instant,
};

use super::{
    Config,
    receiver::Receiver,
    sender::Sender,
    wire::{Hello, Open, Sequence},
};

/// Silence that ends a connection (keep-alives: RFC 9293 §3.8.4).
const IDLE: Duration = Duration::from_mins(1);
/// How long a client asks before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a SYN is repeated (RFC 6298 §2.1); doubled each time.
const SYN_RTO: Duration = Duration::from_secs(1);

/// Who this is and who the peer is.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) local: u32,
    /// 0 until the peer has said.
    pub(super) remote: u32,
    pub(super) peer: SocketAddr,
    /// Kept as long as the session lives, so that its factory can tell.
    #[expect(dead_code, reason = "held, not read")]
    pub(super) alive: Alive,
}

/// Sequence numbers and window shifts of both directions.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    own: Sequence,
    peer: Sequence,
    own_shift: u8,
    peer_shift: u8,
    /// Both ends use marks.
    ecn: bool,
}

/// The client's part of the handshake that is not over.
#[derive(Clone, Copy, Debug)]
struct SynState {
    started: Instant,
    /// When it is repeated, and the pause after that.
    again: Instant,
    pause: Duration,
    tries: u32,
    /// Repeated to the server; none before it has answered.
    open: Option<Open>,
}

/// A TCP session.
pub(super) struct TcpSession {
    config: Config,
    ends: Ends,
    iss: u32,
    datagram: u32,
    syn: Option<SynState>,
    numbers: Option<Numbers>,
    sender: Sender,
    receiver: Receiver,
    out: Outgoing,
    inc: Incoming,
    life: Life<Closing>,
    /// Of the batch in hand, to be filled or placed; kept, for it is long and batches are short.
    extents: Vec<Extent>,
    /// A segment that asks the peer where it stands is to be sent.
    ask: bool,
    app: AppSide,
}

impl TcpSession {
    /// A client, or a server's end for one that proved `open`; it starts after `iss` and sends datagrams of up
    /// to `datagram` bytes.
    pub(super) fn new(
        now: Instant,
        config: Config,
        ends: Ends,
        (iss, datagram): (u32, u32),
        open: Option<&Open>,
    ) -> Self {
        let syn = SynState {
            started: now,
            again: now,
            pause: SYN_RTO,
            tries: 0,
            open: None,
        };
        let mut session = Self {
            ends,
            iss,
            datagram,
            syn: open.is_none().then_some(syn),
            numbers: None,
            sender: Sender::new(config.clone()),
            receiver: Receiver::new(config.receiver),
            out: Outgoing::default(),
            inc: Incoming::default(),
            life: Life::new(now, IDLE),
            extents: Vec::with_capacity(MAX_SEGMENTS),
            ask: false,
            app: AppSide::default(),
            config,
        };
        if let Some(open) = open {
            session.establish(now, open.hello, open.iss, open.ecn, None);
        }
        session
    }

    /// The peer said `hello` and starts after `peer_iss`.
    fn establish(
        &mut self,
        now: Instant,
        hello: Hello,
        peer_iss: u32,
        ecn: bool,
        rtt: Option<Duration>,
    ) {
        let datagram = self.datagram.min(u32::from(hello.mss));
        let sack = hello.sack && self.config.sack();
        self.datagram = datagram;
        self.ends.remote = hello.from;
        self.receiver.start(datagram, sack);
        self.numbers = Some(Numbers {
            own: Sequence::new(self.iss),
            peer: Sequence::new(peer_iss),
            own_shift: self.receiver.window.shift(),
            peer_shift: hello.shift,
            ecn: ecn && self.config.ecn,
        });
        self.sender.start(now, datagram, sack, rtt);
        self.app.connected(None);
    }

    /// Ends the session for `reason`; the peer is notified if it can be.
    fn fail(&mut self, now: Instant, reason: CloseReason) {
        if !self.life.is_open() {
            return;
        }
        let close_frame = Closing::of(&reason).filter(|_| self.numbers.is_some());
        self.close_with(now, close_frame, reason);
    }

    fn close_with(&mut self, now: Instant, close_frame: Option<Closing>, reason: CloseReason) {
        self.life.close(now, close_frame, self.sender.srtt());
        self.sender.governor.tell(now, |law| law.on_close(now));
        self.app.close(now, reason);
    }

    /// Reads off what an acknowledgement or a timeout decided.
    fn settle(&mut self) {
        if self.out.pending() > 0 {
            self.out.on_acked(self.sender.stream_acked);
            self.out.on_credit(self.sender.stream_acked);
            self.pump_stream();
        }
        self.app.settle(self.sender.is_idle());
    }

    /// Gives the sender what may be under way of the stream.
    fn pump_stream(&mut self) {
        while let Some((offset, len)) = self.out.take_queueable() {
            self.sender.outbox.push(STREAM, offset, len);
        }
    }

    /// The server has not answered until then.
    fn unanswered_at(&self) -> Option<Instant> {
        let syn = self.syn.filter(|syn| syn.open.is_none())?;
        Some(syn.started + PATIENCE)
    }
}

impl Session for TcpSession {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        self.receive(turn, &batch);
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.life.on_timeout(now);
        if !self.life.is_open() {
            return;
        }
        if self.unanswered_at().is_some_and(|at| at <= now) {
            self.fail(now, CloseReason::NoAnswer);
        }
        if self.numbers.is_none() || !self.life.is_open() {
            return;
        }
        if now >= self.life.idle_at() {
            return self.fail(now, CloseReason::TimedOut);
        }
        self.ask |= self.life.ping(now);
        self.sender.on_timeout(now);
        self.receiver.on_timeout(now);
        self.settle();
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        if let Some(text) = self.sender.governor.failure() {
            self.fail(turn.now, CloseReason::Internal(text));
        }
        self.transmit(turn, out)
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if !self.life.is_open() {
            return self.life.deadline();
        }
        let again = self.syn.map(|syn| syn.again);
        let syn = again.into_iter().chain(self.unanswered_at()).min();
        let syn = syn.map(|at| (at, Why::Handshake));
        if self.numbers.is_none() {
            return syn;
        }
        earliest([
            self.life.deadline(),
            syn,
            self.sender.next_timeout(),
            self.receiver.next_timeout(),
        ])
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.app.poll_event()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        if self.app.give(object, len) {
            self.sender.outbox.push(object, offset, len);
        }
    }

    fn unsent(&self) -> u64 {
        self.sender.outbox.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.outbox.cancel_unsent();
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.app.write(bytes) {
            self.out.write(bytes);
            self.pump_stream();
        }
    }

    fn unwritten(&self) -> usize {
        self.out.pending()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.inc.read(into);
        self.receiver.on_read(self.inc.unread());
    }

    fn close(&mut self, now: Instant, code: u32, text: &str) {
        let text = text.to_owned();
        self.fail(now, CloseReason::Local { code, text });
    }

    fn is_closed(&self) -> bool {
        self.life.is_over()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.app.stats;
        self.sender.fill_stats(&mut stats);
        if self.numbers.is_none() {
            stats.datagram_size = self.datagram;
        }
        stats.dropped_duplicate = self.receiver.duplicates;
        stats
    }
}
