//! UDT version 4: what libudt 4.11 speaks. Reliable bytes over UDP with selective negative
//! acknowledgements, a receiver that measures arrival rate and link capacity, and a rate-based law.
//!
//! - packets: [`wire`]; the numbers in them, which wrap: [`seq`]
//! - choices: [`UdtConfig`], [`Behaviour`], [`Framing`]; the endpoint: [`Udt`]
//! - inside: `opening` (handshakes), `cookie`, `send` and `recv` (the two halves), `outflow` and
//!   `inflow` (what payloads mean), `rtt`, `estimate`, `liveness` (silence)
//!
//! Wire facts: the UDT 4.11 sources and draft-gg-udt-03; `docs/protocols/udt4.md` lists where the
//! two differ and our choices.

pub mod seq;
pub mod wire;

mod config;
mod cookie;
mod entry;
mod estimate;
mod inflow;
mod liveness;
mod opening;
mod outflow;
mod protocol;
mod recv;
mod rtt;
mod send;
mod session;

pub use config::{Behaviour, Framing, UdtConfig};
pub(crate) use entry::entries;
pub use entry::stream;
pub use protocol::Udt;
