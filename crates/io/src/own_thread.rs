//! Gives a session that has finished its handshake a thread of its own. The thread has a socket on
//! the listener's port that is connected to the peer, so that the kernel sorts datagrams by
//! session. Work, waits and faults of a session and its app then concern no other session, and
//! sessions spread over all cores.
//!
//! Datagrams that reach the listener all the same (the peer's address changed, or they were in its
//! queue when the session moved) are forwarded, as many as the session keeps up with. Once the
//! session sends elsewhere for good its socket follows. What reaches its socket and is addressed to
//! another session of the same address and port is forwarded to the listener.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
    time::Duration,
};

use farhaul_core::{
    app::App,
    datagram::{Ecn, Received},
    protocol::CloseReason,
    time::Instant,
};
use farhaul_udp::{Incoming, UdpSocket};

use crate::{
    Buffers, ShardError,
    host::HostStats,
    server::STOPPED,
    shard::Shard,
    single::{Others, Single},
    slot::Slot,
    waker::{Stop, Waker},
    watchdog::{Pulse, Watch},
};

/// Messages forwarded and not taken yet; more are lost, like datagrams in a full socket.
pub(crate) const FORWARDED: usize = 64;

/// A session as its listener sees it.
pub(crate) struct Moved {
    pub(crate) inbox: Inbox,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) source: IpAddr,
    pub(crate) pulse: Arc<Pulse>,
    /// Its place was given to others: its thread hangs, and its peer has gone.
    pub(crate) written_off: bool,
}

/// Takes messages that reached another thread's socket.
#[derive(Clone)]
pub(crate) struct Inbox {
    messages: SyncSender<Forwarded>,
    waker: Waker,
}

/// A message that reached another thread's socket.
pub(crate) struct Forwarded {
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Ecn,
    segment: usize,
    bytes: Vec<u8>,
}

impl Forwarded {
    pub(crate) fn message(&mut self) -> Incoming<'_> {
        Incoming {
            from: self.from,
            to: self.to,
            ecn: self.ecn,
            segment: self.segment,
            arrived: None,
            bytes: &mut self.bytes,
        }
    }
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> (Self, Receiver<Forwarded>) {
        let (messages, forwarded) = mpsc::sync_channel(FORWARDED);
        (Self { messages, waker }, forwarded)
    }

    /// Hands a message on.
    pub(crate) fn put(&self, message: &Incoming<'_>) {
        let forwarded = Forwarded {
            from: message.from,
            to: message.to,
            ecn: message.ecn,
            segment: message.segment,
            bytes: message.bytes.to_vec(),
        };
        // Who does not keep up, or is over, loses it.
        if self.messages.try_send(forwarded).is_ok() {
            self.waker.wake();
        }
    }
}

/// Shared state that a listener gives to each session that moves.
#[derive(Clone)]
pub(crate) struct SessionThreads {
    pub(crate) listen: SocketAddr,
    pub(crate) buffers: Buffers,
    pub(crate) stop: Stop,
    /// The code with which sessions are closed when it stops.
    pub(crate) code: u32,
    pub(crate) grace: Duration,
    pub(crate) watch: Watch,
    pub(crate) ended: Sender<Ended>,
    /// Waker of the listener's shard.
    pub(crate) waker: Waker,
    /// Inbox of the listener.
    pub(crate) inbox: Inbox,
    pub(crate) destination: fn(&[u8]) -> Option<u64>,
}

/// A session that could not move, and why.
type Refused = Box<(Slot<Box<dyn App>>, io::Error)>;

/// A session that ended on its own thread.
pub(crate) struct Ended {
    pub(crate) entry: Slot<Box<dyn App>>,
    pub(crate) host: Option<HostStats>,
}

/// True if this user owns a socket that was handed over, so that sockets of sessions can share its port. Only
/// Unix tells.
pub(crate) fn is_own(socket: &std::net::UdpSocket) -> io::Result<bool> {
    #[cfg(unix)]
    {
        let owner = rustix::fs::fstat(socket)?.st_uid;
        Ok(owner == rustix::process::geteuid().as_raw())
    }
    #[cfg(not(unix))]
    {
        socket.local_addr().map(|_| false)
    }
}

