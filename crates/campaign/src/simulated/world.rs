//! What happens when? Two machines and the network between them, event by event in virtual time.
//!
//! - A machine whose thread waits for its disk does nothing else meanwhile; what arrives waits in its
//!   socket, which has an end.
//! - A machine that is killed says nothing more.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{
    app::App,
    datagram::{Ecn, MAX_SEGMENTS, Received, TxBuf},
    protocol::{Accepted, Protocol, Route, Session, Turn},
    rng::Rng,
    time::Instant,
};
use farhaul_transfer::VirtualTime;

use super::disk::{Disk, mix};

/// Bytes that a socket holds.
const SOCKET: usize = 4 << 20;
/// A machine without room looks all the same whether its peer is there.
const LOOK: Duration = Duration::from_secs(5);
/// A session that sends more than this at one instant will never stop.
const BATCHES: usize = 100_000;
/// Nobody has so much to do at one instant.
const STILL: u64 = 20_000;

/// What the network does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) delay: Duration,
    /// The latest that something arrives later than others.
    pub(crate) jitter: Duration,
    /// Of a million.
    pub(crate) loss: u64,
    /// Bits a second.
    pub(crate) rate: u64,
}

/// The longest queue before the link.
const QUEUE: Duration = Duration::from_millis(50);

/// One side.
pub(crate) struct End {
    app: Box<dyn App>,
    protocol: Box<dyn Protocol>,
    session: Option<(u64, Box<dyn Session>)>,
    rng: Rng,
    time: Arc<VirtualTime>,
    disk: Arc<Disk>,
    socket: VecDeque<(Ecn, Vec<u8>)>,
    held: usize,
    /// Its thread waits for the disk until then.
    busy: Instant,
    /// It had no room, and looks again then.
    look: Option<Instant>,
    killed: bool,
    /// Its link is free then.
    free: Instant,
}

impl End {
    pub(crate) fn new(
        app: Box<dyn App>,
        protocol: Box<dyn Protocol>,
        (time, disk): (&Arc<VirtualTime>, &Arc<Disk>),
        rng: Rng,
    ) -> Self {
        Self {
            app,
            protocol,
            session: None,
            rng,
            time: Arc::clone(time),
            disk: Arc::clone(disk),
            socket: VecDeque::new(),
            held: 0,
            busy: Instant::EPOCH,
            look: None,
            killed: false,
            free: Instant::EPOCH,
        }
    }

    fn is_over(&self) -> bool {
        self.killed || self.session.as_ref().is_some_and(|(_, s)| s.is_closed())
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let (_, session) = self.session.as_ref()?;
        let timer = session.poll_timeout().map(|(at, _)| at);
        let due = timer.into_iter().chain(self.app.next_wake());
        let due = due.chain(self.look.filter(|_| !self.socket.is_empty()));
        due.min().map(|at| at.max(self.busy))
    }

    /// Takes a batch from the socket: datagrams of one size but for a shorter last one.
    fn batch(&mut self) -> Option<(Ecn, usize, Vec<u8>)> {
        let (ecn, mut bytes) = self.socket.pop_front()?;
        let segment = bytes.len();
        let (mut last, mut count) = (segment, 1);
        while let Some((also, next)) = self.socket.front()
            && *also == ecn
            && last == segment
            && next.len() <= segment
            && count < MAX_SEGMENTS
        {
            last = next.len();
            bytes.extend_from_slice(next);
            self.socket.pop_front();
            count += 1;
        }
        self.held -= bytes.len();
        Some((ecn, segment, bytes))
    }

    /// True if something may be taken from the socket.
    fn takes(&mut self, now: Instant) -> bool {
        if self.app.room() >= 64 << 10 {
            self.look = None;
            return true;
        }
        let look = *self.look.get_or_insert(now + LOOK);
        if look <= now {
            self.look = Some(now + LOOK);
        }
        look <= now
    }

