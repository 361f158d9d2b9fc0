//! One system call that `strace` makes fail, come short or hang, drawn from a seed.

use std::{
    fmt, fs, io,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use farhaul_core::rng::Rng;

use crate::{
    program::{Program, farhaul, pause},
    tree::pick,
};

/// Calls of the end that sends.
const READS: [&str; 19] = [
    "pread64",
    "pread64",
    "preadv",
    "openat2",
    "openat2",
    "openat",
    "fstat",
    "newfstatat",
    "statx",
    "getdents64",
    "getdents64",
    "getdents64",
    "read",
    "lseek",
    "readlinkat",
    "fcntl",
    "fadvise64",
    "fgetxattr",
    "flistxattr",
];

/// Calls of the end that receives.
const WRITES: [&str; 35] = [
    "pwrite64",
    "pwrite64",
    "openat",
    "openat2",
    "fstat",
    "newfstatat",
    "renameat",
    "renameat2",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "fchmod",
    "fchmodat",
    "fchown",
    "utimensat",
    "fsync",
    "fdatasync",
    "syncfs",
    "ftruncate",
    "fallocate",
    "copy_file_range",
    "flock",
    "fstatfs",
    "fsetxattr",
    "fgetxattr",
    "getdents64",
    "getdents64",
    "getdents64",
    "pread64",
    "read",
    "write",
    "lseek",
    "faccessat,faccessat2",
];

/// Calls on sockets, threads and what wakes them, of either.
const OTHERS: [&str; 12] = [
    "sendmsg",
    "sendmmsg",
    "recvmsg",
    "recvmmsg",
    "ppoll",
    "epoll_wait,epoll_pwait",
    "clone3",
    "eventfd2",
    "socket",
    "connect",
    "setsockopt",
    "getsockopt",
];

const ERRORS: [&str; 18] = [
    "EIO",
    "ENOSPC",
    "EACCES",
    "EPERM",
    "EINTR",
    "ESTALE",
    "ENOSYS",
    "EOPNOTSUPP",
    "EDQUOT",
    "EMFILE",
    "ENFILE",
    "ENOMEM",
    "EROFS",
    "EINVAL",
    "EAGAIN",
    "EBUSY",
    "ETIMEDOUT",
    // Last: not of every call.
    "ENOENT",
];

/// Answers of the kernel or a container where no thread may be started.
const NO_THREAD: [&str; 3] = ["EAGAIN", "ENOMEM", "EPERM"];
/// Errors of a new descriptor, and of waiting: others would be of calls made wrongly.
const NO_DESCRIPTOR: [&str; 3] = ["EMFILE", "ENFILE", "ENOMEM"];
const NO_WAIT: [&str; 2] = ["EINTR", "ENOMEM"];

/// Calls that may answer with nothing. A second part of a listing may not: nobody can distinguish
/// that from the folder's end.
const SHORT: [&str; 5] = ["read", "pread64", "pwrite64", "write", "getdents64"];

/// End that makes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// Calls that are injected, and their fates.
#[derive(Clone, Debug)]
pub(super) struct Injection {
    pub(super) end: End,
    calls: &'static str,
    what: String,
    /// The calls, counted from one, as `strace` takes them; all of them without.
    when: Option<String>,
    /// The calls hang so long.
    pub(super) delay: Duration,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            End::Client => "client",
            End::Server => "server",
        };
        write!(f, "{end}, {}", self.rule())
    }
}

impl Injection {
    /// Draws one that lasts `longest` at most, for a copy in which the client sends, or else the server.
    pub(super) fn draw(rng: &mut Rng, client_sends: bool, longest: Duration) -> Self {
        let end = [End::Client, End::Server][pick(rng, 2)];
        let calls = if rng.chance(0.15) {
            OTHERS[pick(rng, OTHERS.len())]
        } else if (end == End::Client) == client_sends {
            READS[pick(rng, READS.len())]
        } else {
            WRITES[pick(rng, WRITES.len())]
        };
        let span = [3, 12, 40][pick(rng, 3)];
        let first = 1 + rng.below(span);
        let (what, when) = match rng.below(10) {
            0 if SHORT.contains(&calls) => {
                let first = if calls == "getdents64" { 1 } else { first };
                ("retval=0".into(), Some(first.to_string()))
            }
            // Rust's own library repeats reads and writes for ever.
            1 if errors(calls).contains(&"EINTR") && !["read", "write"].contains(&calls) => {
                ("error=EINTR".into(), None)
            }
            2 => return Self::hang(rng, (end, calls), first, longest),
            how => {
                let errors = errors(calls);
                let error = errors[pick(rng, errors.len())];
                let by_library = error == "EINTR" && ["read", "write"].contains(&calls);
                let when = match how {
                    _ if by_library => Some(first.to_string()),
                    3 | 4 => Some(format!("{first}+")),
                    5 => Some(format!("{first}+{}", 2 + rng.below(6))),
                    6 => None,
                    _ => Some(first.to_string()),
                };
                (format!("error={error}"), when)
            }
        };
        Self {
            end,
            calls,
            what,
            when,
            delay: Duration::ZERO,
        }
    }

