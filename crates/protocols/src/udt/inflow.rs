//! What becomes of a payload? Records say where their bytes belong and are placed on arrival. Streams
//! and messages are put in order: what arrives in order goes straight to the reader, what does not
//! waits in a ring of slots.
//!
//! Invariant: memory grows with what arrived, never beyond the window that was offered.

mod messages;
mod records;

use std::ops::Range;

use farhaul_core::store::Extent;

use self::{messages::Messages, records::Records};
use super::{Framing, wire::DataHeader};

pub(super) use self::records::{RECORD, put_record};

/// What a packet was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bytes to be placed; `at` is counted from the start of the payload.
    pub(super) extent: Option<Extent>,
    /// There is more to read.
    pub(super) readable: bool,
    /// Bytes of data.
    pub(super) data: u64,
}

/// A payload that is never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadPayload(pub(super) &'static str);

/// The receiving end of the data.
#[derive(Debug)]
pub(super) enum Inflow {
    Records(Records),
    Ordered(Messages),
}

impl Inflow {
    /// For packets from `first` on, of at most `payload` bytes, in at most `slots` slots.
    pub(super) fn new(framing: Framing, first: u64, payload: usize, slots: u64) -> Self {
        match framing {
            Framing::Records => Self::Records(Records::new(slots)),
            Framing::Stream => Self::Ordered(Messages::new(first, payload, slots, false)),
            Framing::Messages { .. } => Self::Ordered(Messages::new(first, payload, slots, true)),
        }
    }

    /// Takes the payload of packet `number`, which has not been taken before.
    pub(super) fn take(
        &mut self,
        number: u64,
        header: &DataHeader,
        payload: &[u8],
    ) -> Result<Taken, BadPayload> {
        match self {
            Self::Records(records) => records.take(payload),
            Self::Ordered(messages) => messages.take(number, header, payload),
        }
    }

    /// The peer gave up `range`, of this message; true if there is more to read.
    pub(super) fn give_up(&mut self, range: Range<u64>, message: u32) -> bool {
        match self {
            Self::Records(_) => false,
            Self::Ordered(messages) => messages.give_up(range, message),
        }
    }

    /// Packets for which there is room from `prefix` on, before which everything arrived.
    pub(super) fn room(&self, prefix: u64) -> u64 {
        match self {
            Self::Records(records) => records.room(),
            Self::Ordered(messages) => messages.room(prefix),
        }
    }

    /// Appends what can be read.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        match self {
            Self::Records(records) => records.read(into),
            Self::Ordered(messages) => messages.read(into),
        }
    }
}
