//! Waits for a shard: for its socket to be readable, or writable again; a control lane; a wake; a
//! stop; or a deadline, to the nanosecond.
//!
//! `ppoll` over four descriptors takes nanoseconds on every kernel. With so few descriptors an
//! epoll instance saves 0.1 us of the several that a sleep costs.

#[cfg(target_os = "linux")]
mod slack;

use std::{io, time::Duration};

use farhaul_core::time::Instant;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd},
    io::Errno,
};

#[cfg(target_os = "linux")]
pub(crate) use self::slack::Punctual;
use crate::waker::{Stop, Waker};

/// Time between two attempts to wait where the kernel has no memory for one.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// Causes that ended a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) woken: bool,
    pub(crate) stopped: bool,
}

/// Events that may end a sleep, apart from the deadline.
pub(crate) struct Awaited<'a, S> {
    pub(crate) socket: &'a S,
    /// True to wake when the socket has something.
    pub(crate) readable: bool,
    /// True to wake when the socket takes more as well.
    pub(crate) writable: bool,
    /// Control lanes with events; they are polled in every turn.
    pub(crate) lanes: Option<BorrowedFd<'a>>,
    pub(crate) waker: Option<&'a Waker>,
    pub(crate) stop: Option<&'a Stop>,
}

/// Sleeps until something is ready or until `deadline`.
pub(crate) fn wait<S: AsFd>(
    awaited: &Awaited<'_, S>,
    now: Instant,
    deadline: Option<Instant>,
) -> io::Result<Readiness> {
    let timeout = deadline.map(|at| timespec(at.since(now)));
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, awaited.readable);
    flags.set(PollFlags::OUT, awaited.writable);
    let socket = PollFd::new(awaited.socket, flags);
    // A missing descriptor is polled for nothing.
    let or_nothing = |fd: Option<_>| match fd {
        Some(fd) => PollFd::from_borrowed_fd(fd, PollFlags::IN),
        None => PollFd::new(awaited.socket, PollFlags::empty()),
    };
    let waker = or_nothing(awaited.waker.and_then(Waker::fd));
    let stop = or_nothing(awaited.stop.map(AsFd::as_fd));
    let lanes = or_nothing(awaited.lanes);
    let mut fds = [socket, waker, stop, lanes];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Readiness::default()),
        // The kernel lacks memory for a moment: another attempt may get some, and deadlines pass meanwhile.
        Err(error) if is_passing(error) => {
            let _early = poll(&mut [], Some(&PAUSE));
            return Ok(Readiness::default());
        }
        Err(error) => return Err(error.into()),
    }
    let [socket, waker, stop, _] = fds;
    Ok(Readiness {
        // An error is picked up by receiving. Writable needs no note: a parked batch is tried in
        // every turn.
        readable: socket
            .revents()
            .intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP),
        woken: waker.revents().contains(PollFlags::IN),
        stopped: stop.revents().contains(PollFlags::IN),
    })
}

/// A time as the system takes it; the longest there is for a longer one.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        #[allow(
            clippy::unnecessary_fallible_conversions,
            reason = "systems differ in the type"
        )]
        tv_nsec: time.subsec_nanos().try_into().unwrap_or_default(),
    }
}

/// True if the system lacks memory, or another thing that comes again.
fn is_passing(error: Errno) -> bool {
    #[cfg(unix)]
    const PASSING: [Errno; 2] = [Errno::NOMEM, Errno::AGAIN];
    #[cfg(not(unix))]
    const PASSING: [Errno; 2] = [Errno::NOBUFS, Errno::WOULDBLOCK];
    PASSING.contains(&error)
}

/// Guard of nothing: only Linux lets a thread choose how exact its deadlines are.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Punctual;

#[cfg(not(target_os = "linux"))]
impl Punctual {
    pub(crate) const fn new() -> Self {
        Self
    }
}
