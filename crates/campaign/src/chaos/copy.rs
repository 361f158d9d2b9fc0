//! Runs one copy. Its client is started again, with the same command, whenever it ended before all
//! was there. Up to a number of times the copy is disturbed meanwhile.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use farhaul_core::rng::Rng;
use farhaul_io::clock;
use rustix::process::Signal;

use super::{Counts, path::Between};
use crate::{
    Scale,
    program::{Program, Server, farhaul, lasting_port, pause, signal, trailing},
    tree::{self, pick},
};

/// An undisturbed copy has progressed or ended by then: the idle timeout is 30 s.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);
/// A server has closed the session of a client that stopped sending.
const GIVEN_UP: Duration = Duration::from_secs(40);
/// Longer than anything is stopped for in the gate.
const IDLE: Duration = Duration::from_secs(6);
/// Runs in peace after which it ought to have succeeded.
const PEACEFUL: u32 = 4;

#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not a state"
)]
struct Copy<'a> {
    rng: Rng,
    home: &'a Path,
    source: PathBuf,
    target: PathBuf,
    /// True if the client delivers; else it fetches.
    puts: bool,
    server: Server,
    between: Between,
    longest: Duration,
    planted: bool,
    /// True for a file system of its own, until it has been made large enough.
    small: bool,
    counts: &'a Counts,
    said: PathBuf,
    /// True if the server was killed in this attempt.
    restarted: bool,
}

pub(super) fn run(home: &Path, seed: u64, scale: &Scale, counts: &Counts) -> Result<(), String> {
    let mut copy =
        Copy::new(home, seed, scale, counts).map_err(|e| format!("cannot begin: {e}"))?;
    let outcome = copy.go();
    if copy.small {
        // Nothing is in it that matters.
        let _gone = Command::new("umount").arg("-l").arg(&copy.target).status();
    }
    outcome
}

impl<'a> Copy<'a> {
    fn new(home: &'a Path, seed: u64, scale: &Scale, counts: &'a Counts) -> io::Result<Self> {
        let mut rng = Rng::new(seed);
        let (source, target) = (home.join("source"), home.join("target"));
        tree::make(&source, &mut rng)?;
        fs::create_dir(&target)?;
        let small = rng.chance(0.1) && mount(&target, "size=1m", counts);
        if !small && rng.chance(0.5) {
            tree::age(&source, &target, &mut rng)?;
        }
        let puts = rng.chance(0.5);
        let shares = share(puts, &source, &target);
        let server = Server::serve_at(home, &shares, lasting_port()?)?;
        let between = Between::new(server.address(), &mut rng)?;
        Ok(Self {
            home,
            source,
            target,
            puts,
            server,
            between,
            longest: Duration::from_secs(if scale.full { 60 } else { 2 }),
            planted: scale.planted,
            small,
            counts,
            said: home.join("said"),
            restarted: false,
            rng,
        })
    }

