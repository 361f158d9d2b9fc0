//! Safe functions around the kernel interfaces that need unsafe code: everything in farhaul that
//! needs an unsafe call lives here. They are TUN devices with segmentation offload, namespaces, the
//! allocator's arenas, dispositions of signals, and mounts that hang.

pub mod hang;
pub mod memory;
pub mod netns;
pub mod priority;
pub mod signals;
pub mod tun;

mod socket;

pub use socket::{
    Capabilities, Inbox, Incoming, Outgoing, ReceiveOutcome, SendOutcome, SocketCounters,
    SocketOptions, UdpSocket, interface_mtu_to, source_to,
};
