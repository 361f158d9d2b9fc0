//! Sizes the receiver's window: fixed, or growing to twice what the application read in a round
//! trip (dynamic right-sizing, Fisk and Feng 2001). An announced window is never taken back (RFC
//! 9293 §3.8.6).

use std::time::Duration;

use farhaul_core::time::Instant;

use super::reader::Reader;
use crate::tcp::{Growth, Profile, wire::MAX_SHIFT};

/// First size of a growing window, bytes.
const START: u64 = 65_535;

/// The announced window.
#[derive(Debug)]
pub(crate) struct Window {
    limit: u64,
    growth: Growth,
    datagram: u64,
    /// Size that the buffer has grown to.
    size: u64,
    /// Most of the size that is announced ([`Growth::Ramped`]).
    ramp: u64,
    /// One past the highest sequence number announced.
    announced: u64,
    /// Bytes of the stream in order that the session has not read.
    stream: u64,
    /// The application, which may be slow to read all that is in order.
    reader: Reader,
    /// Smoothed rtt, µs.
    rtt_us: Option<u64>,
    /// Time at which the current measure began, and at which sequence number.
    since: Option<(Instant, u64)>,
    /// Bytes read in the last measured round trip.
    read: u64,
}

impl Window {
    pub(crate) fn new(profile: &Profile, datagram: u64) -> Self {
        let limit = profile.window.max(2 * datagram);
        let size = match profile.growth {
            // A ramp has a buffer behind it that was set by hand.
            Growth::Fixed | Growth::Ramped => limit,
            Growth::Autotuned => START.max(10 * datagram).min(limit),
        };
        let ramp = match profile.growth {
            Growth::Fixed | Growth::Autotuned => u64::MAX,
            Growth::Ramped => (4 * datagram).min(limit),
        };
        Self {
            limit,
            growth: profile.growth,
            datagram,
            size,
            ramp,
            announced: size.min(ramp).min(u64::from(u16::MAX)),
            stream: 0,
            reader: Reader::new(profile),
            rtt_us: None,
            since: None,
            read: 0,
        }
    }

    /// Bits by which announced windows are shifted: no more than the limit needs.
    pub(crate) fn shift(&self) -> u8 {
        let needed = (0..=MAX_SHIFT).find(|s| u16::try_from(self.limit >> s).is_ok());
        needed.unwrap_or(MAX_SHIFT)
    }

    pub(crate) const fn announced(&self) -> u64 {
        self.announced
    }

    /// Announces: one past the highest sequence number taken when everything below `next` arrived.
    pub(crate) fn edge(&mut self, next: u64) -> u64 {
        // Whole units of the shift, so that the peer sees what is meant.
        let unit = 1_u64 << self.shift();
        let edge = next + self.room() / unit * unit;
        self.announced = self.announced.max(edge);
        self.announced
    }

    /// Bytes that could be announced.
    fn room(&self) -> u64 {
        let size = self.size.min(self.ramp);
        // What a slow application has to read holds the stream's bytes, too.
        size.saturating_sub(self.stream.max(self.reader.unread()))
    }

    /// True if a read of a slow application ended.
    pub(crate) fn reads(&mut self, now: Instant) -> bool {
        self.reader.read(now)
    }

    /// Time at which the next such read ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.reader.due()
    }

    /// True if what a slow application read is worth an announcement: two segments, as BSD's
    /// receivers have it.
    pub(crate) fn opens(&self, next: u64) -> bool {
        next + self.room() >= self.announced + 2 * self.datagram
    }

    pub(crate) const fn set_unread(&mut self, stream: u64) {
        self.stream = stream;
    }

    /// Notes that the application read; true if the peer should learn that more is taken (RFC 9293
    /// §3.8.6.2.2).
    pub(crate) fn on_read(&mut self, next: u64, stream: u64) -> bool {
        self.stream = stream;
        let open = self.announced.saturating_sub(next);
        let could = self.room();
        let worth = self.datagram.min(self.limit / 2).max(1);
        open < 2 * self.datagram && could >= open + worth
    }

    /// Notes that `bytes` arrived in order up to `next`; `steady` if no hole was filled. True if
    /// the ramp rose.
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        next: u64,
        bytes: u64,
        rtt_us: Option<u32>,
        steady: bool,
    ) -> bool {
        self.reader.arrived(now, bytes);
        if self.growth == Growth::Fixed {
            return false;
        }
        if let Some(sample) = rtt_us.map(u64::from) {
            let smoothed = self.rtt_us.map_or(sample, |rtt| (rtt * 7 + sample) / 8);
            self.rtt_us = Some(smoothed.max(1));
        }
        self.resize(now, next - self.reader.unread());
        let rises = self.growth == Growth::Ramped && steady && self.ramp < self.size;
        if rises {
            self.ramp = (self.ramp + 2 * bytes.min(self.datagram)).min(self.size);
        }
        rises
    }

    /// Resizes the window once per round trip; the application read everything below `end`.
    fn resize(&mut self, now: Instant, end: u64) {
        let (began, start) = *self.since.get_or_insert((now, end));
        let Some(rtt) = self.rtt_us.map(Duration::from_micros) else {
            return;
        };
        if now.since(began) < rtt {
            return;
        }
        let read = end - start;
        if read > self.read {
            let mut size = 2 * read + 16 * self.datagram;
            if self.growth == Growth::Autotuned && self.read > 0 {
                let more = u128::from(size) * u128::from(read - self.read) / u128::from(self.read);
                let more = u64::try_from(more).unwrap_or(u64::MAX);
                size = size.saturating_add(more.saturating_mul(2));
            }
            self.size = self.size.max(size.min(self.limit));
            self.read = read;
        }
        self.since = Some((now, end));
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Rate;

    use super::*;
    use crate::tcp::PROFILES;

    #[test]
    fn stream_bytes_behind_a_slow_application_count_once() {
        let profile = Profile {
            window: 100_000,
            growth: Growth::Fixed,
            reads_at: Some(Rate::mbit(1)),
            ..PROFILES[0]
        };
        let mut window = Window::new(&profile, 1_000);
        window.set_unread(10_000);
        window.on_data(Instant::EPOCH, 10_000, 10_000, None, true);
        assert_eq!(window.edge(10_000), 100_000);
        // The session read them, the application did not.
        window.on_read(10_000, 0);
        assert_eq!(window.edge(10_000), 100_000);
    }
}
