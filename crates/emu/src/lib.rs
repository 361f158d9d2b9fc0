//! Runs real software on a network that is not there. Two hosts, "near" and "far", live in network
//! namespaces of this machine. Everything between them passes through a user-space router that lets
//! `farhaul-link` decide on each packet. There are real sockets and real kernels at both ends, and
//! nothing is left behind afterwards. Without privileges, a UDP relay does the same for one port.
//!
//! The emulator watches itself: a run in which it was late, or dropped packets of its own accord,
//! reports that and is not valid.

mod blast;
pub mod calibrate;
mod clock;
mod echo;
mod health;
mod held;
mod host;
mod packet;
mod process;
mod programs;
pub mod relay;
mod report;
mod router;
mod runs;
mod slab;
pub mod wan;

pub use blast::{Blast, blast};
pub use health::{Health, Lateness};
pub use host::Host;
#[doc(hidden)]
pub use packet::fuzz_packet;
pub use process::{Failed, Service, Signals};
pub use report::{DirectionReport, PortCount, WanReport};
