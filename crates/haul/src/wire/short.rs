//! Head of a datagram once the handshake is done: nine bytes in clear. They are flags, the
//! receiver's connection id, and the low half of the packet number, authenticated as associated
//! data.

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    seq::Wrap,
};

/// Bytes of the header.
pub const LEN: usize = 9;
const SHORT: u8 = 0x40;
const PHASE: u8 = 0x01;

/// Header of a sealed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Parity of the sender's key updates.
    pub phase: bool,
    /// Connection id of the receiver of the datagram.
    pub to: u32,
    /// Low half of the packet number.
    pub number: u32,
}

impl Short {
    /// True if a datagram with this first byte is of this kind.
    pub const fn is(first: u8) -> bool {
        first & !PHASE == SHORT
    }

    /// Decodes the header.
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(datagram);
        let first = r.u8()?;
        if !Self::is(first) {
            return Err(DecodeError::Malformed("sealed datagram"));
        }
        Ok(Self {
            phase: first & PHASE != 0,
            to: r.u32()?,
            number: r.u32()?,
        })
    }

    /// Encodes the header.
    pub fn encode(self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u8(SHORT | u8::from(self.phase))?;
        w.u32(self.to)?;
        w.u32(self.number)
    }
}

/// The number nearest to `expected` whose low half is `low`.
pub const fn expand(low: u32, expected: u64) -> u64 {
    Wrap::<{ 1 << 32 }>::expand(low, expected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn expansion_finds_what_is_near(expected in 0..1_u64 << 60, by in -0x7fff_ffff_i64..0x7fff_ffff) {
            let number = expected.saturating_add_signed(by);
            let low = u32::try_from(number & 0xffff_ffff).unwrap();
            prop_assert_eq!(expand(low, expected), number);
        }

        #[test]
        fn headers_survive(phase: bool, to: u32, number: u32) {
            let mut bytes = [0; LEN];
            let short = Short { phase, to, number };
            short.encode(&mut Writer::new(&mut bytes)).unwrap();
            prop_assert_eq!(Short::decode(&bytes), Ok(short));
        }
    }
}
