//! Sets the rate to a receiver whose disk is slower than its link: so that its memory is full when
//! the last byte arrives. The rate is what the disk writes, more by the part of the rest that the
//! memory takes. The disk's rate is measured while data arrives, in the times in which something
//! waits for the disk.
//!
//! Source: derived (docs/protocols/pa-udp.md §1); the papers' form as recalled is the same.

use std::time::Duration;

use farhaul_core::{pull::LEAST_RATE, store::Sink, time::Instant, units::Rate};

/// Weight of a new measurement.
const GAIN: f64 = 0.25;
/// Change of the rate that is reported to the sender.
const NEWS: f64 = 0.02;

/// Rate for a disk that writes `disk`, with `free` bytes of memory before it and `left` bytes to
/// come. The link carries `link`.
// spec: pa-udp §1.1
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
pub fn rate(disk: Rate, free: i64, left: u64, link: Rate) -> Rate {
    let (free, left) = (free as f64, left.max(1) as f64);
    if free < left {
        disk.scale(1.0 / (1.0 - free / left)).min(link)
    } else {
        link
    }
}

/// Data that a receiver has seen since it looked last, and data still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// State of the receiver's store.
    pub(super) sink: Sink,
    /// Bytes to come.
    pub(super) left: u64,
    /// Units that came, and units that were found missing.
    pub(super) came: u64,
    pub(super) missed: u64,
    /// True if some units are missing now.
    pub(super) gaps: bool,
}

/// Knowledge of a disk.
#[derive(Clone, Copy, Debug)]
enum Disk {
    /// The disk writes at this rate.
    Writes(Rate),
    /// The disk had nothing to do at this rate.
    AtLeast(Rate),
}

/// The law of one receiver.
#[derive(Debug)]
pub(super) struct Law {
    link: Rate,
    /// Time from a loss to its repair.
    repair: Duration,
    disk: Disk,
    /// Time and count of bytes up to which the rate was measured.
    mark: Option<(Instant, u64)>,
    /// True if the store was found empty since.
    idle: bool,
    /// True if the last rate was one for losses.
    eased: bool,
    rate: Rate,
    told: Rate,
}

impl Law {
    /// A law over a link that carries `link`; a repair takes `repair`.
    pub(super) const fn new(link: Rate, repair: Duration) -> Self {
        Self {
            link,
            repair,
            disk: Disk::AtLeast(Rate::ZERO),
            mark: None,
            idle: false,
            eased: false,
            rate: link,
            told: link,
        }
    }

    /// Begins a file of `left` bytes, from a sender that is able to send `most`; returns the first
    /// rate.
    pub(super) fn begin(&mut self, now: Instant, sink: Sink, left: u64, most: Rate) -> Rate {
        self.link = most;
        self.mark = (!sink.is_endless()).then_some((now, sink.drained));
        (self.idle, self.eased) = (false, false);
        self.rate = self.adapt(sink, left, false);
        self.told = self.rate;
        self.told
    }

    /// The sender keeps to this rate.
    pub(super) const fn keeps_to(&mut self, rate: Rate) {
        self.told = rate;
    }

    /// Notes that nothing waits for the disk.
    pub(super) const fn on_idle(&mut self) {
        self.idle = true;
    }

    /// The rate that was decided last.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Looks when the time has come; returns the rate, if the sender is to be sent it.
    pub(super) fn tick(&mut self, now: Instant, seen: Seen) -> Option<Rate> {
        self.measure(now, seen.sink);
        let of = seen.came + seen.missed;
        // spec: pa-udp §1.3
        self.eased = seen.missed > 0 && !self.eased;
        self.rate = if self.eased {
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = seen.came as f64 / of as f64;
            self.rate.scale(share).max(LEAST_RATE)
        } else {
            self.adapt(seen.sink, seen.left, seen.gaps)
        };
        let change = (self.rate.as_f64() / self.told.as_f64() - 1.0).abs();
        if change >= NEWS {
            self.told = self.rate;
            return Some(self.rate);
        }
        None
    }

    /// Measures the disk.
    // spec: pa-udp §1.2
    fn measure(&mut self, now: Instant, sink: Sink) {
        let idle = std::mem::take(&mut self.idle);
        let here = (!sink.is_endless()).then_some((now, sink.drained));
        let before = std::mem::replace(&mut self.mark, here);
        let (Some((since, from)), Some((_, to))) = (before, here) else {
            return;
        };
        let measured = Rate::of(to.saturating_sub(from), now.since(since));
        self.disk = match self.disk {
            Disk::Writes(known) | Disk::AtLeast(known) if idle => {
                Disk::AtLeast(known.max(measured))
            }
            Disk::AtLeast(_) => Disk::Writes(measured),
            Disk::Writes(known) => {
                let part = measured.as_f64() - known.as_f64();
                Disk::Writes(Rate::from_f64(known.as_f64() + GAIN * part))
            }
        };
    }

