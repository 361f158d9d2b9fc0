//! Runs many sessions on one socket. A [`Listener`] lets the protocol decide where each message
//! belongs, once per message. The kernel coalesces datagrams of one flow only. So a message is
//! routed by its first datagram, and a stray behind it is the session's to drop.
//!
//! A session takes no place from others before its handshake is finished. Until then it is one of
//! the half-open, which have a budget of their own. Before that, while its peer's address is not
//! validated, it counts nowhere.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use farhaul_core::{
    app::App,
    protocol::{Accepted, CloseReason, Event, Protocol, Route, Session},
    rng::Rng,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_udp::{Incoming, SHARES_PORTS, UdpSocket};

use crate::{
    Buffers, ShardError, clock,
    controls::Controls,
    half_open::HalfOpen,
    host::HostStats,
    lanes::Lanes,
    own_thread::{Ended, FORWARDED, Inbox, Moved, SessionThreads, is_own},
    shard::{self, Admission, Router, Shard},
    slot::{Slot, Standing, caught},
    sources::Sources,
    table::SessionTable,
    waker::{Stop, Waker},
    watchdog::{Notify, Watch},
};

/// Grace period for sessions to close after a stop.
const GRACE: Duration = Duration::from_secs(3);

/// Between two accounts of what the machine did.
const ACCOUNT: Duration = Duration::from_millis(500);
/// Close reason of sessions beyond the limit where no code is set.
const UNWANTED: u32 = 1;
/// Close reason for peers and apps after a stop.
pub(crate) const STOPPED: &str = "the server stops";

/// Address and options of a listener.
#[derive(Clone, Debug)]
pub struct Options {
    /// Local address; `[::]` takes IPv4 peers too, port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The most sessions at a time, of those whose handshake is finished.
    pub max_sessions: usize,
    /// The most sessions at a time whose handshake is not finished, of peers whose address is validated.
    pub max_half_open: usize,
    /// The code with which sessions are closed that there is no room for, and all when the listener
    /// stops. Without one, peers beyond the limit are not answered, and stopping closes with 0.
    pub busy: Option<u32>,
    /// Buffers of the socket.
    pub buffers: Buffers,
    /// Called with notices of stalled shards.
    pub notify: Option<Notify>,
    /// True if sessions that have finished their handshake get threads of their own. Else all stay
    /// on the listener's, where a wait of one holds up the others.
    pub own_threads: bool,
}

impl Options {
    /// Options for a listener at `listen`, with the defaults.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            max_sessions: 1_024,
            max_half_open: 512,
            busy: None,
            buffers: Buffers::default(),
            notify: None,
            own_threads: true,
        }
    }
}

impl From<SocketAddr> for Options {
    fn from(listen: SocketAddr) -> Self {
        Self::new(listen)
    }
}

/// Close reason of sessions beyond the limit.
const FULL: &str = "the server has as many sessions as it may";
/// Close reason of sessions beyond the limit of their source.
const CROWDED: &str = "the server has as many sessions from your address as it may";
/// Close reason of sessions that come while the others are waited for.
const STOPPING: &str = "the server is stopping, and takes nobody new";

/// The app of a session that there is no room for: closes it.
struct TurnedAway {
    code: u32,
    why: &'static str,
}

impl Store for TurnedAway {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("internal: nothing is sent here".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError(self.why.into()))
    }
}

