//! Measures what is real: networks, hosts and disks.
//!
//! - [`registry`]: every protocol that can be run, by name
//! - [`mod@bench`]: a bulk transfer from memory to memory over any session, measured at both ends
//! - [`host`], [`doctor`]: facts of this machine, and its fitness
//! - [`mod@visit`]: rate, delay and loss on the way to a server
//! - [`tcp`], [`iperf`], [`udp`], [`stream`]: the kernel's own transport on the same path, datagrams beside it, and
//!   single streams
//! - [`delay`]: delays of packets in the kernel's UDP and TCP
//! - [`histogram`]: distributions of round-trip times
//! - [`http`]: small pages and figures for programs that speak HTTP
//! - [`disk`]: files that are whole or absent after a crash
//! - [`stopwatch`]: the time spent inside a law

pub mod bench;
pub mod delay;
pub mod disk;
pub mod doctor;
pub mod histogram;
pub mod host;
pub mod http;
pub mod iperf;
pub mod registry;
pub mod stopwatch;
pub mod stream;
pub mod tcp;
pub mod udp;
pub mod visit;
