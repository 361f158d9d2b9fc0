//! Runs one session on the calling thread, until it is closed and its last datagrams have left.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use farhaul_core::{
    app::App,
    protocol::{CloseReason, Protocol},
    stats::Stats,
};
use farhaul_udp::UdpSocket;

use crate::{
    Buffers, ShardError,
    host::HostStats,
    lanes::Lanes,
    shard::{self, Router, Shard},
    single::Single,
    slot::Slot,
    waker::{Stop, Waker},
};

/// "Port unreachable" answers, before anything was received, after which the connection is given
/// up. A session that waits for a peer that has yet to start ignores them.
const REFUSALS: u64 = 3;

/// Destination of the session, and its socket.
#[derive(Clone, Debug)]
pub struct Options {
    /// The peer.
    pub to: SocketAddr,
    /// Local address; by default any.
    pub bind: Option<SocketAddr>,
    /// Buffers of the socket.
    pub buffers: Buffers,
    /// Stop that wakes the app when it is set; what to do is the app's decision.
    pub stop: Option<Stop>,
    /// Used instead of a new socket; it is connected to the peer.
    pub socket: Option<Arc<std::net::UdpSocket>>,
}

impl Options {
    /// Options for a session to `to`, with the defaults.
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            bind: None,
            buffers: Buffers::default(),
            stop: None,
            socket: None,
        }
    }

    /// True if the kernel chooses the address from which the session sends.
    fn roams(&self) -> bool {
        let bound = self.bind.is_some_and(|bind| !bind.ip().is_unspecified());
        self.socket.is_none() && !bound
    }

    /// The socket of the session, connected to the peer.
    fn connected(&self) -> Result<UdpSocket, ShardError> {
        let any: IpAddr = match self.to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bind = self.bind.unwrap_or(SocketAddr::new(any, 0));
        let how = self.buffers.socket(bind);
        let socket = match &self.socket {
            Some(given) => given.try_clone().and_then(|s| UdpSocket::adopt(s, &how)),
            None => UdpSocket::bind(&how),
        };
        let mut socket = socket.map_err(|e| ShardError::Bind(bind, e))?;
        socket
            .connect(self.to)
            .map_err(|e| ShardError::Connect(self.to, e))?;
        Ok(socket)
    }
}

/// Course of a session.
#[derive(Debug)]
pub struct Outcome<A> {
    /// Reason of the session's end.
    pub reason: CloseReason,
    /// The session's counters at the end.
    pub stats: Stats,
    /// The shard's account.
    pub host: HostStats,
    /// True if the peer's host answered that nothing listens there.
    pub refused: bool,
    /// The application.
    pub app: A,
}

/// Opens a session and runs it with `app` until it is over. Blocks the calling thread, which becomes
/// the shard; `waker` wakes it.
pub fn run<A: App>(
    options: &Options,
    mut protocol: Box<dyn Protocol>,
    app: A,
    waker: &Waker,
) -> Result<Outcome<A>, ShardError> {
    let socket = options.connected()?;
    let mtu = socket.interface_mtu();
    let mut shard = Shard::new(
        socket,
        Some(waker.clone()),
        options.stop.clone(),
        Arc::default(),
    );
    if options.roams() {
        shard.roams(options.to);
    }
    let mut rng = shard::system_rng();
    let (id, session) = protocol.connect(shard.now(), &mut rng, options.to, mtu);
    let token = session.control_token();
    let entry = Slot::new((id, session), options.to, app, rng);
    let mut router = Single {
        slot: shard.table.add(entry).unwrap_or_default(),
        others: None,
        left: None,
    };
    if let Some(token) = token {
        let failed = |e| ShardError::Connect(options.to, e);
        let mut lanes = Lanes::new().map_err(|e| ShardError::System("no control lanes", e))?;
        let lane = lanes
            .connect(options.to, token, router.slot)
            .map_err(failed)?;
        if let Some(entry) = shard.table.get(router.slot) {
            entry.lane = Some(lane);
        }
        shard.table.lanes = Some(Box::new(lanes));
    }
    loop {
        shard.turn(&mut router)?;
        let lane_refused = shard.table.lanes.as_ref().is_some_and(|l| l.refused());
        let refused = shard.refused() >= REFUSALS || lane_refused;
        let believed = |entry: &mut Slot<A>| {
            !entry.received
                && entry.guard(|entry| !entry.session.ignores_port_unreachable()) == Some(true)
        };
        let gives_up = refused || shard.is_shut_in();
        if gives_up && let Some(mut entry) = shard.table.remove_if(router.slot, believed) {
            let reason = entry.conclude(shard.now(), CloseReason::NoAnswer);
            router.left(entry, reason);
        }
        if let Some((mut entry, reason)) = router.left.take() {
            let refused = refused && !entry.received;
            return Ok(Outcome {
                reason,
                stats: entry.stats(),
                host: shard.host(),
                refused,
                app: entry.app,
            });
        }
        shard.sleep(None)?;
    }
}
