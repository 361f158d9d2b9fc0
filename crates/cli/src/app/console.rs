//! Interface of a command to the program around it, which takes events and messages, answers questions and ends the
//! command.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use farhaul_transfer::Progress;
use serde_json::Value;

/// The program around a command. Several threads call it.
pub trait Console: Send + Sync {
    /// Takes an event, as `--json-stream` prints it; must not wait long.
    fn event(&self, _event: &Value) {}

    /// True if the events of progress are wanted.
    fn wants_events(&self) -> bool {
        true
    }

    /// Takes a message for people.
    fn message(&self, _level: Level, _text: &str) {}

    /// Takes a line of the plan or the list that was asked for.
    fn line(&self, _text: &str) {}

    /// Shows the progress of an attempt until the result is dropped.
    fn watch(&self, _progress: &Arc<Progress>) -> Option<Box<dyn Send>> {
        None
    }

    /// Asks a person a question that yes or no answers.
    fn ask(&self, _question: &str) -> Answer {
        Answer::NotAsked
    }

    /// Cancellation by which the program ends the command. Without one the command has the process for itself: a signal
    /// ends the command, and a second signal ends the process.
    fn cancel(&self) -> Option<&Cancel>;
}

impl dyn Console + '_ {
    /// True if the command runs inside another program.
    pub(crate) fn is_inside(&self) -> bool {
        self.cancel().is_some()
    }

    /// True if the other program cancelled the command.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel().is_some_and(Cancel::is_cancelled)
    }
}

/// Weight of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Goings-on, which the result has, too.
    Notice,
    /// Warnings and hints.
    Warning,
    /// Failures, and what was changed on this machine.
    Important,
}

/// Answer to a question, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The person agrees.
    Yes,
    /// Any other answer, or nothing before the end of the input.
    No,
    /// A signal came first.
    Interrupted,
    /// The terminal went away.
    HungUp,
    /// There is no terminal.
    NotAsked,
}

/// Ends the commands that were started with it, those that are started later included.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Cancelled>);

#[derive(Default)]
struct Cancelled {
    set: AtomicBool,
    /// Actions that end a command, by number.
    ends: Mutex<BTreeMap<u64, End>>,
}

type End = Arc<dyn Fn() + Send + Sync>;

impl Cancelled {
    fn ends(&self) -> MutexGuard<'_, BTreeMap<u64, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancel {
    /// Makes a cancellation that has not happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the running command.
    pub fn cancel(&self) {
        // In this order: actions added meanwhile look at it afterwards.
        self.0.set.store(true, SeqCst);
        // None is called with the lock held: it may wait, or be over by then.
        let ends: Vec<End> = self.0.ends().values().cloned().collect();
        for end in ends {
            end();
        }
    }

    /// True after [`Self::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.0.set.load(SeqCst)
    }

    /// Calls `end` on cancellation, at once if that was before; never again once the result is
    /// dropped.
    pub(crate) fn and(&self, end: impl Fn() + Send + Sync + 'static) -> Ends {
        let end: End = Arc::new(end);
        let mut ends = self.0.ends();
        let key = ends.last_key_value().map_or(0, |(key, _)| key + 1);
        ends.insert(key, Arc::clone(&end));
        drop(ends);
        if self.is_cancelled() {
            end();
        }
        Ends(Arc::clone(&self.0), key)
    }
}

/// A program that only ends the command.
impl Console for Cancel {
    fn wants_events(&self) -> bool {
        false
    }

    fn cancel(&self) -> Option<&Cancel> {
        Some(self)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

/// Registration of an action that a [`Cancel`] ends.
pub(crate) struct Ends(Arc<Cancelled>, u64);

impl Drop for Ends {
    fn drop(&mut self) {
        let ended = self.0.ends().remove(&self.1);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn what_was_cancelled_before_ends_at_once_and_what_is_over_is_left_alone() {
        let cancel = Cancel::new();
        let count = Arc::new(AtomicU32::new(0));
        let counted = || {
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, SeqCst);
            }
        };
        let over = cancel.and(counted());
        let runs = cancel.and(counted());
        drop(over);
        cancel.cancel();
        assert_eq!(count.load(SeqCst), 1);
        let late = cancel.and(counted());
        assert_eq!(count.load(SeqCst), 2);
        drop((runs, late));
        assert!(cancel.is_cancelled());
    }
}
