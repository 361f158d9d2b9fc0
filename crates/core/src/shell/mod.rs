//! What is the same in sessions that are not sealed? Batches, the store, counters and events, idle time and the
//! end, which a [`Carrier`] has; and, where no format of another program's is spoken, the opening, which shows
//! that a client is where it says; a control channel, over TCP or in datagrams, and on it an ordered stream,
//! keep-alive and close, which the [`Shell`] has. What is left to a protocol is a [`Machine`]: its packets, its
//! feedback, its law. An [`Endpoint`] makes a protocol of it.
//!
//! - what a machine writes: [`Machine`], [`Packet`], [`Incoming`]; ready for it: [`Messages`]
//! - on the control channel: [`frame`]; in datagrams: `datagram`
//! - inside: `session`, `opening`, `channel`, `inband` (the channel in datagrams), `stream`, `batch`
//! - protocols with packets, opening and close of their own: [`Connection`], [`Carrier`]
//!
//! Nothing is encrypted or authenticated: whoever reads a session's datagrams can speak for its ends.

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
