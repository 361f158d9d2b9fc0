//! Does every shard still turn? A shard writes down each turn and whether it sleeps; one thread looks at
//! all of them once a second and tells of those that are awake and have not turned for some time,
//! because a system call does not return (a hung file system) or a loop does not end.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

/// Between looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Looks at the same turn after which it is told.
const PATIENCE: u32 = 5;

/// What a shard writes down.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    turns: AtomicU64,
    asleep: AtomicBool,
}

impl Pulse {
    /// A turn begins.
    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// The thread sleeps until there is something to do, or has woken.
    pub(crate) fn sleeps(&self, asleep: bool) {
        self.asleep.store(asleep, Relaxed);
    }
}

/// What the watchdog noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The shard of this session, or of the listener itself, has not turned for so long.
    Stalled(String, Duration),
    /// It turns again.
    Resumed(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled(who, since) => write!(
                f,
                "{who} has not responded for {} s: a file system that does not answer, or a fault of farhaul; others are not affected",
                since.as_secs()
            ),
            Self::Resumed(who) => write!(f, "{who} responds again"),
        }
    }
}

struct Watched {
    name: String,
    pulse: Weak<Pulse>,
    seen: u64,
    checks: u32,
}

impl Watched {
    /// What a look at it finds; an error if it is gone.
    fn check(&mut self) -> Result<Option<Notice>, ()> {
        let pulse = self.pulse.upgrade().ok_or(())?;
        let turns = pulse.turns.load(Relaxed);
        if turns != self.seen || pulse.asleep.load(Relaxed) {
            let reported = self.checks >= PATIENCE;
            (self.seen, self.checks) = (turns, 0);
            return Ok(reported.then(|| Notice::Resumed(self.name.clone())));
        }
        self.checks = self.checks.saturating_add(1);
        let stalled = self.checks == PATIENCE;
        Ok(stalled.then(|| Notice::Stalled(self.name.clone(), PAUSE * PATIENCE)))
    }
}

/// All shards of a listener.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Vec<Watched>>>);

impl Watch {
    fn list(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a shard as long as it lives.
    pub(crate) fn add(&self, name: String, pulse: &Arc<Pulse>) {
        self.list().push(Watched {
            name,
            pulse: Arc::downgrade(pulse),
            seen: 0,
            checks: 0,
        });
    }

    fn check(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.list().retain_mut(|watched| match watched.check() {
            Ok(notice) => {
                notices.extend(notice);
                true
            }
            Err(()) => false,
        });
        notices
    }

    /// Looks until the returned sender is dropped.
    pub(crate) fn start(
        &self,
        notify: Option<Notify>,
        stalls: Arc<AtomicU64>,
    ) -> std::io::Result<mpsc::Sender<()>> {
        let (alive, ended) = mpsc::channel();
        let watch = self.clone();
        thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    for notice in watch.check() {
                        stalls.fetch_add(u64::from(matches!(notice, Notice::Stalled(..))), Relaxed);
                        if let Some(notify) = notify {
                            notify(&notice);
                        }
                    }
                }
            })?;
        Ok(alive)
    }
}

/// Hears what the watchdog notices, on its thread.
pub type Notify = fn(&Notice);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_awake_and_does_not_turn_is_told_once_and_when_it_turns_again() {
        let (watch, busy, asleep) = (Watch::default(), Arc::default(), Arc::new(Pulse::default()));
        watch.add("busy".into(), &busy);
        watch.add("asleep".into(), &asleep);
        asleep.sleeps(true);
        let checks = |n: u32| (0..n).flat_map(|_| watch.check()).collect::<Vec<_>>();
        busy.turn();
        assert_eq!(checks(1), []);
        assert_eq!(checks(PATIENCE - 1), []);
        let stalled = Notice::Stalled("busy".into(), PAUSE * PATIENCE);
        assert_eq!(checks(100), [stalled]);
        busy.turn();
        assert_eq!(checks(3), [Notice::Resumed("busy".into())]);
        drop((busy, asleep));
        assert_eq!(checks(1), []);
        assert!(watch.list().is_empty());
    }
}
