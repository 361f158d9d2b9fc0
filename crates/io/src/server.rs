//! How do many sessions run on one socket? A [`Listener`] asks the protocol where each message
//! belongs, once per message: the kernel coalesces datagrams of one flow only, so a message is
//! routed by its first datagram, and a stray behind it is the session's to drop.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::{
    protocol::{Accepted, CloseReason, Event, Protocol, Route, Session},
    rng::Rng,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_udp::{Incoming, UdpSocket};

use crate::{
    Buffers, ShardError,
    app::App,
    host::HostStats,
    lanes::Lanes,
    seats::{Seat, Seats},
    shard::{self, Admission, Door, Shard},
    waker::{Stop, Waker},
};

/// How long sessions are given to say goodbye after a stop.
const GRACE: Duration = Duration::from_secs(3);

/// What peers and apps are told after a stop.
const STOPPED: &str = "the server stops";

/// Where to listen, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Local address; `[::]` takes IPv4 peers too, port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Several listeners share the port, one per core; the kernel keeps each flow on one of them.
    pub reuse_port: bool,
    /// The most sessions at a time.
    pub max_sessions: usize,
    /// The code with which sessions are closed that there is no room for, and all when the listener
    /// stops. Without one, who comes too many is not answered, and stopping closes with 0.
    pub busy: Option<u32>,
    /// How the socket is set up.
    pub buffers: Buffers,
    /// Wakes the listener's apps.
    pub waker: Option<Waker>,
}

impl Options {
    /// At `listen`, with the defaults.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            reuse_port: false,
            max_sessions: 1_024,
            busy: None,
            buffers: Buffers::default(),
            waker: None,
        }
    }
}

impl From<SocketAddr> for Options {
    fn from(listen: SocketAddr) -> Self {
        Self::new(listen)
    }
}

/// Sessions beyond the most that are begun only to be told so.
const REFUSALS: usize = 8;

/// The app of a session that there is no room for.
struct Full(u32);

impl Store for Full {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("internal: nothing is sent here".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("the server has no room".into()))
    }
}

