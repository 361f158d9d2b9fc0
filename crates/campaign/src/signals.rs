//! Signals to single threads of a server whose log nobody reads, while strangers are rejected and others copy by UDP and TCP.
//!
//! No copy may fail or wait, and no content may differ. The server may neither end nor stop to accept by UDP or TCP.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use farhaul_core::rng::Rng;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{
    Scale,
    program::{self, EXIT_TIMEOUT, Program, Quiet, cp, farhaul, pause, write_file},
    report::Report,
    tree::pick,
};

/// A copy that nothing holds up has ended by then.
const PATIENCE: Duration = Duration::from_secs(20);
const BYTES: u64 = 3_000_000;
/// Signals that ask for nothing, and one that asks for the configuration to be read again.
const SIGNALS: [Signal; 7] = [
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::PIPE,
    Signal::HUP,
];
/// A descriptor of one thread (`PIDFD_THREAD`), since Linux 6.9.
const OF_THREAD: u32 = 0o200;

/// Counts of all rounds.
#[derive(Debug, Default)]
struct Counts {
    signals: AtomicU64,
    strangers: AtomicU64,
    copies: AtomicU64,
    over: AtomicBool,
}

/// Runs rounds, each with a server of its own.
pub(crate) fn run(scale: &Scale) -> Report {
    let mut report = Report::new("signals");
    let counts = Counts::default();
    for seed in scale.seed..scale.seed + scale.runs(1, 20) {
        match Round::new(scale).and_then(|mut round| round.go(seed, scale, &counts)) {
            Ok(faults) => {
                let again = format!("(again: campaign signals --runs 1 --seed {seed})");
                for fault in faults {
                    report.fault(format!("{fault} {again}"));
                }
                report.ran();
            }
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                report.skip(e.to_string());
                return report;
            }
            Err(e) => report.fault(format!("seed {seed}: cannot go on: {e}")),
        }
    }
    for (name, count) in [
        ("signals to threads", &counts.signals),
        ("strangers rejected", &counts.strangers),
        ("copies beside them", &counts.copies),
    ] {
        report.figure(name, count.load(Relaxed));
    }
    report
}

struct Round {
    home: PathBuf,
    server: Quiet,
    planted: bool,
    /// Removed last.
    _folder: tempfile::TempDir,
}

impl Round {
    fn new(scale: &Scale) -> io::Result<Self> {
        let folder = program::folder("signals")?;
        let home = folder.path().to_owned();
        for name in ["share", "own", "stranger"] {
            fs::create_dir(home.join(name))?;
        }
        write_file(&home.join("file"), BYTES)?;
        let share = home.join("share");
        let server = if scale.planted {
            let share = format!("s={}:rw", share.display());
            crate::faulty::command(&home, &["--chatty", "--share", &share])?
        } else {
            let key = key(&home.join("own"))?;
            let config = home.join("serve.toml");
            let share = share.display();
            let text = format!(
                "drain = '0s'\n[[share]]\nname = 's'\npath = '{share}'\nmode = 'rw'\nallow = ['{key}']\n"
            );
            fs::write(&config, text)?;
            let mut command = Command::new(farhaul()?);
            command.arg("serve").arg("--config").arg(config);
            command.args(["--listen", "127.0.0.1:0", "--tcp"]);
            command.env("HOME", &home);
            command
        };
        Ok(Self {
            home,
            server: Quiet::start(server)?,
            planted: scale.planted,
            _folder: folder,
        })
    }

    /// Runs the round; returns what must not be.
    fn go(&mut self, seed: u64, scale: &Scale, counts: &Counts) -> io::Result<Vec<String>> {
        of_thread(self.server.program.id())?;
        let copies = if scale.full { 30 } else { 8 };
        counts.over.store(false, Relaxed);
        let round = &*self;
        let mut faults = thread::scope(|scope| {
            let pesters = [
                scope.spawn(|| round.signal(seed, counts)),
                scope.spawn(|| round.strangers(counts)),
                scope.spawn(|| round.strangers(counts)),
            ];
            let ways = if round.planted { 1 } else { 2 };
            let by = (0..ways).map(|way| scope.spawn(move || round.copies(way, copies, counts)));
            let by = by.collect::<Vec<_>>();
            let died = |_| io::Error::other("a thread panicked");
            let mut faults = Vec::new();
            for copier in by {
                faults.extend(copier.join().map_err(died)?);
            }
            counts.over.store(true, Relaxed);
            for pest in pesters {
                pest.join().map_err(died)??;
            }
            io::Result::Ok(faults)
        })?;
        if let Some(status) = self.server.program.ends_within(Duration::ZERO)? {
            faults.push(format!("the server ended with {status}"));
        } else if !self.planted && self.server.program.terminate(EXIT_TIMEOUT)?.is_none() {
            faults.push("the server does not end when it is asked to".into());
        }
        Ok(faults)
    }

