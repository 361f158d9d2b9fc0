//! Handles Ctrl-C. The first interrupt asks politely, through a [`Stop`]; the second ends the
//! program at once. The exit code depends on the signal.
//!
//! - A signal that was ignored when the program started stays ignored, as under `nohup`.
//! - Signals that ask for nothing here end nothing: a file that is too long is the failure of that file.

use std::{
    io::{self, Read as _},
    ops::Deref,
    os::unix::net::UnixStream,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use farhaul_io::Stop;
use farhaul_transfer::TransferError;
use farhaul_udp::signals::is_ignored;
pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU};
use signal_hook::{
    consts::{SIGALRM, SIGPROF, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXFSZ},
    flag,
    low_level::pipe,
};

use crate::app::console::{Console, Ends};

/// The number of the last signal; 0 before the first.
static LAST: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// SIGUSR1 has come, and nobody has answered yet.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Keeps signals that end nothing here from ending the program, as they do by default; called first.
pub(crate) fn survive() -> io::Result<()> {
    // The language's runtime ignores SIGPIPE already.
    for signal in [SIGXFSZ, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF] {
        note(signal, &Arc::default())?;
    }
    note(SIGUSR1, &ASKED)
}

fn note(signal: i32, seen: &Arc<AtomicBool>) -> io::Result<()> {
    if !is_ignored(signal)? {
        flag::register(signal, Arc::clone(seen))?;
    }
    Ok(())
}

/// True if SIGUSR1 has asked for a line of progress since the last call.
pub(crate) fn asks_for_progress() -> bool {
    ASKED.swap(false, Ordering::Relaxed)
}

/// The number of the signal received, for a limit of processor time that of a termination; that of an interrupt if none
/// was.
pub(crate) fn signal() -> u8 {
    let last = u8::try_from(LAST.load(Ordering::Relaxed)).ok();
    last.filter(|n| *n != 0).unwrap_or(2)
}

/// True if there was a signal.
pub(crate) fn is_signalled() -> bool {
    LAST.load(Ordering::Relaxed) != 0
}

/// A stop that the program around a command may set as long as this lives.
pub(crate) struct Ending {
    stop: Stop,
    _ends: Option<Ends>,
}

impl Deref for Ending {
    type Target = Stop;

    fn deref(&self) -> &Stop {
        &self.stop
    }
}

impl dyn Console + '_ {
    /// A stop that this program sets, which also acts: by a signal, or by cancelling the command.
    pub(crate) fn stop_and(
        &self,
        act: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<Ending, TransferError> {
        let Some(cancel) = self.cancel() else {
            let stop = stop_and(act)?;
            return Ok(Ending { stop, _ends: None });
        };
        let stop = Stop::new().map_err(|e| TransferError::no_thread(&e))?;
        let asked = stop.clone();
        let ends = cancel.and(move || {
            asked.set();
            act();
        });
        Ok(Ending {
            stop,
            _ends: Some(ends),
        })
    }

    /// A stop that this program sets.
    pub(crate) fn stop(&self) -> Result<Ending, TransferError> {
        self.stop_and(|| {})
    }

    /// True if the command is to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        is_signalled() || self.is_cancelled()
    }
}

/// A [`Stop`] that the first SIGINT, SIGTERM, SIGHUP or SIGXCPU sets.
pub(crate) fn stop() -> Result<Stop, TransferError> {
    stop_and(|| {})
}

/// Makes a stop that also acts.
pub(crate) fn stop_and(
    act: impl Fn() + Clone + Send + Sync + 'static,
) -> Result<Stop, TransferError> {
    let stop = Stop::new().map_err(|e| TransferError::no_thread(&e))?;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGXCPU] {
        let (asked, act) = (stop.clone(), act.clone());
        on(signal, move || {
            // The kernel repeats this one, which is not impatience.
            if signal != SIGXCPU || !asked.is_set() {
                stop_or_exit(&asked);
            }
            act();
        })?;
    }
    Ok(stop)
}

/// Asks politely; the second time the program ends.
pub(crate) fn stop_or_exit(asked: &Stop) {
    if asked.is_set() {
        std::process::exit(i32::from(128 + signal()));
    }
    asked.set();
}

/// Acts on each `signal`, on a thread of its own, unless it was ignored when the program started.
pub(crate) fn on(signal: i32, act: impl FnMut() + Send + 'static) -> Result<(), TransferError> {
    match is_ignored(signal) {
        Ok(true) => Ok(()),
        Ok(false) => on_any(signal, act),
        Err(e) => Err(TransferError::no_thread(&e)),
    }
}

/// Calls `act` at each `signal` that does not end the program, also where the signal was ignored at the start.
pub(crate) fn on_any(signal: i32, act: impl FnMut() + Send + 'static) -> Result<(), TransferError> {
    heard(signal, act).map_err(|e| TransferError::no_thread(&e))
}

fn heard(signal: i32, mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let (mut inbox, outbox) = UnixStream::pair()?;
    // Before the pipe wakes anybody.
    let as_which = if signal == SIGXCPU { SIGTERM } else { signal };
    flag::register_usize(signal, Arc::clone(&LAST), as_which.unsigned_abs() as usize)?;
    pipe::register(signal, outbox)?;
    thread::Builder::new()
        .name("signal".into())
        .spawn(move || {
            let mut byte = [0];
            while matches!(inbox.read(&mut byte), Ok(1)) {
                act();
            }
        })?;
    Ok(())
}
