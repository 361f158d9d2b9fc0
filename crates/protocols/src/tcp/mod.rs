//! What would TCP do? A TCP endpoint over datagrams, feature by feature from the RFCs: SACK recovery
//! or RACK-TLP, PRR, RFC 6298 timeouts, delayed acknowledgements, window autotuning, and the
//! receivers of named operating systems. Specification: `docs/protocols/tcp.md`.

mod params;
mod profiles;
pub mod wire;

pub use params::{Config, PARAMETERS, Recovery, Reduction};
pub use profiles::{Growth, PROFILES, Profile, profile};
