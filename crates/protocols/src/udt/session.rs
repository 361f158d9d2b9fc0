//! What is one connection? The opening, the two halves and the payload's meaning, joined. `hear` takes
//! what arrives, `say` writes what leaves; this file holds the state, the clock and the application's
//! side.

mod hear;
mod say;

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use farhaul_core::{
    congestion::CongestionController,
    datagram::{Received, Transmit, TxBuf},
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    send::STREAM,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
};

use super::{
    Framing, UdtConfig,
    inflow::{Inflow, RECORD},
    life::{Life, Silence},
    opening::{Agreed, Opening},
    recv::Receiver,
    rtt::RoundTrip,
    send::Sender,
    seq,
    wire::{HEADER, Handshake, OVERHEAD, Request},
};

/// How long a listener's session keeps its own data back while nothing came from the client: libudt's
/// client loses what arrives before it has entered the new socket into its table.
const HOLD: Duration = Duration::from_millis(20);
/// Answers to acknowledgements that wait to be sent.
const MAX_ACK2: usize = 64;
/// Bytes of a shutdown's text.
const MAX_WORDS: usize = 400;

/// How a session begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begun {
    /// It asks: a client, or one of two equals.
    Asking,
    /// A listener made it.
    Accepted(Agreed),
}

/// What there is once the connection is made.
#[derive(Debug)]
struct Link {
    /// Socket id of the peer.
    peer: u32,
    /// UDP payload of a full datagram.
    datagram: usize,
    /// The most that is taken.
    most: usize,
    receiver: Receiver,
    inflow: Inflow,
    /// Own data waits for the peer, at most until then.
    hold: Option<Instant>,
}

/// Small things waiting to be said.
#[derive(Debug, Default)]
struct Todo {
    answer: Option<Handshake>,
    ack2: VecDeque<u32>,
    keep_alive: bool,
    /// The application gave something that has not been announced as delivered.
    undelivered: bool,
}

/// A session of UDT.
pub(super) struct UdtSession {
    config: Arc<UdtConfig>,
    started: Instant,
    peer: SocketAddr,
    ours: Handshake,
    opening: Option<Opening>,
    link: Option<Link>,
    sender: Sender,
    rtt: RoundTrip,
    life: Life,
    todo: Todo,
    /// Why data was held back last.
    held: Option<Why>,
    extents: Vec<Extent>,
    events: VecDeque<Event>,
    stats: Stats,
    now: Instant,
    /// Kept as long as the session lives, so that its factory can tell.
    #[expect(dead_code, reason = "held, not read")]
    alive: Alive,
}

impl UdtSession {
    pub(super) fn new(
        config: Arc<UdtConfig>,
        law: Box<dyn CongestionController>,
        (now, peer, alive): (Instant, SocketAddr, Alive),
        ours: Handshake,
        begun: Begun,
    ) -> Self {
        let sender = Sender::new(&config, law, now);
        let limit = match ours.request {
            Request::Rendezvous => config.answer * 10,
            _ => config.answer,
        };
        let mut session = Self {
            rtt: RoundTrip::new(config.behaviour, None),
            life: Life::new(config.behaviour, now),
            config,
            started: now,
            peer,
            ours,
            opening: None,
            link: None,
            sender,
            todo: Todo::default(),
            held: None,
            extents: Vec::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
            now,
            alive,
        };
        match begun {
            Begun::Asking => session.opening = Some(Opening::new(now, ours, limit)),
            Begun::Accepted(agreed) => {
                session.todo.answer = Some(ours);
                session.open(now, agreed, Some(now + HOLD));
            }
        }
        session
    }

    /// The connection is made.
    fn open(&mut self, now: Instant, agreed: Agreed, hold: Option<Instant>) {
        let took = self.opening.take().and_then(|o| o.rtt());
        let took = took.map(|t| t.max(Duration::from_micros(100)));
        self.rtt = RoundTrip::new(self.config.behaviour, took);
        // An equal that has not heard what was agreed sends packets of the size that it was told first.
        let most = if self.config.rendezvous {
            self.ours.mss
        } else {
            agreed.mss
        };
        let most = (most - OVERHEAD) as usize;
        self.ours.mss = agreed.mss;
        let datagram = agreed.mss - OVERHEAD;
        let first = seq::initial(agreed.isn);
        let slots = self.ours.window.into();
        self.link = Some(Link {
            peer: agreed.peer,
            datagram: datagram as usize,
            most,
            receiver: Receiver::new(self.config.behaviour, now, agreed.isn, datagram as usize),
            inflow: Inflow::new(self.config.framing, first, most - HEADER, slots),
            hold,
        });
        let numbers = (self.ours.isn, datagram, agreed.window);
        self.sender.start(now, numbers, &self.rtt);
        self.life.heard(now);
        self.events.push_back(Event::Connected { peer_key: None });
    }