impl App for TurnedAway {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        if let Event::Connected { .. } = event {
            session.close(now, self.code, self.why);
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

/// Counters of a listener, which only go up.
#[derive(Clone, Copy, Debug)]
pub struct ListenerStats {
    /// The shard's account.
    pub host: HostStats,
    /// Sessions whose handshake finished and that there was room for.
    pub accepted: u64,
    /// Sessions that ended.
    pub ended: u64,
    /// Sessions closed at once, and first messages dropped, because there were too many sessions.
    pub turned_away: u64,
    /// Sessions whose handshake never finished: given up by themselves or to make room.
    pub unfinished: u64,
    /// Sessions that ended because they or their apps panicked, and first messages that made the
    /// protocol panic. The others went on.
    pub faults: u64,
    /// Times that a shard did not turn for some seconds.
    pub stalls: u64,
    /// Messages that belonged to no session and began none.
    pub stray: u64,
}

/// Makes the app for a peer; the waker is that of the shard on which the app will be.
pub type Factory = Box<dyn FnMut(SocketAddr, &Waker) -> Box<dyn App> + Send>;

/// A socket on which peers open sessions.
pub struct Listener {
    socket: UdpSocket,
    waker: Waker,
    lanes: Option<Box<Lanes>>,
    router: Acceptor,
    buffers: Buffers,
    notify: Option<Notify>,
}

impl Listener {
    /// Binds the socket; `factory` makes the app for each session.
    pub fn bind(
        options: impl Into<Options>,
        protocol: Box<dyn Protocol>,
        factory: impl FnMut(SocketAddr, &Waker) -> Box<dyn App> + Send + 'static,
    ) -> Result<Self, ShardError> {
        let options = options.into();
        let how = options.buffers.socket(options.listen);
        let socket = UdpSocket::bind(&how).map_err(|e| ShardError::Bind(options.listen, e))?;
        Self::on(socket, &options, protocol, Box::new(factory))
    }

    /// Binds a listener to a socket that is bound already. If the socket is another user's, its
    /// port cannot be shared with the sockets of sessions. Then all sessions stay on this one, and
    /// on one thread.
    pub fn adopt(
        socket: std::net::UdpSocket,
        mut options: Options,
        protocol: Box<dyn Protocol>,
        factory: impl FnMut(SocketAddr, &Waker) -> Box<dyn App> + Send + 'static,
    ) -> Result<Self, ShardError> {
        let system = |e| ShardError::System("cannot use the socket that was handed over", e);
        options.listen = socket.local_addr().map_err(system)?;
        options.own_threads &= is_own(&socket).map_err(system)?;
        let how = options.buffers.socket(options.listen);
        let socket = UdpSocket::adopt(socket, &how).map_err(system)?;
        Self::on(socket, &options, protocol, Box::new(factory))
    }

    /// True if sessions get threads of their own.
    pub const fn has_own_threads(&self) -> bool {
        self.router.own_threads
    }

    fn on(
        socket: UdpSocket,
        options: &Options,
        protocol: Box<dyn Protocol>,
        factory: Factory,
    ) -> Result<Self, ShardError> {
        // Only now, so that a port that is taken is noticed.
        let own_threads = options.own_threads && SHARES_PORTS;
        if own_threads {
            let shared = socket.share_port();
            shared.map_err(|e| ShardError::System("cannot share the port with its sessions", e))?;
        }
        let waker = Waker::new().map_err(|e| ShardError::System("no eventfd", e))?;
        let lanes = if protocol.descriptor().control_lane {
            Some(Box::new(control_lanes(&socket, options)?))
        } else {
            None
        };
        let multiplexed = protocol.descriptor().multiplexed;
        Ok(Self {
            socket,
            buffers: options.buffers,
            notify: options.notify,
            waker: waker.clone(),
            router: Acceptor {
                protocol,
                factory,
                rng: shard::system_rng(),
                controls: Controls::new(options.max_sessions, waker.clone()),
                max_half_open: options.max_half_open.max(1),
                busy: options.busy,
                // Control lanes stay on the listener's shard, and so do the sessions that have them; a
                // socket connected to a peer would take the datagrams of all its sessions.
                own_threads: own_threads && lanes.is_none() && !multiplexed,
                closing: false,
                drain_until: None,
                half_open: HalfOpen::default(),
                sources: Sources::default(),
                waker,
                to_move: Vec::new(),
                moved: BTreeMap::new(),
                admitted: 0,
                counts: Counts::default(),
            },
            lanes,
        })
    }

    /// Controls to change the listener from other threads while it runs.
    pub fn controls(&self) -> Controls {
        self.router.controls.clone()
    }

