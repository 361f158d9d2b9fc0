//! The protocol `haul`, with which farhaul moves data when it may choose everything itself. It has
//! objects addressed by offset, one UDP socket, a TLS 1.3 handshake behind a stateless retry, and
//! every datagram sealed. It also has range-coded feedback, a path MTU search and key updates.
//! `docs/protocols/haul.md` specifies the wire.
//!
//! - [`Haul`] makes sessions from a [`HaulConfig`]; [`Identity`] and [`PublicKey`] are an end's
//!   identity
//! - [`wire`]: bytes to fields and back, without state
//! - `crypto`: the handshake and packet keys behind one trait, sealed (TLS) or plain (simulator)
//! - [`letters`]: how keys, and what else people pass on, are typed
//! - `handshake`, `seal`, `stream`, `mtu`, `path`, `closing`: the pieces of a session; `session` joins
//!   them with the [`arq`](farhaul_core::arq) machinery
//!
//! Invariants: no input causes a panic, or an allocation sized by a peer alone. A packet number is
//! sealed once per key. Data is acknowledged only after the store took it or the session is
//! closing.

#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
compile_error!("haul needs a cryptographic provider: feature aws-lc-rs or ring");

mod config;
pub mod crypto;
mod handshake;
#[cfg(test)]
mod hostile;
mod identity;
mod laws;
pub mod letters;
mod memory;
mod mtu;
mod path;
#[cfg(feature = "hostile")]
mod peer;
mod protocol;
mod seal;
mod session;
mod unvalidated;
pub mod wire;

pub use config::{ConfigError, HaulConfig, Judge, PeerPolicy};
pub use farhaul_core::closing::{CODE_INTERNAL, CODE_PROTOCOL, CODE_STORE};
pub use identity::{Identity, KeyError, PublicKey};
pub use memory::{LIFETIME, MAX_PATHS, PathEntry, PathMemory};
#[cfg(feature = "hostile")]
pub use peer::HostilePeer;
pub use protocol::Haul;
