//! What happens on Ctrl-C? The first interrupt asks politely, through a [`Stop`]; the second ends the
//! program at once.

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    thread,
};

use farhaul_io::Stop;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    low_level::pipe,
};

/// A [`Stop`] that the first SIGINT, SIGTERM or SIGHUP sets.
pub(crate) fn stop() -> io::Result<Stop> {
    let stop = Stop::new()?;
    let (mut inbox, outbox) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, outbox.try_clone()?)?;
    }
    let asked = stop.clone();
    thread::Builder::new()
        .name("interrupt".into())
        .spawn(move || {
            let mut byte = [0];
            while matches!(inbox.read(&mut byte), Ok(1)) {
                if asked.is_set() {
                    std::process::exit(130);
                }
                asked.set();
            }
        })?;
    Ok(stop)
}
