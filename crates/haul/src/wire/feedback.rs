//! Codes a receiver's report on thousands of packets in a few bytes. Runs, arrived and missing in
//! turn, go downwards from the highest, each a Rice code. The code has the length less one, divided
//! by 2^k, the quotient in unary and the remainder in k bits, with one k for arrivals and one for
//! gaps. Under random loss that code is within a tenth of the entropy; 2 % loss costs about nine
//! bits a hole.
//!
//! Values that grow without end (packet numbers, bytes, the clock) are sent as their low bits. The
//! sender, who knows about where they stand, completes them.

use farhaul_core::{
    arq::Report,
    codec::{DecodeError, NoRoom, Reader, Writer},
};

use super::short::expand;

/// Quotients from here on are sent as the whole value in [`RAW`] bits.
const ESCAPE: u32 = 16;
const RAW: u32 = 32;
const MAX_K: u32 = 15;
/// The most bytes of range code in one report.
const MAX_BITS: usize = 1_100;
/// The most bytes before the range code: type, numbers, count, parameters, length.
pub const FIXED: usize = 1 + 4 + 8 + 4 + 6 + 8 + 8 + 2 + 1 + 2;
/// Room is reported in these units.
const ROOM_UNIT: u64 = 1 << 10;
/// Most units of room, and one more.
const MOST_ROOM: u64 = (1 << 54) - 1;

/// A report as encoded in the datagram; see [`Report`] for the meaning of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// Low 32 bits.
    pub largest: u32,
    /// µs.
    pub delay_us: u64,
    /// Low 32 bits of µs.
    pub arrived_us: u32,
    /// Low 48 bits.
    pub bytes: u64,
    /// Count of marks, all its bits.
    pub ce: u64,
    /// Whole KiB that the store can take and one more; 0 if it takes everything.
    pub room: u64,
    /// Runs in the code.
    pub count: u64,
    /// Rice parameters: arrivals in the high half, gaps in the low half.
    pub rice: u8,
    /// The code.
    pub code: &'a [u8],
}

/// The sender's values from which low bits are completed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Packet number that the sender will use next.
    pub next: u64,
    /// Last `arrived_us` that was completed.
    pub arrived_us: u64,
    /// Last `bytes` that was completed.
    pub bytes: u64,
}

impl<'a> Feedback<'a> {
    /// Decodes what follows the type byte.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let largest = r.u32()?;
        let delay_us = r.varint()?;
        let arrived_us = r.u32()?;
        let bytes = u64::from(r.u16()?) << 32 | u64::from(r.u32()?);
        let ce = r.varint()?;
        let room = r.varint()?;
        let count = r.varint()?;
        let rice = r.u8()?;
        let code = r.prefixed()?;
        if room > MOST_ROOM {
            return Err(DecodeError::Malformed("feedback room"));
        }
        // One run takes at least one bit.
        if count == 0 || count > code.len() as u64 * 8 {
            return Err(DecodeError::Malformed("feedback count"));
        }
        Ok(Self {
            largest,
            delay_us,
            arrived_us,
            bytes,
            ce,
            room,
            count,
            rice,
            code,
        })
    }

    /// Completes the report; `into` keeps its allocation.
    pub fn complete(&self, known: &mut Known, into: &mut Report) -> Result<(), DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("feedback runs");
        into.largest = expand(self.largest, known.next);
        into.delay_us = self.delay_us;
        into.ce = self.ce;
        let units = self.room.checked_sub(1);
        into.room = units.map(|units| units * ROOM_UNIT);
        into.runs.clear();
        let mut bits = Bits::new(self.code);
        let mut next = into.largest.checked_add(1).ok_or(BAD)?;
        for i in 0..self.count {
            let shift = if i % 2 == 0 { 4 } else { 0 };
            let run = bits.rice(u32::from(self.rice >> shift & 15)).ok_or(BAD)? + 1;
            next = next.checked_sub(run).ok_or(BAD)?;
            into.runs.push(run);
        }
        into.from = next;
        if into.largest >= known.next {
            return Err(DecodeError::Malformed("feedback on packets never sent"));
        }
        into.arrived_us = expand(self.arrived_us, known.arrived_us);
        into.bytes = expand48(self.bytes, known.bytes);
        known.arrived_us = known.arrived_us.max(into.arrived_us);
        known.bytes = known.bytes.max(into.bytes);
        Ok(())
    }
}

