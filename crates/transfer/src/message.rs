//! Which messages do the two sides exchange? Length-prefixed binary messages on the session's ordered
//! stream; file contents never travel here.
//!
//! - A frame is `varint length, u8 kind, body`; a longer frame than [`MAX_FRAME`] is an error before a
//!   byte of it is kept.
//! - Decoding is strict: unknown kinds, bytes left over, empty or descending ranges, names that may
//!   not be written are errors. Nothing is allocated by a length alone.

use std::ops::Range;

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use crate::{
    ask::{Ask, Place, Sending, Usage},
    bounds::{ENTRIES, NAMES, TEXT},
    digest::Hash,
    error::Code,
    lanes::Token,
    path,
    plan::Action,
    sender::NOT_LISTED,
    server::Access,
    version::{NEWEST, OLDEST},
};

mod entry;
mod feature;
pub(crate) use entry::{Entry, Kind};

/// Longest frame, without its length.
pub(crate) const MAX_FRAME: usize = 64 << 10;
/// Bodies are cut near this size, which leaves room for one largest item.
pub(crate) const TARGET_FRAME: usize = 32 << 10;

/// What was made of one file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) file: u64,
    /// Blocks without content went into the root as such.
    pub(crate) sparse: bool,
    pub(crate) hash: Hash,
}

/// Which way the files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Put,
    Get,
}

/// Counts of files and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) files_ok: u64,
    pub(crate) files_skipped: u64,
    pub(crate) files_failed: u64,
    /// Content received and placed.
    pub(crate) bytes: u64,
    /// Content found in place.
    pub(crate) resumed: u64,
    /// Files and folders that the source lacks.
    pub(crate) deleted: u64,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Client: what is wanted. A delivery has exactly one place.
    Request {
        version: u16,
        direction: Direction,
        tag: path::Tag,
        places: Vec<Place>,
        ask: Box<Ask>,
    },
    /// Client of a version that this end does not have: what it wants is not understood.
    Stranger { version: u16 },
    /// Server: go on.
    Accepted { version: u16, one_file: bool },
    /// Server: no.
    Refused {
        code: Code,
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
        code: Code,
        again: bool,
        text: Vec<u8>,
    },
    /// Receiver: this file is given up (`code`) or was skipped (`Ok`); do not send more of it.
    Trouble {
        file: u64,
        code: Code,
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
    /// Client: how many lanes this copy may have in all; `chosen` if a person said so.
    WantLanes { lanes: u32, chosen: bool },
    /// Server: how many it has, and what further ones begin with.
    Lanes { token: Token, lanes: u32 },
    /// First of a further lane.
    Join { token: Token },
    /// Server: it is one.
    Joined,
    /// Receiver, on a further lane: these bytes of the object have arrived on it.
    Got { ranges: Vec<Range<u64>> },
    /// First of a session that is to carry a probe of the path: for how long, and whether the server sends.
    WantProbe { millis: u64, fetch: bool },
    /// Server: for so long at most, and no faster (bit/s; 0: any). The stream is the probe's from here on.
    Probe { millis: u64, bps: u64 },
    /// First of a session: how fast is the disk of this share?
    WantDisk { share: Vec<u8> },
    /// Server: so many bytes were written, synced and read back, at so many bit/s.
    Disk {
        bytes: u64,
        write_bps: u64,
        read_bps: u64,
    },
    /// First of a session: which shares may the peer use?
    WantShares,
    /// Server: these.
    Shares(Vec<Shared>),
}

/// A share that a peer may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its name.
    pub name: Vec<u8>,
    /// What the peer may do in it.
    pub access: Access,
}

/// Appends fields to a frame.
pub(crate) struct Out<'a>(pub(crate) &'a mut Vec<u8>);

