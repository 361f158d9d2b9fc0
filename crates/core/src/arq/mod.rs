//! Selective-repeat ARQ: numbered packets, range-coded feedback, selective repair. The two halves know no wire
//! format: a protocol writes the headers and decodes the feedback, this module tracks sent packets.
//! Initial pacing, repair of repairs and tail probes are done here, never by the protocol.

mod machine;
mod receiver;
mod sender;
mod tail;
#[cfg(test)]
mod tests;

pub use machine::{ArqMachine, DataHead, SenderState, Wire, endpoint};
pub use receiver::Receiver;
pub use sender::Sender;

pub use crate::send::{Permit, Piece, STREAM};

/// Content of a packet that matters when the packet is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Data, sent again when lost.
    Piece(Piece),
    /// The piece of this earlier packet once more, in case that one is lost; not repaired itself.
    Copy(u64),
    /// A path MTU probe: its loss is no sign of congestion and is not repaired.
    Probe,
    /// Small ack-eliciting frames, which their writer repeats.
    Other,
    /// Feedback alone: not ack-eliciting and not in flight.
    #[default]
    Quiet,
}

/// A packet's content, and the copies that were sent of it.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    content: Content,
    /// Copies sent of its piece.
    copies: u8,
    /// Copies that were lost.
    copies_lost: u8,
    /// True if a copy of its piece arrived.
    covered: bool,
}

/// Acknowledgement report: the state of every packet in `from..=largest`, and receive counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// First packet covered.
    pub from: u64,
    /// Last packet covered; it was received.
    pub largest: u64,
    /// Ack delay of `largest`, µs; [`Self::NO_DELAY`] if it gives no rtt sample.
    pub delay_us: u64,
    /// Receiver's clock when the newest packet arrived, µs.
    pub arrived_us: u64,
    /// Wire bytes received so far.
    pub bytes: u64,
    /// Packets received so far that carried "congestion experienced".
    pub ce: u64,
    /// Receive credit: free space of the receiver's store, bytes; unlimited if absent.
    pub room: Option<u64>,
    /// Arrived, missing, arrived ... counts downwards from `largest`, all at least 1.
    pub runs: Vec<u64>,
}

impl Report {
    /// `delay_us` of a report that catches up and must not be taken as an rtt sample.
    pub const NO_DELAY: u64 = (1 << 62) - 1;
}