/// The number nearest to `expected` that ends in `low`; neither below 0 nor beyond 64 bits.
const fn expand48(low: u64, expected: u64) -> u64 {
    const WHOLE: u64 = 1 << 48;
    let candidate = (expected & !(WHOLE - 1)) | low;
    let off = candidate.abs_diff(expected);
    let other = if candidate <= expected && off >= WHOLE / 2 {
        candidate.checked_add(WHOLE)
    } else if candidate > expected && off > WHOLE / 2 {
        candidate.checked_sub(WHOLE)
    } else {
        None
    };
    match other {
        Some(nearer) => nearer,
        None => candidate,
    }
}

/// Encodes what follows the type byte. If the room is too small the lowest runs are left out; the
/// sender sees them as not reported.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low halves are meant; Rice parameters have four bits"
)]
pub fn encode(w: &mut Writer<'_>, report: &Report) -> Result<(), NoRoom> {
    let room = w.room().checked_sub(FIXED - 1).ok_or(NoRoom)?;
    let mut code = [0; MAX_BITS];
    let k = [parameter(&report.runs, 0), parameter(&report.runs, 1)];
    let room = room.min(MAX_BITS);
    let (mut at, mut count) = (0, 0_u64);
    for (i, run) in report.runs.iter().enumerate() {
        let Some(end) = put_rice(&mut code[..room], at, run - 1, k[i % 2]) else {
            break;
        };
        at = end;
        count += 1;
    }
    w.u32(report.largest as u32)?;
    w.varint(report.delay_us)?;
    w.u32(report.arrived_us as u32)?;
    w.u16((report.bytes >> 32) as u16)?;
    w.u32(report.bytes as u32)?;
    w.varint(report.ce)?;
    let room = report
        .room
        .map_or(0, |room| (room / ROOM_UNIT + 1).min(MOST_ROOM));
    w.varint(room)?;
    w.varint(count)?;
    w.u8((k[0] << 4 | k[1]) as u8)?;
    w.prefixed(&code[..at.div_ceil(8)])
}

/// The Rice parameter for every other run from `first` on: about log2 of the mean.
fn parameter(runs: &[u64], first: usize) -> u32 {
    let mine = runs.iter().skip(first).step_by(2);
    let count = mine.len() as u64;
    let sum: u64 = mine.map(|r| r - 1).sum();
    if count == 0 || sum < count {
        return 0;
    }
    // The mean of a geometric variable times ln 2.
    (sum * 7 / (count * 10)).max(1).ilog2().min(MAX_K)
}

/// Writes one value at bit `at`; the new position, or `None` if it does not fit.
fn put_rice(code: &mut [u8], at: usize, value: u64, k: u32) -> Option<usize> {
    let quotient = value >> k;
    let (ones, tail, bits) = if quotient < u64::from(ESCAPE) {
        let low = value & ((1 << k) - 1);
        // The zero that ends the unary part is the top bit of the tail.
        (quotient, low, k + 1)
    } else if value < 1 << RAW {
        (u64::from(ESCAPE), value, RAW)
    } else {
        return None;
    };
    let ones = u32::try_from(ones).ok()?;
    let end = at + (ones + bits) as usize;
    if end > code.len() * 8 {
        return None;
    }
    let word = ((1_u64 << ones) - 1) << bits | tail;
    for i in 0..ones + bits {
        let bit = word >> (ones + bits - 1 - i) & 1;
        let place = at + i as usize;
        code[place / 8] |= u8::from(bit == 1) << (7 - place % 8);
    }
    Some(end)
}

