//! Runs two sessions with a scripted path between them. Time does not advance until the test moves
//! it. A closure decides each datagram's fate; every byte is carried, so sealed sessions run as
//! they are.
//!
//! Invariant: the same script gives the same run.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use farhaul_core::{
    control::{Control, ROOM, Token},
    datagram::{Ecn, MAX_SEGMENTS, Received, TxBuf},
    protocol::{CloseReason, Protocol},
    rng::Rng,
    time::Instant,
};

use crate::{
    Pattern,
    driver::{Admitted, Driver, Sent},
};

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The side that connects.
    Client,
    /// The side that is connected to.
    Server,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Address of the side at first.
    pub fn address(self) -> SocketAddr {
        match self {
            Self::Client => (Ipv4Addr::new(10, 0, 0, 1), 40_000).into(),
            Self::Server => (Ipv4Addr::new(10, 0, 0, 2), 17_992).into(),
        }
    }
}

/// A datagram about to cross.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Sender of the datagram.
    pub from: Side,
    /// Count of datagrams that this side sent before.
    pub index: u64,
    /// Time at which the datagram was sent.
    pub at: Instant,
    /// Bytes of the datagram.
    pub bytes: &'a [u8],
    /// Length of the beginning that is the protocol's; the rest is content.
    pub solid: usize,
}

/// Fate of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The datagram arrives after the pair's delay.
    Deliver,
    /// The datagram is lost.
    Drop,
    /// The datagram arrives later than others by this time.
    Late(Duration),
    /// The datagram arrives, and once more after this time.
    Twice(Duration),
    /// The datagram arrives with a bit flipped in this byte, counted modulo its length.
    Corrupt(usize),
    /// Other bytes arrive in the datagram's place.
    Change(Vec<u8>),
    /// The datagram arrives marked "congestion experienced".
    Mark,
}

impl Fate {
    /// Loses the datagram if `lost`.
    #[must_use]
    pub const fn drop_if(lost: bool) -> Self {
        if lost { Self::Drop } else { Self::Deliver }
    }
}

/// Decides what becomes of a datagram.
type Script = Box<dyn FnMut(&Datagram<'_>) -> Fate>;

/// Addresses from which and to which a lane goes.
type Way = (SocketAddr, SocketAddr);

#[derive(Debug)]
struct Flying {
    to: Side,
    way: Way,
    ecn: Ecn,
    bytes: Vec<u8>,
}

/// Events of a control lane: it opens, has bytes, ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneEvent {
    /// The lane is open.
    Opened,
    /// Bytes arrived on the lane.
    Bytes(Vec<u8>),
    /// No more.
    Ended,
}

/// The control lane between the two: ordered, and as slow as datagrams.
#[derive(Debug, Default)]
struct Lane {
    flying: BTreeMap<(Instant, u64), (Side, LaneEvent)>,
    /// Input for a server without a session.
    pending: Vec<LaneEvent>,
    ended: [bool; 2],
}

/// Two sessions and the space between them.
pub struct Pair {
    /// Virtual time of the pair.
    pub now: Instant,
    /// The client.
    pub client: Driver,
    /// The server.
    pub server: Driver,
    /// The largest datagram that the path carries.
    pub largest: usize,
    /// True if datagrams of one size that are due together arrive as one batch, as from a
    /// receiver's offload.
    pub coalesces: bool,
    delay: Duration,
    script: Script,
    /// Datagrams by due time, then by order of sending.
    flying: BTreeMap<(Instant, u64), Flying>,
    lane: Lane,
    serial: u64,
    out: TxBuf,
    turns: u64,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("now", &self.now)
            .field("turns", &self.turns)
            .field("flying", &self.flying.len())
            .field("client", &self.client)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Both are open by then.
const OPENING: Duration = Duration::from_secs(10);
/// Steps of one run beyond which sessions do nothing but keep each other busy.
const MAX_STEPS: u64 = 5_000_000;
/// Pieces for the control lane at one instant beyond which a session will never stop.
const MAX_PIECES: usize = 10_000;

impl Pair {
    /// A pair one `delay` apart each way, over which everything arrives.
    pub fn new(
        client: Box<dyn Protocol>,
        server: Box<dyn Protocol>,
        delay: Duration,
        seed: u64,
    ) -> Self {
        let end = |protocol, side: Side, name| {
            let (store, rng) = (Pattern::new(seed), Rng::new(seed).fork(name));
            Driver::new(protocol, side.address(), store, rng)
        };
        Self {
            now: Instant::EPOCH,
            client: end(client, Side::Client, "client"),
            server: end(server, Side::Server, "server"),
            largest: usize::MAX,
            coalesces: true,
            delay,
            script: Box::new(|_| Fate::Deliver),
            flying: BTreeMap::new(),
            lane: Lane::default(),
            serial: 0,
            out: TxBuf::default(),
            turns: 0,
        }
    }