impl Out<'_> {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub(crate) fn varint(&mut self, v: u64) {
        let v = v.min(VARINT_MAX);
        match v {
            0..0x40 => self.0.push(v.to_be_bytes()[7]),
            0x40..0x4000 => self.0.extend_from_slice(&(v | 0x4000).to_be_bytes()[6..]),
            0x4000..0x4000_0000 => self
                .0
                .extend_from_slice(&(v | 0x8000_0000).to_be_bytes()[4..]),
            _ => self
                .0
                .extend_from_slice(&(v | 0xc000_0000_0000_0000).to_be_bytes()),
        }
    }

    pub(crate) fn prefixed(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Ascending ranges as gaps and lengths.
    fn ranges(&mut self, ranges: &[Range<u64>]) {
        self.varint(ranges.len() as u64);
        let mut at = 0;
        for r in ranges {
            self.varint(r.start - at);
            self.varint(r.end - r.start);
            at = r.end;
        }
    }

    fn tally(&mut self, t: &Tally) {
        for v in [
            t.files_ok,
            t.files_skipped,
            t.files_failed,
            t.bytes,
            t.resumed,
            t.deleted,
        ] {
            self.varint(v);
        }
    }
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
            Self::Request {
                version,
                direction,
                tag,
                places,
                ask,
            } => {
                out.varint(u64::from(*version));
                out.u8(u8::from(*direction == Direction::Get));
                out.0.extend_from_slice(tag);
                Place::encode(places, out);
                ask.encode(out);
            }
            Self::Stranger { version } => out.varint(u64::from(*version)),
            Self::Accepted { version, one_file } => {
                out.varint(u64::from(*version));
                out.u8(u8::from(*one_file));
            }
            Self::Refused { code, text, fix } => {
                out.u8(code.number());
                out.prefixed(text);
                out.prefixed(fix);
            }
            Self::Entries { first, entries } => {
                out.varint(*first);
                out.varint(entries.len() as u64);
                let mut previous: &[u8] = b"";
                for entry in entries {
                    entry.encode(previous, out);
                    previous = &entry.path;
                }
            }
            Self::End { entries } => out.varint(*entries),
            Self::Want { upto, ranges } => {
                out.varint(*upto);
                out.ranges(ranges);
            }
            Self::Holes { ranges } => out.ranges(ranges),
            Self::Roots(roots) => {
                out.varint(roots.len() as u64);
                for root in roots {
                    out.varint(root.file << 1 | u64::from(root.sparse));
                    out.0.extend_from_slice(&root.hash);
                }
            }
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
            _ => self.rest_of_body(out),
        }
    }

    fn rest_of_body(&self, out: &mut Out<'_>) {
        match self {
            Self::Failed {
                file,
                code,
                again,
                text,
            } => {
                out.varint(*file);
                out.u8(code.number());
                out.u8(u8::from(*again));
                out.prefixed(text);
            }
            Self::Trouble { file, code, text } => {
                out.varint(*file);
                out.u8(code.number());
                out.prefixed(text);
            }
            Self::AskBlocks { file } => out.varint(*file),
            Self::Blocks {
                file,
                first,
                values,
            } => {
                out.varint(*file);
                out.varint(*first);
                out.varint(values.len() as u64);
                for value in values {
                    out.0.extend_from_slice(value);
                }
            }
            Self::Repair { file, ranges } => {
                out.varint(*file);
                out.ranges(ranges);
            }
            Self::Report { resolved, tally } => {
                out.varint(*resolved);
                out.tally(tally);
            }
            Self::Finished { tally, usage } => {
                out.tally(tally);
                usage.encode(out);
            }
            Self::Bye { usage, sending } => {
                usage.encode(out);
                sending.encode(out);
            }
            Self::Verdicts { first, actions } => {
                out.varint(*first);
                out.varint(actions.len() as u64);
                for action in actions {
                    out.u8(*action as u8);
                }
            }
            Self::Excluded { paths } | Self::Kept { paths } | Self::Deletions { paths } => {
                out.varint(paths.len() as u64);
                for path in paths {
                    out.prefixed(path);
                }
            }
            Self::Grown { file, size: n } | Self::Taken { file, upto: n } => {
                out.varint(*file);
                out.varint(*n);
            }
            _ => unreachable!("another body"),
        }
    }

    /// Decodes the inside of one frame.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(frame);
        let kind = r.u8()?;
        let message = match kind {
            1..=3 => Self::opening(kind, &mut r)?,
            4 | 5 | 7..=9 | 12 | 16 | 18 | 19 | 21 => Self::of_sender(kind, &mut r)?,
            6 | 10 | 11 | 13..=15 | 17 | 20 | 22 => Self::of_receiver(kind, &mut r)?,
            23..=33 => Self::of_feature(kind, &mut r)?,
            _ => return Err(DecodeError::Malformed("message kind")),
        };
        if r.is_empty() {
            Ok(message)
        } else {
            Err(DecodeError::Malformed("message: bytes left over"))
        }
    }

    fn opening(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            1 => request(r)?,
            2 => Self::Accepted {
                version: version(r)?,
                one_file: flag(r)?,
            },
            _ => Self::Refused {
                code: failure(r)?,
                text: text(r)?,
                fix: text(r)?,
            },
        })
    }

    fn of_sender(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            4 => entries(r)?,
            5 => Self::End {
                entries: r.varint()?,
            },
            7 => Self::Holes { ranges: ranges(r)? },
            8 => {
                let count = r.varint()?;
                let roots = (0..count).map(|_| {
                    let word = r.varint()?;
                    Ok(Root {
                        file: word >> 1,
                        sparse: word & 1 == 1,
                        hash: array(r)?,
                    })
                });
                Self::Roots(roots.collect::<Result<_, DecodeError>>()?)
            }
            9 => {
                let file = r.varint()?;
                // Of what was never listed there may also be a warning.
                let code = if file == NOT_LISTED {
                    code(r)?
                } else {
                    failure(r)?
                };
                Self::Failed {
                    file,
                    code,
                    again: flag(r)?,
                    text: text(r)?,
                }
            }
            12 => {
                let (file, first, count) = (r.varint()?, r.varint()?, r.varint()?);
                let values = (0..count).map(|_| array(r)).collect::<Result<_, _>>()?;
                Self::Blocks {
                    file,
                    first,
                    values,
                }
            }
            16 => Self::Bye {
                usage: Usage::decode(r)?,
                sending: Sending::decode(r)?,
            },
            18 => Self::Excluded { paths: paths(r)? },
            21 => Self::Grown {
                file: r.varint()?,
                size: r.varint()?,
            },
            _ => Self::Kept { paths: paths(r)? },
        })
    }

    fn of_receiver(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            6 => Self::Want {
                upto: r.varint()?,
                ranges: ranges(r)?,
            },
            10 => Self::Trouble {
                file: r.varint()?,
                code: code(r)?,
                text: text(r)?,
            },
            11 => Self::AskBlocks { file: r.varint()? },
            13 => Self::Repair {
                file: r.varint()?,
                ranges: ranges(r)?,
            },
            14 => Self::Report {
                resolved: r.varint()?,
                tally: tally(r)?,
            },
            15 => Self::Finished {
                tally: tally(r)?,
                usage: Usage::decode(r)?,
            },
            20 => Self::Deletions { paths: paths(r)? },
            22 => Self::Taken {
                file: r.varint()?,
                upto: r.varint()?,
            },
            _ => {
                let (first, count) = (r.varint()?, r.varint()?);
                let action =
                    |_| Action::from_number(r.u8()?).ok_or(DecodeError::Malformed("action"));
                let actions = (0..count).map(action).collect::<Result<_, _>>()?;
                Self::Verdicts { first, actions }
            }
        })
    }
}

