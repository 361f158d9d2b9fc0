//! A model of MTP/IP, the transport of `ExpeDat`: the receiver asks, piece by piece, and owns window, timers and the
//! judgement of what is lost; the sender only answers. Its packets were never published: the model follows
//! claims of patents and manuals, and is fitted to what Kachan and Siemens measured of it in 2014.
//!
//! - formats: [`wire`]; choices: [`Config`]; endpoints: [`client`], [`server`]
//! - inside: `recv` (the receiving half of a session, with the host of the time), `window` (how many units may be in
//!   transit); offers, units, what is in transit and the rest of a session are [`farhaul_core::pull`]'s
//!
//! `docs/protocols/mtp.md` says what is known, inferred and chosen.

pub mod wire;

mod config;
mod recv;
mod window;

pub use self::{
    config::{Config, FIRST, Mtp, SECOND, boxed, client, server},
    recv::{MtpMachine, MtpStyle},
};
