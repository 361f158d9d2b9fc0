//! FOBS: a chunk of bytes leaves as numbered packets, and the receiver reports over TCP which of
//! them are there. Missing packets leave again, until the chunk is whole. Greedy: over and over all
//! that is not known to have arrived. In segments: missing packets go before new ones in the next
//! segment, at a rate that follows the loss of each.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - inside: `machine` (FOBS' own part of a session, on [`farhaul_core::rounds`]), `law`
//!
//! Source: Dickens and Gropp, HPDC, 2002, and Dickens, Euro-Par, 2003, as recalled; parts were read
//! in the original's source at Oak Ridge. `docs/protocols/fobs.md` lists what is known and what is
//! farhaul's.

pub mod wire;

mod config;
mod entry;
mod law;
mod machine;

pub(crate) use self::entry::entries;
pub use self::{
    config::{Config, Fobs, GREEDY, Mode, SEGMENTS, client, server},
    machine::{FobsMachine, FobsStyle},
};
