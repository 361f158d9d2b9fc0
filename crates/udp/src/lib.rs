//! Safe functions around the kernel interfaces that need unsafe code: everything in farhaul that
//! needs an unsafe call lives here. They are TUN devices with segmentation offload, namespaces, the
//! allocator's arenas, dispositions of signals, and mounts that hang.

#[cfg(target_os = "linux")]
pub mod hang;
#[cfg(unix)]
pub mod memory;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(target_os = "linux")]
pub mod priority;
#[cfg(unix)]
pub mod signals;
#[cfg(target_os = "linux")]
pub mod tun;

mod socket;

pub use socket::{
    Capabilities, Inbox, Incoming, Outgoing, ReceiveOutcome, SHARES_PORTS, SendOutcome,
    SocketCounters, SocketOptions, UdpSocket, interface_mtu_to, source_to,
};