    /// Signals threads at random, until it is over.
    fn signal(&self, seed: u64, counts: &Counts) -> io::Result<()> {
        let (mut rng, process) = (Rng::new(seed), self.server.program.id());
        while !counts.over.load(Relaxed) {
            let mut threads = Vec::new();
            for task in fs::read_dir(format!("/proc/{process}/task"))? {
                let name = task?.file_name();
                let id = name.to_str().and_then(|id| id.parse::<u32>().ok());
                threads.extend(id);
            }
            if threads.is_empty() {
                return Ok(());
            }
            let thread = threads[pick(&mut rng, threads.len())];
            // The planted server does not know them.
            let signal = SIGNALS[pick(&mut rng, SIGNALS.len())];
            if let Some(thread) = of_thread(thread)?.filter(|_| !self.planted) {
                match pidfd_send_signal(thread, signal) {
                    // It has ended meanwhile.
                    Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                    Err(e) => return Err(e.into()),
                }
                counts.signals.fetch_add(1, Relaxed);
            }
            pause(Duration::from_millis(rng.below(6)));
        }
        Ok(())
    }

    /// Comes with a key that is not allowed, until it is over.
    fn strangers(&self, counts: &Counts) -> io::Result<()> {
        while !counts.over.load(Relaxed) {
            let mut command = Command::new(farhaul()?);
            command.args(["ls", "--trust-any"]).arg(self.place(""));
            command.env("HOME", self.home.join("stranger"));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut program = Program::start(&mut command)?;
            if program.ends_within(PATIENCE)?.is_some() {
                counts.strangers.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Copies one after the other, by UDP or else by TCP; what became of those that did not succeed.
    fn copies(&self, way: usize, copies: u64, counts: &Counts) -> Vec<String> {
        let by = ["UDP", "TCP"][way % 2];
        let mut faults = Vec::new();
        for i in 0..copies {
            let name = format!("{by}{i}");
            if let Err(e) = self.copy(way == 1, &name) {
                faults.push(format!("a copy by {by}: {e}"));
                return faults;
            }
            counts.copies.fetch_add(1, Relaxed);
        }
        faults
    }

    fn copy(&self, by_tcp: bool, name: &str) -> io::Result<()> {
        let mut command = cp(&self.home.join("own"))?;
        if by_tcp {
            command.args(["--udp-timeout", "0s"]);
        }
        let said = self.home.join(format!("{name}.said"));
        command.stderr(fs::File::create(&said)?);
        command.arg(self.home.join("file")).arg(self.place(name));
        let mut program = Program::start(&mut command)?;
        let said = || fs::read_to_string(&said).unwrap_or_default();
        match program.ends_within(PATIENCE)? {
            None => return Err(io::Error::other(format!("does not end: {}", said().trim()))),
            Some(status) if !status.success() => {
                return Err(io::Error::other(format!("{status}: {}", said().trim())));
            }
            Some(_) => {}
        }
        if fs::read(self.home.join("share").join(name))? != fs::read(self.home.join("file"))? {
            return Err(io::Error::other("the content differs"));
        }
        Ok(())
    }

    fn place(&self, name: &str) -> String {
        format!("{}::s/{name}", self.server.address())
    }
}

/// A new key's public half.
fn key(home: &Path) -> io::Result<String> {
    for what in ["gen", "show"] {
        let mut command = Command::new(farhaul()?);
        let out = command.args(["key", what]).env("HOME", home).output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let key = text.split_whitespace().find(|w| w.starts_with("fh-pub"));
        if let Some(key) = key.filter(|_| what == "show") {
            return Ok(key.to_owned());
        }
    }
    Err(io::Error::other("farhaul key show prints no key"))
}

/// Descriptor that signals one thread; nothing if it has ended.
fn of_thread(thread: u32) -> io::Result<Option<std::os::fd::OwnedFd>> {
    let id = i32::try_from(thread).ok().and_then(Pid::from_raw);
    let Some(id) = id else { return Ok(None) };
    match pidfd_open(id, PidfdFlags::from_bits_retain(OF_THREAD)) {
        Ok(fd) => Ok(Some(fd)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(rustix::io::Errno::INVAL) => {
            let text = "this kernel signals no single thread of another process";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
        Err(e) => Err(e.into()),
    }
}
