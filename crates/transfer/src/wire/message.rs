//! Messages that the two sides exchange: length-prefixed binary messages on the session's ordered
//! stream. File contents never travel here.
//!
//! - A frame is `varint length, u8 kind, body`; a longer frame than [`MAX_FRAME`] is an error before a
//!   byte of it is kept.
//! - Decoding is strict: unknown kinds, bytes left over, empty or descending ranges, names that may
//!   not be written are errors. Nothing is allocated by a length alone.

use std::ops::Range;

use farhaul_core::codec::{DecodeError, Reader};

use crate::wire::{
    Action, Direction, Entry, Exit, Generation, Hash, Out, Place, RequestOptions, Root, Sending,
    Shared, Tally, Usage, limits::MAX_FRAME, path,
};

mod copy;
mod feature;
mod read;
pub(crate) use feature::Token;
pub use read::Change;
pub(crate) use read::{FileVersion, LAST_ID};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Client: the request. A delivery has exactly one place.
    Request {
        version: u16,
        direction: Direction,
        tag: path::Tag,
        places: Vec<Place>,
        options: Box<RequestOptions>,
    },
    /// Client of a version that this end does not have: what it wants is not understood.
    Stranger { version: u16 },
    /// Server: accepts the request.
    Accepted { version: u16, one_file: bool },
    /// Server: refuses the request.
    Refused {
        code: Exit,
        text: Vec<u8>,
        fix: Vec<u8>,
    },
    /// Sender: the next part of the manifest.
    Entries { first: u64, entries: Vec<Entry> },
    /// Sender: the manifest is complete, every root sent.
    End { entries: u64 },
    /// Receiver: every entry below `upto` is decided; send these bytes.
    Want { upto: u64, ranges: Vec<Range<u64>> },
    /// Sender: these wanted bytes are holes and will not be sent.
    Holes { ranges: Vec<Range<u64>> },
    /// Sender: digests.
    Roots(Vec<Root>),
    /// Sender: this file will not be completed. `again`: it is listed anew.
    Failed {
        file: u64,
        code: Exit,
        again: bool,
        text: Vec<u8>,
    },
    /// Receiver: this file is given up (`code`) or was skipped (`Ok`); do not send more of it.
    Trouble {
        file: u64,
        code: Exit,
        text: Vec<u8>,
    },
    /// Receiver: the root differs; requests the values of the blocks.
    AskBlocks { file: u64 },
    /// Sender: values of blocks.
    Blocks {
        file: u64,
        first: u64,
        values: Vec<Hash>,
    },
    /// Receiver: send these bytes again, holes too, then a new root.
    Repair { file: u64, ranges: Vec<Range<u64>> },
    /// Receiver: how far it is; entries below `resolved` are over.
    Report { resolved: u64, tally: Tally },
    /// Receiver: all entries are over.
    Finished { tally: Tally, usage: Usage },
    /// Sender: received `Finished`.
    Bye { usage: Usage, sending: Sending },
    /// Receiver, when nothing is to be changed: what it would do with each entry from `first` on.
    Verdicts { first: u64, actions: Vec<Action> },
    /// Sender, when nothing is to be changed: what its filter leaves out.
    Excluded { paths: Vec<Vec<u8>> },
    /// Sender, of a copy that deletes: these it has, and does not list.
    Kept { paths: Vec<Vec<u8>> },
    /// Receiver, when nothing is to be changed: these it would delete.
    Deletions { paths: Vec<Vec<u8>> },
    /// Sender of what comes through a pipe: so long is its file by now.
    Grown { file: u64, size: u64 },
    /// Receiver of that: all below `upto` within the file is here, and will not be sent again.
    Taken { file: u64, upto: u64 },
    /// Client: number of parallel sessions that this copy may have in all; `chosen` if a person
    /// said so.
    WantLanes { lanes: u32, chosen: bool },
    /// Server: how many it has, and what further ones begin with.
    Lanes { token: Token, lanes: u32 },
    /// First message of a further parallel session.
    Join { token: Token },
    /// Server: it is one.
    Joined,
    /// Receiver, on a further parallel session: these bytes of the object have arrived on it.
    Got { ranges: Vec<Range<u64>> },
    /// First of a session that is to carry a probe of the path: for how long, and whether the server sends.
    WantProbe { millis: u64, fetch: bool },
    /// Server: for so long at most, and no faster (bit/s; 0: any). The stream is the probe's from here on.
    Probe { millis: u64, bps: u64 },
    /// First of a session: asks for the speed of this share's disk.
    WantDisk { share: Vec<u8> },
    /// Server: so many bytes were written, synced and read back, at so many bit/s.
    Disk {
        bytes: u64,
        write_bps: u64,
        read_bps: u64,
    },
    /// First of a session: asks for the shares that the peer may use.
    WantShares,
    /// Server: its shares.
    Shares(Vec<Shared>),
    /// First of a session that reads ranges of files.
    WantReads,
    /// Server: accepts a session that reads.
    Reads,
    /// Client: asks for the entries of this folder.
    List { id: u32, place: Place },
    /// Client: asks for the properties of this entry.
    Stat { id: u32, place: Place },
    /// Client: send these bytes of a file, as the object `id`.
    Read {
        id: u32,
        place: Place,
        offset: u64,
        len: u64,
    },
    /// Client: it has all bytes of a read, or wants no more of them.
    Release { id: u32 },
    /// Server: what was found; `more` follows.
    Found {
        id: u32,
        more: bool,
        entries: Vec<Entry>,
    },
    /// Server: the read has so many bytes, with this digest, of this version of the file.
    ReadEnd {
        id: u32,
        len: u64,
        hash: Hash,
        version: FileVersion,
    },
    /// Server: this request cannot be answered.
    Unanswered { id: u32, code: Exit, text: Vec<u8> },
    /// Client: changes an entry, in a session that reads.
    Change {
        id: u32,
        place: Place,
        change: Change,
    },
    /// Server: the change is done, or, with `more`, still under way.
    Changed { id: u32, more: bool },
    /// Receiver: this stripe is complete where those of its file are collected; `whole`: so were all, and the file has its
    /// name.
    Collected {
        file: u64,
        generation: Generation,
        whole: bool,
    },
}

