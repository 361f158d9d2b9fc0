//! Datagrams that open a session. They have the top bit set: version and both connection ids in
//! clear, then what the kind needs. The first 13 bytes mean the same in every version.

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer};

use super::VERSIONS;

/// Set in the first byte of every long datagram.
pub const LONG: u8 = 0x80;
/// Bytes before the kind's own fields.
pub const HEAD: usize = 13;
/// The longest token a server may hand out.
pub const MAX_TOKEN: usize = 256;

/// Connection ids of sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Protocol version; 0 in a list of versions.
    pub version: u32,
    /// Connection id of the receiver of the datagram; 0 while unknown.
    pub to: u32,
    /// Connection id of its sender.
    pub from: u32,
}

/// The kinds of long datagram. What follows is sealed payload and tag, if the kind has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Client of version 3: here I am; padded with zeros.
    Hello {
        /// Counts the client's tries; echoed, so that the answer gives an rtt.
        attempt: u8,
    },
    /// Server: prove that you are there.
    Retry {
        /// Attempt of the hello that the retry answers, or the packet number of the initial.
        attempt: u8,
        /// Token, to be returned in every [`Self::Initial`].
        token: &'a [u8],
    },
    /// First handshake messages, under keys that anyone can derive.
    Initial {
        /// The server's token; empty from a server, and from a client that has none.
        token: &'a [u8],
        /// Packet number.
        number: u8,
    },
    /// Handshake messages under handshake keys.
    Handshake {
        /// Packet number.
        number: u8,
    },
    /// Server: the supported versions, big-endian, four bytes each.
    Versions {
        /// The list.
        list: &'a [u8],
    },
    /// A datagram of a version that this side does not support.
    Unknown,
}

impl Kind<'_> {
    const fn code(&self) -> u8 {
        match self {
            Self::Hello { .. } => 0,
            Self::Retry { .. } => 1,
            Self::Initial { .. } => 2,
            Self::Handshake { .. } => 3,
            Self::Versions { .. } => 4,
            Self::Unknown => 0x7f,
        }
    }
}

/// The receiver's connection id, if `datagram` is long enough to be one of ours.
pub fn destination(datagram: &[u8]) -> Option<u32> {
    let mut r = Reader::new(datagram.get(5..HEAD)?);
    r.u32().ok()
}

/// Decodes the clear part of a long datagram; also returns its length.
pub fn decode(datagram: &[u8]) -> Result<(Head, Kind<'_>, usize), DecodeError> {
    decode_any(datagram, VERSIONS)
}

/// Decodes a datagram as a side that supports `versions` does.
pub(crate) fn decode_any<'a>(
    datagram: &'a [u8],
    versions: &[u32],
) -> Result<(Head, Kind<'a>, usize), DecodeError> {
    let mut r = Reader::new(datagram);
    let first = r.u8()?;
    if first & LONG == 0 {
        return Err(DecodeError::Malformed("long datagram"));
    }
    let head = Head {
        version: r.u32()?,
        to: r.u32()?,
        from: r.u32()?,
    };
    let kind = match (first & !LONG, head.version) {
        (4, 0) => Kind::Versions {
            list: r.take(r.rest().len())?,
        },
        (_, version) if !versions.contains(&version) => Kind::Unknown,
        (0, _) => Kind::Hello { attempt: r.u8()? },
        (1, _) => Kind::Retry {
            attempt: r.u8()?,
            token: token(&mut r)?,
        },
        (2, _) => Kind::Initial {
            token: token(&mut r)?,
            number: r.u8()?,
        },
        (3, _) => Kind::Handshake { number: r.u8()? },
        _ => return Err(DecodeError::Malformed("kind of long datagram")),
    };
    Ok((head, kind, datagram.len() - r.rest().len()))
}

fn token<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let token = r.prefixed()?;
    if token.len() > MAX_TOKEN {
        return Err(DecodeError::Malformed("token"));
    }
    Ok(token)
}

/// Encodes the clear part of a long datagram.
pub fn encode(w: &mut Writer<'_>, head: Head, kind: &Kind<'_>) -> Result<(), NoRoom> {
    w.u8(LONG | kind.code())?;
    w.u32(head.version)?;
    w.u32(head.to)?;
    w.u32(head.from)?;
    match kind {
        Kind::Hello { attempt } => w.u8(*attempt),
        Kind::Retry { attempt, token } => {
            w.u8(*attempt)?;
            w.prefixed(token)
        }
        Kind::Initial { token, number } => {
            w.prefixed(token)?;
            w.u8(*number)
        }
        Kind::Handshake { number } => w.u8(*number),
        Kind::Versions { list } => w.put(list),
        Kind::Unknown => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_never_panic(kind in 0_u8..8, ours: bool, mut data in proptest::collection::vec(any::<u8>(), 1..400)) {
            data[0] = LONG | kind;
            if ours && data.len() >= 5 {
                data[1..5].copy_from_slice(&VERSIONS[0].to_be_bytes());
            }
            let _ = destination(&data);
            if let Ok((head, kind, at)) = decode(&data) {
                let mut out = [0; 500];
                let mut w = Writer::new(&mut out);
                encode(&mut w, head, &kind).unwrap();
                let n = w.len();
                prop_assert!(n <= at);
                if !matches!(kind, Kind::Unknown) {
                    let (again, same, _) = decode(&out[..n]).unwrap();
                    prop_assert_eq!((again, same), (head, kind));
                }
            }
        }
    }
}