    /// Something arrives; the reply of one that has no session.
    fn receive(&mut self, now: Instant, from: SocketAddr) -> Option<Vec<u8>> {
        let (ecn, segment, mut bytes) = self.batch()?;
        let first = bytes.get(..segment.min(bytes.len())).unwrap_or_default();
        if self.protocol.route(first) == Route::Foreign {
            return None;
        }
        if self.session.is_none() {
            let mut reply = Vec::new();
            match self
                .protocol
                .accept(now, &mut self.rng, from, first, &mut reply)
            {
                Accepted::Session(id, session) => self.session = Some((id, session)),
                Accepted::Reply => return Some(reply),
                Accepted::Drop => return None,
            }
        }
        if let Some((_, session)) = &mut self.session {
            let mut turn = Turn {
                now,
                rng: &mut self.rng,
                store: &mut self.app,
            };
            let batch = Received {
                from,
                ecn,
                segment: segment.max(1),
                bytes: &mut bytes,
                waited: Duration::ZERO,
                granted: None,
            };
            session.handle_datagrams(&mut turn, batch);
        }
        None
    }

    /// The timer passed, and the application decides what is next.
    fn attend(&mut self, now: Instant) {
        let Some((_, session)) = &mut self.session else {
            return;
        };
        if session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            let mut turn = Turn {
                now,
                rng: &mut self.rng,
                store: &mut self.app,
            };
            session.handle_timeout(&mut turn);
        }
    }

    fn decide(&mut self, now: Instant) {
        let Some((_, session)) = &mut self.session else {
            return;
        };
        while let Some(event) = session.poll_event() {
            self.app.on_event(now, event, &mut **session);
        }
        self.app.poll(now, &mut **session);
    }

    fn transmit(&mut self, now: Instant, out: &mut TxBuf) -> Option<Ecn> {
        let (_, session) = self.session.as_mut()?;
        let mut turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.app,
        };
        session.poll_transmit(&mut turn, out).map(|t| t.ecn)
    }

    /// True if the application must be told something.
    fn has_news(&mut self, now: Instant) -> bool {
        let Some((_, session)) = &mut self.session else {
            return false;
        };
        let mut told = false;
        while let Some(event) = session.poll_event() {
            self.app.on_event(now, event, &mut **session);
            told = true;
        }
        told
    }
}

/// Two machines.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) ends: [End; 2],
    network: Network,
    rng: Rng,
    flying: BTreeMap<(Instant, u64), (usize, Ecn, Vec<u8>)>,
    serial: u64,
    out: TxBuf,
    pub(crate) events: u64,
    /// Events since time last passed.
    still: u64,
    trace: u64,
}

fn address(i: usize) -> SocketAddr {
    let last = if i == 0 { 1 } else { 2 };
    (Ipv4Addr::new(10, 0, 0, last), 17_992).into()
}

impl World {
    /// The client and the server at `now`.
    pub(crate) fn new(now: Instant, ends: [End; 2], network: Network, rng: Rng) -> Self {
        Self {
            now,
            ends,
            network,
            rng,
            flying: BTreeMap::new(),
            serial: 0,
            out: TxBuf::default(),
            events: 0,
            still: 0,
            trace: 0,
        }
    }

    pub(crate) fn connect(&mut self) {
        let client = &mut self.ends[0];
        let session = client
            .protocol
            .connect(self.now, &mut client.rng, address(1), None);
        client.session = Some(session);
        self.turn(0);
    }

    /// Stands for everything that has happened.
    pub(crate) fn trace(&self) -> u64 {
        let [client, server] = &self.ends;
        mix(mix(self.trace, client.disk.trace()), server.disk.trace())
    }

    pub(crate) fn kill(&mut self, i: usize) {
        self.ends[i].disk.kill();
        self.bury();
    }

    /// Machines whose disks have stopped are dead.
    fn bury(&mut self) {
        for end in &mut self.ends {
            if !end.killed && end.disk.is_dead() {
                end.killed = true;
                end.session = None;
                end.app = Box::new(Nobody);
                end.socket.clear();
            }
        }
    }

    /// True once nobody will do anything.
    pub(crate) fn is_over(&self) -> bool {
        let [client, server] = &self.ends;
        client.is_over() && (server.is_over() || server.session.is_none())
    }