    /// Sets the script.
    #[must_use]
    pub fn with_script(mut self, script: impl FnMut(&Datagram<'_>) -> Fate + 'static) -> Self {
        self.set_script(script);
        self
    }

    /// Lets `script` decide on datagrams from now on.
    pub fn set_script(&mut self, script: impl FnMut(&Datagram<'_>) -> Fate + 'static) {
        self.script = Box::new(script);
    }

    /// The client connects, over interfaces of `mtu` bytes.
    pub fn connect(&mut self, mtu: Option<u32>) {
        let to = self.server.address;
        self.client.connect(self.now, to, mtu);
        if has_lane(&self.client) {
            // A round trip opens it at the client.
            let due = self.now + 2 * self.delay;
            self.inject_event(due, Side::Client, LaneEvent::Opened);
        }
        self.settle(Side::Client);
    }

    /// Runs until both are connected.
    ///
    /// # Panics
    /// If they do not connect.
    pub fn open(&mut self) {
        self.until(OPENING, |p| p.client.connected() && p.server.connected());
    }

    /// `side` sends `len` bytes of object 1.
    pub fn offer(&mut self, side: Side, len: u64) {
        self.node(side).session().send(1, 0, len);
        self.settle(side);
    }

    /// Runs until `side` knows that all of it was delivered.
    ///
    /// # Panics
    /// If it does not within `limit`.
    #[track_caller]
    pub fn deliver(&mut self, side: Side, limit: Duration) {
        self.until(limit, |p| p.node(side).delivered());
    }

    /// Runs until `side` has ended; why it did.
    ///
    /// # Panics
    /// If it does not within `limit`.
    #[track_caller]
    pub fn end(&mut self, side: Side, limit: Duration) -> CloseReason {
        self.until(limit, |p| p.node(side).closed().is_some());
        self.node(side).closed().expect("just seen").clone()
    }

    /// Turns taken so far by both sides.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// The side.
    pub const fn node(&mut self, side: Side) -> &mut Driver {
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

    /// Steps until `done`, for at most `limit` of virtual time; true if it was done.
    ///
    /// # Panics
    /// If a session never becomes idle.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + limit;
        self.settle(Side::Client);
        self.settle(Side::Server);
        for _ in 0..MAX_STEPS {
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return done(self);
            }
        }
        panic!("the sessions spin: {self:#?}");
    }

    /// Steps until `done`.
    ///
    /// # Panics
    /// If it is not done after `limit` of virtual time.
    #[track_caller]
    pub fn until(&mut self, limit: Duration, done: impl FnMut(&mut Self) -> bool) {
        assert!(self.run(limit, done), "not done: {self:#?}");
    }

    /// Steps for `time`, whatever happens.
    pub fn pass(&mut self, time: Duration) {
        self.run(time, |_| false);
    }

    /// Lets `side` send and report events, after the test has called its session; running does
    /// so, too.
    ///
    /// # Panics
    /// If the session never stops sending.
    pub fn settle(&mut self, side: Side) {
        let now = self.now;
        if self.node(side).reaction.is_some() {
            self.node(side).listen(now);
        }
        for _ in 0..MAX_PIECES {
            let end = match side {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            for sent in end.drain(now, &mut self.out) {
                self.launch(side, sent);
            }
            if !has_lane(self.node(side)) || !self.talk(side) {
                return self.node(side).listen(now);
            }
        }
        panic!("the {side:?} never stops talking at {now:?}");
    }

    /// Takes bytes of `side` for its control lane; true if there were any.
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
            self.inject_event(due, side.other(), LaneEvent::Bytes(bytes));
            return true;
        }
        if ends {
            self.inject_event(due, side.other(), LaneEvent::Ended);
        }
        false
    }

    /// A forged datagram reaches `to` now.
    pub fn inject(&mut self, to: Side, bytes: Vec<u8>) {
        let (from, at) = (self.node(to.other()).address, self.node(to).address);
        self.fly(self.now, to, (from, at), Ecn::NotEct, bytes);
    }

    /// One from `from` is there already; a stateless answer to it.
    pub fn intrude(&mut self, to: Side, from: SocketAddr, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let now = self.now;
        let reply = self.node(to).on_datagram(now, from, &mut bytes);
        self.settle(to);
        reply
    }

    /// `to` will receive this on its control lane; also for input that no session sends.
    pub fn inject_event(&mut self, due: Instant, to: Side, said: LaneEvent) {
        self.serial += 1;
        self.lane.flying.insert((due, self.serial), (to, said));
    }

