//! Reads and writes the fields of messages.

use std::ops::Range;

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use crate::wire::{Exit, limits::TEXT};

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
    pub(super) fn ranges(&mut self, ranges: &[Range<u64>]) {
        self.varint(ranges.len() as u64);
        let mut at = 0;
        for r in ranges {
            self.varint(r.start - at);
            self.varint(r.end - r.start);
            at = r.end;
        }
    }

    pub(super) fn paths(&mut self, paths: &[Vec<u8>]) {
        self.varint(paths.len() as u64);
        for path in paths {
            self.prefixed(path);
        }
    }
}

pub(super) fn version(r: &mut Reader<'_>) -> Result<u16, DecodeError> {
    u16::try_from(r.varint()?).map_err(|_| DecodeError::Malformed("version"))
}

pub(super) fn flag(r: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Malformed("flag")),
    }
}

/// The bit of a flag among others, if it is set.
pub(super) const fn bit(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

pub(super) fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], DecodeError> {
    r.take(N)?.try_into().map_err(|_| DecodeError::Truncated)
}

pub(super) fn text(r: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    match r.prefixed()? {
        text if text.len() <= TEXT => Ok(text.to_vec()),
        _ => Err(DecodeError::Malformed("text too long")),
    }
}

pub(super) fn paths(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let count = r.varint()?;
    (0..count).map(|_| text(r)).collect()
}

pub(super) fn code(r: &mut Reader<'_>) -> Result<Exit, DecodeError> {
    Exit::from_number(r.u8()?).ok_or(DecodeError::Malformed("code"))
}

/// Decodes the code with which an end refused or gave up; never success.
pub(super) fn failure(r: &mut Reader<'_>) -> Result<Exit, DecodeError> {
    let code = code(r)?;
    if code == Exit::Ok {
        return Err(DecodeError::Malformed("failure without a reason"));
    }
    Ok(code)
}

pub(super) fn ranges(r: &mut Reader<'_>) -> Result<Vec<Range<u64>>, DecodeError> {
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