    fn adapt(&self, sink: Sink, left: u64, gaps: bool) -> Rate {
        if sink.is_endless() {
            return self.link;
        }
        let disk = match self.disk {
            Disk::Writes(rate) => rate,
            // It is measured before more than this fills the memory.
            Disk::AtLeast(least) => {
                let more = Rate::of(sink.free, self.repair * 2).bps();
                let rate = Rate::from_bps(least.bps().saturating_add(more));
                return rate.min(self.link).max(LEAST_RATE);
            }
        };
        // spec: pa-udp §1.4
        let reserve = if gaps {
            self.rate.bytes_in(self.repair)
        } else {
            0
        };
        let whole = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let free = whole(sink.free).saturating_sub(whole(reserve));
        rate(disk, free, left, self.link).max(LEAST_RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn sink(free: u64, drained: u64) -> Sink {
        Sink { free, drained }
    }

    /// Derived: m = 1 GB and 600 Mbit/s.
    #[test]
    fn the_rate_fills_the_memory_with_the_last_byte() {
        let disk = Rate::mbit(600);
        let of = |free: i64, left| rate(disk, free, left, Rate::gbit(10)).bps();
        let gb = 1_000_000_000;
        assert_eq!(of(gb, 2 * GB), 1_200_000_000);
        assert_eq!(of(gb, 5 * GB), 750_000_000);
        assert_eq!(of(gb, GB), 10_000_000_000, "all of it fits");
        assert_eq!(of(0, 5 * GB), 600_000_000);
        assert_eq!(of(-gb, GB), 300_000_000, "more is wanted than is there");
        assert!(of(gb, 1_000_000 * GB) - 600_000_000 < 1_000_000);
        assert_eq!(of(0, 0), 600_000_000);
    }

    /// The rate that the law finds keeps the ratio of free memory to bytes left, and so stays.
    #[test]
    fn a_simulated_disk_is_measured_and_followed() {
        let (disk, mut free, mut left, mut drained) = (75_000_000_u64, GB, 2 * GB, 0);
        let mut law = Law::new(Rate::gbit(2), Duration::from_millis(110));
        let mut rate = law.begin(at(0), sink(free, 0), left, Rate::gbit(2));
        assert_eq!(rate, Rate::gbit(2), "nothing is known");
        for tick in 1..=140 {
            let came = rate.bytes_in(Duration::from_millis(100)).min(left);
            left -= came;
            drained += disk / 10;
            free = free + disk / 10 - came;
            let seen = Seen {
                sink: sink(free, drained),
                left,
                came: 1,
                missed: 0,
                gaps: false,
            };
            rate = law.tick(at(100 * tick), seen).unwrap_or(rate);
            if left == 0 {
                break;
            }
            let mbit = rate.bps() / 1_000_000;
            assert!((1_140..=1_260).contains(&mbit), "{mbit} at {tick}");
        }
        assert_eq!(left, 0);
        assert!(free < GB / 25, "{free}");
    }

    /// 1 MB takes 36 Mbit/s for two repairs of 110 ms.
    #[test]
    fn a_disk_that_had_nothing_to_do_is_tried_with_what_the_memory_bears() {
        let mut law = Law::new(Rate::gbit(1), Duration::from_millis(110));
        let first = law.begin(at(0), sink(1_000_000, 0), GB, Rate::gbit(1));
        assert_eq!(first.bps() / 1_000, 36_363, "nothing is known");
        let seen = |drained| Seen {
            sink: sink(1_000_000, drained),
            left: GB,
            came: 1,
            missed: 0,
            gaps: false,
        };
        let slow = law.tick(at(100), seen(100_000)).expect("told");
        assert_eq!(slow.bps() / 1_000, 8_008);
        assert_eq!(law.tick(at(200), seen(200_500)), None, "less than 2 %");
        law.on_idle();
        let more = law.tick(at(300), seen(200_600)).expect("told");
        assert_eq!(more.bps() / 1_000, 8_010 + 36_363);
        law.on_idle();
        let more = law.tick(at(400), seen(700_600)).expect("told");
        assert_eq!(more.bps() / 1_000, 40_000 + 36_363);
    }

    #[test]
    fn losses_slow_it_down_for_one_period() {
        let mut law = Law::new(Rate::gbit(1), Duration::from_millis(110));
        law.begin(at(0), Sink::ENDLESS, GB, Rate::gbit(1));
        let seen = |missed| Seen {
            sink: Sink::ENDLESS,
            left: GB,
            came: 90,
            missed,
            gaps: missed > 0,
        };
        assert_eq!(law.tick(at(100), seen(10)), Some(Rate::mbit(900)));
        assert_eq!(law.tick(at(200), seen(10)), Some(Rate::gbit(1)));
        assert_eq!(law.tick(at(300), seen(10)), Some(Rate::mbit(900)));
        assert_eq!(law.tick(at(400), seen(0)), Some(Rate::gbit(1)));
    }
}