    /// Address on which the listener listens.
    pub fn local_addr(&self) -> Result<SocketAddr, ShardError> {
        self.socket
            .local_addr()
            .map_err(|e| ShardError::System("cannot determine the local address", e))
    }

    /// Serves peers until `stop` is set, or all have left after [`Controls::drain`], then closes every
    /// session and waits briefly for them to send goodbye. Blocks the calling thread, which becomes the shard on which handshakes are; sessions
    /// that have finished theirs get threads of their own.
    pub fn run(self, stop: &Stop) -> Result<ListenerStats, ShardError> {
        let mut router = self.router;
        let at = self.socket.local_addr();
        let listen = at.map_err(|e| ShardError::System("cannot determine the local address", e))?;
        let (watch, pulse) = (Watch::default(), Arc::default());
        watch.add("the listener".into(), &pulse);
        let stalls = Arc::new(AtomicU64::new(0));
        let _watchdog = watch
            .start(self.notify, Arc::clone(&stalls))
            .map_err(|e| ShardError::System("cannot start a thread", e))?;
        let (ended, reports) = mpsc::channel();
        let (inbox, forwarded) = Inbox::new(self.waker.clone());
        let threads = SessionThreads {
            listen,
            buffers: self.buffers,
            stop: stop.clone(),
            code: router.busy.unwrap_or(0),
            grace: GRACE,
            watch,
            ended,
            waker: self.waker.clone(),
            inbox,
            destination: router.protocol.destination(),
        };
        let mut shard = Shard::new(self.socket, Some(self.waker), Some(stop.clone()), pulse);
        shard.table.lanes = self.lanes;
        let mut until = None;
        let mut account = Account::new(&shard);
        loop {
            shard.turn(&mut router)?;
            for mut message in forwarded.try_iter().take(FORWARDED) {
                shard.give(&mut router, &mut message.message());
            }
            router.move_out(&mut shard, &threads);
            for Ended { entry, host } in reports.try_iter() {
                account.add(host.as_ref());
                router.forget(entry);
            }
            let drained = router.drains(shard.now(), stop);
            if (stop.is_set() || drained) && !router.closing {
                router.closing = true;
                // The threads of sessions have their own grace within this.
                until = Some(shard.now() + GRACE + GRACE / 4);
                shard.table.close_all(shard.now(), threads.code, STOPPED);
            }
            let over = until.is_some_and(|at| at <= shard.now());
            if over {
                let reason = CloseReason::Local {
                    code: threads.code,
                    text: STOPPED.into(),
                };
                shard.abandon(&mut router, &reason);
            }
            let ends = router.closing && (over || shard.table.len() + router.moved.len() == 0);
            let stats = router.stats(&account.of(&shard, ends), stalls.load(Relaxed));
            if ends {
                return Ok(stats);
            }
            router.controls.publish(&stats);
            shard.sleep(until.or(router.drain_until))?;
        }
    }
}

/// Statistics of what the machine did for a listener and the sessions that have left it.
struct Account {
    elsewhere: Option<HostStats>,
    /// All statistics together, and when they are made up again: that takes system calls.
    sum: HostStats,
    due: Instant,
}

impl Account {
    fn new<A: App>(shard: &Shard<A>) -> Self {
        Self {
            elsewhere: None,
            sum: shard.host(),
            due: shard.now(),
        }
    }

    /// A session's thread has ended.
    fn add(&mut self, host: Option<&HostStats>) {
        match (&mut self.elsewhere, host) {
            (Some(total), Some(host)) => total.add(host),
            (total, host) => *total = total.or(host.copied()),
        }
    }

