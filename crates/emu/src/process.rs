//! Ends programs that were started for a run. Servers are terminated, with everything they started,
//! when the run is over. The main program is waited for, and signals that we get are passed to it.

use std::{
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream,
            process::{CommandExt as _, ExitStatusExt as _},
        },
    },
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open},
};
use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGTERM},
};

use crate::{clock::timespec, echo::Echo, host::Host};

/// Time that a program may take to end after the request.
const GRACE: Duration = Duration::from_secs(2);
/// Time that a server may take until it listens.
const START: Duration = Duration::from_secs(3);
/// Poll interval meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A program that runs beside the main one, with a process group of its own; ended when dropped.
#[derive(Debug)]
pub struct Service {
    child: Child,
    ended: OwnedFd,
    echo: Option<Echo>,
}

/// A program that failed before it was terminated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Code that the program returned, 128 + n if signal n ended it.
    pub code: i32,
    /// The last lines of its stderr, if that was a pipe.
    pub said: String,
}

impl Service {
    /// Starts `command` on `host` and waits until something there listens, the program has ended, or
    /// 3 s have passed. Its stderr is passed on to ours if it is a pipe.
    pub fn start(host: &Host, mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        let mut child = host.spawn(command)?;
        let ended = watch(&child)?;
        let stderr = child.stderr.take();
        // Whatever fails now, the program is ended.
        let mut service = Self {
            child,
            ended,
            echo: None,
        };
        service.echo = stderr.map(Echo::start).transpose()?;
        for _ in 0..START.as_millis() / POLL_INTERVAL.as_millis() {
            if host.has_listener(None) || service.ends_within(POLL_INTERVAL) {
                break;
            }
        }
        Ok(service)
    }

    /// Status of the program's end, if it has ended.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends the service; returns how it had failed before that, if it had.
    pub(crate) fn end(mut self) -> io::Result<Option<Failed>> {
        let status = self.status()?.filter(|status| !status.success());
        let echo = self.echo.take();
        // First what writes, then what reads.
        drop(self);
        let said = echo.map(Echo::end).transpose()?.unwrap_or_default();
        Ok(status.map(|status| {
            let code = status.code().or(status.signal().map(|n| 128 + n));
            Failed {
                code: code.unwrap_or(1),
                said,
            }
        }))
    }

    fn ends_within(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut fds, Some(&timespec(time))).is_ok_and(|n| n > 0)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let group = pid(&self.child);
        for signal in [Signal::TERM, Signal::KILL] {
            // The group may be gone already.
            let _ = kill_process_group(group, signal);
            if self.ends_within(GRACE) {
                break;
            }
        }
        let _ = self.child.wait();
        // What it started and left behind.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// End of the main program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// The stop signal received, if any.
    pub(crate) interrupted: Option<i32>,
}

/// Catches SIGINT, SIGTERM and SIGHUP while it exists, but for those that are ignored. They are ignored afterwards, unless the process catches them
/// elsewhere too.
#[derive(Debug)]
pub struct Signals(Vec<Caught>);

#[derive(Debug)]
struct Caught {
    signal: i32,
    inbox: UnixStream,
    hook: SigId,
}

impl Signals {
    /// Catches signals from now on.
    pub fn catch() -> io::Result<Self> {
        let mut signals = Self(Vec::new());
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if farhaul_udp::signals::is_ignored(signal)? {
                continue;
            }
            let (inbox, outbox) = UnixStream::pair()?;
            inbox.set_nonblocking(true)?;
            let hook = signal_hook::low_level::pipe::register(signal, outbox)?;
            signals.0.push(Caught {
                signal,
                inbox,
                hook,
            });
        }
        Ok(signals)
    }

    /// Waits for a signal.
    pub(crate) fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(signal) = self.next() {
                return Ok(signal);
            }
            let mut fds: Vec<_> = self
                .inboxes()
                .map(|inbox| PollFd::new(inbox, PollFlags::IN))
                .collect();
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Readable when one has arrived.
    pub fn inboxes(&self) -> impl Iterator<Item = &UnixStream> {
        self.0.iter().map(|caught| &caught.inbox)
    }

    /// Takes a signal that has arrived since the last call.
    #[expect(clippy::should_implement_trait, reason = "it does not end")]
    pub fn next(&mut self) -> Option<i32> {
        self.0
            .iter_mut()
            .find(|caught| matches!((&caught.inbox).read(&mut [0]), Ok(1)))
            .map(|caught| caught.signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for caught in &self.0 {
            signal_hook::low_level::unregister(caught.hook);
        }
    }
}

/// Waits for the main program. A signal to us is passed on; a program that ignores it is killed.
pub(crate) fn wait(mut child: Child, signals: &mut Signals) -> io::Result<Ending> {
    let ended = watch(&child)?;
    let mut interrupted = None;
    let mut timeout = None;
    // What to send when the patience has run out.
    let mut next = Signal::TERM;
    loop {
        let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
        fds.extend(
            signals
                .inboxes()
                .map(|inbox| PollFd::new(inbox, PollFlags::IN)),
        );
        let ready = match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        if !fds[0].revents().is_empty() {
            let status = child.wait()?;
            return Ok(Ending {
                status,
                interrupted,
            });
        }
        let signal = signals.next();
        // A terminal has sent its interrupt to the program as well; once is enough.
        let heard = signal == Some(SIGINT) && interrupted.is_none();
        if !heard && (signal.is_some() || ready == 0) {
            // It may end at this very moment.
            let _ = kill_process(pid(&child), next);
            next = Signal::KILL;
        }
        interrupted = interrupted.or(signal);
        timeout = Some(timespec(GRACE));
    }
}

/// A descriptor that becomes readable when the process ends.
fn watch(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid(child), PidfdFlags::empty())?)
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}
