//! A TCP endpoint over datagrams, feature by feature from the RFCs. It has SACK recovery or
//! RACK-TLP, PRR, RFC 6298 timeouts, delayed acknowledgements, window autotuning, and the receivers
//! of named operating systems. Specification: `docs/protocols/tcp.md`.

mod clock;
mod entry;
mod params;
mod profiles;
mod protocol;
mod receiver;
mod scoreboard;
mod sender;
mod session;
pub mod wire;

pub(crate) use entry::entry;
pub use params::{Config, PARAMETERS, Recovery, Reduction};
pub use profiles::{Growth, PROFILES, Profile, profile};
pub use protocol::{DESCRIPTOR, Tcp};
