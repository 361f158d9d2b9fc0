//! Offers files of units and requests ranges of units. An offer is a file: runs of bytes, cut into
//! units. Units are numbered on from those of the file before, so that a late unit of one file is
//! never taken for one of the next.

use std::ops::Range;

use crate::{
    codec::{DecodeError, Reader},
    layout::{Layout, MAX_RUNS},
    units::Rate,
};

/// Ranges in a message at most.
pub const MAX_RANGES: usize = 4_096;
/// Lowest rate that a receiver may request.
pub const LEAST_RATE: Rate = Rate::from_bps(64_000);
/// Unit numbers are below this.
const NUMBERS: u64 = 1 << 62;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of its first unit.
    pub first: u64,
    /// Bytes of the file.
    pub layout: Layout,
}

impl Offer {
    /// One past the number of its last unit.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.layout.packets())
    }

    /// Appends the offer: number of the first unit (8 bytes), bytes of a unit (4), the runs.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.first.to_be_bytes());
        into.extend(self.layout.payload().to_be_bytes());
        self.layout.encode_runs(into);
    }

    /// Reads an offer.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("offer");
        let (first, payload) = (r.u64()?, r.u32()?);
        if !(1..=65_535).contains(&payload) {
            return Err(BAD);
        }
        let layout = Layout::decode_runs(r, payload, MAX_RUNS)?;
        let end = first.checked_add(layout.packets()).ok_or(BAD)?;
        if end > NUMBERS {
            return Err(BAD);
        }
        Ok(Self { first, layout })
    }
}

/// Appends ranges: how many (2 bytes; no more than fit that are written), then the first and the last number of
/// each (8 bytes each).
pub fn encode_ranges(ranges: &[Range<u64>], into: &mut Vec<u8>) {
    let count = u16::try_from(ranges.len()).unwrap_or(u16::MAX);
    into.extend(count.to_be_bytes());
    for range in ranges.iter().take(count.into()) {
        into.extend(range.start.to_be_bytes());
        into.extend(range.end.saturating_sub(1).to_be_bytes());
    }
}

/// Reads a rate, 8 bytes: at least [`LEAST_RATE`].
pub fn decode_rate(r: &mut Reader<'_>) -> Result<Rate, DecodeError> {
    let rate = Rate::from_bps(r.u64()?);
    let good = rate >= LEAST_RATE;
    good.then_some(rate).ok_or(DecodeError::Malformed("rate"))
}

/// Reads ranges, at least one and at most [`MAX_RANGES`], none of them empty.
pub fn decode_ranges(r: &mut Reader<'_>) -> Result<Vec<Range<u64>>, DecodeError> {
    const BAD: DecodeError = DecodeError::Malformed("ranges of units");
    let count = usize::from(r.u16()?);
    if count == 0 || count > MAX_RANGES {
        return Err(BAD);
    }
    let mut pairs = Reader::new(r.take(16 * count)?);
    let mut ranges = Vec::with_capacity(count);
    while !pairs.is_empty() {
        let (first, last) = (pairs.u64()?, pairs.u64()?);
        if first > last || last >= NUMBERS {
            return Err(BAD);
        }
        ranges.push(first..last + 1);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Run;

    #[test]
    fn offers_and_ranges_are_what_they_were_and_others_are_refused() {
        let mut layout = Layout::new(100);
        assert!(layout.push(Run {
            object: 7,
            offset: 3,
            len: 250
        }));
        let offer = Offer { first: 9, layout };
        let mut bytes = Vec::new();
        offer.encode(&mut bytes);
        assert_eq!(offer.end(), 12);
        assert_eq!(
            bytes[..16],
            [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 100, 0, 0, 0, 1]
        );
        assert_eq!(Offer::decode(&mut Reader::new(&bytes)), Ok(offer));
        for (at, byte) in [(0, 0xff), (0, 0x40), (8, 1)] {
            let mut bad = bytes.clone();
            bad[at] = byte;
            assert!(Offer::decode(&mut Reader::new(&bad)).is_err());
        }
        let (mut bytes, ranges) = (Vec::new(), [3..4, 9..12]);
        encode_ranges(&ranges, &mut bytes);
        assert_eq!(bytes.len(), 2 + 2 * 16);
        let decode = |bytes: &[u8]| decode_ranges(&mut Reader::new(bytes));
        assert_eq!(decode(&bytes), Ok(ranges.to_vec()));
        assert!(decode(&[0, 0]).is_err() && decode(&[0x10, 1]).is_err());
        assert_eq!(decode(&bytes[..33]), Err(DecodeError::Truncated));
        bytes[9] = 4;
        assert!(decode(&bytes).is_err(), "the last is before the first");
    }
}
