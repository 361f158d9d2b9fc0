//! Carries the control channel where there is no control lane, in datagrams of its own. Bytes go by
//! offset, acknowledged cumulatively, sent again from the oldest on after a silence (go-back-N).
//! The channel is for control messages, not for bulk: at most [`WINDOW`] bytes per round trip.
//!
//! Invariant: the receiver keeps nothing that is out of order.

use std::{collections::VecDeque, time::Duration};

use crate::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    time::Instant,
};

/// Bytes that may be unacknowledged.
const WINDOW: u64 = 256 << 10;
/// Bytes of acknowledgement and offset.
const HEADER: usize = 16;
/// The first pause before bytes are sent again is two round trips, but at least this.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// Both directions of the channel.
#[derive(Debug)]
pub(super) struct InBand {
    /// Bytes from `acked` on.
    out: VecDeque<u8>,
    acked: u64,
    sent: u64,
    /// Highest offset ever sent: bytes sent again may be acknowledged before.
    ever: u64,
    received: u64,
    /// True if an acknowledgement is due.
    owed: bool,
    rtt: Duration,
    /// Time at which the oldest byte is sent again, and how often it was in a row.
    again: Option<Instant>,
    backoff: u32,
}

impl InBand {
    pub(super) fn new(rtt: Duration) -> Self {
        Self {
            out: VecDeque::new(),
            acked: 0,
            sent: 0,
            ever: 0,
            received: 0,
            owed: false,
            rtt,
            again: None,
            backoff: 0,
        }
    }

    /// An answer takes `rtt`.
    pub(super) const fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// Bytes that may be appended now.
    pub(super) fn room(&self) -> usize {
        usize::try_from(WINDOW)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.out.len())
    }

    /// Appends to what leaves.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    /// Makes an acknowledgement due, whatever its content.
    pub(super) const fn answer(&mut self) {
        self.owed = true;
    }

    fn pause(&self) -> Duration {
        let pause = (self.rtt * 2).max(LEAST_PAUSE);
        (pause * (1 << self.backoff.min(5))).min(MOST_PAUSE.max(self.rtt * 2))
    }

    /// A datagram of the channel; the bytes that are next.
    pub(super) fn on_datagram<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        let mut r = Reader::new(bytes);
        let (acked, offset) = (r.u64()?, r.u64()?);
        if acked > self.ever {
            return Err(DecodeError::Malformed("control bytes never sent"));
        }
        if acked > self.acked {
            let n = usize::try_from(acked - self.acked).unwrap_or(usize::MAX);
            self.out.drain(..n);
            self.acked = acked;
            self.sent = self.sent.max(acked);
            self.backoff = 0;
            self.again = (self.sent > acked).then(|| now + self.pause());
        }
        let bytes = r.rest();
        self.owed |= !bytes.is_empty();
        let Some(known) = self.received.checked_sub(offset) else {
            return Ok(&[]);
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let news = bytes.get(known..).unwrap_or_default();
        self.received += news.len() as u64;
        Ok(news)
    }

    /// True if a datagram is due.
    pub(super) fn is_due(&self) -> bool {
        self.owed || self.acked + self.out.len() as u64 > self.sent
    }

    /// Time at which bytes are sent again.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.again
    }

    /// Sends again what is unacknowledged, as nothing came for too long.
    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
            self.backoff += 1;
            self.sent = self.acked;
        }
    }

    /// Writes the next datagram; false if none is due.
    pub(super) fn write(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        if !self.is_due() {
            return Ok(false);
        }
        let waits = self.acked + self.out.len() as u64 - self.sent;
        let room = w.room().saturating_sub(HEADER);
        let n = usize::try_from(waits).unwrap_or(usize::MAX).min(room);
        w.u64(self.received)?;
        w.u64(self.sent)?;
        let at = usize::try_from(self.sent - self.acked).unwrap_or(usize::MAX);
        let (a, b) = self.out.as_slices();
        let first = a.get(at..a.len().min(at + n)).unwrap_or_default();
        w.put(first)?;
        let from = at.saturating_sub(a.len());
        w.put(b.get(from..from + n - first.len()).unwrap_or_default())?;
        self.sent += n as u64;
        self.ever = self.ever.max(self.sent);
        self.owed = false;
        if n > 0 && self.again.is_none() {
            self.again = Some(now + self.pause());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    proptest! {
        /// Whatever is lost, the bytes arrive in order once.
        #[test]
        fn bytes_arrive_in_order(
            writes in proptest::collection::vec(1_usize..5_000, 1..20),
            fates in proptest::collection::vec(0_u8..5, 200),
        ) {
            let (mut a, mut b) = (InBand::new(RTT), InBand::new(RTT));
            let (mut written, mut read): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
            let (mut writes, mut fates) = (writes.into_iter(), fates.into_iter());
            // Each of the fates may cost the longest pause.
            for turn in 0_u64..30_000 {
                if writes.len() == 0 && a.out.is_empty() && a.deadline().is_none() {
                    break;
                }
                let now = Instant::from_nanos(10_000_000 * turn);
                if let Some(n) = writes.next() {
                    let bytes: Vec<u8> = (0..n).map(|i| u8::try_from((written.len() + i) % 251).unwrap()).collect();
                    a.push(&bytes);
                    written.extend(bytes);
                }
                for back in [false, true] {
                    let (from, to) = if back { (&mut b, &mut a) } else { (&mut a, &mut b) };
                    from.on_timer(now);
                    let mut datagram = [0; 600];
                    let mut w = Writer::new(&mut datagram);
                    while from.write(now, &mut w).unwrap() {
                        let len = w.len();
                        let times = match fates.next().unwrap_or(4) {
                            0 | 1 => 0,
                            2 => 2,
                            _ => 1,
                        };
                        for _ in 0..times {
                            let news = to.on_datagram(now, &datagram[..len]).unwrap();
                            if !back {
                                read.extend(news);
                            }
                        }
                        w = Writer::new(&mut datagram);
                    }
                }
            }
            prop_assert!(a.out.is_empty() && a.deadline().is_none());
            prop_assert_eq!(read, written);
        }

        #[test]
        fn anything_may_arrive(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut channel = InBand::new(RTT);
            channel.push(&[7; 40]);
            let before = channel.out.len();
            if channel.on_datagram(Instant::EPOCH, &bytes).is_ok() {
                prop_assert_eq!(channel.out.len(), before, "nothing was sent");
            }
        }
    }
}
