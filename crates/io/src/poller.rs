//! What is a shard waiting for? Its socket to be readable, or writable again; a wake; a stop; or a
//! deadline, to the nanosecond.

use std::{
    io,
    mem::MaybeUninit,
    num::NonZeroU64,
    os::fd::{AsFd, OwnedFd},
};

use farhaul_core::time::Instant;
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    thread::{current_timer_slack, set_current_timer_slack},
};

use crate::waker::{Stop, Waker};

const SOCKET: u64 = 0;
const WAKER: u64 = 1;
const STOP: u64 = 2;

/// What ended a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) woken: bool,
    pub(crate) stopped: bool,
}

/// An epoll instance over a shard's descriptors. The thread's timer slack is 1 ns for as long as it
/// lives: the default of 50 us is half a batch interval at 10 Gbit/s.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    wants_write: bool,
    slack_before: Option<NonZeroU64>,
}

impl Poller {
    pub(crate) fn new(
        socket: impl AsFd,
        waker: Option<&Waker>,
        stop: Option<&Stop>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let add = |fd: &dyn AsFd, token| {
            epoll::add(
                &epoll,
                fd.as_fd(),
                EventData::new_u64(token),
                EventFlags::IN,
            )
        };
        add(&socket, SOCKET)?;
        if let Some(waker) = waker {
            add(waker, WAKER)?;
        }
        if let Some(stop) = stop {
            add(stop, STOP)?;
        }
        let slack_before = current_timer_slack().ok().and_then(NonZeroU64::new);
        // Without it deadlines are late by up to 50 us, which costs smoothness, not correctness.
        let _refused = set_current_timer_slack(Some(NonZeroU64::MIN));
        Ok(Self {
            epoll,
            wants_write: false,
            slack_before,
        })
    }

    /// Asks to be woken when the socket takes more, or no longer.
    pub(crate) fn want_write(&mut self, socket: impl AsFd, wanted: bool) -> io::Result<()> {
        if self.wants_write != wanted {
            let flags = if wanted {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            epoll::modify(&self.epoll, socket, EventData::new_u64(SOCKET), flags)?;
            self.wants_write = wanted;
        }
        Ok(())
    }

    /// A stop stays readable for ever; once seen it must not wake the shard again.
    pub(crate) fn forget_stop(&self, stop: &Stop) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, stop)?)
    }

    /// Sleeps until something is ready or until `deadline`.
    pub(crate) fn wait(&self, now: Instant, deadline: Option<Instant>) -> io::Result<Readiness> {
        let timeout = deadline.map(|at| {
            let left = at.since(now);
            Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut events = [MaybeUninit::<Event>::uninit(); 3];
        let events = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(Readiness::default()),
            Err(error) => return Err(error.into()),
        };
        let mut ready = Readiness::default();
        for event in events {
            let (flags, token) = (event.flags, event.data.u64());
            match token {
                SOCKET => {
                    // An error is picked up by receiving; writable needs no note, since a parked
                    // batch is tried in every turn.
                    ready.readable |= flags.intersects(EventFlags::IN | EventFlags::ERR);
                }
                STOP => ready.stopped = true,
                _ => ready.woken = true,
            }
        }
        Ok(ready)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // The thread may be the caller's; failing leaves it more punctual than it was.
        let _refused = set_current_timer_slack(self.slack_before);
    }
}
