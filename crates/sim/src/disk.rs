//! Models a receiver's disk, which holds up its application. Arrived bytes wait in memory of a
//! fixed size. The disk takes them from there at its own rate, and may pause; memory is free again
//! in whole loads.

use std::time::Duration;

use farhaul_core::{time::Instant, units::Rate};

/// A load: as much is freed at a time.
const LOAD: u64 = 256 << 10;

/// The disk behind a flow's receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Rate at which the disk writes.
    pub rate: Rate,
    /// Bytes of memory before the disk.
    pub memory: u64,
    /// Beginning and duration of a time in which the disk writes nothing.
    pub stall: Option<(Duration, Duration)>,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            rate: Rate::UNLIMITED,
            memory: 14 * LOAD,
            stall: None,
        }
    }
}

/// State of the disk.
#[derive(Debug)]
pub(crate) struct Disk {
    config: DiskConfig,
    waiting: u64,
    /// Time up to which the disk has written.
    at: Instant,
}

impl Disk {
    pub(crate) const fn new(config: DiskConfig) -> Self {
        Self {
            config,
            waiting: 0,
            at: Instant::EPOCH,
        }
    }

    fn stall(&self) -> Option<(Instant, Instant)> {
        let (from, time) = self.config.stall?;
        let from = Instant::EPOCH + from;
        Some((from, from + time))
    }

    /// Advances the disk to `now`.
    pub(crate) fn pass(&mut self, now: Instant) {
        if let Some((from, until)) = self.stall()
            && self.at < until
            && now > from
        {
            self.write(from);
            self.at = self.at.max(until);
        }
        self.write(now);
    }

    fn write(&mut self, until: Instant) {
        let rate = self.config.rate;
        let bytes = rate.bytes_in(until.since(self.at));
        if bytes < self.waiting {
            self.waiting -= bytes;
            self.at += rate.time_for(bytes);
        } else {
            self.waiting = 0;
            self.at = self.at.max(until);
        }
    }

    /// Bytes that the disk takes.
    pub(crate) const fn room(&self) -> u64 {
        let taken = self.waiting.div_ceil(LOAD) * LOAD;
        self.config.memory.saturating_sub(taken)
    }

    /// Bytes that the disk has not written.
    pub(crate) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Takes `bytes`; false if there is no memory for them.
    pub(crate) const fn take(&mut self, bytes: u64) -> bool {
        self.waiting += bytes;
        self.waiting <= self.config.memory
    }

    /// Time at which the next load is free.
    pub(crate) fn wake(&self) -> Option<Instant> {
        (self.waiting > 0).then(|| {
            let load = 1 + (self.waiting - 1) % LOAD;
            self.at + self.config.rate.time_for(load) + Duration::from_nanos(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_written_but_for_the_pause() {
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        let mut disk = Disk::new(DiskConfig {
            rate: Rate::from_bps(8_000 * LOAD),
            memory: 20 * LOAD,
            stall: Some((Duration::from_millis(5), Duration::from_millis(10))),
        });
        disk.pass(at(1));
        assert!(disk.take(10 * LOAD));
        assert_eq!(disk.room(), 10 * LOAD);
        let rooms = [2, 5, 12, 15, 18, 30].map(|ms| {
            disk.pass(at(ms));
            disk.room() / LOAD
        });
        assert_eq!(rooms, [11, 14, 14, 14, 17, 20]);
        assert_eq!(disk.wake(), None);
        assert!(!disk.take(21 * LOAD));
    }
}
