//! The part that unencrypted sessions share. A [`Carrier`] handles batches, the store, counters and
//! events, the idle timeout and the close. For protocols that define no handshake of their own the
//! [`Shell`] adds one, which validates the client's address. The shell also adds a control channel,
//! over TCP or in datagrams, with an ordered stream, keep-alive and close. A protocol on the shell
//! implements [`Machine`]: its packets, its feedback, its congestion law. An [`Endpoint`] makes a
//! `Protocol` of a machine.
//!
//! - to implement: [`Machine`], with [`Packet`], [`Incoming`]; a send buffer for control messages: [`Messages`]
//! - on the control channel: [`frame`]; in datagrams: `datagram`
//! - inside: `session`, `opening`, `channel`, `inband` (the channel in datagrams), `stream`, `batch`
//! - protocols with packets, opening and close of their own: [`Connection`], [`Carrier`]
//!
//! Nothing is encrypted or authenticated: an on-path attacker can impersonate either end.

mod batch;
mod carrier;
mod channel;
mod datagram;
mod endpoint;
pub mod frame;
mod inband;
mod machine;
mod messages;
mod opening;
mod record;
mod session;
mod stream;

pub use self::{
    carrier::{Carrier, Connection, Refusal, SessionState},
    channel::MAX_CONTROL,
    datagram::{HEAD, MACHINE},
    endpoint::{Endpoint, Limits},
    frame::MAX_GREETING,
    machine::{Incoming, Machine, Packet},
    messages::Messages,
    record::Record,
    session::Shell,
};
