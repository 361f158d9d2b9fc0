//! Models the slowest link as a virtual queue. The only state is the instant at which the last
//! accepted byte will have left. The fraction of a nanosecond is carried from packet to packet, so
//! that the rate has no drift. The rate may change on a schedule; a packet in service across a step
//! is served at both rates.

use std::time::Duration;

use farhaul_core::{
    time::{Instant, nanos},
    units::{Rate, Size},
};

use crate::config::{QueueLimit, Step};

/// 1 byte, in bit·ns per second: a link of `r` bit/s serves `r` of these per ns.
const BYTE: u64 = 8_000_000_000;

/// Piece of the schedule: from `from` ns after the epoch the link serves `bps`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: u64,
    bps: u64,
}

/// A first-in-first-out queue in front of a link.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck {
    pieces: Vec<Piece>,
    /// The piece in force at `free`.
    serving: usize,
    /// The piece in force at the last arrival.
    arriving: usize,
    /// ns at which the link becomes idle, and the part of a ns in 1/bps.
    free: u64,
    rest: u64,
    limit: Limit,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    Work(u128),
    Wait(u64),
}

/// Queue that a packet would meet if it were accepted now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Wait of the packet before its service begins, ns.
    pub(crate) wait: u64,
    /// Time at which that service would begin, ns.
    pub(crate) start: u64,
    /// Work in the queue, this packet included.
    pub(crate) work: u128,
    /// True if the packet fits.
    pub(crate) fits: bool,
}

impl Arrival {
    /// Bytes in the queue, this packet included.
    pub(crate) fn queued(&self) -> Size {
        bytes(self.work)
    }
}

fn bytes(work: u128) -> Size {
    Size::from_bytes(u64::try_from(work / u128::from(BYTE)).unwrap_or(u64::MAX))
}

fn work(bytes: u32) -> u64 {
    u64::from(bytes).saturating_mul(BYTE)
}

impl Bottleneck {
    pub(crate) fn new(rate: Rate, steps: &[Step<Rate>], limit: QueueLimit) -> Self {
        let mut pieces = vec![Piece {
            from: 0,
            bps: rate.bps().max(1),
        }];
        pieces.extend(steps.iter().map(|step| Piece {
            from: nanos(step.at),
            bps: step.to.bps().max(1),
        }));
        Self {
            pieces,
            serving: 0,
            arriving: 0,
            free: 0,
            rest: 0,
            limit: match limit {
                QueueLimit::Bytes(size) => Limit::Work(u128::from(size.bytes()) * u128::from(BYTE)),
                QueueLimit::Time(wait) => Limit::Wait(nanos(wait)),
            },
        }
    }

    /// The state of the queue for a packet of `len` bytes.
    pub(crate) fn arrive(&mut self, now: Instant, len: u32) -> Arrival {
        let now = now.as_nanos();
        if now > self.free {
            self.free = now;
            self.rest = 0;
            self.serving = advance(&self.pieces, self.serving, now);
            self.arriving = self.serving;
        } else {
            self.arriving = advance(&self.pieces, self.arriving, now);
        }
        let wait = self.free - now;
        let work = self.backlog_from(now) + u128::from(work(len));
        let fits = match self.limit {
            Limit::Work(limit) => work <= limit,
            Limit::Wait(limit) => wait <= limit,
        };
        Arrival {
            wait,
            start: self.free,
            work,
            fits,
        }
    }

    /// Takes a packet into the queue; returns the time at which its last bit leaves.
    pub(crate) fn accept(&mut self, len: u32) -> Instant {
        let mut left = work(len).saturating_add(self.rest);
        loop {
            let Piece { bps, .. } = self.pieces[self.serving];
            if bps == u64::MAX {
                self.rest = 0;
                break;
            }
            let ns = left / bps;
            match self.pieces.get(self.serving + 1) {
                Some(next) if self.free.saturating_add(ns) >= next.from => {
                    left = left.saturating_sub((next.from - self.free).saturating_mul(bps));
                    self.free = next.from;
                    self.serving += 1;
                }
                _ => {
                    self.free = self.free.saturating_add(ns);
                    self.rest = left % bps;
                    break;
                }
            }
        }
        Instant::from_nanos(self.free)
    }