    fn of<A: App>(&mut self, shard: &Shard<A>, at_the_end: bool) -> HostStats {
        if at_the_end || shard.now() >= self.due {
            self.due = shard.now() + ACCOUNT;
            self.sum = shard.host();
            if let Some(other) = &self.elsewhere {
                self.sum.add(other);
            }
        }
        self.sum
    }
}

/// TCP at the same port, for a protocol with control lanes.
fn control_lanes(socket: &UdpSocket, options: &Options) -> Result<Lanes, ShardError> {
    let refuse = |error| ShardError::Bind(options.listen, error);
    let at = socket.local_addr().map_err(refuse)?;
    Lanes::listening(at).map_err(|e| ShardError::Lanes(at, e))
}

/// Routes messages to sessions, and admits new ones.
struct Acceptor {
    protocol: Box<dyn Protocol>,
    factory: Factory,
    rng: Rng,
    controls: Controls,
    max_half_open: usize,
    busy: Option<u32>,
    own_threads: bool,
    closing: bool,
    drain_until: Option<Instant>,
    half_open: HalfOpen,
    sources: Sources,
    /// Waker of the listener's shard.
    waker: Waker,
    /// Sessions that have just been admitted, with the wakers of their apps.
    to_move: Vec<(u64, Waker)>,
    /// Sessions on threads of their own.
    moved: BTreeMap<u64, Moved>,
    /// Sessions now that count for `max_sessions`.
    admitted: usize,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: u64,
    ended: u64,
    turned_away: u64,
    unfinished: u64,
    faults: u64,
    stray: u64,
}

impl Acceptor {
    const fn stats(&self, host: &HostStats, stalls: u64) -> ListenerStats {
        let counts = self.counts;
        ListenerStats {
            host: *host,
            accepted: counts.accepted,
            ended: counts.ended,
            turned_away: counts.turned_away,
            unfinished: counts.unfinished,
            faults: counts.faults,
            stalls,
            stray: counts.stray,
        }
    }

    fn welcome(
        &mut self,
        table: &mut SessionTable<Box<dyn App>>,
        now: Instant,
        message: &Incoming<'_>,
        reply: &mut Vec<u8>,
    ) -> Admission {
        let expected = self.admitted + self.half_open.len();
        if self.closing || (self.busy.is_none() && expected >= self.controls.max_sessions()) {
            self.counts.turned_away += 1;
            return Admission::Drop;
        }
        reply.clear();
        let first = message.first();
        let mut lane = None;
        if let Some(lanes) = &table.lanes {
            // Who has no control connection from the same address is not answered.
            let token = self.protocol.control_token(first);
            lane = token.and_then(|token| lanes.find(token, message.from.ip()));
            if lane.is_none() {
                return self.stray();
            }
        }
        let (protocol, rng) = (&mut self.protocol, &mut self.rng);
        match caught(|| protocol.accept(now, rng, message.from, first, reply)) {
            Ok(Accepted::Session(id, session)) => {
                match self.entry(table, (id, session), message.from, first) {
                    Some(slot) => {
                        if let Some(lane) = lane {
                            table.join(now, slot, lane);
                        }
                        Admission::Slot(slot)
                    }
                    None => self.stray(),
                }
            }
            Ok(Accepted::Reply) => {
                self.controls.relays().note_udp(message.from, clock::now());
                Admission::Reply
            }
            Ok(Accepted::Drop) => self.stray(),
            Err(_) => {
                self.counts.faults += 1;
                Admission::Drop
            }
        }
    }

    /// Enters a session whose handshake begins.
    fn entry(
        &mut self,
        table: &mut SessionTable<Box<dyn App>>,
        (id, session): (u64, Box<dyn Session>),
        from: SocketAddr,
        first: &[u8],
    ) -> Option<usize> {
        let (peer, tunnel) = self.controls.relays().peer(from);
        self.controls.relays().note_udp(from, clock::now());
        let validated = session.is_address_validated();
        if table.by_id(id).is_some() || (validated && self.is_at_handshake_limit(peer.ip())) {
            return None;
        }
        let rng = self.rng.fork("entry");
        let waker = if self.own_threads {
            Waker::unbound()
        } else {
            self.waker.clone()
        };
        let factory = &mut self.factory;
        let Ok(app) = caught(|| factory(peer, &waker)) else {
            self.counts.faults += 1;
            return None;
        };
        let mut entry = Slot::new((id, session), from, app, rng);
        entry.waker = self.own_threads.then_some(waker);
        (entry.source, entry.tunnel) = (peer.ip(), tunnel);
        entry.peer = (self.protocol.route(first) == Route::Peer).then_some(from);
        if !validated {
            entry.standing = Standing::Unvalidated;
            return table.add(entry);
        }
        let slot = table.add(entry)?;
        self.register_half_open(peer.ip(), id);
        self.evict(table);
        Some(slot)
    }

