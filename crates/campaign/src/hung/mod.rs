//! A share on a file system that stops answering one kind of call, beside another share of the same server.
//!
//! Never to happen: a copy of the other share, its listing or a new client's handshake that waits
//! for the hung one. A client of the hung share that cannot be ended; places that its dead clients
//! keep; a panic.

mod fuse;
mod nodes;

use std::{
    fs, io,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use farhaul_io::clock;
use farhaul_udp::netns;
use rustix::process::Signal;

use crate::{
    Scale,
    program::{self, EXIT_TIMEOUT, Program, Server, cp, farhaul, pause, signal, timed, write_file},
    report::Report,
    spread::at_once,
};
use fuse::{Call, Mounted, READS, WRITES};

/// Runs at a time: they mostly wait.
const AT_ONCE: usize = 5;
/// Number of copies; their median counts.
const COPIES: usize = 3;
/// Time by which a copy may take longer beside a hung share.
const LATER: Duration = Duration::from_secs(1);
/// A copy that nothing holds up has ended by then.
const PATIENCE: Duration = Duration::from_secs(20);
/// The sessions that one key may have.
const PLACES: usize = 3;
/// Dead clients have given their places back: after 30 s nothing can be heard from them, and after 45 s that is noticed.
const GIVEN_BACK: Duration = Duration::from_secs(75);
const BYTES: u64 = 2_000_000;

/// Runs the part.
pub(crate) fn run(scale: &Scale) -> Report {
    let all = (READS.len() + WRITES.len()) as u64;
    let runs = scale.runs(5, all);
    let impossible = netns::own_mounts().map_err(|e| format!("no mount namespace: {e}"));
    let impossible = impossible.and_then(|()| try_out());
    if let Err(why) = impossible {
        let mut report = Report::new("hung");
        report.skip(why);
        return report;
    }
    let figures = Mutex::new(Report::new("hung"));
    let mut report = at_once("hung", AT_ONCE, scale.seed..scale.seed + runs, |seed| {
        // Neighbours of the list are of one kind; the gate takes some of each.
        let (call, puts) = nth(usize::try_from(seed.wrapping_mul(5) % all).unwrap_or_default());
        let found = Run::new(call, puts, scale).and_then(|mut run| run.go(&figures));
        let what = if puts { "delivery" } else { "fetch" };
        match found {
            Ok(None) => Ok(()),
            Ok(Some(fault)) => Err(format!("{what}, {} hangs: {fault}", call.0)),
            Err(error) => Err(format!("{what}, {} hangs: cannot go on: {error}", call.0)),
        }
    });
    report.add(figures.into_inner().unwrap_or_default());
    report
}

fn nth(n: usize) -> (Call, bool) {
    match n.checked_sub(READS.len()) {
        None => (READS[n], false),
        Some(n) => (WRITES[n], true),
    }
}

/// Error unless a file system can be mounted here.
fn try_out() -> Result<(), String> {
    let tried = || {
        let home = program::folder("hung")?;
        let _mounted = Mounted::new(home.path(), &[])?;
        io::Result::Ok(())
    };
    tried().map_err(|e| format!("no file system of our own (FUSE): {e}"))
}

/// A server with two shares; one of them hangs.
struct Run {
    call: Call,
    /// True if clients of the hung share deliver to it.
    puts: bool,
    mounted: Mounted,
    server: Server,
    home: PathBuf,
    /// True if the run waits until the places of dead clients are free, which takes 45 s.
    waits: bool,
    /// Removed last.
    _folder: tempfile::TempDir,
}

impl Run {
    fn new(call: Call, puts: bool, scale: &Scale) -> io::Result<Self> {
        let folder = program::folder("hung")?;
        let home = folder.path().to_owned();
        for name in ["well", "ill", "own", "other", "stranger"] {
            fs::create_dir(home.join(name))?;
        }
        write_file(&home.join("file"), BYTES)?;
        let content = fs::read(home.join("file"))?;
        let mounted = Mounted::new(&home.join("ill"), &[("file", content)])?;
        let shares = ["well", "ill"].map(|name| format!("{name}={}:rw", home.join(name).display()));
        let server = if scale.planted {
            let planted = ["--one-thread", "--share", &shares[0], "--share", &shares[1]];
            crate::faulty::serve(&home, &planted)?
        } else {
            let mut command = Server::command(&home, &shares, 0)?;
            command.args(["--max-per-key", &PLACES.to_string()]);
            command.args(["--max-sessions", &(PLACES + 1).to_string()]);
            Server::start(&mut command)?
        };
        Ok(Self {
            call,
            puts,
            mounted,
            server,
            home,
            waits: scale.full,
            _folder: folder,
        })
    }

    /// Runs; returns what must not be, if anything.
    fn go(&mut self, figures: &Mutex<Report>) -> io::Result<Option<String>> {
        let figure = |name: &str, value: Duration| {
            if let Ok(mut report) = figures.lock() {
                let millis = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
                report.most(name, millis);
            }
        };
        let peace = self.median()?;
        self.mounted.hang(self.call);
        let mut clients = (0..PLACES)
            .map(|i| Program::start(&mut self.client("own", i)?))
            .collect::<io::Result<Vec<_>>>()?;
        if !self.is_reached() {
            if let Ok(mut report) = figures.lock() {
                report.sum("runs in which the call was not made", 1);
            }
            return Ok(None);
        }
        let Ok(beside) = self.median() else {
            return Ok(Some("a copy of the other share did not succeed".into()));
        };
        figure("copy without a hung share, median, most ms", peace);
        figure("copy beside one, median, most ms", beside);
        // Of a machine with other work both are slow.
        if beside > peace * 3 + LATER {
            return Ok(Some(format!(
                "copies of the other share took {beside:?} instead of {peace:?}"
            )));
        }
        if let Err(error) = timed(&mut self.list("stranger")?, PATIENCE) {
            return Ok(Some(format!("a new client has no answer: {error}")));
        }
        if self.waits {
            // The server's last place.
            clients.push(Program::start(&mut self.client("other", PLACES)?)?);
            pause(Duration::from_secs(1));
        }
        if let Some(fault) = ended(&mut clients)? {
            return Ok(Some(fault));
        }
        if !self.waits {
            return Ok(None);
        }
        let Some(took) = self.given_back()? else {
            let seconds = GIVEN_BACK.as_secs();
            return Ok(Some(format!(
                "dead clients keep their places for {seconds} s"
            )));
        };
        figure("places of dead clients given back, most ms", took);
        Ok(None)
    }

    /// Waits until the file system has a call that it does not answer.
    fn is_reached(&self) -> bool {
        let until = clock::now() + Duration::from_secs(4);
        while self.mounted.waiting() == 0 {
            if clock::now() >= until {
                return false;
            }
            pause(Duration::from_millis(5));
        }
        true
    }

    /// The `i`th client of the hung share, with the key of `home`.
    fn client(&self, home: &str, i: usize) -> io::Result<Command> {
        let mut command = cp(&self.home.join(home))?;
        command.stderr(Stdio::null());
        let (there, here) = (self.server.address(), self.home.join("file"));
        if self.puts {
            command.arg(here).arg(format!("{there}::ill/new{i}/"));
        } else {
            let to = self.home.join(format!("own/{i}/"));
            command.arg(format!("{there}::ill/")).arg(to);
        }
        Ok(command)
    }

    fn copy(&self, home: &str, name: &str) -> io::Result<Command> {
        let mut command = cp(&self.home.join(home))?;
        command.stderr(Stdio::null()).arg(self.home.join("file"));
        command.arg(format!("{}::well/{name}", self.server.address()));
        Ok(command)
    }

    fn list(&self, home: &str) -> io::Result<Command> {
        let mut command = Command::new(farhaul()?);
        command.args(["ls", "--trust-any"]);
        command.arg(format!("{}::well/", self.server.address()));
        command.env("HOME", self.home.join(home));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    /// Median time of copies of the share that is well.
    fn median(&self) -> io::Result<Duration> {
        let mut took = Vec::new();
        for i in 0..COPIES {
            let name = format!("{i}");
            took.push(timed(&mut self.copy("other", &name)?, PATIENCE)?);
            fs::remove_file(self.home.join("well").join(name))?;
        }
        took.sort();
        Ok(took[COPIES / 2])
    }

    /// Time until the key of the dead clients had a place again.
    fn given_back(&self) -> io::Result<Option<Duration>> {
        let began = clock::now();
        while clock::now() < began + GIVEN_BACK {
            if timed(&mut self.copy("own", "again")?, PATIENCE).is_ok() {
                return Ok(Some(clock::now().since(began)));
            }
            pause(Duration::from_millis(500));
        }
        Ok(None)
    }
}

/// Ends clients of the hung share, one by request and the others by force.
fn ended(clients: &mut [Program]) -> io::Result<Option<String>> {
    if let Some(client) = clients.first_mut() {
        signal(client.id(), Signal::TERM)?;
        match client.ends_within(EXIT_TIMEOUT)? {
            None => return Ok(Some("a client does not end when it is asked to".into())),
            // It may have ended by itself before.
            Some(status) if status.code().is_none_or(|code| code == 1) => {
                return Ok(Some(format!("a client ended with {status}")));
            }
            Some(_) => {}
        }
    }
    for client in clients.iter().skip(1) {
        signal(client.id(), Signal::KILL)?;
    }
    Ok(None)
}