    /// Bytes in the queue, the one in service included.
    pub(crate) fn backlog(&self, now: Instant) -> Size {
        bytes(self.backlog_from(now.as_nanos()))
    }

    /// The rate in force at the last arrival.
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bps(self.pieces[self.arriving].bps)
    }

    /// Wait of a packet that arrives now.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.free.saturating_sub(now.as_nanos()))
    }

    /// The work the link will do from `now` until it is idle.
    fn backlog_from(&self, now: u64) -> u128 {
        if now >= self.free {
            return 0;
        }
        let mut total = u128::from(self.rest);
        let mut from = now;
        for at in self.arriving..=self.serving {
            let end = match self.pieces.get(at + 1) {
                Some(next) if at < self.serving => next.from,
                _ => self.free,
            };
            total += u128::from(end.saturating_sub(from)) * u128::from(self.pieces[at].bps);
            from = from.max(end);
        }
        total
    }
}

/// The last piece, from `at` on, that has begun at `now`.
fn advance(pieces: &[Piece], mut at: usize, now: u64) -> usize {
    while pieces.get(at + 1).is_some_and(|next| next.from <= now) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rate: Rate, limit: QueueLimit) -> Bottleneck {
        Bottleneck::new(rate, &[], limit)
    }

    #[test]
    fn a_million_packets_leave_at_the_rate_to_one_ppm() {
        for rate in [
            Rate::gbit(10),
            Rate::gbit(40),
            Rate::gbit(100),
            Rate::from_bps(9_999_999_967),
        ] {
            let mut link = link(rate, QueueLimit::Bytes(Size::UNLIMITED));
            let mut last = Instant::EPOCH;
            let mut sent = 0_u64;
            for i in 0..1_000_000_u32 {
                let len = 1_472 + i % 61;
                link.arrive(Instant::EPOCH, len);
                last = link.accept(len);
                sent += u64::from(len);
            }
            let ideal = u128::from(sent) * u128::from(BYTE) / u128::from(rate.bps());
            assert_eq!(u128::from(last.as_nanos()), ideal, "{rate}");
        }
    }

    #[test]
    fn a_rate_step_serves_the_packet_on_the_line_at_both_rates() {
        let steps = [Step {
            at: Duration::from_micros(1),
            to: Rate::gbit(1),
        }];
        let mut link = Bottleneck::new(Rate::gbit(10), &steps, QueueLimit::Bytes(Size::UNLIMITED));
        link.arrive(Instant::EPOCH, 2_500);
        // 1 us at 10 Gbit/s carries 1,250 bytes; the other 1,250 take 10 us at 1 Gbit/s.
        assert_eq!(link.accept(2_500), Instant::from_nanos(11_000));
        assert_eq!(link.backlog(Instant::EPOCH), Size::from_bytes(2_500));
        let at = link.arrive(Instant::from_nanos(1_000), 1_250);
        assert_eq!((at.wait, at.queued()), (10_000, Size::from_bytes(2_500)));
    }

    #[test]
    fn limits_count_bytes_or_time() {
        let mut bytes = link(Rate::gbit(1), QueueLimit::Bytes(Size::from_bytes(3_000)));
        let mut time = link(Rate::gbit(1), QueueLimit::Time(Duration::from_micros(12)));
        for link in [&mut bytes, &mut time] {
            let now = Instant::EPOCH;
            assert!(link.arrive(now, 1_500).fits);
            link.accept(1_500);
            assert!(link.arrive(now, 1_500).fits);
            link.accept(1_500);
            assert!(!link.arrive(now, 1_500).fits);
            assert!(link.arrive(Instant::from_nanos(12_000), 1_500).fits);
        }
    }

    #[test]
    fn an_unlimited_link_never_queues() {
        let mut link = link(Rate::UNLIMITED, QueueLimit::Bytes(Size::from_bytes(65_536)));
        for i in 0..1_000 {
            let now = Instant::from_nanos(i / 10);
            assert_eq!(link.arrive(now, 65_535).wait, 0);
            assert_eq!(link.accept(65_535), now);
            assert_eq!(link.backlog(now), Size::ZERO);
        }
    }
}
