//! What is one connection? Sender and receiver joined by sequence numbers, an ordered stream and a
//! life. `send` writes what leaves, `recv` takes what arrives.

mod recv;
mod send;

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use farhaul_core::{
    datagram::{MAX_SEGMENTS, Received, Transmit, TxBuf},
    life::Life,
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    send::STREAM,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
};

use super::{
    Config,
    closing::Closing,
    receiver::Receiver,
    sender::Sender,
    stream::{Incoming, Outgoing},
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
    /// When to ask again, and the pause after that.
    again: Instant,
    pause: Duration,
    tries: u32,
    /// To be sent now.
    due: bool,
    /// What the server wants to hear again; none before it has answered.
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
    /// The application gave something that has not been announced as delivered.
    undelivered: bool,
    /// The last turn sent something.
    held: Option<Why>,
    events: VecDeque<Event>,
    stats: Stats,
}

impl TcpSession {
    fn new(now: Instant, config: Config, ends: Ends, iss: u32, datagram: u32) -> Self {
        Self {
            ends,
            iss,
            datagram,
            syn: None,
            numbers: None,
            sender: Sender::new(config.clone()),
            receiver: Receiver::new(config.receiver),
            out: Outgoing::default(),
            inc: Incoming::default(),
            life: Life::new(now, IDLE),
            extents: Vec::with_capacity(MAX_SEGMENTS),
            ask: false,
            undelivered: false,
            held: None,
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// A client that sends datagrams of up to `datagram` bytes.
    pub(super) fn client(
        now: Instant,
        config: Config,
        ends: Ends,
        iss: u32,
        datagram: u32,
    ) -> Self {
        let mut session = Self::new(now, config, ends, iss, datagram);
        session.syn = Some(SynState {
            started: now,
            again: now + SYN_RTO,
            pause: SYN_RTO,
            tries: 0,
            due: true,
            open: None,
        });
        session
    }

    /// A server's end for a client that proved `open`.
    pub(super) fn server(
        now: Instant,
        config: Config,
        ends: Ends,
        iss: u32,
        datagram: u32,
        open: &Open,
    ) -> Self {
        let mut session = Self::new(now, config, ends, iss, datagram);
        session.establish(now, open.hello, open.iss, open.ecn, None);
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
            own_shift: self.receiver.shift(),
            peer_shift: hello.shift,
            ecn: ecn && self.config.ecn,
        });
        self.sender.start(now, datagram, sack, rtt);
        self.events.push_back(Event::Connected { peer_key: None });
    }

    /// Ends the session for `reason`; the peer is told if it can be.
    fn fail(&mut self, now: Instant, reason: CloseReason) {
        if !self.life.is_open() {
            return;
        }
        match Closing::of(&reason).filter(|_| self.numbers.is_some()) {
            Some(close_frame) => self.life.close(now, close_frame, self.sender.srtt()),
            None => self.life.end(),
        }
        self.stats.held.set(now, None);
        self.sender.close(now);
        self.events.push_back(Event::Closed(reason));
    }

    /// It is over without a word.
    fn ended(&mut self, reason: CloseReason) {
        if self.life.is_open() {
            self.events.push_back(Event::Closed(reason));
        }
        self.life.end();
    }

    /// Reads off what an acknowledgement or a timeout decided.
    fn settle(&mut self) {
        self.out.on_acked(self.sender.stream_acked());
        if self.undelivered && self.sender.is_idle() {
            self.undelivered = false;
            self.events.push_back(Event::Delivered);
        }
    }

    fn on_knock_timer(&mut self, now: Instant) {
        let Some(syn) = &mut self.syn else {
            return;
        };
        if syn.open.is_none() && now.since(syn.started) >= PATIENCE {
            self.ended(CloseReason::NoAnswer);
        } else if syn.again <= now {
            syn.due = true;
            syn.pause *= 2;
            syn.again = now + syn.pause;
        }
    }

    fn knock_due(&self) -> Option<Instant> {
        let syn = self.syn.as_ref()?;
        let patience = syn.open.is_none().then(|| syn.started + PATIENCE);
        patience.into_iter().chain([syn.again]).min()
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
        self.on_knock_timer(now);
        if self.numbers.is_none() || !self.life.is_open() {
            return;
        }
        if now >= self.life.idle_at() {
            self.ended(CloseReason::TimedOut);
            return;
        }
        if now >= self.life.ping_at() {
            self.life.on_ping(now);
            self.ask = true;
        }
        self.sender.on_timeout(now);
        self.receiver.on_timeout(now);
        self.settle();
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        if let Some(text) = self.sender.failure() {
            self.fail(turn.now, CloseReason::Internal(text));
        }
        self.transmit(turn, out)
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if !self.life.is_open() {
            return self.life.due().map(|at| (at, Why::Liveness));
        }
        let syn = self.knock_due().map(|at| (at, Why::Handshake));
        if self.numbers.is_none() {
            return syn;
        }
        let life = self.life.idle_at().min(self.life.ping_at());
        let mut first = (life, Why::Liveness);
        for (at, why) in [
            syn,
            self.sender.next_timeout(),
            self.receiver.next_timeout(),
        ]
        .into_iter()
        .flatten()
        {
            if at < first.0 {
                first = (at, why);
            }
        }
        Some(first)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        // The last object number is the stream's.
        if self.life.is_open() && object != STREAM && len > 0 {
            self.sender.send(object, offset, len);
            self.undelivered = true;
        }
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.life.is_open() && !bytes.is_empty() {
            let at = self.out.write(bytes);
            self.sender.send(STREAM, at, bytes.len() as u64);
            self.undelivered = true;
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
        let mut stats = self.stats;
        self.sender.fill_stats(&mut stats);
        if self.numbers.is_none() {
            stats.datagram_size = self.datagram;
        }
        stats.dropped_duplicate = self.receiver.duplicates();
        stats
    }
}
