//! A model of RWTP, the transport of `TIXstream`: a preset rate that nothing changes, and one
//! socket. A receiver reports every 10 ms every packet that is missing, until it comes. Its
//! internals were never published: it is fitted to what Kachan and Siemens measured of it in 2014.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - inside: `send` and `recv` (the two halves), `machine` (RWTP's own part of a session)
//!
//! `docs/protocols/rwtp.md` lists what was printed, what is derived and what is farhaul's.

pub mod wire;

mod config;
mod entry;
mod machine;
mod recv;
mod send;

pub(crate) use self::entry::entry;
pub use self::{
    config::{Config, RWTP, Rwtp, client, server},
    machine::RwtpMachine,
};
