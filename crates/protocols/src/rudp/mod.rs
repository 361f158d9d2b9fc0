//! Reliable UDP: a window of at most 255 segments with numbers of 8 bits, cumulative and selective acknowledgements,
//! and timers that nothing adapts. Made for the signalling of telephone networks, not for bulk.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`Rudp`]
//! - inside: `connection` (opening, both halves, end), `send` and `recv` (the halves)
//!
//! Source: Bova, Krivoruchka, draft-ietf-sigtran-reliable-udp-00, 1999, as ports and a dissector
//! have it. `docs/protocols/rudp.md` lists what is known and what is farhaul's.

pub mod wire;

mod config;
mod connection;
mod entry;
mod protocol;
mod recv;
mod send;

pub(crate) use self::entry::entry;
pub use self::{
    config::{Config, DESCRIPTOR},
    protocol::Rudp,
};