fn request(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let version = version(r)?;
    if !(OLDEST..=NEWEST).contains(&version) {
        r.take(r.rest().len())?;
        return Ok(Message::Stranger { version });
    }
    let direction = if flag(r)? {
        Direction::Get
    } else {
        Direction::Put
    };
    let (tag, places) = (array(r)?, Place::decode(r)?);
    if direction == Direction::Put && places.len() > 1 {
        return Err(DecodeError::Malformed("places of a delivery"));
    }
    let ask = Box::new(Ask::decode(r)?);
    Ok(Message::Request {
        version,
        direction,
        tag,
        places,
        ask,
    })
}

fn version(r: &mut Reader<'_>) -> Result<u16, DecodeError> {
    u16::try_from(r.varint()?).map_err(|_| DecodeError::Malformed("version"))
}

fn flag(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Malformed("flag")),
    }
}

fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], DecodeError> {
    r.take(N)?.try_into().map_err(|_| DecodeError::Truncated)
}

fn text(r: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    match r.prefixed()? {
        text if text.len() <= TEXT => Ok(text.to_vec()),
        _ => Err(DecodeError::Malformed("text too long")),
    }
}

fn paths(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let count = r.varint()?;
    (0..count).map(|_| text(r)).collect()
}

fn code(r: &mut Reader<'_>) -> Result<Code, DecodeError> {
    Code::from_number(r.u8()?).ok_or(DecodeError::Malformed("code"))
}

/// Why an end refused or gave up; never success.
fn failure(r: &mut Reader<'_>) -> Result<Code, DecodeError> {
    let code = code(r)?;
    if code == Code::Ok {
        return Err(DecodeError::Malformed("failure without a reason"));
    }
    Ok(code)
}

fn tally(r: &mut Reader<'_>) -> Result<Tally, DecodeError> {
    Ok(Tally {
        files_ok: r.varint()?,
        files_skipped: r.varint()?,
        files_failed: r.varint()?,
        bytes: r.varint()?,
        resumed: r.varint()?,
        deleted: r.varint()?,
    })
}

fn ranges(r: &mut Reader<'_>) -> Result<Vec<Range<u64>>, DecodeError> {
    let count = r.varint()?;
    let mut at = 0u64;
    let mut all = Vec::new();
    for i in 0..count {
        let gap = r.varint()?;
        let len = r.varint()?;
        let start = at.checked_add(gap);
        let end = start
            .and_then(|s| s.checked_add(len))
            .filter(|e| *e <= VARINT_MAX);
        match (start, end) {
            (Some(start), Some(end)) if len > 0 && (gap > 0 || i == 0) => all.push(start..end),
            _ => return Err(DecodeError::Malformed("ranges")),
        }
        at = end.unwrap_or(VARINT_MAX);
    }
    Ok(all)
}

fn entries(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let first = r.varint()?;
    let count = r.varint()?;
    let mut all: Vec<Entry> = Vec::new();
    let mut names = 0;
    for _ in 0..count {
        let previous = all.last().map_or(&b""[..], |e| &e.path);
        let entry = Entry::decode(r, previous)?;
        names += entry.path.len() + entry.target.len();
        // A name may be far longer than what it takes in the message.
        if all.len() == ENTRIES || names > NAMES {
            return Err(DecodeError::Malformed("entries: too many in one message"));
        }
        all.push(entry);
    }
    if first
        .checked_add(count)
        .is_none_or(|end| end > VARINT_MAX >> 1)
    {
        return Err(DecodeError::Malformed("entry number"));
    }
    Ok(Message::Entries {
        first,
        entries: all,
    })
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
