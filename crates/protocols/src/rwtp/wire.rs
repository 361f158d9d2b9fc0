//! Wire format of RWTP's messages, behind type and id. Formats are farhaul's. Nothing is known of
//! the original's but how many bytes of frames its feedback takes, 60 for a status and 64 for a
//! missing packet. Numbers are big-endian.
//!
//! Decoding never panics.

// spec: rwtp §2

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    seq::Wrap,
    shell::Record,
};

/// Numbers of packets on the wire.
pub type Numbers = Wrap<{ 1 << 32 }>;

/// Type of a status.
pub const STATUS: u8 = 0x44;
/// Type of a loss report.
pub const LOSS: u8 = 0x45;
/// Bytes before a packet's data.
pub const HEADER: usize = Record::LEN;
/// Bytes of a status: with type, id and the headers of UDP, IP and Ethernet 60.
pub const STATUS_LEN: usize = 13;
/// Bytes of the word that a packet is missing: with the others 64.
pub const LOSS_LEN: usize = 17;

/// Status that a receiver sends every 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The first packet that is missing, modulo 2^32.
    pub prefix: u32,
    /// One past the last that has arrived.
    pub next: u32,
    /// Time since then, us.
    pub held: u32,
}

impl Status {
    /// Reads the status.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(padded(bytes, STATUS_LEN)?);
        Ok(Self {
            prefix: r.u32()?,
            next: r.u32()?,
            held: r.u32()?,
        })
    }

    /// Writes the status.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(self.prefix)?;
        w.u32(self.next)?;
        w.u32(self.held)?;
        w.put(&[0; STATUS_LEN - 12])
    }
}

/// Reads which packet is missing, modulo 2^32.
pub fn decode_loss(bytes: &[u8]) -> Result<u32, DecodeError> {
    Reader::new(padded(bytes, LOSS_LEN)?).u32()
}

/// Writes the number of a missing packet.
pub fn encode_loss(w: &mut Writer<'_>, number: u32) -> Result<(), NoRoom> {
    w.u32(number)?;
    w.put(&[0; LOSS_LEN - 4])
}

fn padded(bytes: &[u8], len: usize) -> Result<&[u8], DecodeError> {
    if bytes.len() == len {
        Ok(bytes)
    } else {
        Err(DecodeError::Malformed("length"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Printed: 5.6 KiB/GiB without impairment, derived: a frame of 60 bytes each 10 ms and 64 for each
    /// missing packet. 5 bytes are the shell's, 42 those of UDP, IP and Ethernet.
    #[test]
    fn golden_vectors_have_the_lengths_derived_from_what_was_measured() {
        let mut bytes = [9; 17];
        let status = Status {
            prefix: 1,
            next: 0x0203_0405,
            held: 6,
        };
        let mut w = Writer::new(&mut bytes);
        status.encode(&mut w).unwrap();
        assert_eq!((w.len() + 5 + 42, w.len()), (60, STATUS_LEN));
        assert_eq!(bytes[..13], [0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 6, 0]);
        assert_eq!(Status::decode(&bytes[..13]), Ok(status));
        let mut w = Writer::new(&mut bytes);
        encode_loss(&mut w, 0x0102_0304).unwrap();
        assert_eq!(w.len() + 5 + 42, 64);
        assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_loss(&bytes), Ok(0x0102_0304));
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _no_panic = (Status::decode(&bytes), decode_loss(&bytes));
            if let Ok(status) = Status::decode(&bytes) {
                let mut out = [0; STATUS_LEN];
                status.encode(&mut Writer::new(&mut out)).unwrap();
                prop_assert_eq!(&out[..12], &bytes[..12]);
            }
        }
    }
}
