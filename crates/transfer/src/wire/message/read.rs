//! Encodes the messages of sessions that read ranges of files, and of changes in such a session.

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use super::Message;
use crate::wire::{
    Entry, Out, Place,
    fields::{array, failure, flag, text},
    path::PATH_MAX,
};

/// The highest number of a request, which is the object that carries its content.
pub(crate) const LAST_ID: u32 = 1 << 30;

/// Version of a file; a file that was changed or replaced has another.
pub(crate) type FileVersion = [u8; 8];

/// A change of one entry of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Removes a file or a link.
    Remove,
    /// Removes an empty folder.
    RemoveFolder,
    /// Makes a folder; with `parents` also those around it, and any of them may be there.
    MakeFolder {
        /// See above.
        parents: bool,
    },
    /// Gives the entry this path in the same share.
    Move {
        /// The new path.
        to: Vec<u8>,
        /// A file or link of this path is replaced by a file.
        replace: bool,
    },
    /// Copies the file to this path in the same share.
    Copy {
        /// Path of the copy.
        to: Vec<u8>,
        /// A file or link of this path is replaced.
        replace: bool,
    },
}

impl Change {
    /// Verb for people.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::RemoveFolder => "remove folder",
            Self::MakeFolder { .. } => "make folder",
            Self::Move { .. } => "move",
            Self::Copy { .. } => "copy",
        }
    }

    /// Path that the entry, or its copy, is to have.
    pub fn to(&self) -> Option<&[u8]> {
        match self {
            Self::Move { to, .. } | Self::Copy { to, .. } => Some(to),
            _ => None,
        }
    }

    const fn number(&self) -> u8 {
        match self {
            Self::Remove => 0,
            Self::RemoveFolder => 1,
            Self::MakeFolder { parents } => 2 + *parents as u8,
            Self::Move { replace, .. } => 4 + *replace as u8,
            Self::Copy { replace, .. } => 6 + *replace as u8,
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = r.u8()?;
        let flag = number & 1 != 0;
        let mut to = || match text(r)? {
            to if to.len() <= PATH_MAX => Ok(to),
            _ => Err(DecodeError::Malformed("path")),
        };
        Ok(match number {
            0 => Self::Remove,
            1 => Self::RemoveFolder,
            2 | 3 => Self::MakeFolder { parents: flag },
            4 | 5 => Self::Move {
                to: to()?,
                replace: flag,
            },
            6 | 7 => Self::Copy {
                to: to()?,
                replace: flag,
            },
            _ => return Err(DecodeError::Malformed("change")),
        })
    }
}

impl Message {
    pub(super) fn body_of_read(&self, out: &mut Out<'_>) {
        match self {
            Self::WantReads | Self::Reads => {}
            Self::List { id, place } | Self::Stat { id, place } => {
                out.varint(u64::from(*id));
                put_place(place, out);
            }
            Self::Read {
                id,
                place,
                offset,
                len,
            } => {
                out.varint(u64::from(*id));
                put_place(place, out);
                out.varint(*offset);
                out.varint(*len);
            }
            Self::Release { id } => out.varint(u64::from(*id)),
            Self::Found { id, more, entries } => {
                out.varint(u64::from(*id));
                out.u8(u8::from(*more));
                Entry::encode_all(entries, out);
            }
            Self::ReadEnd {
                id,
                len,
                hash,
                version,
            } => {
                out.varint(u64::from(*id));
                out.varint(*len);
                out.0.extend_from_slice(hash);
                out.0.extend_from_slice(version);
            }
            Self::Unanswered { id, code, text } => {
                out.varint(u64::from(*id));
                out.u8(code.number());
                out.prefixed(text);
            }
            Self::Change { id, place, change } => {
                out.varint(u64::from(*id));
                put_place(place, out);
                out.u8(change.number());
                if let Some(to) = change.to() {
                    out.prefixed(to);
                }
            }
            Self::Changed { id, more } => {
                out.varint(u64::from(*id));
                out.u8(u8::from(*more));
            }
            _ => unreachable!("another body"),
        }
    }

    pub(super) fn of_read(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            34 => Self::WantReads,
            35 => Self::Reads,
            36 => Self::List {
                id: id(r)?,
                place: place(r)?,
            },
            37 => Self::Stat {
                id: id(r)?,
                place: place(r)?,
            },
            38 => of_range(r)?,
            39 => Self::Release { id: id(r)? },
            40 => Self::Found {
                id: id(r)?,
                more: flag(r)?,
                entries: Entry::decode_all(r)?,
            },
            41 => Self::ReadEnd {
                id: id(r)?,
                len: r.varint()?,
                hash: array(r)?,
                version: array(r)?,
            },
            44 => Self::Change {
                id: id(r)?,
                place: place(r)?,
                change: Change::decode(r)?,
            },
            45 => Self::Changed {
                id: id(r)?,
                more: flag(r)?,
            },
            _ => Self::Unanswered {
                id: id(r)?,
                code: failure(r)?,
                text: text(r)?,
            },
        })
    }
}

fn of_range(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let (id, place) = (id(r)?, place(r)?);
    let (offset, len) = (r.varint()?, r.varint()?);
    if offset.checked_add(len).is_none_or(|end| end > VARINT_MAX) {
        return Err(DecodeError::Malformed("range"));
    }
    Ok(Message::Read {
        id,
        place,
        offset,
        len,
    })
}

fn id(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let id = u32::try_from(r.varint()?).ok();
    let id = id.filter(|id| (1..=LAST_ID).contains(id));
    id.ok_or(DecodeError::Malformed("number of a request"))
}

fn put_place(place: &Place, out: &mut Out<'_>) {
    out.prefixed(&place.share);
    out.prefixed(&place.path);
}

fn place(r: &mut Reader<'_>) -> Result<Place, DecodeError> {
    let (share, path) = (text(r)?, text(r)?);
    if share.len() + path.len() > 2 * PATH_MAX {
        return Err(DecodeError::Malformed("place"));
    }
    Ok(Place { share, path })
}