impl SessionThreads {
    /// A socket for the peer at `peer`, which sends to the local address `local`.
    fn socket(&self, peer: SocketAddr, local: Option<IpAddr>) -> io::Result<UdpSocket> {
        // The scope of a link-local address is known to the listener's own address only.
        let local = local.filter(|ip| match ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        });
        let bind = local.map_or(self.listen, |ip| SocketAddr::new(ip, self.listen.port()));
        let mut options = self.buffers.socket(bind);
        options.reuse_port = true;
        let mut socket = UdpSocket::bind(&options)?;
        socket.connect(peer)?;
        Ok(socket)
    }

    /// Moves `entry` to a thread of its own; gives it back if that cannot be.
    pub(crate) fn take_in(
        &self,
        entry: Slot<Box<dyn App>>,
        waker: Waker,
    ) -> Result<Moved, Refused> {
        let socket = waker
            .bind()
            .and_then(|()| self.socket(entry.from, entry.local));
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => return Err(Box::new((entry, error))),
        };
        let (inbox, forwarded) = Inbox::new(waker.clone());
        let pulse = Arc::new(Pulse::default());
        let moved = Moved {
            inbox,
            peer: entry.peer,
            source: entry.source,
            pulse: Arc::clone(&pulse),
            written_off: false,
        };
        let (threads, name) = (self.clone(), format!("session of {}", entry.from));
        self.watch.add(name, &pulse);
        let (hand_over, taken) = mpsc::channel::<Slot<Box<dyn App>>>();
        let spawned = thread::Builder::new()
            .name("session".into())
            .spawn(move || {
                if let Ok(mut entry) = taken.recv() {
                    entry.moves = false;
                    threads.run(entry, socket, waker, &forwarded, pulse);
                }
            });
        match spawned {
            Ok(_) => hand_over.send(entry).map_err(|mpsc::SendError(entry)| {
                Box::new((entry, io::ErrorKind::BrokenPipe.into()))
            }),
            Err(error) => Err(Box::new((entry, error))),
        }
        .map(|()| moved)
    }

    fn run(
        &self,
        entry: Slot<Box<dyn App>>,
        socket: UdpSocket,
        waker: Waker,
        forwarded: &Receiver<Forwarded>,
        pulse: Arc<Pulse>,
    ) {
        let mut shard = Shard::new(socket, Some(waker), Some(self.stop.clone()), pulse);
        let others = Others {
            id: entry.id,
            destination: self.destination,
            listener: self.inbox.clone(),
        };
        let mut router = Single {
            slot: shard.table.add(entry).unwrap_or_default(),
            others: Some(others),
            left: None,
        };
        let entry = match self.turns(&mut shard, &mut router, forwarded) {
            Ok(entry) => entry,
            Err(error) => {
                shard.abandon(&mut router, &CloseReason::Internal(error.to_string()));
                router.left.take().map(|(entry, _)| entry)
            }
        };
        if let Some(entry) = entry {
            let host = Some(shard.host());
            // A listener that has ended sends no more requests.
            let _gone = self.ended.send(Ended { entry, host });
            self.waker.wake();
        }
    }

    /// Turns until the session is over.
    fn turns(
        &self,
        shard: &mut Shard<Box<dyn App>>,
        router: &mut Single<Box<dyn App>>,
        forwarded: &Receiver<Forwarded>,
    ) -> Result<Option<Slot<Box<dyn App>>>, ShardError> {
        let mut until: Option<Instant> = None;
        loop {
            for _ in 0..FORWARDED {
                // What there is no room for waits, or is lost, there.
                let Some(message) = shard
                    .fits(router)
                    .then(|| forwarded.try_recv().ok())
                    .flatten()
                else {
                    break;
                };
                take(shard, router.slot, message);
            }
            shard.turn(router)?;
            if self.stop.is_set() && until.is_none() {
                until = Some(shard.now() + self.grace);
                shard.table.close_all(shard.now(), self.code, STOPPED);
            }
            if until.is_some_and(|at| at <= shard.now()) {
                let reason = CloseReason::Local {
                    code: self.code,
                    text: STOPPED.into(),
                };
                shard.abandon(router, &reason);
            }
            if let Some((entry, _)) = router.left.take() {
                return Ok(Some(entry));
            }
            shard.sleep(until)?;
        }
    }
}

fn take(shard: &mut Shard<Box<dyn App>>, slot: usize, mut message: Forwarded) {
    let now = shard.now();
    let Some(entry) = shard.table.get(slot) else {
        return;
    };
    entry.receive(
        now,
        Received {
            from: message.from,
            ecn: message.ecn,
            segment: message.segment,
            // Its waiting time in the listener's socket is no measurement of the path.
            waited: Duration::ZERO,
            bytes: &mut message.bytes,
            granted: None,
        },
    );
    shard.table.queue(slot);
}
