//! What do protocols share in which the receiver asks? Runs of bytes as one line of equal units
//! ([`Layout`](crate::layout::Layout)); at the receiver what has come and what is asked for ([`Wanted`]); at the sender what goes
//! next: what was asked for first, then onwards from a cursor that can be set back ([`Supply`]). When to
//! ask, how it looks and how fast units leave is the protocol's.
//!
//! Where nothing leaves that was not asked for, a sender is a [`Source`] and a receiver a [`Fetch`], which may ask for no
//! more at a time than a window takes; what passes between them is an [`Offer`] and ranges of units. A session of both but
//! for what its receiver asks for and when, which is a [`Style`], is a [`PullMachine`].
//!
//! Invariant: nothing here grows with what a peer says beyond the limits given when it is made.

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