impl Message {
    const fn kind(&self) -> u8 {
        match self {
            Self::Request { .. } | Self::Stranger { .. } => 1,
            Self::Accepted { .. } => 2,
            Self::Refused { .. } => 3,
            Self::Entries { .. } => 4,
            Self::End { .. } => 5,
            Self::Want { .. } => 6,
            Self::Holes { .. } => 7,
            Self::Roots(_) => 8,
            Self::Failed { .. } => 9,
            Self::Trouble { .. } => 10,
            Self::AskBlocks { .. } => 11,
            Self::Blocks { .. } => 12,
            Self::Repair { .. } => 13,
            Self::Report { .. } => 14,
            Self::Finished { .. } => 15,
            Self::Bye { .. } => 16,
            Self::Verdicts { .. } => 17,
            Self::Excluded { .. } => 18,
            Self::Kept { .. } => 19,
            Self::Deletions { .. } => 20,
            Self::Grown { .. } => 21,
            Self::Taken { .. } => 22,
            Self::WantLanes { .. } => 23,
            Self::Lanes { .. } => 24,
            Self::Join { .. } => 25,
            Self::Joined => 26,
            Self::Got { .. } => 27,
            Self::WantProbe { .. } => 28,
            Self::Probe { .. } => 29,
            Self::WantDisk { .. } => 30,
            Self::Disk { .. } => 31,
            Self::WantShares => 32,
            Self::Shares(_) => 33,
            Self::WantReads => 34,
            Self::Reads => 35,
            Self::List { .. } => 36,
            Self::Stat { .. } => 37,
            Self::Read { .. } => 38,
            Self::Release { .. } => 39,
            Self::Found { .. } => 40,
            Self::ReadEnd { .. } => 41,
            Self::Unanswered { .. } => 42,
            Self::Collected { .. } => 43,
            Self::Change { .. } => 44,
            Self::Changed { .. } => 45,
        }
    }

    /// Appends the frame to `into`; `scratch` is overwritten.
    pub(crate) fn encode(&self, scratch: &mut Vec<u8>, into: &mut Vec<u8>) {
        scratch.clear();
        scratch.push(self.kind());
        self.body(&mut Out(scratch));
        debug_assert!(
            scratch.len() <= MAX_FRAME,
            "messages are cut to size by their makers"
        );
        Out(into).prefixed(scratch);
    }

    fn body(&self, out: &mut Out<'_>) {
        match self {
            Self::Request { .. }
            | Self::Stranger { .. }
            | Self::Accepted { .. }
            | Self::Refused { .. } => self.body_of_opening(out),
            Self::Entries { .. }
            | Self::End { .. }
            | Self::Holes { .. }
            | Self::Roots(_)
            | Self::Failed { .. }
            | Self::Blocks { .. }
            | Self::Bye { .. }
            | Self::Excluded { .. }
            | Self::Kept { .. }
            | Self::Grown { .. } => self.body_of_sender(out),
            Self::Want { .. }
            | Self::Trouble { .. }
            | Self::AskBlocks { .. }
            | Self::Repair { .. }
            | Self::Report { .. }
            | Self::Finished { .. }
            | Self::Verdicts { .. }
            | Self::Deletions { .. }
            | Self::Taken { .. }
            | Self::Collected { .. } => self.body_of_receiver(out),
            Self::WantLanes { .. }
            | Self::Lanes { .. }
            | Self::Join { .. }
            | Self::Joined
            | Self::Got { .. }
            | Self::WantProbe { .. }
            | Self::Probe { .. }
            | Self::WantDisk { .. }
            | Self::Disk { .. }
            | Self::WantShares
            | Self::Shares(_) => self.body_of_feature(out),
            Self::WantReads
            | Self::Reads
            | Self::List { .. }
            | Self::Stat { .. }
            | Self::Read { .. }
            | Self::Release { .. }
            | Self::Found { .. }
            | Self::ReadEnd { .. }
            | Self::Unanswered { .. }
            | Self::Change { .. }
            | Self::Changed { .. } => self.body_of_read(out),
        }
    }

    /// Decodes the inside of one frame.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(frame);
        let kind = r.u8()?;
        let message = match kind {
            1..=3 => Self::opening(kind, &mut r)?,
            4 | 5 | 7..=9 | 12 | 16 | 18 | 19 | 21 => Self::of_sender(kind, &mut r)?,
            6 | 10 | 11 | 13..=15 | 17 | 20 | 22 | 43 => Self::of_receiver(kind, &mut r)?,
            23..=33 => Self::of_feature(kind, &mut r)?,
            34..=42 | 44 | 45 => Self::of_read(kind, &mut r)?,
            _ => return Err(DecodeError::Malformed("message kind")),
        };
        if r.is_empty() {
            Ok(message)
        } else {
            Err(DecodeError::Malformed("message: bytes left over"))
        }
    }
}

#[cfg(test)]
mod tests;