    fn hang(
        rng: &mut Rng,
        (end, calls): (End, &'static str),
        first: u64,
        longest: Duration,
    ) -> Self {
        let most = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        let delay = 100_000 + rng.below(most);
        Self {
            end,
            calls,
            what: format!("delay_enter={delay}"),
            when: Some(first.to_string()),
            delay: Duration::from_micros(delay),
        }
    }

    /// True if it never ends, so that a server may give up.
    pub(super) fn lasts(&self) -> bool {
        self.when.as_ref().is_none_or(|when| when.contains('+'))
    }

    /// True if the program repeats each call, a bounded number of times: under `strace` that takes a while.
    pub(super) fn is_repeated(&self) -> bool {
        self.what == "error=EINTR" && self.lasts()
    }

    fn rule(&self) -> String {
        let when = self.when.as_ref();
        let when = when.map_or_else(String::new, |when| format!(":when={when}"));
        format!("inject={}:{}{when}", self.calls, self.what)
    }

    fn strace(&self, trace: &Path) -> Command {
        let mut command = Command::new("strace");
        let traced = format!("trace={}", self.calls);
        command.args(["-f", "-qq", "-e", "signal=none", "-e", &traced]);
        command.args(["-e", &self.rule(), "-o"]).arg(trace);
        command
    }

    /// The client under it, without arguments yet; the trace goes to `trace`.
    pub(super) fn client(&self, trace: &Path) -> io::Result<Command> {
        let mut command = self.strace(trace);
        command.args(["-D", "--seccomp-bpf"]).arg(farhaul()?);
        Ok(command)
    }

    /// Takes hold of every thread of the server `process`.
    pub(super) fn seize(&self, process: u32, trace: &Path) -> io::Result<Program> {
        let mut command = self.strace(trace);
        command.args(["-p", &process.to_string()]);
        let mut tracer = Program::start(command.stderr(Stdio::null()))?;
        while !is_traced(process)? {
            if let Some(status) = tracer.ends_within(Duration::ZERO)? {
                return Err(io::Error::other(format!("strace: {status}")));
            }
            pause(Duration::from_millis(1));
        }
        Ok(tracer)
    }
}

/// Errors that a call may answer. One that removed a name and says that there was none has lied.
const fn errors(calls: &str) -> &'static [&'static str] {
    match calls.as_bytes() {
        b"clone3" => &NO_THREAD,
        b"eventfd2" | b"socket" => &NO_DESCRIPTOR,
        b"ppoll" | b"epoll_wait,epoll_pwait" => &NO_WAIT,
        b"unlinkat" => ERRORS.split_at(ERRORS.len() - 1).0,
        _ => &ERRORS,
    }
}

fn is_traced(process: u32) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        if tracer.is_none_or(|tracer| tracer.trim() == "0") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Number of times that the rule was used, by what `strace` wrote.
pub(super) fn used(trace: &Path) -> u64 {
    // Without a file nothing was.
    let text = fs::read(trace).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let used = text
        .lines()
        .filter(|line| line.ends_with("(INJECTED)") || line.ends_with("(DELAYED)"));
    used.count() as u64
}

/// Reason that no call can be made to fail here.
pub(super) fn impossible() -> Option<String> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"]);
    command.args(["-e", "inject=chdir:error=EIO", "true"]);
    match command.stdin(Stdio::null()).output() {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(format!(
            "strace cannot trace here: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        )),
        Err(error) => Some(format!("strace: {error}")),
    }
}
