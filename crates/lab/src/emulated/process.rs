//! Runs a program of a flow in a process group of its own, with everything that it prints kept and
//! its processor time known. Each program ends: at its deadline it is asked to end, and killed
//! after that.

use std::{
    fs,
    io::{self, Read},
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_emu::Host;
use farhaul_io::clock;
use rustix::{
    event::{PollFd, PollFlags, poll},
    param::clock_ticks_per_second,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

use serde_json::Value;

use super::{quota::Quota, sampled::Sampled};
use farhaul_measure::udp::timespec;

/// Time that a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// The most of its output that is kept, bytes.
const KEPT: usize = 32 << 20;

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    ended: OwnedFd,
    outputs: [Output; 2],
    started: Instant,
    /// Time at which the program is asked to end, or killed.
    deadline: Instant,
    asked: bool,
    cpu: Duration,
    sampled: Sampled,
    end: Option<(Instant, ExitStatus)>,
}

/// Output and end of a process.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) started: Instant,
    /// Time for which the program ran.
    pub(super) took: Duration,
    /// Processor time of the process, of the children it waited for, and of the others in its group.
    pub(super) cpu: Duration,
    /// Seconds since the run began, and of processor time until then.
    pub(super) sampled: Vec<(f64, f64)>,
    /// True if the program was asked to end.
    pub(super) asked: bool,
    /// Reason why the run is no success.
    pub(super) failed: Option<String>,
}

impl Process {
    /// Starts `command` on `host`, within `quota` if there is one; it ends at the `deadline` at the latest.
    pub(super) fn start(
        host: &Host,
        command: Command,
        quota: Option<&Quota>,
        deadline: Instant,
    ) -> io::Result<Self> {
        let (mut command, input) = match quota {
            Some(quota) => quota.around(&command)?,
            None => (command, Stdio::null()),
        };
        command
            .process_group(0)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = host.spawn(command)?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Whatever fails now, the program ends with the host.
        Ok(Self {
            child,
            ended,
            outputs: [Output::keep(stdout)?, Output::keep(stderr)?],
            started: clock::now(),
            deadline,
            asked: false,
            cpu: Duration::ZERO,
            sampled: Sampled::default(),
            end: None,
        })
    }

    /// Descriptor that is readable when the program has ended.
    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.ended
    }

    /// True if the program ends within `time`.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut fds, Some(&timespec(time))).is_ok_and(|n| n > 0)
    }

    /// Time at which the program was seen to have ended, and how.
    pub(super) const fn end(&self) -> Option<(Instant, ExitStatus)> {
        self.end
    }

    /// True if the program has printed `text`.
    pub(super) fn has_printed(&self, text: &str) -> bool {
        self.outputs
            .iter()
            .any(|output| output.text().contains(text))
    }

    /// Sets the deadline to `at`, unless there is an earlier one.
    pub(super) fn end_at(&mut self, at: Instant) {
        if !self.asked {
            self.deadline = self.deadline.min(at);
        }
    }

    /// Time at which [`Self::watch`] has something to do; none after its end.
    pub(super) fn next(&self) -> Option<Instant> {
        self.end.is_none().then_some(self.deadline)
    }

    /// Notices its end, and does what its deadline demands.
    pub(super) fn watch(&mut self, now: Instant) -> io::Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        if self.ends_within(Duration::ZERO) {
            // Before it is waited for: until then its times can be read.
            self.note_cpu();
            self.sample(now);
            // What it left behind in its group would go on for nobody.
            self.signal(Signal::KILL);
            self.end = Some((now, self.child.wait()?));
        } else if now >= self.deadline {
            self.note_cpu();
            self.signal(if self.asked {
                Signal::KILL
            } else {
                Signal::TERM
            });
            self.deadline = now + GRACE;
            self.asked = true;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // It may be gone at this very moment.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Notes the processor time that it has used until `now`.
    pub(super) fn sample(&mut self, now: Instant) {
        if self.end.is_none() {
            self.sampled.note(self.child.id(), now);
        }
    }

    fn note_cpu(&mut self) {
        self.cpu = self.cpu.max(group_time(self.child.id()));
    }

    /// Takes the output, once nothing can print any more: after the hosts are gone. Times are from
    /// `begun`.
    pub(super) fn finish(self, begun: Instant) -> Ended {
        let [stdout, stderr] = self.outputs.map(Output::finish);
        let (at, status) = self
            .end
            .map_or((clock::now(), None), |(at, s)| (at, Some(s)));
        let bad = match status {
            Some(status) if status.success() => None,
            Some(status) => Some(status.to_string()),
            None => Some("it was killed".into()),
        };
        let last = last_words(&stderr).or_else(|| complaint(&stdout));
        let failed = bad.map(|how| match last {
            Some(words) => format!("{how}: {words}"),
            None => format!("{how}, without a word"),
        });
        Ended {
            stdout,
            stderr,
            started: self.started,
            took: at.since(self.started),
            cpu: self.cpu,
            sampled: self.sampled.points(begun),
            asked: self.asked,
            failed,
        }
    }
}

