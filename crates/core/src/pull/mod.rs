//! The shared parts of receiver-driven (pull) protocols. Runs of bytes form one sequence of equal
//! units ([`Layout`](crate::layout::Layout)). The receiver keeps which units have come and which
//! are requested ([`Wanted`]). The sender sends requested units first, then onwards from a cursor
//! that can be set back ([`Supply`]). When to request, in which format, and the sending rate are
//! the protocol's.
//!
//! Where only requested units are sent, the sender is a [`Source`] and the receiver a [`Fetch`],
//! which may request no more at a time than a window takes. An [`Offer`] and ranges of units pass
//! between them. A session of both but for what its receiver asks for and when, which is a
//! [`Style`], is a [`PullMachine`].
//!
//! Invariant: a peer cannot make anything here grow beyond the limits given at construction.

mod fetch;
mod machine;
mod message;
mod offer;
mod source;
mod supply;
mod transit;
mod wanted;

pub use self::{
    fetch::{Fetch, NUMBER, Tally},
    machine::{Ends, HEADS, PullMachine, REQUEST, Style},
    message::{Extension, Message, put},
    offer::{LEAST_RATE, MAX_RANGES, Offer, decode_ranges, decode_rate, encode_ranges},
    source::Source,
    supply::{Step, Supply},
    wanted::Wanted,
};
