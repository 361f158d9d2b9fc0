//! The Tsunami UDP protocol, version 1.1 (`ttp`). The receiver asks for blocks that are missing and
//! reports how many errors it sees; the sender moves its rate by that. Data in datagrams,
//! everything else on a TCP connection ([`farhaul_core::control`]).
//!
//! - all formats of the original: [`wire`]; what a session says on its control lane: `message`
//! - choices: [`Config`]; endpoints: [`client`], [`server`]
//! - laws: [`law`] (the gap between blocks, the error rate)
//! - the original's client and server without sockets: [`files`]
//! - inside: `send` and `recv` (the two halves), `machine` (both in a session)
//!
//! Source: Tsunami v1.1 (Meiss and Wallace, Indiana University, 2002; builds 42 and 43) as read; no
//! code of it is used. `docs/protocols/ttp.md` distinguishes the original's parts from farhaul's.

pub mod files;
pub mod law;
pub mod wire;

mod entry;
mod machine;
mod message;
mod protocol;
mod recv;
mod send;

pub(crate) use self::entry::entry;
pub use self::{
    machine::TtpMachine,
    protocol::{Config, ConfigError, DESCRIPTOR, Loss, Ttp, client, server},
};
