//! Encodes the messages of features that both ends must have.

use farhaul_core::codec::{DecodeError, Reader};

use super::Message;
use crate::wire::{
    Access, Out, Shared,
    fields::{array, flag, ranges, text},
    limits::{MOST_LANES, SHARES},
};

/// Names a copy to its server; only who was given it can know it.
pub(crate) type Token = [u8; 16];

impl Message {
    pub(super) fn body_of_feature(&self, out: &mut Out<'_>) {
        match self {
            Self::WantLanes { lanes, chosen } => {
                out.varint(u64::from(*lanes));
                out.u8(u8::from(*chosen));
            }
            Self::Lanes { token, lanes } => {
                out.0.extend_from_slice(token);
                out.varint(u64::from(*lanes));
            }
            Self::Join { token } => out.0.extend_from_slice(token),
            Self::Got { ranges } => out.ranges(ranges),
            Self::WantProbe { millis, fetch } => {
                out.varint(*millis);
                out.u8(u8::from(*fetch));
            }
            Self::Probe { millis, bps } => {
                out.varint(*millis);
                out.varint(*bps);
            }
            Self::WantDisk { share } => out.prefixed(share),
            Self::Disk {
                bytes,
                write_bps,
                read_bps,
            } => {
                for n in [bytes, write_bps, read_bps] {
                    out.varint(*n);
                }
            }
            Self::Joined | Self::WantShares => {}
            Self::Shares(shares) => {
                out.varint(shares.len() as u64);
                for share in shares {
                    out.prefixed(&share.name);
                    out.prefixed(share.access.word().as_bytes());
                }
            }
            _ => unreachable!("another body"),
        }
    }

    pub(super) fn of_feature(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match kind {
            23..=27 => Self::of_lanes(kind, r),
            32 => Ok(Self::WantShares),
            33 => Self::of_shares(r),
            _ => Self::of_probes(kind, r),
        }
    }

    fn of_lanes(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let lanes = |r: &mut Reader<'_>| {
            let lanes = u32::try_from(r.varint()?).ok();
            let lanes = lanes.filter(|n| (1..=MOST_LANES).contains(n));
            lanes.ok_or(DecodeError::Malformed("number of lanes"))
        };
        Ok(match kind {
            23 => Self::WantLanes {
                lanes: lanes(r)?,
                chosen: flag(r)?,
            },
            24 => Self::Lanes {
                token: array(r)?,
                lanes: lanes(r)?,
            },
            25 => Self::Join { token: array(r)? },
            26 => Self::Joined,
            _ => Self::Got { ranges: ranges(r)? },
        })
    }

    fn of_shares(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = usize::try_from(r.varint()?).ok();
        let count = count.filter(|n| *n <= SHARES);
        let count = count.ok_or(DecodeError::Malformed("number of shares"))?;
        let mut shares = Vec::new();
        for _ in 0..count {
            let (name, word) = (text(r)?, text(r)?);
            let access = str::from_utf8(&word).ok().and_then(Access::parse);
            let access = access.ok_or(DecodeError::Malformed("access to a share"))?;
            shares.push(Shared { name, access });
        }
        Ok(Self::Shares(shares))
    }

    fn of_probes(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            28 => Self::WantProbe {
                millis: r.varint()?,
                fetch: flag(r)?,
            },
            29 => Self::Probe {
                millis: r.varint()?,
                bps: r.varint()?,
            },
            30 => Self::WantDisk { share: text(r)? },
            _ => Self::Disk {
                bytes: r.varint()?,
                write_bps: r.varint()?,
                read_bps: r.varint()?,
            },
        })
    }
}