    /// Hands over the events that are due on the control lane.
    fn listen(&mut self) {
        let now = self.now;
        while let Some(entry) = self.lane.flying.first_entry()
            && entry.key().0 <= now
        {
            let (to, said) = entry.remove();
            if self.node(to).session.is_none() {
                self.lane.pending.push(said);
                continue;
            }
            self.deliver_event(to, &said);
            self.settle(to);
        }
    }

    fn deliver_event(&mut self, to: Side, said: &LaneEvent) {
        self.turns += 1;
        let now = self.now;
        let control = match said {
            LaneEvent::Opened => Control::Opened,
            LaneEvent::Bytes(bytes) => Control::Bytes(bytes),
            LaneEvent::Ended => Control::Closed("the peer closed the control connection"),
        };
        self.node(to).control(now, control);
    }

    /// The token of the client's session, if it has one.
    fn token(&self) -> Option<Token> {
        self.client.session.as_ref()?.1.control_token()
    }

    fn launch(&mut self, from: Side, sent: Sent) {
        let now = self.now;
        let node = self.node(from);
        let (index, way) = (node.sent, (node.address, sent.to));
        node.sent += 1;
        let Sent { ecn, mut bytes, .. } = sent;
        if bytes.len() > self.largest {
            return;
        }
        let fate = (self.script)(&Datagram {
            from,
            index,
            at: now,
            bytes: &bytes,
            solid: sent.solid,
        });
        let (to, due) = (from.other(), self.now + self.delay);
        match fate {
            Fate::Drop => {}
            Fate::Deliver => self.fly(due, to, way, ecn, bytes),
            Fate::Late(by) => self.fly(due + by, to, way, ecn, bytes),
            Fate::Twice(later) => {
                self.fly(due, to, way, ecn, bytes.clone());
                self.fly(due + later, to, way, ecn, bytes);
            }
            Fate::Corrupt(at) => {
                let at = at % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x10;
                }
                self.fly(due, to, way, ecn, bytes);
            }
            Fate::Change(bytes) => self.fly(due, to, way, ecn, bytes),
            Fate::Mark => self.fly(due, to, way, Ecn::Ce, bytes),
        }
    }

    fn fly(&mut self, due: Instant, to: Side, way: Way, ecn: Ecn, bytes: Vec<u8>) {
        self.serial += 1;
        let flying = Flying {
            to,
            way,
            ecn,
            bytes,
        };
        self.flying.insert((due, self.serial), flying);
    }

    /// Hands over the next batch: datagrams on one way, due now, equal but for a shorter last one.
    fn arrive(&mut self) {
        let Some((_, first)) = self.flying.pop_first() else {
            return;
        };
        let (segment, mut last) = (first.bytes.len(), first.bytes.len());
        let (to, way, ecn, mut bytes) = (first.to, first.way, first.ecn, first.bytes);
        let mut count = 1;
        while self.coalesces
            && let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
            && (entry.get().to, entry.get().way, entry.get().ecn) == (to, way, ecn)
            && last == segment
            && entry.get().bytes.len() <= segment
            && count < MAX_SEGMENTS
        {
            let next = entry.remove();
            last = next.bytes.len();
            bytes.extend_from_slice(&next.bytes);
            count += 1;
        }
        if self.node(to).address == way.1 {
            self.hand_over(to, way.0, ecn, segment, &mut bytes);
            self.settle(to);
        }
    }

    fn hand_over(
        &mut self,
        to: Side,
        from: SocketAddr,
        ecn: Ecn,
        segment: usize,
        bytes: &mut [u8],
    ) {
        self.turns += 1;
        let now = self.now;
        let first = &bytes[..segment.min(bytes.len())];
        let token = self.token();
        let node = self.node(to);
        let is_new = node.session.is_none();
        if is_new && has_lane(node) {
            let joins = node.protocol.control_token(first);
            if joins.is_none() || joins != token {
                return;
            }
        }
        match node.admit(now, from, first) {
            Admitted::Nothing => return,
            Admitted::Reply(bytes) => {
                let solid = bytes.len();
                let reply = Sent {
                    to: from,
                    ecn: Ecn::NotEct,
                    bytes,
                    solid,
                };
                return self.launch(to, reply);
            }
            Admitted::Session => {}
        }
        if is_new && has_lane(node) {
            node.control(now, Control::Opened);
            for said in std::mem::take(&mut self.lane.pending) {
                self.deliver_event(to, &said);
            }
        }
        let node = self.node(to);
        let batch = Received {
            from,
            ecn,
            segment: segment.max(1),
            bytes,
            waited: node.waited,
            granted: None,
        };
        node.feed_batch(now, batch);
    }

    fn expire(&mut self, side: Side) {
        let now = self.now;
        if self.node(side).expire(now) {
            self.turns += 1;
            self.settle(side);
        }
    }
}

fn has_lane(end: &Driver) -> bool {
    end.protocol.descriptor().control_lane
}
