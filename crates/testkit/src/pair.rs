//! How do two sessions behave with nothing between them but a script? Time stands still until the
//! test moves it; each datagram's fate is decided by a closure; every byte is carried, so sealed
//! sessions run as they are.
//!
//! Invariants: the same script gives the same run; datagrams due together and of one size arrive as
//! one batch, as from a receiver's offload.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use farhaul_core::{
    control::{Control, ROOM, Token},
    datagram::{Ecn, MAX_SEGMENTS, Received, TxBuf},
    protocol::{Accepted, Event, Protocol, Route, Session, Turn},
    rng::Rng,
    time::Instant,
};

use crate::Pattern;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It connects.
    Client,
    /// It is connected to.
    Server,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    fn address(self) -> SocketAddr {
        match self {
            Self::Client => (Ipv4Addr::new(10, 0, 0, 1), 40_000).into(),
            Self::Server => (Ipv4Addr::new(10, 0, 0, 2), 17_992).into(),
        }
    }
}

/// A datagram about to cross.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub from: Side,
    /// How many this side sent before it.
    pub index: u64,
    /// When it was sent.
    pub at: Instant,
    /// What is in it.
    pub bytes: &'a [u8],
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after the pair's delay.
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives so much later than others.
    Late(Duration),
    /// It arrives, and once more so much later.
    Twice(Duration),
    /// It arrives with a bit flipped in this byte, counted modulo its length.
    Corrupt(usize),
    /// It arrives marked "congestion experienced".
    Mark,
}

/// Decides what becomes of a datagram.
type Script = Box<dyn FnMut(&Datagram<'_>) -> Fate>;

/// One side: its endpoint, session, application bytes and what it was told.
pub struct Node {
    protocol: Box<dyn Protocol>,
    session: Option<(u64, Box<dyn Session>)>,
    rng: Rng,
    /// Its content; what arrives is checked against it.
    pub store: Pattern,
    /// Events so far.
    pub events: Vec<Event>,
    /// What was read from the ordered stream so far.
    pub stream: Vec<u8>,
    /// Its application reads the ordered stream.
    pub reads: bool,
    sent: u64,
}

impl Node {
    fn new(protocol: Box<dyn Protocol>, seed: u64, name: &str) -> Self {
        Self {
            protocol,
            session: None,
            rng: Rng::new(seed).fork(name),
            store: Pattern::new(seed),
            events: Vec::new(),
            stream: Vec::new(),
            reads: true,
            sent: 0,
        }
    }

    /// The session, if there is one; call [`Pair::settle`] after having changed it.
    pub fn session(&mut self) -> Option<&mut dyn Session> {
        match &mut self.session {
            Some((_, session)) => Some(session.as_mut()),
            None => None,
        }
    }

    fn has_lane(&self) -> bool {
        self.protocol.descriptor().control_lane
    }

    fn hear(&mut self, now: Instant, control: Control<'_>) {
        if let Some((_, session)) = &mut self.session {
            let mut turn = Turn {
                now,
                rng: &mut self.rng,
                store: &mut self.store,
            };
            session.handle_control(&mut turn, control);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let (_, session) = self.session.as_ref()?;
        session.poll_timeout().map(|(at, _)| at)
    }
}

#[derive(Debug)]
struct Flying {
    to: Side,
    ecn: Ecn,
    bytes: Vec<u8>,
}

/// What happens on a control lane: it opens, says something, ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is open.
    Opened,
    /// These bytes.
    Bytes(Vec<u8>),
    /// No more.
    Ended,
}

/// The control lane between the two: ordered, and as slow as datagrams.
#[derive(Debug, Default)]
struct Lane {
    flying: BTreeMap<(Instant, u64), (Side, Said)>,
    /// What a server without a session has not heard.
    unheard: Vec<Said>,
    ended: [bool; 2],
}

/// Two sessions and the space between them.
pub struct Pair {
    /// The time.
    pub now: Instant,
    /// The client.
    pub client: Node,
    /// The server.
    pub server: Node,
    delay: Duration,
    script: Script,
    /// By due time, then by order of sending.
    flying: BTreeMap<(Instant, u64), Flying>,
    lane: Lane,
    serial: u64,
    out: TxBuf,
    turns: u64,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = |node: &Node| node.session.as_ref().map(|(_, s)| s.stats());
        f.debug_struct("Pair")
            .field("now", &self.now)
            .field("turns", &self.turns)
            .field("flying", &self.flying.len())
            .field("client_events", &self.client.events)
            .field("server_events", &self.server.events)
            .field("client", &stats(&self.client))
            .field("server", &stats(&self.server))
            .finish_non_exhaustive()
    }
}

/// A session that sends more than this at one instant will never stop.
const MAX_BATCHES: usize = 100_000;

