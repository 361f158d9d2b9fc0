//! Commands of a stage: their output is shown line by line, their time is limited, and what they started ends with them.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, PipeReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::Outcome;

/// Marks every process of a stage, however it was started.
const MARK: &str = "XTASK_STAGE";
/// Time for which output may go on after the command that made it has ended.
const LINGER: Duration = Duration::from_secs(5);
/// Prefixes of lines that are repeated at the end of the gate, besides those of test runners.
const KEPT: [&str; 3] = ["campaign ", "comparisons: ", "soak: "];

/// State of one stage: where it runs, what it has to report at the end, and until when.
pub(crate) struct Runner<'a> {
    pub(crate) root: &'a Path,
    name: &'a str,
    /// True for lines that begin with the stage's name, since others run beside it.
    prefixed: bool,
    /// The value of [`MARK`] of all that it starts.
    mark: String,
    limit: Duration,
    until: Instant,
    /// Summary lines, repeated at the end.
    pub(crate) kept: Vec<String>,
    /// Promises that could not be checked here, with the reason.
    pub(crate) unchecked: Vec<String>,
}

/// The time, which decides only when something is given up or reported.
#[expect(clippy::disallowed_methods, reason = "limits and reports of the gate")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl<'a> Runner<'a> {
    pub(crate) fn new(root: &'a Path, name: &'a str, limit: Duration, prefixed: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            root,
            name,
            prefixed,
            mark: format!("{}.{count}", std::process::id()),
            limit,
            until: now() + limit,
            kept: Vec::new(),
            unchecked: Vec::new(),
        }
    }

    /// One line on stdout.
    pub(crate) fn say(&self, line: &str) {
        show(self.name, self.prefixed, line);
    }

    /// A line that is repeated at the end.
    pub(crate) fn keep(&mut self, line: &str) {
        self.say(line);
        self.kept.push(line.to_owned());
    }

    /// Reports that something was not checked, which fails the gate where everything has to be.
    pub(crate) fn not_checked(&mut self, why: &str) {
        self.say(&format!("NOT CHECKED: {why}"));
        self.unchecked.push(why.to_owned());
    }

    /// Runs `command` to its end and shows what it prints.
    pub(crate) fn run(&mut self, command: &mut Command) -> Outcome {
        self.finish(command, None)
    }

    /// Runs `command`; what it prints on stdout goes to `file` instead.
    pub(crate) fn run_into(&mut self, command: &mut Command, file: File) -> Outcome {
        self.finish(command, Some(file))
    }

    fn finish(&mut self, command: &mut Command, into: Option<File>) -> Outcome {
        let what = words(command);
        self.say(&format!("$ {what}"));
        let fail = |text: String| vec![format!("{what}: {text}")];
        let failed = |e: io::Error| fail(e.to_string());
        let (reader, writer) = io::pipe().map_err(failed)?;
        match into {
            Some(file) => command.stdout(file),
            None => command.stdout(writer.try_clone().map_err(failed)?),
        };
        for variable in of_this_package() {
            command.env_remove(variable);
        }
        let spawned = command
            .stdin(Stdio::null())
            .stderr(writer)
            .env(MARK, &self.mark)
            .spawn();
        // The pipe ends when the children's ends are closed.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawned.map_err(failed)?;
        let kept = Arc::default();
        let shown = self.show_all(reader, Arc::clone(&kept));
        let ended = wait(&mut child, self.until).map_err(|e| {
            end(&self.mark, child.id());
            failed(e)
        })?;
        let late = if ended {
            Vec::new()
        } else {
            end(&self.mark, child.id())
        };
        let status = child.wait().map_err(failed)?;
        let left = settle(&shown, &self.mark);
        if shown.join().is_err() {
            return Err(fail("its output could not be shown".into()));
        }
        self.kept
            .append(&mut kept.lock().unwrap_or_else(PoisonError::into_inner));
        if !ended {
            let minutes = self.limit.as_secs() / 60;
            return Err(fail(format!(
                "not finished {minutes} min after stage {} began; ended with all that ran: {}",
                self.name,
                late.join(", ")
            )));
        }
        if !left.is_empty() {
            self.keep(&format!(
                "left running by {what}, now ended: {}",
                left.join(", ")
            ));
        }
        if status.success() {
            Ok(())
        } else {
            Err(fail(status.to_string()))
        }
    }

    /// Shows lines as they come, and keeps those that count.
    fn show_all(&self, reader: PipeReader, kept: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
        let (name, prefixed) = (self.name.to_owned(), self.prefixed);
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end_matches('\n');
                show(&name, prefixed, text);
                if is_summary(text) {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.push(text.trim().to_owned());
                }
                line.clear();
            }
        })
    }
}

/// Variables that cargo sets for a program of the package that it runs. Some build scripts ask for
/// them, so a build from here would be built again from elsewhere.
fn of_this_package() -> impl Iterator<Item = OsString> {
    let names = env::vars_os().map(|(name, _)| name);
    names.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    })
}

/// One line on stdout; a closed pipe is not worth a panic.
pub(crate) fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

fn show(name: &str, prefixed: bool, line: &str) {
    if prefixed {
        print_line(&format!("{name:<8} | {line}"));
    } else {
        print_line(line);
    }
}

