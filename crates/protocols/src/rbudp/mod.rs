//! Reliable Blast UDP: a block of packets leaves at a fixed rate, and the receiver reports arrivals
//! in a bitmap over TCP. The rest leaves again, until nothing is missing.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - the original's file programs: [`files`]
//! - inside: `machine` (RBUDP's own part of a session, on [`farhaul_core::rounds`])
//!
//! Source: He et al., IEEE Cluster, 2002; RBUDP 1.0 of `QUANTA` as read. `docs/protocols/rbudp.md`
//! distinguishes the original's parts from farhaul's.

pub mod files;
pub mod wire;

mod config;
mod entry;
mod machine;

pub(crate) use self::entry::entries;
pub use self::{
    config::{BEST, Config, KACHAN, OVERLAP, RBUDP, Rbudp, client, server},
    machine::RbudpMachine,
};