struct Bits<'a> {
    code: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    const fn new(code: &'a [u8]) -> Self {
        Self { code, at: 0 }
    }

    fn bit(&mut self) -> Option<u64> {
        let byte = *self.code.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(u64::from(bit))
    }

    fn bits(&mut self, n: u32) -> Option<u64> {
        let mut value = 0;
        for _ in 0..n {
            value = value << 1 | self.bit()?;
        }
        Some(value)
    }

    fn rice(&mut self, k: u32) -> Option<u64> {
        let mut quotient = 0;
        while self.bit()? == 1 {
            quotient += 1;
            if quotient == ESCAPE {
                return self.bits(RAW);
            }
        }
        Some(u64::from(quotient) << k | self.bits(k)?)
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(report: &Report, next: u64) -> Report {
        let mut bytes = [0; 1_200];
        let mut w = Writer::new(&mut bytes);
        encode(&mut w, report).unwrap();
        let n = w.len();
        let mut r = Reader::new(&bytes[..n]);
        let feedback = Feedback::decode(&mut r).unwrap();
        assert!(r.is_empty());
        let mut out = Report::default();
        let mut known = Known {
            next,
            arrived_us: report.arrived_us.saturating_sub(1_000),
            bytes: report.bytes.saturating_sub(100_000),
        };
        feedback.complete(&mut known, &mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn reports_survive(
            runs in proptest::collection::vec(prop_oneof![1_u64..5, 1_u64..200, 1_u64..4_000_000], 1..300),
            ahead in 0_u64..3_000_000, delay_us in 0_u64..1_000_000,
            arrived_us in 0..1_u64 << 60, bytes in 0..1_u64 << 60, ce in 0..1_u64 << 60,
            room in proptest::option::of(0..1_u64 << 40),
        ) {
            let sum: u64 = runs.iter().sum();
            let report = Report { from: 5, largest: sum + 4, delay_us, arrived_us, bytes, ce, room, runs };
            let out = there_and_back(&report, report.largest + 1 + ahead);
            prop_assert!(report.runs.starts_with(&out.runs));
            prop_assert!(out.runs.len() == report.runs.len() || out.runs.len() > 180);
            let told: u64 = out.runs.iter().sum();
            prop_assert_eq!(out.from, report.largest + 1 - told);
            prop_assert_eq!(
                (out.largest, out.delay_us, out.arrived_us, out.bytes, out.ce, out.room),
                (report.largest, delay_us, arrived_us, bytes, ce, room.map(|room| room >> 10 << 10))
            );
        }

        #[test]
        fn any_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..120), next: u64) {
            if let Ok(feedback) = Feedback::decode(&mut Reader::new(&data)) {
                let mut known = Known { next: next >> 2, ..Known::default() };
                let _ = feedback.complete(&mut known, &mut Report::default());
            }
        }
    }

    /// A peer may advance the known value by half of the range of 48 bits in each report.
    #[test]
    fn bytes_that_only_grow_never_overflow() {
        let mut bytes = u64::MAX - (1 << 49);
        for _ in 0..8 {
            let low = bytes.wrapping_add((1 << 47) - 1) & ((1 << 48) - 1);
            let next = expand48(low, bytes);
            assert_eq!(next & ((1 << 48) - 1), low);
            bytes = bytes.max(next);
        }
        for known in [0, 1 << 47, (1 << 48) - 1, u64::MAX - 1, u64::MAX] {
            for low in [0, 1, 1 << 47, (1 << 47) + 1, (1 << 48) - 1] {
                assert_eq!(expand48(low, known) & ((1 << 48) - 1), low);
            }
        }
    }

    #[test]
    fn two_percent_loss_costs_little_over_a_byte_a_hole() {
        let mut rng = Rng::new(1);
        let mut runs = vec![1];
        let mut missing = false;
        for _ in 0..10_000 {
            if rng.chance(0.02) != missing {
                missing = !missing;
                runs.push(0);
            }
            *runs.last_mut().unwrap() += 1;
        }
        if runs.len().is_multiple_of(2) {
            runs.pop();
        }
        let holes = runs.len() / 2;
        let largest = runs.iter().sum::<u64>() - 1;
        let report = Report {
            largest,
            runs,
            ..Report::default()
        };
        let mut bytes = [0; 1_200];
        let mut w = Writer::new(&mut bytes);
        encode(&mut w, &report).unwrap();
        assert!(
            w.len() * 100 < holes * 115 + 4_000,
            "{} for {holes}",
            w.len()
        );
        assert_eq!(there_and_back(&report, largest + 1), report);
    }
}
