//! Format of packets after the header.
//!
//! - data: position u64, object u32, offset u64, payload
//! - report: end of the prefix u64, end of the newest u64, then spans missing (position u64, length u64)

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer};

pub(super) const REPORT: u8 = 0x49;

/// Bytes of a data packet before its payload.
pub(super) const DATA_HEADER: usize = 20;
/// The longest report.
pub(super) const MAX_REPORT: usize = 1_200;

/// Header of a data packet before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) position: u64,
    pub(super) object: u32,
    pub(super) offset: u64,
}

impl Data {
    pub(super) fn put(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u64(self.position)?;
        w.u32(self.object)?;
        w.u64(self.offset)
    }

    /// Reads the bytes behind the head.
    pub(super) fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            position: r.u64()?,
            object: r.u32()?,
            offset: r.u64()?,
        })
    }
}