    fn go(&mut self) -> Result<(), String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        let wanted = tree::read(&self.source).map_err(text)?;
        let old = tree::read(&self.target).map_err(text)?;
        let mut disturbances = self.rng.below(6);
        let mut peaceful = 0;
        loop {
            self.counts.attempts.fetch_add(1, Relaxed);
            let status = self.attempt(&mut disturbances)?;
            if self.planted {
                plant(&self.target).map_err(text)?;
            }
            let there = tree::read(&self.target).map_err(text)?;
            if status.success() {
                if let Some(what) = tree::differs(&wanted, &there) {
                    return Err(format!("exit 0, but {what}"));
                }
                if self.puts && self.restarted {
                    // Killed behind the last file, it could not tidy up; the next run does.
                    continue;
                }
                return self.tidied();
            }
            if let Some(what) = tree::torn(&wanted, &old, &there) {
                return Err(format!("{status}, and {what}"));
            }
            self.make_room();
            peaceful += u32::from(disturbances == 0);
            if peaceful > PEACEFUL {
                let said = fs::read_to_string(&self.said).unwrap_or_default();
                return Err(format!(
                    "left in peace it ends with {status}: {}",
                    said.trim()
                ));
            }
        }
    }

    /// Checks that nothing of the copy's own is left: at once where the client writes. A server
    /// keeps its journal until it has received the client's close, or has timed out.
    fn tidied(&self) -> Result<(), String> {
        let until = clock::now() + if self.puts { GIVEN_UP } else { Duration::ZERO };
        loop {
            let there = tree::read(&self.target).map_err(|e| format!("cannot go on: {e}"))?;
            let Some(left) = there.keys().find(|path| tree::is_state(path)) else {
                return Ok(());
            };
            if clock::now() >= until {
                return Err(format!("exit 0, but {} was left", left.display()));
            }
            pause(Duration::from_millis(50));
        }
    }

    /// Makes a full disk larger.
    fn make_room(&self) {
        if self.small {
            // If it does not work, the copy fails on, and says so.
            let _larger = Command::new("mount")
                .args(["-o", "remount,size=256m"])
                .arg(&self.target)
                .status();
        }
    }

    /// Runs the client until it ends, and disturbs it meanwhile.
    fn attempt(&mut self, disturbances: &mut u64) -> Result<ExitStatus, String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        self.restarted = false;
        let mut client = self.client(*disturbances > 0).map_err(text)?;
        let mut had = None;
        loop {
            let next = if *disturbances > 0 {
                Duration::from_millis(20 + self.rng.below(1_500))
            } else {
                STALL_TIMEOUT
            };
            if let Some(status) = client.ends_within(next).map_err(text)? {
                return Ok(status);
            }
            if *disturbances == 0 {
                let bytes = tree::bytes(&self.target).map_err(text)?;
                if bytes == had {
                    return Err(format!(
                        "nothing for {} s in peace",
                        STALL_TIMEOUT.as_secs()
                    ));
                }
                had = bytes;
                continue;
            }
            *disturbances -= 1;
            self.disturb(&client).map_err(text)?;
        }
    }

    fn client(&mut self, may_fail: bool) -> io::Result<Program> {
        let at = self.between.at();
        let mut command = if may_fail && self.rng.chance(0.15) {
            self.with_a_failing_call()?
        } else {
            Command::new(farhaul()?)
        };
        command
            .args(["cp", "--trust-any", "--quiet"])
            .env("HOME", self.home)
            .stdout(Stdio::null());
        if self.longest < IDLE {
            // Of a server that is no more, in the gate.
            command.args(["--idle", &format!("{}s", IDLE.as_secs())]);
        }
        if self.puts {
            command
                .arg(trailing(&self.source))
                .arg(format!("{at}::to/"));
        } else {
            command
                .arg(format!("{at}::from/"))
                .arg(trailing(&self.target));
        }
        command.stderr(Stdio::from(fs::File::create(&self.said)?));
        Program::start(&mut command)
    }

    /// The client under `strace`, which makes one of its system calls fail.
    fn with_a_failing_call(&mut self) -> io::Result<Command> {
        const CALLS: [&str; 8] = [
            "pwrite64",
            "fsync",
            "syncfs",
            "renameat2",
            "ftruncate",
            "fchmod",
            "openat2",
            "mkdirat",
        ];
        let call = CALLS[pick(&mut self.rng, CALLS.len())];
        let error = ["EIO", "ENOSPC", "EACCES"][pick(&mut self.rng, 3)];
        let inject = format!(
            "inject={call}:error={error}:when={}",
            1 + self.rng.below(12)
        );
        let trace = format!("trace={call}");
        let mut command = Command::new("strace");
        command
            .args(["-D", "-f", "-qq", "-o", "/dev/null"])
            .args(["-e", &trace, "-e", &inject])
            .arg(farhaul()?);
        if Command::new("strace")
            .arg("-V")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            return Ok(Command::new(farhaul()?));
        }
        self.counts.failed_calls.fetch_add(1, Relaxed);
        Ok(command)
    }

    /// Disturbs either end or the path.
    fn disturb(&mut self, client: &Program) -> io::Result<()> {
        let stall = Duration::from_millis(
            self.rng
                .below(u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX)),
        );
        match self.rng.below(7) {
            0 => {
                count(&self.counts.killed);
                signal(client.id(), Signal::KILL)
            }
            1 => {
                count(&self.counts.killed);
                signal(client.id(), Signal::TERM)
            }
            2 => {
                count(&self.counts.stopped);
                stall_of(client.id(), stall)
            }
            3 => {
                count(&self.counts.stopped);
                stall_of(self.server.program.id(), stall)
            }
            4 => {
                count(&self.counts.killed);
                self.restart()
            }
            5 => {
                self.between.go_dark()?;
                pause(stall);
                self.between.change(&mut self.rng)
            }
            _ => {
                count(&self.counts.rebound);
                self.between.change(&mut self.rng)
            }
        }
    }

    /// Kills the server and starts it again at its port.
    fn restart(&mut self) -> io::Result<()> {
        signal(self.server.program.id(), Signal::KILL)?;
        self.restarted = true;
        let port = self.server.port;
        let shares = share(self.puts, &self.source, &self.target);
        if self.server.program.ends_within(STALL_TIMEOUT)?.is_none() {
            return Err(io::Error::other("a server that was killed does not end"));
        }
        self.server = Server::serve_at(self.home, &shares, port)?;
        Ok(())
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

fn share(puts: bool, source: &Path, target: &Path) -> Vec<String> {
    vec![if puts {
        format!("to={}:rw", target.display())
    } else {
        format!("from={}:ro", source.display())
    }]
}

fn stall_of(process: u32, time: Duration) -> io::Result<()> {
    signal(process, Signal::STOP)?;
    pause(time);
    signal(process, Signal::CONT)
}

/// A file system of its own; false where that is not allowed.
fn mount(target: &Path, options: &str, counts: &Counts) -> bool {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "farhaul-chaos"])
        .arg(target)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    counts.full_disks.fetch_add(u64::from(mounted), Relaxed);
    mounted
}

/// The fault that the part must find: a byte that changes behind the copy's back.
fn plant(target: &Path) -> io::Result<()> {
    for (path, entry) in tree::read(target)? {
        if let tree::Entry::File(mut bytes) = entry
            && let Some(byte) = bytes.first_mut()
        {
            *byte ^= 1;
            return fs::write(target.join(path), bytes);
        }
    }
    Ok(())
}
