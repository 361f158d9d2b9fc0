//! Real time: threads that own sockets, sessions and applications.
//!
//! A shard is a thread that owns one UDP socket and every session and application on it; nothing is
//! shared, locked or queued per packet. [`client::run`] is a shard with one session that it opens.
//! [`server::Listener`] is a shard on which peers open sessions, each of which then gets a shard of
//! its own. None depends on the protocol it runs.
//!
//! - what others call: [`client`], [`server`], [`Waker`], [`Stop`]
//! - what rides on a session: [`App`]
//! - a path where UDP is blocked: [`tunnel`]
//! - use of the machine: [`HostStats`], [`cpu`], [`clock`]
//! - inside: `shard` (the turn), `slot` (one session with its app), `table` (all of them, by deadline), `own_thread` (a listener's sessions),
//!   `single` (a shard with one), `roam` (the source address of a client), `watchdog` (does each still turn), `poller` (sleep), `lanes` (TCP connections of
//!   protocols that need one)

pub mod client;
pub mod clock;
pub mod cpu;
pub mod server;
pub mod service;
pub mod tunnel;

mod controls;
mod deadlines;
mod half_open;
mod host;
#[cfg(target_os = "linux")]
mod lanes;
#[cfg(not(target_os = "linux"))]
#[path = "no_lanes.rs"]
mod lanes;
mod news;
mod own_thread;
mod poller;
mod roam;
mod shard;
mod single;
mod slot;
mod sources;
mod table;
mod waker;
mod watchdog;

pub use controls::Controls;
pub use farhaul_core::app::App;
pub use farhaul_udp::{Capabilities, SocketCounters};
pub use host::{HostStats, Unsent};
pub use shard::system_rng;
pub use waker::{Stop, Waker};
pub use watchdog::{Notice, Notify};

/// Buffers and offloads of a socket; the defaults need no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Wanted receive buffer, bytes as the kernel counts them.
    pub receive: usize,
    /// Wanted send buffer, bytes as the kernel counts them.
    pub send: usize,
    /// True to use segmentation offload where the kernel has it.
    pub gso: bool,
    /// True to use receive coalescing where the kernel has it.
    pub gro: bool,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            receive: 64 << 20,
            send: 8 << 20,
            gso: true,
            gro: true,
        }
    }
}

impl Buffers {
    fn socket(&self, bind: std::net::SocketAddr) -> farhaul_udp::SocketOptions {
        let mut options = farhaul_udp::SocketOptions::new(bind);
        options.receive_buffer = self.receive;
        options.send_buffer = self.send;
        options.gso = self.gso;
        options.gro = self.gro;
        options
    }
}

/// Reason why a shard could not start or go on. These are the machine's faults, never the
/// network's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The socket could not be opened or bound.
    #[error("cannot bind {0}: {1}")]
    Bind(std::net::SocketAddr, std::io::Error),
    /// The protocol's control lanes could not be listened for.
    #[error("cannot listen for control connections at TCP {0}: {1}")]
    Lanes(std::net::SocketAddr, std::io::Error),
    /// There is no way to the peer.
    #[error("cannot reach {0}: {1}")]
    Connect(std::net::SocketAddr, std::io::Error),
    /// A system call that never fails in working order failed.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
}
