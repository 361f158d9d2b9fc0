//! SABUL 2.x, UDT's ancestor: data in datagrams, everything that is said about them on a TCP
//! connection ([`farhaul_core::control`]). Losses are reported one by one, the rate follows the
//! share of them.
//!
//! - packets and messages: [`wire`]; the numbers in them, which wrap: [`seq`]
//! - choices: [`Config`]; endpoints: [`client`], [`server`]
//! - inside: `send` and `recv` (the two halves), `machine` (SABUL's own part of a session)
//!
//! Source: Gu, Hong, Mazzucco and Grossman, IEEE Communications Letters, 2003; the 2.x sources of
//! 2003 as read. `docs/protocols/sabul.md` distinguishes the original's parts from farhaul's.

pub mod seq;
pub mod wire;

mod entry;
mod machine;
mod protocol;
mod recv;
mod send;

pub(crate) use self::entry::entry;
pub use self::{
    machine::SabulMachine,
    protocol::{Config, DESCRIPTOR, Sabul, client, server},
};
