//! Encodes the messages of a copy, by sender.

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use super::Message;
use crate::wire::{
    Action, Direction, Entry, NEWEST, NOT_LISTED, OLDEST, Out, Place, RequestOptions, Root,
    Sending, Tally, Usage,
    fields::{array, code, failure, flag, paths, ranges, text, version},
};

impl Message {
    pub(super) fn body_of_opening(&self, out: &mut Out<'_>) {
        match self {
            Self::Request {
                version,
                direction,
                tag,
                places,
                options,
            } => {
                out.varint(u64::from(*version));
                out.u8(u8::from(*direction == Direction::Get));
                out.0.extend_from_slice(tag);
                Place::encode(places, out);
                options.encode(out);
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
            _ => unreachable!("another body"),
        }
    }

    pub(super) fn opening(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
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

    pub(super) fn body_of_sender(&self, out: &mut Out<'_>) {
        match self {
            Self::Entries { first, entries } => {
                out.varint(*first);
                Entry::encode_all(entries, out);
            }
            Self::End { entries } => out.varint(*entries),
            Self::Holes { ranges } => out.ranges(ranges),
            Self::Roots(roots) => {
                out.varint(roots.len() as u64);
                for root in roots {
                    out.varint(root.file << 1 | u64::from(root.sparse));
                    out.0.extend_from_slice(&root.hash);
                }
            }
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
            Self::Bye { usage, sending } => {
                usage.encode(out);
                sending.encode(out);
            }
            Self::Excluded { paths } | Self::Kept { paths } => out.paths(paths),
            Self::Grown { file, size } => {
                out.varint(*file);
                out.varint(*size);
            }
            _ => unreachable!("another body"),
        }
    }

    pub(super) fn of_sender(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
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

    pub(super) fn body_of_receiver(&self, out: &mut Out<'_>) {
        match self {
            Self::Want { upto, ranges } => {
                out.varint(*upto);
                out.ranges(ranges);
            }
            Self::Trouble { file, code, text } => {
                out.varint(*file);
                out.u8(code.number());
                out.prefixed(text);
            }
            Self::AskBlocks { file } => out.varint(*file),
            Self::Collected {
                file,
                generation,
                whole,
            } => {
                out.varint(*file);
                out.0.extend_from_slice(generation);
                out.u8(u8::from(*whole));
            }
            Self::Repair { file, ranges } => {
                out.varint(*file);
                out.ranges(ranges);
            }
            Self::Report { resolved, tally } => {
                out.varint(*resolved);
                tally.encode(out);
            }
            Self::Finished { tally, usage } => {
                tally.encode(out);
                usage.encode(out);
            }
            Self::Verdicts { first, actions } => {
                out.varint(*first);
                out.varint(actions.len() as u64);
                for action in actions {
                    out.u8(*action as u8);
                }
            }
            Self::Deletions { paths } => out.paths(paths),
            Self::Taken { file, upto } => {
                out.varint(*file);
                out.varint(*upto);
            }
            _ => unreachable!("another body"),
        }
    }

    pub(super) fn of_receiver(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
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
                tally: Tally::decode(r)?,
            },
            15 => Self::Finished {
                tally: Tally::decode(r)?,
                usage: Usage::decode(r)?,
            },
            20 => Self::Deletions { paths: paths(r)? },
            43 => Self::Collected {
                file: r.varint()?,
                generation: array(r)?,
                whole: flag(r)?,
            },
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
    let options = Box::new(RequestOptions::decode(r)?);
    Ok(Message::Request {
        version,
        direction,
        tag,
        places,
        options,
    })
}

fn entries(r: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let first = r.varint()?;
    let entries = Entry::decode_all(r)?;
    let count = entries.len() as u64;
    if first
        .checked_add(count)
        .is_none_or(|end| end > VARINT_MAX >> 1)
    {
        return Err(DecodeError::Malformed("entry number"));
    }
    Ok(Message::Entries { first, entries })
}