impl App for Full {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        if let Event::Connected { .. } = event {
            session.close(now, self.0, "the server has as many sessions as it may");
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

/// What a listener did; counters only go up.
#[derive(Clone, Copy, Debug)]
pub struct ListenerStats {
    /// The shard's account.
    pub host: HostStats,
    /// Sessions begun.
    pub accepted: u64,
    /// Sessions ended.
    pub ended: u64,
    /// Sessions closed at once, and first messages dropped, because there were too many sessions.
    pub turned_away: u64,
    /// Messages that belonged to no session and began none.
    pub stray: u64,
}

/// Makes the app for a peer.
pub type Factory = Box<dyn FnMut(SocketAddr) -> Box<dyn App> + Send>;

/// A socket on which peers open sessions.
pub struct Listener {
    socket: UdpSocket,
    waker: Option<Waker>,
    lanes: Option<Box<Lanes>>,
    door: Hall,
}

impl Listener {
    /// Binds the socket; `factory` makes the app for each session.
    pub fn bind(
        options: impl Into<Options>,
        protocol: Box<dyn Protocol>,
        factory: impl FnMut(SocketAddr) -> Box<dyn App> + Send + 'static,
    ) -> Result<Self, ShardError> {
        let options = options.into();
        let mut how = options.buffers.socket(options.listen);
        how.reuse_port = options.reuse_port;
        let socket = UdpSocket::bind(&how).map_err(|e| ShardError::Bind(options.listen, e))?;
        let lanes = if protocol.descriptor().control_lane {
            Some(Box::new(control_lanes(&socket, &options)?))
        } else {
            None
        };
        Ok(Self {
            socket,
            lanes,
            waker: options.waker,
            door: Hall {
                protocol,
                factory: Box::new(factory),
                rng: shard::seed(),
                max_sessions: options.max_sessions,
                busy: options.busy,
                closing: false,
                accepted: 0,
                ended: 0,
                turned_away: 0,
                stray: 0,
            },
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, ShardError> {
        self.socket
            .local_addr()
            .map_err(|e| ShardError::System("cannot tell the local address", e))
    }

    /// Serves peers until `stop` is set, then closes every session and waits a little for them to say
    /// goodbye. Blocks the calling thread, which becomes the shard.
    pub fn run(self, stop: &Stop) -> Result<ListenerStats, ShardError> {
        let mut door = self.door;
        let mut shard = Shard::new(self.socket, self.waker, Some(stop.clone()));
        shard.seats.lanes = self.lanes;
        let mut until = None;
        loop {
            shard.turn(&mut door)?;
            if stop.is_set() && !door.closing {
                door.closing = true;
                until = Some(shard.now() + GRACE);
                let code = door.busy.unwrap_or(0);
                shard.seats.close_all(shard.now(), code, STOPPED);
            }
            if until.is_some_and(|at| at <= shard.now()) {
                let reason = CloseReason::Local {
                    code: door.busy.unwrap_or(0),
                    text: STOPPED.into(),
                };
                shard.abandon(&mut door, &reason);
            }
            if door.closing && shard.seats.len() == 0 {
                return Ok(door.stats(shard.host()));
            }
            shard.sleep(until)?;
        }
    }
}

/// TCP at the same port, for a protocol with control lanes.
fn control_lanes(socket: &UdpSocket, options: &Options) -> Result<Lanes, ShardError> {
    let refuse = |error| ShardError::Bind(options.listen, error);
    if options.reuse_port {
        let text = "control lanes and datagrams would reach different listeners on a shared port";
        return Err(refuse(io::Error::new(io::ErrorKind::Unsupported, text)));
    }
    let at = socket.local_addr().map_err(refuse)?;
    Lanes::listening(at).map_err(|e| ShardError::Lanes(at, e))
}

/// Routes messages to sessions, and admits new ones.
struct Hall {
    protocol: Box<dyn Protocol>,
    factory: Factory,
    rng: Rng,
    max_sessions: usize,
    busy: Option<u32>,
    closing: bool,
    accepted: u64,
    ended: u64,
    turned_away: u64,
    stray: u64,
}

impl Hall {
    const fn stats(&self, host: HostStats) -> ListenerStats {
        ListenerStats {
            host,
            accepted: self.accepted,
            ended: self.ended,
            turned_away: self.turned_away,
            stray: self.stray,
        }
    }

    fn welcome(
        &mut self,
        seats: &mut Seats<Box<dyn App>>,
        now: Instant,
        message: &Incoming<'_>,
        reply: &mut Vec<u8>,
    ) -> Admission {
        let full = seats.len() >= self.max_sessions;
        let refusal = self.busy.filter(|_| full).map(Full);
        let unanswered = full && (refusal.is_none() || seats.len() >= self.max_sessions + REFUSALS);
        if self.closing || unanswered {
            self.turned_away += 1;
            return Admission::Drop;
        }
        reply.clear();
        let first = &message.bytes[..message.segment.min(message.bytes.len())];
        let mut lane = None;
        if let Some(lanes) = &seats.lanes {
            // Who has no control connection from the same address is not answered.
            let token = self.protocol.control_token(first);
            lane = token.and_then(|token| lanes.find(token, message.from.ip()));
            if lane.is_none() {
                return self.stray();
            }
        }
        let accepted = self
            .protocol
            .accept(now, &mut self.rng, message.from, first, reply);
        match accepted {
            Accepted::Session(id, session) => {
                self.turned_away += u64::from(full);
                let app = match refusal {
                    Some(full) => Box::new(full),
                    None => (self.factory)(message.from),
                };
                let rng = Rng::new(self.rng.next_u64());
                let mut seat = Seat::new(id, session, app, rng);
                seat.peer = (self.protocol.route(first) == Route::Peer).then_some(message.from);
                match seats.add(seat) {
                    Some(slot) => {
                        self.accepted += 1;
                        if let Some(lane) = lane {
                            seats.join(now, slot, lane);
                        }
                        Admission::Seat(slot)
                    }
                    None => self.stray(),
                }
            }
            Accepted::Reply => Admission::Reply,
            Accepted::Drop => self.stray(),
        }
    }

    const fn stray(&mut self) -> Admission {
        self.stray += 1;
        Admission::Drop
    }
}

impl Door<Box<dyn App>> for Hall {
    fn admit(
        &mut self,
        seats: &mut Seats<Box<dyn App>>,
        now: Instant,
        message: &Incoming<'_>,
        reply: &mut Vec<u8>,
    ) -> Admission {
        let first = &message.bytes[..message.segment.min(message.bytes.len())];
        match self.protocol.route(first) {
            Route::Known(id) => match seats.by_id(id) {
                Some(slot) => Admission::Seat(slot),
                // An id that nobody has: the protocol may answer, for instance with a reset.
                None => self.welcome(seats, now, message, reply),
            },
            Route::Peer => match seats.by_peer(message.from) {
                Some(slot) => Admission::Seat(slot),
                None => self.welcome(seats, now, message, reply),
            },
            Route::New => self.welcome(seats, now, message, reply),
            Route::Foreign => self.stray(),
        }
    }

    fn left(&mut self, seat: Seat<Box<dyn App>>, _: CloseReason) {
        self.ended += 1;
        drop(seat);
    }
}
