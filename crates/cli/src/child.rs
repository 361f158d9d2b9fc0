//! Ends programs that we started and need no more. Such a program has a moment to end by itself,
//! then gets a request to end, and is then killed. So nobody waits for it without a limit.
//!
//! It stays in our process group: in one of its own it could not ask for a password on the terminal.

use std::{
    io,
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use farhaul_udp::netns;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// Time that a program may take to end by itself once it has nothing left to do.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that the program may take after the request to end.
const TOLD: Duration = Duration::from_millis(500);

/// Ending of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// True if the program did not end by itself.
    pub(crate) killed: bool,
}

/// Starts it; it is killed if this process ends first, however that ends. For the main thread: it is the
/// end of the thread that counts.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    netns::die_with_this_thread(command).spawn()
}

/// Waits for its end, and brings it about after [`EXIT_TIMEOUT`].
pub(crate) fn end(child: &mut Child) -> io::Result<Ended> {
    let killed = !ended_within(child, EXIT_TIMEOUT);
    if killed {
        // It may end at this very moment.
        let _gone = kill_process(Pid::from_child(child), Signal::TERM);
        if !ended_within(child, TOLD) {
            child.kill()?;
        }
    }
    let status = child.wait()?;
    Ok(Ended { status, killed })
}

fn ended_within(child: &Child, time: Duration) -> bool {
    // Where there is no such descriptor, its end cannot be waited for but without a limit.
    let Ok(ended) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return false;
    };
    let time = Timespec::try_from(time).ok();
    let mut fds = [PollFd::new(&ended, PollFlags::IN)];
    loop {
        match poll(&mut fds, time.as_ref()) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn started(words: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", words]);
        command.stdout(std::process::Stdio::piped());
        let mut child = start(&mut command).unwrap();
        // It prints this once it ignores the signals.
        io::Read::read(&mut child.stdout.take().unwrap(), &mut [0; 2]).unwrap();
        child
    }

    #[test]
    fn a_program_that_ends_is_not_killed_and_one_that_does_not_is() {
        let ended = end(&mut started("echo; exit 7")).unwrap();
        assert_eq!((ended.status.code(), ended.killed), (Some(7), false));
        let ended = end(&mut started("echo; exec sleep 1000")).unwrap();
        assert_eq!((ended.status.signal(), ended.killed), (Some(15), true));
        let deaf = end(&mut started("trap '' TERM; echo; exec sleep 1000")).unwrap();
        assert_eq!((deaf.status.signal(), deaf.killed), (Some(9), true));
    }
}
