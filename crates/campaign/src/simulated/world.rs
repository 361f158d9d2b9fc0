//! Schedules two machines and the network between them, event by event in virtual time.
//!
//! - A machine whose thread waits for its disk does nothing else meanwhile; what arrives waits in its
//!   socket, which has an end.
//! - A killed machine sends nothing more.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{
    app::App,
    datagram::{Ecn, MAX_SEGMENTS, Received, TxBuf},
    protocol::{Event, Protocol, Session},
    rng::Rng,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_testkit::{Admitted, Driver, Sent};
use farhaul_transfer::VirtualTime;

use super::disk::{Disk, mix};

/// Bytes that a socket holds.
const SOCKET: usize = 4 << 20;
/// A machine without space still checks its peer.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// An application with more to send than this will never stop.
const WORDS: usize = 100_000;
/// Number of events at one instant that no session has to do.
const STILL: u64 = 20_000;

/// Behaviour of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) delay: Duration,
    /// The latest that something arrives later than others.
    pub(crate) jitter: Duration,
    /// Number of datagrams lost in a million.
    pub(crate) loss: u64,
    /// Bits a second.
    pub(crate) rate: u64,
}

/// The longest queue before the link.
const QUEUE: Duration = Duration::from_millis(50);

/// One side.
pub(crate) struct End {
    at: Driver<Box<dyn App>>,
    time: Arc<VirtualTime>,
    disk: Arc<Disk>,
    socket: VecDeque<(Ecn, Vec<u8>)>,
    held: usize,
    /// Time until which its thread waits for the disk.
    busy: Instant,
    /// Time at which the end checks again, as it had no space.
    look: Option<Instant>,
    killed: bool,
    /// Time at which its link is free.
    free: Instant,
}

impl End {
    /// Makes a world; the client is 0, the server 1.
    pub(crate) fn new(
        who: usize,
        app: Box<dyn App>,
        protocol: Box<dyn Protocol>,
        (time, disk): (&Arc<VirtualTime>, &Arc<Disk>),
        rng: Rng,
    ) -> Self {
        Self {
            at: Driver::new(protocol, address(who), app, rng),
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
        self.killed || self.at.is_closed()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_over() || self.at.session.is_none() {
            return None;
        }
        let timer = self.at.deadline();
        let due = timer.into_iter().chain(self.at.store.next_wake());
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
        if self.at.store.sink().free >= 64 << 10 {
            self.look = None;
            return true;
        }
        let look = *self.look.get_or_insert(now + POLL_INTERVAL);
        if look <= now {
            self.look = Some(now + POLL_INTERVAL);
        }
        look <= now
    }

    /// Receives a datagram; returns the reply of one that has no session.
    fn receive(&mut self, now: Instant, from: SocketAddr) -> Option<Vec<u8>> {
        let (ecn, segment, mut bytes) = self.batch()?;
        let first = bytes.get(..segment.min(bytes.len())).unwrap_or_default();
        match self.at.admit(now, from, first) {
            Admitted::Session => {}
            Admitted::Reply(reply) => return Some(reply),
            Admitted::Nothing => return None,
        }
        let batch = Received {
            from,
            ecn,
            segment: segment.max(1),
            bytes: &mut bytes,
            waited: Duration::ZERO,
            granted: None,
        };
        self.at.feed_batch(now, batch);
        None
    }

    /// Lets the application decide on its next step.
    fn decide(&mut self, now: Instant) {
        self.deliver_events(now);
        if let Some((_, session)) = &mut self.at.session {
            self.at.store.poll(now, &mut **session);
        }
    }

    /// Passes pending events to the application; true if there were any.
    fn deliver_events(&mut self, now: Instant) -> bool {
        let Some((_, session)) = &mut self.at.session else {
            return false;
        };
        let mut delivered = false;
        while let Some(event) = session.poll_event() {
            self.at.store.on_event(now, event, &mut **session);
            delivered = true;
        }
        delivered
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
        self.ends[0].at.connect(self.now, address(1), None);
        self.turn(0);
    }

    /// Hash of all events.
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
                end.at.session = None;
                end.at.store = Box::new(Nobody);
                end.socket.clear();
            }
        }
    }

    /// True once nothing more will happen.
    pub(crate) fn is_over(&self) -> bool {
        let [client, server] = &self.ends;
        client.is_over() && (server.is_over() || server.at.session.is_none())
    }

    /// End that is busy with nothing, if time has stopped.
    pub(crate) fn spins(&self) -> Option<String> {
        let of = |end: &End| {
            let timer = end.at.deadline();
            let stats =
                (end.at.session.as_ref()).map(|(_, s)| (s.unsent(), s.unwritten(), s.stats()));
            format!(
                "timer {timer:?}, wake {:?}, {stats:?}",
                end.at.store.next_wake()
            )
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
        self.ends[i].at.expire(now);
        self.ends[i].decide(now);
        for _ in 0..WORDS {
            for Sent { ecn, bytes, .. } in self.ends[i].at.drain(now, &mut self.out) {
                self.launch(i, ecn, bytes);
            }
            if !self.ends[i].deliver_events(now) {
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

impl Store for Nobody {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl App for Nobody {
    fn on_event(&mut self, _: Instant, _: Event, _: &mut dyn Session) {}
    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}
