//! Encodes the messages of sessions that read ranges of files.

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use super::{
    Entry, Message, Out,
    fields::{array, failure, flag, text},
};
use crate::{ask::Place, path::PATH_MAX};

/// The highest number of a request, which is the object that carries its content.
pub(crate) const LAST_ID: u32 = 1 << 30;

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
