//! The Group Transport Protocol: the receiver asks for ranges and for a rate. It shares what it can
//! take among all flows to it, so that they do not meet in its link.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - what a receiving host shares: [`Group`], [`shares`]
//! - inside: `recv` (the receiving half of a session), `law` (the rate of one flow); offers, units, requests and the
//!   rest of a session are [`farhaul_core::pull`]'s
//!
//! Source: Wu, Chien, `CCGrid`, 2004, as its abstract has it; the flow's law from the demonstration
//! of it in the composable UDT of 2005. `docs/protocols/gtp.md` lists what is known, derived and
//! chosen.

pub mod wire;

mod config;
mod entry;
mod group;
mod law;
mod recv;

pub(crate) use self::entry::entry;
pub use self::{
    config::{Config, DESCRIPTOR, Gtp, client, server},
    group::{Group, shares},
    recv::{GtpMachine, GtpStyle},
};
