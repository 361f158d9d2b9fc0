//! What happens on Ctrl-C? The first interrupt asks politely, through a [`Stop`]; the second ends the
//! program at once. Which signal it was decides the exit code.

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use farhaul_io::Stop;
pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use crate::embed;

/// The number of the last signal; 0 before the first.
static LAST: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The number of the signal received; that of an interrupt if none was.
pub(crate) fn signal() -> u8 {
    let last = u8::try_from(LAST.load(Ordering::Relaxed)).ok();
    last.filter(|n| *n != 0).unwrap_or(2)
}

/// Whether there was one, or whoever called this command cancelled it.
pub(crate) fn is_signalled() -> bool {
    LAST.load(Ordering::Relaxed) != 0 || embed::is_cancelled()
}

/// A [`Stop`] that the first SIGINT, SIGTERM or SIGHUP sets; in another program, whoever called the command.
pub(crate) fn stop() -> io::Result<Stop> {
    stop_and(|| {})
}

/// The same, which then acts, too.
pub(crate) fn stop_and(act: impl Fn() + Clone + Send + Sync + 'static) -> io::Result<Stop> {
    if let Some(stop) = embed::stop_and(act.clone()) {
        return stop;
    }
    let stop = Stop::new()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let (asked, act) = (stop.clone(), act.clone());
        on(signal, move || {
            stop_or_exit(&asked);
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

/// Acts on each `signal`, on a thread of its own.
pub(crate) fn on(signal: i32, mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let (mut inbox, outbox) = UnixStream::pair()?;
    // Before the pipe wakes anybody.
    flag::register_usize(signal, Arc::clone(&LAST), signal.unsigned_abs() as usize)?;
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
