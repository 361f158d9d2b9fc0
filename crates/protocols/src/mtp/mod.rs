//! A model of MTP/IP, the transport of `ExpeDat`. The receiver asks, piece by piece, and owns
//! window, timers and the judgement of losses; the sender only answers. Its packets were never
//! published. The model follows claims of patents and manuals, and is fitted to measurements by
//! Kachan and Siemens in 2014.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - inside: `recv` (the receiving half of a session, with the host of the time), `window` (how
//!   many units may be in transit); offers, units, those in transit and the rest of a session are
//!   [`farhaul_core::pull`]'s
//!
//! `docs/protocols/mtp.md` lists what is known, inferred and chosen.

pub mod wire;

mod config;
mod entry;
mod recv;
mod window;

pub(crate) use self::entry::entries;
pub use self::{
    config::{Config, FIRST, Mtp, SECOND, client, server},
    recv::{MtpMachine, MtpStyle},
};
