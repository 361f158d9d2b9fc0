//! Sending in rounds: a block of packets is sent whole, the receiver then reports which of them it
//! has, and the rest is sent in the next round. Rounds go on until nothing is missing. RBUDP does
//! so with one block at a time. With more blocks the next one fills the time in which the first is
//! being reported and repaired. FOBS has rounds that do not wait for reports. A round has a number
//! of packets, those known to be missing first; or all packets that are not known to have arrived.
//!
//! - which bytes a packet holds: [`Layout`](crate::layout::Layout)
//! - the two ends: [`RoundSender`], [`RoundReceiver`]; a block on the wire: [`wire`]
//! - a session but for its formats and its rate, which are a [`Style`]: [`RoundMachine`]
//!
//! Packets of all blocks are counted in one space of [`NUMBERS`] that wraps: a block has those from its
//! first on. So a late packet of a finished block is not mistaken for one of the next.

mod block;
mod machine;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
pub mod wire;

pub use self::{
    machine::{Ends, RoundMachine, RoundMessage, Style},
    receiver::{Arrived, Report, RoundReceiver},
    sender::{Counts, Judged, Leaving, RoundSender, Rounds},
};

use crate::seq::Wrap;

/// Packets are numbered modulo this.
pub const NUMBERS: u32 = 1 << 31;
/// Packets in a block at most, and half of those in all blocks.
pub const MAX_PACKETS: u64 = 2_000_000;
/// Blocks that may be on their way at once; as many more may be announced.
pub const MAX_BLOCKS: usize = 32;

type Numbers = Wrap<{ NUMBERS as u64 }>;