    /// True if `source` has as many unfinished handshakes as it may.
    fn is_at_handshake_limit(&self, source: IpAddr) -> bool {
        self.sources.of(source).half_open >= self.controls.max_handshakes_per_source()
    }

    /// Bounds sessions that there was no room for. They may have proven their addresses only by the
    /// datagram that finished their handshakes: they are half-open like any other.
    fn bound_turned_away(&mut self, table: &mut SessionTable<Box<dyn App>>, slot: usize) {
        let source = table.get(slot).map(|entry| entry.source);
        let most = self.controls.max_handshakes_per_source();
        if source.is_some_and(|source| self.sources.of(source).half_open > most)
            && let Some(entry) = table.remove(slot)
        {
            self.forget(entry);
        }
        self.evict(table);
    }

    /// A session is half-open whose peer's address is validated.
    fn register_half_open(&mut self, source: IpAddr, id: u64) {
        self.half_open.insert(source, id);
        self.sources.begin(source);
    }

    /// Makes room among the half-open.
    fn evict(&mut self, table: &mut SessionTable<Box<dyn App>>) {
        while self.half_open.len() > self.max_half_open
            && let Some(id) = self.half_open.to_evict()
            && let Some(entry) = table.by_id(id).and_then(|slot| table.remove(slot))
        {
            self.forget(entry);
        }
    }

    /// True if the last session has left since it is drained; sets `stop` when that takes too long.
    fn drains(&mut self, now: Instant, stop: &Stop) -> bool {
        let Some(within) = self.controls.drains_within() else {
            return false;
        };
        let late = *self.drain_until.get_or_insert(now + within);
        if late <= now && !stop.is_set() {
            stop.set();
        }
        self.admitted == 0
    }

    /// Sessions that have been admitted get threads of their own.
    fn move_out(&mut self, shard: &mut Shard<Box<dyn App>>, threads: &SessionThreads) {
        for (id, waker) in std::mem::take(&mut self.to_move) {
            let slot = shard.table.by_id(id);
            let Some(entry) = slot.and_then(|slot| shard.table.remove(slot)) else {
                continue;
            };
            match threads.take_in(entry, waker) {
                Ok(moved) => {
                    self.moved.insert(id, moved);
                }
                Err(refused) => {
                    let (mut entry, error) = *refused;
                    entry.stays();
                    let code = self.busy.unwrap_or(UNWANTED);
                    let text = format!("the server cannot start a thread: {error}");
                    entry.close(shard.now(), code, &text);
                    shard.table.add(entry);
                }
            }
        }
    }

    /// Forwards the message to its session on a thread of its own; true if there is one.
    fn forward(&self, message: &Incoming<'_>) -> bool {
        let moved = match self.protocol.route(message.first()) {
            Route::Known(id) => self.moved.get(&id),
            Route::Peer => {
                let mut all = self.moved.values();
                all.find(|moved| moved.peer == Some(message.from))
            }
            Route::New | Route::Foreign => None,
        };
        moved.inspect(|moved| moved.inbox.put(message)).is_some()
    }

    /// Gives places of sessions to others whose threads hang and whose peers have gone; of as many as there are places, so that
    /// threads that hang are bounded, too.
    fn write_off(&mut self) {
        let written_off = self.moved.values().filter(|moved| moved.written_off);
        let most = self.controls.max_sessions();
        let rest = most.saturating_sub(written_off.count());
        let lost = |moved: &&mut Moved| !moved.written_off && moved.pulse.is_lost();
        for moved in self.moved.values_mut().filter(lost).take(rest) {
            moved.written_off = true;
            self.sources.end(moved.source, true);
            self.admitted -= 1;
        }
    }