    /// Bytes of data in a full packet.
    fn room(&self) -> u32 {
        let record = match self.config.framing {
            Framing::Records => RECORD,
            Framing::Stream | Framing::Messages { .. } => 0,
        };
        let datagram = self.link.as_ref().map_or(0, |link| link.datagram);
        u32::try_from(datagram.saturating_sub(HEADER + record)).unwrap_or(0)
    }

    /// Ends the session for `reason`; the peer is told unless it is gone.
    fn fail(&mut self, now: Instant, reason: CloseReason) {
        if !self.life.is_open() {
            return;
        }
        let words = match &reason {
            CloseReason::Local { code, text } => Some((*code, text.as_str())),
            CloseReason::Store(text) | CloseReason::Protocol(text) => {
                Some((u32::MAX, text.as_str()))
            }
            _ => None,
        };
        let body = words.filter(|_| self.link.is_some()).map(|(code, text)| {
            let mut body = code.to_be_bytes().to_vec();
            if code != 0 {
                let end = text.floor_char_boundary(MAX_WORDS);
                body.extend(&text.as_bytes()[..end]);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            body
        });
        self.life.end(now, &self.rtt, body);
        self.stats.held.set(now, None);
        self.events.push_back(Event::Closed(reason));
    }

    /// Tells the application when all it gave has arrived.
    fn settle(&mut self) {
        if self.todo.undelivered && self.sender.delivered_all() {
            self.todo.undelivered = false;
            self.events.push_back(Event::Delivered);
        }
    }

    fn on_opening_timer(&mut self, now: Instant) {
        let Some(opening) = &self.opening else {
            return;
        };
        if now >= opening.gives_up_at() {
            let reason = if opening.heard() {
                CloseReason::Unfinished
            } else {
                CloseReason::NoAnswer
            };
            self.fail(now, reason);
        }
    }

    fn on_link_timers(&mut self, now: Instant) {
        self.sender.send_again(now, &self.rtt);
        self.sender.tick(now);
        match self.life.check(now, &self.rtt) {
            Some(Silence::Dead) => self.fail(now, CloseReason::TimedOut),
            Some(Silence::Expired(_)) if self.sender.is_idle() => self.todo.keep_alive = true,
            Some(Silence::Expired(n)) => {
                self.sender.expire(now, n);
                // The fixed sender has its own repeats; this only asks for a word.
                self.todo.keep_alive = !self.sender.has_repairs();
            }
            None => {}
        }
    }

    fn pacing(&self) -> Option<Instant> {
        (self.held == Some(Why::Pacing)).then(|| self.sender.wake())?
    }
}

impl Session for UdtSession {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        self.now = turn.now;
        self.hear(turn, &batch);
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.now = now;
        if !self.life.is_open() {
            return;
        }
        self.on_opening_timer(now);
        if self.link.is_some() {
            self.on_link_timers(now);
        }
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        self.now = turn.now;
        if let Some(text) = self.sender.failure() {
            self.fail(turn.now, CloseReason::Internal(text));
        }
        self.say(turn, out)
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if !self.life.is_open() {
            return self.life.closing_at().map(|at| (at, Why::Liveness));
        }
        if let Some(opening) = &self.opening {
            let at = opening.due().min(opening.gives_up_at());
            return Some((at, Why::Handshake));
        }
        let link = self.link.as_ref()?;
        [
            Some((self.life.deadline(&self.rtt), Why::Liveness)),
            link.receiver
                .deadline(&self.rtt)
                .map(|at| (at, Why::Feedback)),
            self.sender.again_at(&self.rtt).map(|at| (at, Why::Repair)),
            self.sender.next_tick().map(|at| (at, Why::Law)),
            self.pacing().map(|at| (at, Why::Pacing)),
            link.hold.map(|at| (at, Why::Handshake)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        // The last object number is the stream's.
        if self.life.is_open() && object != STREAM && len > 0 {
            self.sender.out.send(self.now, object, offset, len);
            self.todo.undelivered = true;
        }
    }

    fn unsent(&self) -> u64 {
        self.sender.out.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.out.cancel_unsent();
        self.settle();
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.life.is_open() && !bytes.is_empty() {
            self.sender.out.write(self.now, bytes);
            self.todo.undelivered = true;
        }
    }

    fn unwritten(&self) -> usize {
        self.sender.out.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        if let Some(link) = &mut self.link {
            link.inflow.read(into);
            let room = link.inflow.room(link.receiver.prefix());
            link.receiver.on_room(room);
        }
    }

    /// As libudt, which does not look at such answers: two equals are hardly started at one instant, and
    /// a server that is started a moment later is found.
    fn ignores_port_unreachable(&self) -> bool {
        self.opening.is_some()
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
        stats.rtt_min = self.rtt.min();
        stats.rtt_smoothed = stats.rtt_min.map(|_| self.rtt.smoothed());
        stats
    }
}
