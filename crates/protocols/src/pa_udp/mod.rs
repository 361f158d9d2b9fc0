//! Performance-adaptive UDP. The receiver's disk, memory and file size decide how fast it is sent
//! to, so that its memory is full when the last byte arrives, and not before.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - inside: `recv` (the receiving half of a session), `law` (its rate); offers, units, requests and the rest of a
//!   session are [`farhaul_core::pull`]'s
//!
//! Source: Eckart, He, Wu, IPDPS, 2008; Eckart, He, Wu, Xie, IEEE TPDS, 2010, as others describe
//! them: no program and no format was found. `docs/protocols/pa-udp.md` lists what is known,
//! derived and chosen.

pub mod wire;

mod config;
mod entry;
mod law;
mod recv;

pub(crate) use self::entry::entry;
pub use self::{
    config::{Config, DESCRIPTOR, PaUdp, client, server},
    law::rate,
    recv::{PaUdpMachine, PaUdpStyle},
};
