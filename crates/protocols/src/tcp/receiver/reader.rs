//! Models an application that takes what arrived no faster than at a rate. It reads one piece after
//! the other; a piece occupies the buffer until it is read.

use farhaul_core::{time::Instant, units::Rate};

use crate::tcp::Profile;

/// Bytes of one read: the default of iperf, with which Iwanaga et al. measured.
const PIECE: u64 = 8 << 10;

/// The application behind a receiver.
#[derive(Debug)]
pub(super) struct Reader {
    /// None: what arrives is read at once.
    rate: Option<Rate>,
    unread: u64,
    /// Time at which the read under way ends, and its bytes.
    reading: Option<(Instant, u64)>,
}

impl Reader {
    pub(super) const fn new(profile: &Profile) -> Self {
        Self {
            rate: profile.reads_at,
            unread: 0,
            reading: None,
        }
    }

    /// Bytes that arrived in order and are not read.
    pub(super) const fn unread(&self) -> u64 {
        self.unread
    }

    /// `bytes` arrived in order.
    pub(super) fn arrived(&mut self, now: Instant, bytes: u64) {
        if let Some(rate) = self.rate {
            self.unread += bytes;
            if self.reading.is_none() {
                self.begin(now, rate);
            }
        }
    }

    /// True if a read ended, as of which there is more room.
    pub(super) fn read(&mut self, now: Instant) -> bool {
        let ended = self.reading.filter(|(at, _)| *at <= now);
        let Some(((at, piece), rate)) = ended.zip(self.rate) else {
            return false;
        };
        self.unread -= piece;
        self.begin(at, rate);
        true
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.reading.map(|(at, _)| at)
    }

    fn begin(&mut self, at: Instant, rate: Rate) {
        let piece = self.unread.min(PIECE);
        self.reading = (piece > 0).then(|| (at + rate.time_for(piece), piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::PROFILES;

    #[test]
    fn a_slow_application_reads_at_its_rate_and_empties_the_buffer() {
        let mut reader = Reader::new(&Profile {
            reads_at: Some(Rate::mbit(200)),
            ..PROFILES[0]
        });
        reader.arrived(Instant::EPOCH, 25_000_000);
        let (mut reads, mut last) = (0, Instant::EPOCH);
        while let Some(at) = reader.due() {
            assert!(!reader.read(Instant::from_nanos(at.as_nanos() - 1)));
            assert!(reader.read(at));
            (reads, last) = (reads + 1, at);
        }
        assert_eq!(
            (reader.unread(), reads),
            (0, 25_000_000_u64.div_ceil(PIECE))
        );
        let took = last.since(Instant::EPOCH).as_secs_f64();
        assert!((took - 1.0).abs() < 1e-3, "{took} s");
    }

    #[test]
    fn others_read_at_once() {
        let mut reader = Reader::new(&PROFILES[0]);
        reader.arrived(Instant::EPOCH, 25_000_000);
        assert_eq!((reader.unread(), reader.due()), (0, None));
    }
}