/// The `error` of a JSON object, as iperf3 prints it, or else the last line.
fn complaint(stdout: &str) -> Option<String> {
    let object: Option<Value> = serde_json::from_str(stdout).ok();
    let error = object.as_ref().and_then(|object| object["error"].as_str());
    error.map(Into::into).or_else(|| last_words(stdout))
}

/// The last line.
fn last_words(text: &str) -> Option<String> {
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(300).collect())
}

/// Output of a program, as far as it is kept.
#[derive(Debug)]
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn keep<R: Read + Send + 'static>(from: Option<R>) -> io::Result<Self> {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reader = match from {
            None => None,
            Some(from) => {
                let into = Arc::clone(&kept);
                let thread = thread::Builder::new().name("output".into());
                Some(thread.spawn(move || read(from, &into))?)
            }
        };
        Ok(Self { kept, reader })
    }

    fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }

    fn finish(self) -> String {
        if let Some(reader) = self.reader {
            // A panic there has been printed, and what came before it is kept.
            let _ = reader.join();
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

/// Reads to the end; bytes beyond the bound are dropped.
fn read(mut from: impl Read, into: &Mutex<Vec<u8>>) {
    let mut block = vec![0; 64 << 10];
    loop {
        match from.read(&mut block) {
            Ok(0) => return,
            Ok(n) => {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&block[..room]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Processor time of all processes in a group, and of the children that they waited for.
fn group_time(group: u32) -> Duration {
    let Ok(all) = fs::read_dir("/proc") else {
        return Duration::ZERO;
    };
    let times = all.filter_map(|entry| {
        let path = entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u32>().ok()?;
        let (of, ticks) = times(&path)?;
        (of == group).then_some(ticks)
    });
    let ticks: u64 = times.sum();
    Duration::from_millis(ticks.saturating_mul(1_000) / clock_ticks_per_second().max(1))
}

/// The group of a process, and the ticks that it and the children it waited for have used; one that has
/// ended meanwhile has none.
fn times(process: &Path) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    parse_stat(&stat)
}

fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    // The name in brackets may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let group = fields.get(2)?.parse().ok()?;
    let ticks = fields.get(11..15)?.iter().map(|n| n.parse::<u64>());
    Some((group, ticks.sum::<Result<_, _>>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_process_and_its_children() {
        let stat = "42 (a) b (c)) S 1 77 77 0 -1 4194560 100 0 0 0 11 5 300 20 20 0 1 0 100";
        assert_eq!(parse_stat(stat), Some((77, 336)));
        assert_eq!(parse_stat("42 (x) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_last_line_with_something_in_it_is_what_it_said() {
        assert_eq!(last_words("a\n  b \n\n"), Some("b".into()));
        assert_eq!(last_words(" \n"), None);
        let printed = "{\n \"error\": \"no route\"\n}\n";
        assert_eq!(complaint(printed), Some("no route".into()));
        assert_eq!(complaint("a\nb\n"), Some("b".into()));
    }
}
