//! Provides what a transfer runs on: threads, the clock and the system's files. Tests provide
//! substitutes, so that a whole transfer runs in virtual time and the same seed gives the same run.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use farhaul_core::time::{Instant, nanos};

use crate::{confine::Dir, disk::Disk, meter::Meter, pool::Wake};

/// Environment of a transfer: threads, clock and files.
#[derive(Clone, Default)]
pub(crate) struct Host {
    /// Called by workers when there is a result to fetch.
    pub(crate) wake: Option<Wake>,
    pub(crate) simulated: Option<Simulated>,
}

impl Host {
    /// Counts what the transfer uses. In virtual time nothing may depend on how fast this machine is.
    pub(crate) fn meter(&self) -> Meter {
        if self.simulated.is_some() {
            Meter::default()
        } else {
            Meter::new()
        }
    }

    /// The directory as the transfer sees it.
    pub(crate) fn own(&self, dir: Dir) -> io::Result<Dir> {
        match &self.simulated {
            Some(simulated) => Ok(Arc::new(dir.on(&simulated.disk)?)),
            None => Ok(dir),
        }
    }
}

/// Takes the place of threads, clock and disk.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The disk of this machine.
    pub disk: Disk,
    /// Time of the simulation.
    pub time: Arc<VirtualTime>,
}

/// The time of a simulated machine, and how much of it its disk has used.
#[derive(Debug, Default)]
pub struct VirtualTime {
    now: AtomicU64,
    spent: AtomicU64,
}

impl VirtualTime {
    /// Time now.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Relaxed))
    }

    /// Sets the time to `now`.
    pub fn set(&self, now: Instant) {
        self.now.store(now.as_nanos(), Relaxed);
    }

    /// A call took so long.
    pub fn spend(&self, time: Duration) {
        self.spent.fetch_add(nanos(time), Relaxed);
    }

    /// Time of calls since the last query.
    pub fn take_spent(&self) -> Duration {
        Duration::from_nanos(self.spent.swap(0, Relaxed))
    }

    /// Runs `work` and returns how long its calls took.
    pub(crate) fn measure<R>(&self, work: impl FnOnce() -> R) -> (R, Duration) {
        let before = self.take_spent();
        let done = work();
        let took = self.take_spent();
        self.spend(before);
        (done, took)
    }
}