impl Pair {
    /// A pair one `delay` apart each way, over which everything arrives.
    pub fn new(
        client: Box<dyn Protocol>,
        server: Box<dyn Protocol>,
        delay: Duration,
        seed: u64,
    ) -> Self {
        Self {
            now: Instant::EPOCH,
            client: Node::new(client, seed, "client"),
            server: Node::new(server, seed, "server"),
            delay,
            script: Box::new(|_| Fate::Deliver),
            flying: BTreeMap::new(),
            lane: Lane::default(),
            serial: 0,
            out: TxBuf::default(),
            turns: 0,
        }
    }

    /// The same with a script.
    #[must_use]
    pub fn with_script(mut self, script: impl FnMut(&Datagram<'_>) -> Fate + 'static) -> Self {
        self.set_script(script);
        self
    }

    /// From now on datagrams fare as `script` says.
    pub fn set_script(&mut self, script: impl FnMut(&Datagram<'_>) -> Fate + 'static) {
        self.script = Box::new(script);
    }

    /// The client connects, over interfaces of `mtu` bytes.
    pub fn connect(&mut self, mtu: Option<u32>) {
        let client = &mut self.client;
        let to = Side::Server.address();
        let session = client.protocol.connect(self.now, &mut client.rng, to, mtu);
        client.session = Some(session);
        if client.has_lane() {
            // A round trip opens it at the client.
            let due = self.now + 2 * self.delay;
            self.say(due, Side::Client, Said::Opened);
        }
        self.settle(Side::Client);
    }

    /// Turns taken so far by both sides.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// The side.
    pub const fn node(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Moves to the next thing that happens, but not beyond `limit`; false if nothing happens by then.
    pub fn step(&mut self, limit: Instant) -> bool {
        let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
        let said = self.lane.flying.first_key_value().map(|((at, _), _)| *at);
        let next = [flying, said, self.client.deadline(), self.server.deadline()]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.filter(|at| *at <= limit) else {
            self.now = self.now.max(limit);
            return false;
        };
        self.now = self.now.max(next);
        if flying.is_some_and(|at| at <= self.now) {
            self.arrive();
        }
        if said.is_some_and(|at| at <= self.now) {
            self.listen();
        }
        for side in [Side::Client, Side::Server] {
            self.expire(side);
        }
        true
    }

    /// Steps until `done`, for at most `limit` of virtual time; whether it was done.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return done(self);
            }
        }
    }

    /// Lets `side` send and tell what it has to, after the test has called its session.
    ///
    /// # Panics
    /// If the session never stops sending.
    pub fn settle(&mut self, side: Side) {
        for _ in 0..MAX_BATCHES {
            let now = self.now;
            let node = match side {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            let Some((_, session)) = &mut node.session else {
                return;
            };
            let mut turn = Turn {
                now,
                rng: &mut node.rng,
                store: &mut node.store,
            };
            let Some(transmit) = session.poll_transmit(&mut turn, &mut self.out) else {
                if node.has_lane() && self.talk(side) {
                    continue;
                }
                let node = self.node(side);
                let Some((_, session)) = &mut node.session else {
                    return;
                };
                while let Some(event) = session.poll_event() {
                    node.events.push(event);
                }
                if node.reads {
                    session.read(&mut node.stream);
                }
                return;
            };
            let segments: Vec<Vec<u8>> = self.out.segments().map(|(s, _)| s.to_vec()).collect();
            for bytes in segments {
                self.launch(side, transmit.ecn, bytes);
            }
        }
        panic!("the {side:?} never stops sending at {:?}", self.now);
    }

    /// Takes what `side` has to say on its control lane; true if there was something.
    fn talk(&mut self, side: Side) -> bool {
        let (now, due) = (self.now, self.now + self.delay);
        let mut bytes = Vec::new();
        let Some((_, session)) = &mut self.node(side).session else {
            return false;
        };
        session.poll_control(now, ROOM, &mut bytes);
        let closed = session.is_closed();
        let ended = &mut self.lane.ended[side as usize];
        let ends = bytes.is_empty() && closed && !std::mem::replace(ended, closed);
        if !bytes.is_empty() {
            self.say(due, side.other(), Said::Bytes(bytes));
            return true;
        }
        if ends {
            self.say(due, side.other(), Said::Ended);
        }
        false
    }

    /// A datagram that nobody sent reaches `to` now.
    pub fn inject(&mut self, to: Side, bytes: Vec<u8>) {
        self.fly(self.now, to.other(), Ecn::NotEct, bytes);
    }

    /// `to` will hear this on its control lane; also how a test says what no session says.
    pub fn say(&mut self, due: Instant, to: Side, said: Said) {
        self.serial += 1;
        self.lane.flying.insert((due, self.serial), (to, said));
    }

    /// Hands over what is due on the control lane.
    fn listen(&mut self) {
        let now = self.now;
        while let Some(entry) = self.lane.flying.first_entry()
            && entry.key().0 <= now
        {
            let (to, said) = entry.remove();
            if self.node(to).session.is_none() {
                self.lane.unheard.push(said);
                continue;
            }
            self.tell(to, &said);
            self.settle(to);
        }
    }

    fn tell(&mut self, to: Side, said: &Said) {
        self.turns += 1;
        let now = self.now;
        let control = match said {
            Said::Opened => Control::Opened,
            Said::Bytes(bytes) => Control::Bytes(bytes),
            Said::Ended => Control::Closed("the peer closed the control connection"),
        };
        self.node(to).hear(now, control);
    }

    /// The token of the client's session, if it has one.
    fn token(&mut self) -> Option<Token> {
        self.client.session()?.control_token()
    }

    fn launch(&mut self, from: Side, ecn: Ecn, mut bytes: Vec<u8>) {
        let now = self.now;
        let node = self.node(from);
        let index = node.sent;
        node.sent += 1;
        let fate = (self.script)(&Datagram {
            from,
            index,
            at: now,
            bytes: &bytes,
        });
        let due = self.now + self.delay;
        match fate {
            Fate::Drop => {}
            Fate::Deliver => self.fly(due, from, ecn, bytes),
            Fate::Late(by) => self.fly(due + by, from, ecn, bytes),
            Fate::Twice(later) => {
                self.fly(due, from, ecn, bytes.clone());
                self.fly(due + later, from, ecn, bytes);
            }
            Fate::Corrupt(at) => {
                let at = at % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x10;
                }
                self.fly(due, from, ecn, bytes);
            }
            Fate::Mark => self.fly(due, from, Ecn::Ce, bytes),
        }
    }