    /// Who is busy with nothing, if time has stopped.
    pub(crate) fn spins(&self) -> Option<String> {
        let of = |end: &End| {
            let timer = end.session.as_ref().and_then(|(_, s)| s.poll_timeout());
            let stats = end
                .session
                .as_ref()
                .map(|(_, s)| (s.unsent(), s.unwritten(), s.stats()));
            format!("timer {timer:?}, wake {:?}, {stats:?}", end.app.next_wake())
        };
        (self.still > STILL).then(|| {
            format!(
                "spins at {:?}: {}",
                self.now,
                of(&self.ends[0]) + " / " + &of(&self.ends[1])
            )
        })
    }

    /// The next thing happens; false if nothing does until `limit`.
    pub(crate) fn step(&mut self, limit: Instant) -> bool {
        let due = self.ends.each_ref().map(End::deadline);
        let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
        let next = due.into_iter().chain([flying]).flatten().min();
        let Some(next) = next.filter(|at| *at <= limit) else {
            return false;
        };
        self.still = if next > self.now { 0 } else { self.still + 1 };
        self.now = self.now.max(next);
        self.events += 1;
        self.trace = mix(self.trace, self.now.as_nanos());
        let mut turns = [0, 1].map(|i| due[i].is_some_and(|at| at <= self.now));
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, ecn, bytes) = entry.remove();
            let end = &mut self.ends[to];
            self.trace = mix(self.trace, bytes.len() as u64);
            if !end.killed && end.held + bytes.len() <= SOCKET {
                end.held += bytes.len();
                end.socket.push_back((ecn, bytes));
                turns[to] = true;
            }
        }
        for i in [0, 1] {
            if turns[i] {
                self.turn(i);
            }
        }
        true
    }

    /// A turn of one machine, unless it waits for its disk.
    fn turn(&mut self, i: usize) {
        let now = self.now;
        let end = &mut self.ends[i];
        if end.killed {
            return;
        }
        if end.busy > now {
            end.look = end.look.or(Some(end.busy));
            return;
        }
        end.time.set(now);
        while !self.ends[i].socket.is_empty() && self.ends[i].takes(now) {
            if let Some(reply) = self.ends[i].receive(now, address(1 - i)) {
                self.launch(i, Ecn::NotEct, reply);
            }
        }
        self.ends[i].attend(now);
        self.ends[i].decide(now);
        for _ in 0..BATCHES {
            let mut out = std::mem::take(&mut self.out);
            let sent = self.ends[i].transmit(now, &mut out);
            if let Some(ecn) = sent {
                let segments: Vec<Vec<u8>> = out.segments().map(|(s, _)| s.to_vec()).collect();
                for bytes in segments {
                    self.launch(i, ecn, bytes);
                }
            }
            self.out = out;
            if sent.is_none() && !self.ends[i].has_news(now) {
                break;
            }
        }
        let end = &mut self.ends[i];
        end.busy = now + end.time.take_spent();
        self.bury();
    }

    fn launch(&mut self, from: usize, ecn: Ecn, bytes: Vec<u8>) {
        let end = &mut self.ends[from];
        let takes = bytes.len() as u64 * 8 * 1_000_000_000 / self.network.rate;
        let start = end.free.max(self.now);
        if start.since(self.now) > QUEUE || self.rng.below(1_000_000) < self.network.loss {
            return;
        }
        end.free = start + Duration::from_nanos(takes);
        let jitter = u64::try_from(self.network.jitter.as_nanos()).unwrap_or_default();
        let late = if self.rng.below(20) == 0 {
            self.rng.below(jitter.max(1))
        } else {
            0
        };
        let due = end.free + self.network.delay + Duration::from_nanos(late);
        self.serial += 1;
        self.flying
            .insert((due, self.serial), (1 - from, ecn, bytes));
    }
}

/// Stands where a machine was.
struct Nobody;

impl farhaul_core::store::Store for Nobody {
    fn fill(
        &mut self,
        _: &[farhaul_core::store::Extent],
        _: &mut [u8],
    ) -> Result<(), farhaul_core::store::StoreError> {
        Ok(())
    }

    fn place(
        &mut self,
        _: &[farhaul_core::store::Extent],
        _: &[u8],
    ) -> Result<(), farhaul_core::store::StoreError> {
        Ok(())
    }

    fn room(&self) -> u64 {
        u64::MAX
    }
}

impl App for Nobody {
    fn on_event(&mut self, _: Instant, _: farhaul_core::protocol::Event, _: &mut dyn Session) {}
    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}
