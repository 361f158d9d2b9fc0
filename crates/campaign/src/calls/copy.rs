//! One copy with an injection, and the same command once more in peace.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use farhaul_core::rng::Rng;
use farhaul_io::clock;
use rustix::{fs::XattrFlags, process::Signal};

use super::{
    Counts,
    inject::{self, End, Injection},
};
use crate::{
    Scale,
    program::{EXIT_TIMEOUT, Program, Server, farhaul, pause, signal, trailing},
    tree::{self, Entry, Tree, pick},
};

/// A copy has ended by then, whatever fails: of a few MiB, with an idle time of [`IDLE`].
const BOUND: Duration = Duration::from_secs(100);
const IDLE: &str = "6s";
/// A server has closed the session of a client that is no more.
const GIVEN_UP: Duration = Duration::from_secs(40);
/// Names of a folder whose listing takes several calls.
const MANY: u64 = 700;
/// Characters of a fault that are shown.
const SHOWN: usize = 700;
/// Warnings of what a file system does not have.
const NO_LINKS: &str = "has no symbolic links";
const NO_MODES: &str = "permissions cannot be set at the destination";
/// The last code of the program's table.
const LAST_CODE: i32 = 22;

/// Planted fault: damage at the oracles' input, for the program has no such fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// Content that changes.
    Byte,
    /// A name that goes.
    Deletion,
    /// A part that stays.
    Litter,
    /// A client that is stopped for ever.
    Hang,
    /// A client that is aborted.
    Abort,
}

const PLANTED: [Planted; 5] = [
    Planted::Byte,
    Planted::Deletion,
    Planted::Litter,
    Planted::Hang,
    Planted::Abort,
];

struct Copy<'a> {
    home: &'a Path,
    source: PathBuf,
    target: PathBuf,
    /// True if the client delivers; else it fetches.
    puts: bool,
    /// True if entries that the source lacks are deleted.
    mirrors: bool,
    /// True for owners, hard links and attributes, too.
    archives: bool,
    injection: Injection,
    planted: Option<Planted>,
    /// Tree that is to be there, and the one that was there.
    wanted: Tree,
    old: Tree,
    server: Server,
    counts: &'a Counts,
    /// Output of clients.
    said: String,
}

pub(super) fn run(home: &Path, seed: u64, scale: &Scale, counts: &Counts) -> Result<(), String> {
    let text = |e: io::Error| format!("cannot begin: {e}");
    let mut copy = Copy::new(home, seed, scale, counts).map_err(text)?;
    let outcome = copy.go();
    let (what, injection) = (copy.describe(), copy.injection.to_string());
    outcome.map_err(|fault| {
        // Backtraces are long.
        let fault = fault.chars().take(SHOWN).collect::<String>();
        format!("{what}, {injection}: {fault}")
    })
}

impl<'a> Copy<'a> {
    fn new(home: &'a Path, seed: u64, scale: &Scale, counts: &'a Counts) -> io::Result<Self> {
        let mut rng = Rng::new(seed);
        let (source, target) = (home.join("source"), home.join("target"));
        let mirrors = rng.chance(0.5);
        let (puts, archives) = (rng.chance(0.5), rng.chance(0.4));
        let longest = Duration::from_secs(if scale.full { 12 } else { 3 });
        let injection = Injection::draw(&mut rng, puts, longest);
        tree::make(&source, &mut rng)?;
        let wide = rng.chance(0.4) && !injection.is_repeated();
        widen(&source, wide, &mut rng)?;
        fs::create_dir(&target)?;
        if mirrors || rng.chance(0.4) {
            tree::age(&source, &target, &mut rng)?;
            keep(&source, &target, &mut rng)?;
            stray(&target, &mut rng)?;
        }
        let seed = usize::try_from(seed).unwrap_or_default();
        let planted = scale.planted.then(|| PLANTED[seed % PLANTED.len()]);
        let old = tree::read(&target)?;
        let mut wanted = tree::read(&source)?;
        if !mirrors {
            let extra = old
                .iter()
                .filter(|(path, _)| !wanted.contains_key(*path))
                .map(|(path, entry)| (path.clone(), entry.clone()))
                .collect::<Vec<_>>();
            wanted.extend(extra);
        }
        let share = if puts {
            format!("s={}:rw", target.display())
        } else {
            format!("s={}:ro", source.display())
        };
        let server = Server::serve(home, &[share])?;
        Ok(Self {
            home,
            source,
            target,
            puts,
            mirrors,
            archives,
            injection,
            planted,
            wanted,
            old,
            server,
            counts,
            said: String::new(),
        })
    }

    fn describe(&self) -> String {
        let direction = if self.puts { "put" } else { "fetch" };
        let mirrors = if self.mirrors { " --delete" } else { "" };
        let archives = if self.archives { " --archive" } else { "" };
        format!("{direction}{mirrors}{archives}")
    }

