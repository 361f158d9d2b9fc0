//! Watches that every shard makes progress. A shard records each turn and whether it sleeps. One
//! thread checks all of them once a second and reports those that are awake and have not completed
//! a turn for some time. The cause is a system call that does not return (a hung file system) or a
//! loop that does not end.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

/// Interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks within the same turn after which a shard is reported.
const STALL_CHECKS: u32 = 5;
/// Checks within the same turn after which the peer has ended the session, since it heard nothing
/// for so long.
const LOST_CHECKS: u32 = 40;

/// Record of a shard's turns.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    turns: AtomicU64,
    asleep: AtomicBool,
    /// Checks within this turn.
    still: AtomicU32,
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

    /// True if the shard has not turned for so long that its session's peer has given up.
    pub(crate) fn is_lost(&self) -> bool {
        self.still.load(Relaxed) >= LOST_CHECKS
    }
}

/// Event that the watchdog noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The shard of this session, or of the listener itself, has not turned for so long.
    Stalled(String, Duration),
    /// The shard turns again.
    Resumed(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled(who, since) => write!(
                f,
                "{who} has not responded for {} s: a file system that does not respond, or a bug of farhaul; others are not affected",
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
    /// Result of a check; an error if the shard has ended.
    fn check(&mut self) -> Result<Option<Notice>, ()> {
        let pulse = self.pulse.upgrade().ok_or(())?;
        let turns = pulse.turns.load(Relaxed);
        if turns != self.seen || pulse.asleep.load(Relaxed) {
            let reported = self.checks >= STALL_CHECKS;
            (self.seen, self.checks) = (turns, 0);
            pulse.still.store(0, Relaxed);
            return Ok(reported.then(|| Notice::Resumed(self.name.clone())));
        }
        self.checks = self.checks.saturating_add(1);
        pulse.still.store(self.checks, Relaxed);
        let stalled = self.checks == STALL_CHECKS;
        Ok(stalled.then(|| Notice::Stalled(self.name.clone(), CHECK_INTERVAL * STALL_CHECKS)))
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

    /// Checks until the returned sender is dropped.
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
                while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
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

/// Called with notices of the watchdog, on its thread.
pub type Notify = fn(&Notice);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_shard_is_reported_once_and_when_it_resumes() {
        let (watch, busy, asleep) = (Watch::default(), Arc::default(), Arc::new(Pulse::default()));
        watch.add("busy".into(), &busy);
        watch.add("asleep".into(), &asleep);
        asleep.sleeps(true);
        let checks = |n: u32| (0..n).flat_map(|_| watch.check()).collect::<Vec<_>>();
        busy.turn();
        assert_eq!(checks(1), []);
        assert_eq!(checks(STALL_CHECKS - 1), []);
        let stalled = Notice::Stalled("busy".into(), CHECK_INTERVAL * STALL_CHECKS);
        assert_eq!(checks(100), [stalled]);
        assert!(busy.is_lost() && !asleep.is_lost());
        busy.turn();
        assert_eq!(checks(3), [Notice::Resumed("busy".into())]);
        assert!(!busy.is_lost());
        drop((busy, asleep));
        assert_eq!(checks(1), []);
        assert!(watch.list().is_empty());
    }
}