    /// A session is gone; a panic while it is dropped is its own fault, too.
    fn forget(&mut self, entry: Slot<Box<dyn App>>) {
        let moved = self.moved.remove(&entry.id);
        let has_place = !moved.is_some_and(|moved| moved.written_off);
        self.half_open.remove(entry.source, entry.id);
        if entry.standing != Standing::Unvalidated && has_place {
            self.sources
                .end(entry.source, entry.standing == Standing::Admitted);
        }
        match entry.standing {
            Standing::Unvalidated | Standing::HalfOpen => self.counts.unfinished += 1,
            Standing::Admitted => {
                if let Some(tunnel) = entry.tunnel {
                    self.controls.relays().ended(tunnel);
                }
                self.admitted -= usize::from(has_place);
                self.counts.ended += 1;
            }
            Standing::TurnedAway => {}
        }
        let faulty = entry.is_faulty();
        let dropped = caught(|| drop(entry));
        self.counts.faults += u64::from(faulty || dropped.is_err());
    }

    const fn stray(&mut self) -> Admission {
        self.counts.stray += 1;
        Admission::Drop
    }
}

impl Router<Box<dyn App>> for Acceptor {
    fn admit(
        &mut self,
        table: &mut SessionTable<Box<dyn App>>,
        now: Instant,
        message: &Incoming<'_>,
        reply: &mut Vec<u8>,
    ) -> Admission {
        if !self.moved.is_empty() && self.forward(message) {
            return Admission::Drop;
        }
        match self.protocol.route(message.first()) {
            Route::Known(id) => match table.by_id(id) {
                Some(slot) => Admission::Slot(slot),
                // An unknown id: the protocol may answer, for instance with a reset.
                None => self.welcome(table, now, message, reply),
            },
            Route::Peer => match table.by_peer(message.from) {
                Some(slot) => Admission::Slot(slot),
                None => self.welcome(table, now, message, reply),
            },
            Route::New => self.welcome(table, now, message, reply),
            Route::Foreign => self.stray(),
        }
    }

    fn on_handled(&mut self, table: &mut SessionTable<Box<dyn App>>, slot: usize) {
        let Some(entry) = table.get(slot) else { return };
        if entry.standing == Standing::TurnedAway {
            return self.bound_turned_away(table, slot);
        }
        let is_validated = |entry: &mut Slot<_>| entry.session.is_address_validated();
        if entry.standing != Standing::Unvalidated || entry.guard(is_validated) != Some(true) {
            return;
        }
        let (source, id) = (entry.source, entry.id);
        if !self.is_at_handshake_limit(source) {
            entry.standing = Standing::HalfOpen;
            self.register_half_open(source, id);
            self.evict(table);
        } else if let Some(entry) = table.remove(slot) {
            self.forget(entry);
        }
    }

    fn connected(&mut self, entry: &mut Slot<Box<dyn App>>) {
        if entry.standing == Standing::Unvalidated {
            self.register_half_open(entry.source, entry.id);
        }
        self.write_off();
        let no_room = if self.controls.is_draining() {
            Some(STOPPING)
        } else if self.sources.of(entry.source).admitted >= self.controls.max_per_source() {
            Some(CROWDED)
        } else if self.admitted >= self.controls.max_sessions() {
            Some(FULL)
        } else {
            None
        };
        if let Some(why) = no_room {
            // It stays in the budget of the half-open until it has gone.
            self.counts.turned_away += 1;
            entry.standing = Standing::TurnedAway;
            entry.app = Box::new(TurnedAway {
                code: self.busy.unwrap_or(UNWANTED),
                why,
            });
            return;
        }
        self.half_open.remove(entry.source, entry.id);
        self.sources.admit(entry.source);
        if let Some(tunnel) = entry.tunnel {
            self.controls.relays().admitted(tunnel);
        }
        self.admitted += 1;
        self.counts.accepted += 1;
        entry.standing = Standing::Admitted;
        if let Some(waker) = entry.waker.take() {
            entry.moves = true;
            self.to_move.push((entry.id, waker));
        }
    }

    fn left(&mut self, entry: Slot<Box<dyn App>>, _: CloseReason) {
        self.forget(entry);
    }
}