/// A command as it would be typed.
fn words(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> = std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

/// True if a line is a test runner's verdict.
fn is_summary(line: &str) -> bool {
    let line = line.trim();
    let of_cargo =
        line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed; 0 ignored;");
    let of_nextest = line.starts_with("Summary [")
        || line.starts_with("FAIL [")
        || line.starts_with("TIMEOUT [");
    let of_pytest = line.ends_with('s') && line.contains(" in ") && is_count(line);
    of_cargo || of_nextest || of_pytest || KEPT.iter().any(|prefix| line.starts_with(prefix))
}

/// True if a line begins with how many tests passed, failed or were skipped.
fn is_count(line: &str) -> bool {
    let mut words = line.split([' ', ',']);
    let number = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
    number
        && words
            .next()
            .is_some_and(|word| ["passed", "failed", "skipped"].contains(&word))
}

/// True if `child` has ended by `until`.
fn wait(child: &mut Child, until: Instant) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process without number"))?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left = until.saturating_duration_since(now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&ended, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Waits until all output was shown; ends what still holds the pipe. The names of the ended
/// processes.
fn settle(shown: &JoinHandle<()>, mark: &str) -> Vec<String> {
    let until = now() + LINGER;
    while !shown.is_finished() {
        if now() >= until {
            return end(mark, 0);
        }
        // Nothing shows when a thread has ended.
        thread::park_timeout(Duration::from_millis(5));
    }
    Vec::new()
}

/// Kills every process that carries `mark` or descends from `child`, which was not waited for; their names.
fn end(mark: &str, child: u32) -> Vec<String> {
    let mut names = BTreeSet::new();
    // What forks while it is looked for is found by the next look.
    for _ in 0..100 {
        let found = marked(mark, child);
        if found.is_empty() {
            break;
        }
        for (pid, name) in found {
            names.insert(name);
            // It may have ended by itself.
            let _gone = kill_process(pid, Signal::KILL);
        }
        thread::park_timeout(Duration::from_millis(10));
    }
    names.into_iter().collect()
}

/// Living processes that carry `mark` or descend from `child`, and their names.
fn marked(mark: &str, child: u32) -> Vec<(Pid, String)> {
    let entry = format!("{MARK}={mark}").into_bytes();
    let mut all = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let folder = process.path();
        let number = folder
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        if let (Some(number), Some((parent, name))) = (number, parent_and_name(&folder)) {
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            let carries = environment
                .split(|byte| *byte == 0)
                .any(|part| part == entry);
            all.push((number, parent, name, carries));
        }
    }
    let mut ours: BTreeSet<u32> = all
        .iter()
        .filter(|p| p.3 || p.0 == child)
        .map(|p| p.0)
        .collect();
    loop {
        let more: Vec<_> = all
            .iter()
            .filter(|p| ours.contains(&p.1) && !ours.contains(&p.0))
            .map(|p| p.0)
            .collect();
        if more.is_empty() {
            break;
        }
        ours.extend(more);
    }
    let ours = all.into_iter().filter(|p| ours.contains(&p.0));
    ours.filter_map(|p| Some((Pid::from_raw(i32::try_from(p.0).ok()?)?, p.2)))
        .collect()
}

/// Parent and name from `/proc/PID/stat`; nothing of a process that has ended.
fn parent_and_name(folder: &Path) -> Option<(u32, String)> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (!["Z", "X"].contains(&state)).then(|| (parent, name.to_owned()))
}

/// The cargo that runs this.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// Folder into which cargo builds.
pub(crate) fn target(root: &Path) -> Result<PathBuf, Vec<String>> {
    let failed = |e: &dyn std::fmt::Display| vec![format!("cargo metadata: {e}")];
    let output = cargo(root)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .map_err(|e| failed(&e))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| failed(&e))?;
    let folder = metadata["target_directory"].as_str().unwrap_or("target");
    Ok(root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(limit: Duration) -> Runner<'static> {
        Runner::new(Path::new("/"), "of a test", limit, true)
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn summaries_of_runners_are_kept() {
        for line in [
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured",
            "     Summary [ 798.376s] 2083 tests run: 2081 passed",
            "        FAIL [   2.797s] ( 142/2083) farhaul::compat a_name",
            "12 passed, 1 skipped in 3.20s",
            "campaign flood: 0 faults",
        ] {
            assert!(is_summary(line), "{line}");
        }
        for line in [
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured",
            "        PASS [   2.797s] a_name",
            "three passed in 3.20s",
        ] {
            assert!(!is_summary(line), "{line}");
        }
    }

    #[test]
    fn a_command_that_hangs_ends_with_all_it_started() {
        let mut runner = runner(Duration::from_millis(200));
        // One that left the group and the session, and one whose parent is gone.
        let said = runner.run(&mut shell(
            "setsid sleep 1000 & (sleep 1001 &) ; sleep 1002",
        ));
        let said = said.expect_err("it hangs").join("");
        assert!(
            said.contains("ended with all that ran: ") && said.contains("sleep"),
            "{said}"
        );
        assert!(marked(&runner.mark, 0).is_empty());
    }

    #[test]
    fn output_is_kept_and_failure_is_reported() {
        let mut runner = runner(Duration::from_mins(1));
        assert!(
            runner
                .run(&mut shell("echo 1 passed in 2s; exit 3"))
                .is_err()
        );
        assert_eq!(runner.kept, ["1 passed in 2s"]);
        let left = runner.run(&mut shell("sleep 1003 & echo 2 passed in 2s"));
        assert!(left.is_ok());
        assert!(runner.kept[2].contains("left running"), "{:?}", runner.kept);
    }
}
