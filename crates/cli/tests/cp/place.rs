//! A folder with a share, a configuration of its own, and servers.

#[path = "../environment/mod.rs"]
pub(crate) mod environment;
#[path = "../environment/memory.rs"]
mod memory;
#[path = "../environment/pause.rs"]
mod pause;
#[path = "../../../lab/tests/udt_interop/port.rs"]
pub(crate) mod port;

use std::{
    fs,
    io::{self, BufRead, BufReader, Write as _},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
};

pub(crate) use pause::pause;

/// A folder for one test, with a configuration of its own.
pub(crate) struct Place(pub(crate) tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self::of(tempfile::tempdir())
    }

    /// A place in memory, where nothing waits for a disk; for tests to which the file system does not matter.
    pub(crate) fn in_memory() -> Self {
        Self::of(memory::folder())
    }

    fn of(folder: io::Result<tempfile::TempDir>) -> Self {
        let place = Self(folder.expect("a temporary folder"));
        fs::create_dir(place.path("share")).expect("a share");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_farhaul")), args)
    }

    /// Arguments of a server of the share on any port.
    pub(crate) fn serving(&self, allow: &str) -> Vec<String> {
        let share = format!("s={}:rw", self.path("share").display());
        let listen = "127.0.0.1:0";
        [
            "serve", "--listen", listen, "--share", &share, "--allow", allow,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// A server of the share that runs as `nobody`; who starts the tests is root.
    pub(crate) fn server_of_nobody(&self) -> Command {
        const NOBODY: u32 = 65_534;
        fs::create_dir(self.path("theirs")).expect("a folder");
        std::os::unix::fs::chown(self.path("theirs"), Some(NOBODY), None).expect("ours");
        let serving = self.serving("any");
        let words: Vec<&str> = serving.iter().map(String::as_str).collect();
        let mut command = self.copied_command(&words);
        command
            .uid(NOBODY)
            .env("XDG_CONFIG_HOME", self.path("theirs"));
        command
    }

    /// Command with a copy of the program, for users that may not look where it was built.
    pub(crate) fn copied_command(&self, args: &[&str]) -> Command {
        let copy = self.path("farhaul-copy");
        copy_program(Path::new(env!("CARGO_BIN_EXE_farhaul")), &copy);
        self.command_of(&copy, args)
    }

    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = environment::command(program, self.0.path());
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A script of the shell.
    pub(crate) fn script(&self, script: &str) -> Command {
        self.command_of(Path::new("sh"), &["-c", script])
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// Starts the program with a pipe as the standard input, as `<(...)` passes on a pipe.
    pub(crate) fn fed(&self, args: &[&str], text: &str) -> Child {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut pipe = child.stdin.take().expect("piped");
        pipe.write_all(text.as_bytes()).expect("it reads");
        child
    }

    /// Starts a server on any port.
    pub(crate) fn serve(&self, more: &[&str]) -> Served {
        self.serve_at("127.0.0.1:0", more)
    }

    /// Starts a server that allows another key than this user's.
    pub(crate) fn serve_others(&self) -> Served {
        let out = self.run(&["key", "gen", "--out", "somebody"]);
        let key = String::from_utf8(out.stdout).expect("a key");
        self.serve(&["--allow", key.trim()])
    }

    /// Starts a server on a port of its own, to which another one may come back.
    pub(crate) fn serve_to_return(&self, more: &[&str]) -> Served {
        self.serve_at(&format!("127.0.0.1:{}", port::free_port()), more)
    }

    /// Starts a server.
    pub(crate) fn serve_at(&self, at: &str, more: &[&str]) -> Served {
        let share = format!("s={}:rw", self.path("share").display());
        let args = [&["serve", "--listen", at, "--share", &share], more].concat();
        Self::serve_by(self.command(&args))
    }

    /// Starts a server by this command.
    pub(crate) fn serve_by(mut command: Command) -> Served {
        Self::serve_as(command.spawn().expect("the program starts"))
    }

    /// The server that was started so.
    pub(crate) fn serve_as(mut child: Child) -> Served {
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let printed = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|l| l.starts_with("listening on"));
        let printed = printed.expect("the server says where it listens");
        let mut words = printed.split([' ', '/']);
        let at = words.nth(2).expect("an address").to_string();
        let key = printed.rsplit(' ').next().expect("a key").to_string();
        // Whatever it says later must not fill the pipe.
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _nobody_asks = say.send(line);
            }
        });
        Served {
            child,
            at,
            key,
            said,
        }
    }
}

pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) at: String,
    pub(crate) key: String,
    pub(crate) said: mpsc::Receiver<String>,
}

impl Served {
    pub(crate) fn to(&self, path: &str) -> String {
        format!("{}::s/{path}", self.at)
    }

    /// The next line on its stderr with these words; it must come.
    pub(crate) fn says(&self, words: &str) -> String {
        let mut before = Vec::new();
        loop {
            let line = self.said.recv();
            let line = line.unwrap_or_else(|_| panic!("it did not say '{words}': {before:?}"));
            if line.contains(words) {
                return line;
            }
            before.push(line);
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(self.child.id(), signal);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    farhaul_core::rng::Rng::new(seed).fill(&mut bytes);
    bytes
}

pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

pub(crate) fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub(crate) fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Bytes stored in parts of files in this folder.
pub(crate) fn part_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let parts = entries.filter(|e| {
        let name = e.file_name();
        let name = name.to_string_lossy();
        name.ends_with("-part") || name.ends_with("-stripes")
    });
    parts
        .filter_map(|e| e.metadata().ok())
        .map(|m| m.blocks() * 512)
        .sum()
}

/// Waits until `dir` holds `bytes` of a part, which `child` has a hand in.
pub(crate) fn await_part(dir: &Path, bytes: u64, child: &mut Child) {
    await_that(child, || part_bytes(dir) >= bytes);
}

/// Waits for what must be so soon, and counts the looks.
pub(crate) fn soon(is_so: impl Fn() -> bool) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        assert!(looks < 20_000, "it is not so");
        pause();
    }
}

/// Waits for what must be so before `child` ends.
pub(crate) fn await_that(child: &mut Child, is_so: impl Fn() -> bool) {
    while !is_so() {
        assert!(
            child.try_wait().expect("our own child").is_none(),
            "it ended too early"
        );
        pause();
    }
}

/// Copies a program by another process. A file that this process has open for writing its children
/// have, too, until they are programs of their own. No program can be started that is open for
/// writing.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("cp exists").success());
}

/// Sends a signal to a process.
pub(crate) fn kill(id: u32, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &id.to_string()])
        .status();
    assert!(sent.expect("kill exists").success());
}

/// Ends a client or server once the share holds `bytes` of a part, by `signal`.
pub(crate) fn end_when(place: &Place, bytes: u64, into: &str, child: &mut Child, signal: &str) {
    await_part(&place.path(into), bytes, child);
    kill(child.id(), signal);
}