    fn go(&mut self) -> Result<(), String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        self.disturbed()?;
        // One failed call ends no server; it may give up where nothing works any more.
        if let Some(status) = self
            .server
            .program
            .ends_within(Duration::ZERO)
            .map_err(text)?
        {
            if !self.injection.lasts() || !documented(status) {
                return Err(format!("the server ended with {status}"));
            }
            self.restart().map_err(text)?;
        }
        let status = self.attempt(None)?;
        if !status.success() {
            return Err(format!(
                "the same command in peace ends with {status}: {}",
                self.said.trim()
            ));
        }
        self.equals()?;
        if self.planted == Some(Planted::Litter) {
            fs::write(self.target.join(".x.farhaul-part"), "x").map_err(text)?;
        }
        self.tidied()
    }

    /// The run with the injection, and what must hold whatever became of it.
    fn disturbed(&mut self) -> Result<(), String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        let trace = self.home.join("trace");
        let tracer = match self.injection.end {
            End::Client => None,
            End::Server => {
                let server = self.server.program.id();
                Some(self.injection.seize(server, &trace).map_err(text)?)
            }
        };
        let outcome = self.attempt(Some(&trace));
        if let Some(mut tracer) = tracer {
            // It lets the server go.
            let _ended = tracer.terminate(EXIT_TIMEOUT).map_err(text)?;
        }
        let status = outcome?;
        let used = inject::used(&trace);
        self.counts.calls.fetch_add(used, Relaxed);
        self.counts.met.fetch_add(u64::from(used > 0), Relaxed);
        let count = if status.success() {
            &self.counts.succeeded
        } else {
            &self.counts.failed
        };
        count.fetch_add(1, Relaxed);
        self.plant().map_err(text)?;
        // The C library's loader failed; the program had not begun.
        let begun = !self.said.contains("error while loading shared libraries");
        if begun && !documented(status) {
            return Err(format!("it ended with {status}: {}", self.said.trim()));
        }
        if self.said.contains("panicked") {
            return Err(format!("it panicked: {}", self.said.trim()));
        }
        let there = tree::read(&self.target).map_err(text)?;
        if let Some(what) = self.deleted(&there) {
            return Err(format!("{status}, and {what}"));
        }
        if let Some(what) = tree::torn(&self.wanted, &self.old, &there) {
            return Err(format!("{status}, and {what}"));
        }
        if status.success() {
            self.equals()?;
        }
        Ok(())
    }

    /// Names an entry that is gone although the source has it, or although nothing may be deleted.
    fn deleted(&self, there: &Tree) -> Option<String> {
        let mut kept = self
            .old
            .keys()
            .filter(|path| self.wanted.contains_key(*path));
        let gone = kept.find(|path| !there.contains_key(*path));
        gone.map(|path| format!("{} was deleted wrongly", path.display()))
    }

    /// Checks that after a success the destination is the source, with the modes of its files.
    fn equals(&self) -> Result<(), String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        let there = tree::read(&self.target).map_err(text)?;
        // Documented: links that the file system does not have are left out with a warning.
        let no_links = self.said.contains(NO_LINKS);
        let chosen = |tree: &Tree| -> Tree {
            let chosen = tree.iter();
            let chosen = chosen.filter(|(_, entry)| !(no_links && matches!(entry, Entry::Link(_))));
            chosen
                .map(|(path, entry)| (path.clone(), entry.clone()))
                .collect()
        };
        let (wanted, there) = (chosen(&self.wanted), chosen(&there));
        if let Some(what) = tree::differs(&wanted, &there) {
            return Err(format!("exit 0, but {what}: {}", self.said.trim()));
        }
        if self.said.contains(NO_MODES) {
            return Ok(());
        }
        for (path, entry) in &self.wanted {
            let source = self.source.join(path);
            if !matches!(entry, Entry::File(_)) || self.old.contains_key(path) || !source.exists() {
                continue;
            }
            let mode = |path: &Path| Ok(fs::metadata(path)?.permissions().mode() & 0o777);
            let modes: [io::Result<u32>; 2] = [mode(&source), mode(&self.target.join(path))];
            if let [Ok(source), Ok(target)] = modes
                && source != target
            {
                return Err(format!(
                    "exit 0, but {} has mode {target:o}, not {source:o}",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    /// Checks that nothing of the copy's own is left, or that it was named. A server keeps its
    /// journal until it has received the client's close, or has timed out.
    fn tidied(&mut self) -> Result<(), String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        let until = clock::now()
            + if self.planted.is_some() {
                Duration::ZERO
            } else {
                GIVEN_UP
            };
        loop {
            let there = tree::read(&self.target).map_err(text)?;
            let Some(left) = there.keys().find(|path| tree::is_state(path)) else {
                return Ok(());
            };
            let name = left.file_name().unwrap_or_default().to_string_lossy();
            if self.said.contains(&*name) {
                return Ok(());
            }
            if clock::now() >= until {
                return Err(format!("exit 0, but {} was left", left.display()));
            }
            pause(Duration::from_millis(50));
        }
    }

    fn restart(&mut self) -> io::Result<()> {
        let share = if self.puts {
            format!("s={}:rw", self.target.display())
        } else {
            format!("s={}:ro", self.source.display())
        };
        self.server = Server::serve(self.home, &[share])?;
        Ok(())
    }

    /// Runs the client until it ends.
    fn attempt(&mut self, trace: Option<&Path>) -> Result<ExitStatus, String> {
        let text = |e: io::Error| format!("cannot go on: {e}");
        let said = self.home.join("said");
        let mut command = self.client(trace).map_err(text)?;
        command.stderr(Stdio::from(fs::File::create(&said).map_err(text)?));
        let mut client = Program::start(&mut command).map_err(text)?;
        let mut bound = BOUND + self.injection.delay;
        match self.planted {
            Some(Planted::Hang) => {
                signal(client.id(), Signal::STOP).map_err(text)?;
                bound = Duration::from_secs(3);
            }
            Some(Planted::Abort) => signal(client.id(), Signal::ABORT).map_err(text)?,
            _ => {}
        }
        let status = client.ends_within(bound).map_err(text)?;
        let printed = fs::read(&said).map_err(text)?;
        self.said.push_str(&String::from_utf8_lossy(&printed));
        status.ok_or_else(|| {
            format!(
                "it did not end within {} s: {}",
                bound.as_secs(),
                self.said.trim()
            )
        })
    }

    fn client(&self, trace: Option<&Path>) -> io::Result<Command> {
        let mut command = match (trace, self.injection.end) {
            (Some(trace), End::Client) => self.injection.client(trace)?,
            _ => Command::new(farhaul()?),
        };
        command
            .args(["cp", "--trust-any", "--idle", IDLE])
            .args(["--udp-timeout", "3s", "--path-memory", "never"])
            .env("HOME", self.home)
            .stdout(Stdio::null());
        for (flag, is_set) in [("--delete", self.mirrors), ("--archive", self.archives)] {
            if is_set {
                command.arg(flag);
            }
        }
        let there = format!("{}::s/", self.server.address());
        if self.puts {
            command.arg(trailing(&self.source)).arg(there);
        } else {
            command.arg(there).arg(trailing(&self.target));
        }
        Ok(command)
    }

    /// Damages what the oracles look at.
    fn plant(&self) -> io::Result<()> {
        let there = tree::read(&self.target)?;
        let is_file = |path: &PathBuf| matches!(self.wanted.get(path), Some(Entry::File(_)));
        let deletes = self.planted == Some(Planted::Deletion);
        let mut gone = 0;
        for path in there.keys().filter(|path| deletes && is_file(path)) {
            fs::remove_file(self.target.join(path))?;
            gone += u64::from(self.old.contains_key(path));
        }
        // Of a copy that failed, only names that were there before are missed.
        if self.planted == Some(Planted::Byte) || (deletes && gone == 0) {
            let path = self.wanted.keys().find(|path| is_file(path));
            let to = self.target.join(path.ok_or(io::ErrorKind::NotFound)?);
            fs::create_dir_all(to.parent().unwrap_or(&self.target))?;
            fs::write(to, "what nobody has copied")?;
        }
        Ok(())
    }
}

/// True for a code of the program's table that is not its own fault.
fn documented(status: ExitStatus) -> bool {
    status
        .code()
        .is_some_and(|code| code != 1 && (0..=LAST_CODE).contains(&code))
}

/// Adds nested folders, one with many names if it is `wide`, and links of both kinds.
fn widen(root: &Path, wide: bool, rng: &mut Rng) -> io::Result<()> {
    fs::create_dir(root.join("nested"))?;
    fs::create_dir(root.join("nested/deep"))?;
    symlink("deep/f", root.join("nested/link"))?;
    let twice = root.join("nested/twice");
    fs::write(&twice, "one of two names")?;
    // Not every file system takes it.
    let _refused = rustix::fs::setxattr(&twice, "user.kind", b"any", XattrFlags::empty());
    fs::hard_link(&twice, root.join("nested/deep/twice"))?;
    for i in 0..if wide { MANY } else { 3 } {
        let name = format!("nested/deep/f{i:0width$}", width = 10 + pick(rng, 60));
        fs::write(root.join(name), i.to_string())?;
    }
    fs::write(root.join("nested/deep/f"), "f")
}

/// Puts some of the files of `source` at `target` as they are.
fn keep(source: &Path, target: &Path, rng: &mut Rng) -> io::Result<()> {
    for (path, entry) in tree::read(source)? {
        let to = target.join(&path);
        if matches!(entry, Entry::File(_)) && rng.chance(0.7) && !to.exists() {
            let from = source.join(&path);
            fs::copy(&from, &to)?;
            let modified = fs::metadata(&from)?.modified()?;
            fs::File::options()
                .write(true)
                .open(&to)?
                .set_modified(modified)?;
        }
    }
    Ok(())
}

/// Puts there what the source lacks.
fn stray(target: &Path, rng: &mut Rng) -> io::Result<()> {
    let folder = target.join("stray");
    fs::create_dir(&folder)?;
    for i in 0..=rng.below(4) {
        fs::write(folder.join(i.to_string()), "stray")?;
        fs::write(target.join(format!("stray{i}")), "stray")?;
    }
    Ok(())
}