    fn fly(&mut self, due: Instant, from: Side, ecn: Ecn, bytes: Vec<u8>) {
        self.serial += 1;
        let to = from.other();
        self.flying
            .insert((due, self.serial), Flying { to, ecn, bytes });
    }

    /// Hands over the next batch: datagrams for one side, due now, equal but for a shorter last one.
    fn arrive(&mut self) {
        let Some((_, first)) = self.flying.pop_first() else {
            return;
        };
        let (segment, mut last) = (first.bytes.len(), first.bytes.len());
        let (to, ecn, mut bytes) = (first.to, first.ecn, first.bytes);
        let mut count = 1;
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
            && (entry.get().to, entry.get().ecn) == (to, ecn)
            && last == segment
            && entry.get().bytes.len() <= segment
            && count < MAX_SEGMENTS
        {
            let next = entry.remove();
            last = next.bytes.len();
            bytes.extend_from_slice(&next.bytes);
            count += 1;
        }
        self.hand_over(to, ecn, segment, &mut bytes);
        self.settle(to);
    }

    fn hand_over(&mut self, to: Side, ecn: Ecn, segment: usize, bytes: &mut [u8]) {
        self.turns += 1;
        let (now, from) = (self.now, to.other().address());
        let node = self.node(to);
        let first = &bytes[..segment.min(bytes.len())];
        if node.protocol.route(first) == Route::Foreign {
            return;
        }
        let joins = node.protocol.control_token(first);
        if node.session.is_none() && node.has_lane() && (joins.is_none() || joins != self.token()) {
            return;
        }
        let node = self.node(to);
        let first = &bytes[..segment.min(bytes.len())];
        if node.session.is_none() {
            let mut reply = Vec::new();
            match node
                .protocol
                .accept(now, &mut node.rng, from, first, &mut reply)
            {
                Accepted::Session(id, session) => node.session = Some((id, session)),
                Accepted::Reply => return self.launch(to, Ecn::NotEct, reply),
                Accepted::Drop => return,
            }
            if node.has_lane() {
                node.hear(now, Control::Opened);
                for said in std::mem::take(&mut self.lane.unheard) {
                    self.tell(to, &said);
                }
            }
        }
        let node = self.node(to);
        let Some((_, session)) = &mut node.session else {
            return;
        };
        let mut turn = Turn {
            now,
            rng: &mut node.rng,
            store: &mut node.store,
        };
        let batch = Received {
            from,
            ecn,
            segment: segment.max(1),
            bytes,
            waited: Duration::ZERO,
            granted: None,
        };
        session.handle_datagrams(&mut turn, batch);
    }

    fn expire(&mut self, side: Side) {
        let now = self.now;
        let node = self.node(side);
        if node.deadline().is_none_or(|at| at > now) {
            return;
        }
        if let Some((_, session)) = &mut node.session {
            let mut turn = Turn {
                now,
                rng: &mut node.rng,
                store: &mut node.store,
            };
            session.handle_timeout(&mut turn);
            self.turns += 1;
            self.settle(side);
        }
    }
}
