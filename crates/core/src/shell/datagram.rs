//! Datagrams that the shell defines. With a control lane there are two, of 20 bytes. They have a
//! word that no protocol uses as a sequence number, and the token that joins datagrams and lane.
//! Without, all datagrams begin with a type and the session's id in four bytes, and the machine's
//! types are [`MACHINE`].

use std::ops::RangeInclusive;

use crate::{
    codec::{DecodeError, Reader},
    control::Token,
};

/// Client hello: UDP payload of a full datagram (2 bytes), greeting.
pub(super) const HELLO: u8 = 0x40;
/// Listener's answer: the same, preceded by a nonce of 8 bytes that the client has to return.
pub(super) const WELCOME: u8 = 0x41;
/// The client returns the nonce, which validates its address.
pub(super) const READY: u8 = 0x42;
/// A piece of the control channel.
pub(super) const CHANNEL: u8 = 0x43;
/// The last datagram: a code (4 bytes) and text.
pub(super) const CLOSE: u8 = 0x4f;
/// Types of a machine's datagrams.
pub const MACHINE: RangeInclusive<u8> = 0x44..=0x4e;
/// Bytes of type and id, before those of the machine on sessions without a control lane.
pub const HEAD: usize = 5;
/// Bytes of a datagram that joins.
pub(super) const JOIN: usize = 20;

/// Type and id.
pub(super) fn head(datagram: &[u8]) -> Option<(u8, u64)> {
    let mut r = Reader::new(datagram);
    let kind = r.u8().ok()?;
    let id = r.u32().ok()?;
    (HELLO..=CLOSE)
        .contains(&kind)
        .then_some((kind, u64::from(id)))
}

/// Type and id, written.
pub(super) fn write_head(kind: u8, id: u64) -> [u8; HEAD] {
    let [.., a, b, c, d] = id.to_be_bytes();
    [kind, a, b, c, d]
}

/// Datagram that joins a client's datagrams to a control lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// Request: the sender's control lane carries this token.
    Asked(Token),
    /// Confirmation of the token.
    Confirmed(Token),
}

impl Join {
    /// None: a datagram of the machine.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        let (word, token) = datagram.split_first_chunk::<4>()?;
        let token = Token::from_bytes(token.try_into().ok()?);
        match u32::from_be_bytes(*word) {
            0xffff_fff0 => Some(Self::Asked(token)),
            0xffff_fff1 => Some(Self::Confirmed(token)),
            _ => None,
        }
    }

    pub(super) fn encode(self) -> [u8; JOIN] {
        let (word, token): (u32, _) = match self {
            Self::Asked(token) => (0xffff_fff0, token),
            Self::Confirmed(token) => (0xffff_fff1, token),
        };
        let mut bytes = [0; JOIN];
        bytes[..4].copy_from_slice(&word.to_be_bytes());
        bytes[4..].copy_from_slice(&token.bytes());
        bytes
    }
}

/// Size and greeting of a hello.
pub(super) fn hello(bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let mut r = Reader::new(bytes);
    Ok((r.u16()?, r.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn joins_survive_the_wire_and_data_is_none() {
        let token = Token::draw(&mut Rng::new(1));
        for join in [Join::Asked(token), Join::Confirmed(token)] {
            assert_eq!(Join::decode(&join.encode()), Some(join));
        }
        assert_eq!(Join::decode(&[0; JOIN]), None);
        assert_eq!(Join::decode(&[0xff; JOIN + 1]), None);
    }

    #[test]
    fn heads_survive_the_wire() {
        let bytes = write_head(CHANNEL, 0xdead_beef);
        assert_eq!(head(&bytes), Some((CHANNEL, 0xdead_beef)));
        assert_eq!(head(&bytes[..4]), None);
        assert_eq!(head(&[0x50, 0, 0, 0, 0]), None);
    }
}
