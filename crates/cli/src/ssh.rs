//! Reaches a host that runs no server. The user's own `ssh` starts one there for this one transfer.
//! Both ends create one-time keys and exchange them over ssh, and the data is sent over UDP.
//!
//! The messages are in [`lines`]. They contain no secret, and no path is passed to a shell. The server ends
//! when its standard input does.

#[cfg(test)]
mod any_line;
pub(crate) mod chunks;
mod install;
mod lines;
pub(crate) mod sender;

use std::{
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::IpAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::text;
use farhaul_haul::{Identity, PublicKey};
use farhaul_io::tunnel::{Buffered, Tunnel};
use farhaul_transfer::{Ordered, TransferError};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;

pub(crate) use self::install::Consent;
use self::install::or_install;
pub(crate) use self::lines::{
    Answer, Ask, Hello, MAGIC, MOST_OF_CHUNK, Misheard, Order, RELEASE, Receiver, Report, Said,
    all_from_hex, from_hex, read_ask, to_hex,
};
use self::lines::{NoAnswer, WORD, read_answer};
use crate::{
    app::console::{Cancel, Console, Level},
    child::{self, Ended},
    exit::{Exit, Failure},
};

/// Places where farhaul may be when a login shell's PATH is not set up.
const PLACES: &str = "$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin:/opt/homebrew/bin";

/// Call of ssh.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    program: OsString,
    /// Flags before the host.
    flags: Vec<OsString>,
    /// Name of farhaul there, as a word of the shell.
    remote: String,
    /// True if the name was given.
    is_named: bool,
    ports: Option<(u16, u16)>,
    /// Consent to copy farhaul there.
    install: Option<Consent>,
}

impl Call {
    /// `program`, or `FARHAUL_SSH`, or `ssh`, with `flags`. There it starts `remote`, or
    /// `FARHAUL_REMOTE_BIN`, or `farhaul`, on one of `ports`; farhaul may be copied there with the
    /// `consent` to.
    pub(crate) fn new(
        program: Option<OsString>,
        flags: Vec<OsString>,
        remote: Option<String>,
        ports: Option<(u16, u16)>,
        consent: Option<Consent>,
    ) -> Self {
        let program = program.or_else(|| env::var_os("FARHAUL_SSH"));
        let named = remote.or_else(|| env::var("FARHAUL_REMOTE_BIN").ok());
        Self {
            program: program.unwrap_or_else(|| OsString::from("ssh")),
            flags,
            is_named: named.is_some(),
            remote: quoted(&named.unwrap_or_else(|| "farhaul".into())),
            ports,
            install: consent,
        }
    }

    /// Makes the call where nobody may be there to answer: ssh asks for no password, and nothing is
    /// copied that needs consent.
    pub(crate) fn without_questions(mut self) -> Self {
        self.flags.extend(["-o".into(), "BatchMode=yes".into()]);
        self.install = self.install.filter(|consent| *consent == Consent::Yes);
        self
    }

    /// Makes the call for the farhaul that was copied there.
    fn installed(&self) -> Self {
        Self {
            remote: install::PLACE.into(),
            install: None,
            ..self.clone()
        }
    }

    /// ssh with `flags` besides, and where to. Nothing after `--` is a flag, whatever it looks like, and an
    /// address stands without brackets, which ssh does not know.
    fn to(&self, flags: &[&str], login: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.flags).args(flags).arg("--");
        command.arg(login.replace(['[', ']'], ""));
        command
    }
}

/// Time that the far end may take to begin a tunnel.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes that are read of ssh at once.
const PIPE: usize = 256 << 10;

/// Law by which sessions send where a tunnel carries them.
pub(crate) const TUNNEL_LAW: &str = "cubic";

/// The name of the only share.
pub(crate) const SHARE: &str = "ssh";

/// An ssh that runs. It ends when this is dropped.
struct Running {
    login: String,
    /// The command that farhaul was given there.
    what: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    /// True if the process was waited for.
    ended: bool,
    console: Arc<dyn Console>,
}

impl Running {
    /// Lets ssh run farhaul's hidden command `what` on the host of `login`; its output.
    fn start(
        call: &Call,
        login: &str,
        what: &'static str,
        console: &Arc<dyn Console>,
    ) -> Result<(Self, ChildStdout), Failure> {
        let mut command = call.to(&[], login);
        command
            .arg(far_command(&call.remote, what))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = child::start(&mut command).map_err(|e| {
            if e.kind() == io::ErrorKind::WouldBlock {
                return Failure::from(TransferError::cannot_start("ssh", &e));
            }
            let text = format!(
                "cannot start {}: {e}; install it, or name it with --ssh",
                call.program.to_string_lossy()
            );
            Failure::new(Exit::Ssh, text)
        })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let running = Self {
            login: login.into(),
            what,
            child,
            stdin,
            ended: false,
            console: Arc::clone(console),
        };
        let stdout = stdout.ok_or_else(|| Failure::internal(&"ssh without a pipe"))?;
        Ok((running, stdout))
    }

    /// Writes a line; if ssh has ended already, its status is the reason.
    fn write_line(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// Reads the first line of farhaul there. ssh may wait for long, for a host or for a password.
    /// Cancelling the call ends it.
    fn answer<T: DeserializeOwned>(&mut self, stdout: &mut impl BufRead) -> Result<T, Failure> {
        let pid = Pid::from_child(&self.child);
        // Without such a descriptor the cancelled call waits until ssh ends.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok();
        let cancelled = self.console.cancel().zip(process);
        let ends = cancelled.map(|(cancel, process): (&Cancel, _)| {
            cancel.and(move || {
                // It may have ended by itself.
                let _gone = pidfd_send_signal(&process, Signal::TERM);
            })
        });
        let answer = read_answer(stdout);
        drop(ends);
        answer.map_err(|heard| {
            if self.console.is_cancelled() {
                return Failure::interrupted();
            }
            heard.failure(self)
        })
    }

    /// Ends it. The far end leaves when it reads the end; then ssh does, unless its network is gone.
    fn end(&mut self) -> io::Result<Ended> {
        drop(self.stdin.take());
        self.ended = true;
        child::end(&mut self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let what = match self.end() {
            Ok(Ended { killed: false, .. }) => return,
            Ok(_) => format!(
                "did not end within {} s and was killed; the farhaul that it started there exits by itself",
                child::EXIT_TIMEOUT.as_secs()
            ),
            Err(e) => format!("could not be ended: {e}"),
        };
        let login = &self.login;
        let text = format!("farhaul: warning: ssh {login} {what}");
        self.console.message(Level::Important, &text);
    }
}

/// The two ends of a session that ssh made known to each other.
#[derive(Debug)]
pub(crate) struct Met {
    /// Host names or addresses of the far end to try.
    pub(crate) hosts: Vec<String>,
    /// Key of the far end.
    pub(crate) key: PublicKey,
    /// Identity of this end, for this copy.
    pub(crate) identity: Identity,
}

/// A server that was started for one peer. It ends when this is dropped.
pub(crate) struct Bridge {
    /// Host names or addresses to try.
    pub(crate) hosts: Vec<String>,
    pub(crate) port: u16,
    pub(crate) key: PublicKey,
    /// Paths in the share [`SHARE`], as many as were requested.
    pub(crate) paths: Vec<Vec<u8>>,
    /// Taken by the tunnel.
    pipes: Mutex<Option<Pipes>>,
    _ssh: Running,
}

/// Pipe that the far end reads, if it knows tunnels, and the one that it writes.
#[derive(Debug)]
struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: Buffered<ChildStdout>,
}

impl Bridge {
    /// Starts a server at `login`, which is `[user@]host`, for `paths` there and for the one with the key `peer`.
    pub(crate) fn open(
        call: &Call,
        login: &str,
        paths: &[Vec<u8>],
        put: bool,
        peer: PublicKey,
        console: &Arc<dyn Console>,
    ) -> Result<Self, Failure> {
        let ask = Ask {
            key: peer.to_string(),
            put,
            paths: paths.iter().map(|path| to_hex(path)).collect(),
            ports: call.ports,
            release: RELEASE.into(),
            ordered: None,
        };
        or_install(call, login, &**console, |call| {
            Self::start(call, login, &ask, console)
        })
    }

    /// Starts a server at `login` for another host with the key `peer`, which delivers to `path` what was `ordered`.
    pub(crate) fn open_for(
        call: &Call,
        login: &str,
        path: &[u8],
        ordered: &Ordered,
        peer: PublicKey,
        console: &Arc<dyn Console>,
    ) -> Result<Self, Failure> {
        let ask = Ask {
            key: peer.to_string(),
            put: true,
            paths: vec![to_hex(path)],
            ports: call.ports,
            release: RELEASE.into(),
            ordered: Some(to_hex(ordered.bytes())),
        };
        or_install(call, login, &**console, |call| {
            Self::start(call, login, &ask, console)
        })
    }

    fn start(
        call: &Call,
        login: &str,
        ask: &Ask,
        console: &Arc<dyn Console>,
    ) -> Result<Self, Failure> {
        let line = serde_json::to_string(ask).map_err(|e| Failure::internal(&e))?;
        let (mut ssh, stdout) = Running::start(call, login, "_serve", console)?;
        let asked = ssh.write_line(&format!("{MAGIC}{line}"));
        let mut stdout = BufReader::with_capacity(PIPE, stdout);
        let answer: Answer = ssh.answer(&mut stdout)?;
        if asked.is_err() {
            return Err(NoAnswer::default().failure(&mut ssh));
        }
        if let Some((text, code)) = answer.refusal {
            let exit = match Exit::of_process(code).unwrap_or(Exit::Internal) {
                Exit::Ok => Exit::DestError,
                // That of the farhaul there, not of this one.
                Exit::Signal(_) => Exit::ConnectionLost,
                exit => exit,
            };
            let text = text::plain(&text);
            return Err(Failure::new(exit, format!("{login}: {text}")));
        }
        let odd = || not_understood(login, &answer.release);
        Ok(Self {
            hosts: hosts(call, login, answer.address),
            port: answer.port,
            key: answer.key.parse().map_err(|_| odd())?,
            paths: all_from_hex(&answer.paths)
                .filter(|found| found.len() == ask.paths.len())
                .ok_or_else(odd)?,
            pipes: Mutex::new(Some(Pipes {
                stdin: answer.tunnel.then(|| ssh.stdin.take()).flatten(),
                stdout: Buffered(stdout),
            })),
            _ssh: ssh,
        })
    }

    /// Lets ssh carry the datagrams of this copy, which it can do once.
    pub(crate) fn tunnel(&self) -> io::Result<Tunnel> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Pipes {
            stdin: Some(stdin),
            stdout,
        }) = pipes.take()
        else {
            let text = "farhaul there is older and cannot go through ssh";
            return Err(io::Error::other(text));
        };
        Tunnel::through_pipes(stdin, stdout, ANSWER).map_err(|e| match e.kind() {
            // Where the whole network is gone, ssh is silent for long.
            io::ErrorKind::TimedOut => io::Error::new(e.kind(), "ssh is silent, too"),
            _ => e,
        })
    }
}

fn not_understood(login: &str, release: &str) -> Failure {
    let text = format!(
        "{login}: the answer of farhaul {} there was not understood by {RELEASE} here; install the same version on both ends",
        text::plain(release)
    );
    Failure::new(Exit::Version, text)
}

/// One word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command for the shell there; of the arguments it has only the program's name, quoted.
fn far_command(bin: &str, what: &str) -> String {
    format!(
        "PATH=\"{PLACES}\"; export PATH; command -v {bin} >/dev/null || exit 127; exec {bin} {what}"
    )
}

impl NoAnswer {
    fn failure(&self, ssh: &mut Running) -> Failure {
        match self {
            Self::Noise(noise) => silent(ssh, noise),
            Self::Version(theirs) => {
                let login = &ssh.login;
                let ours = MAGIC.trim_start_matches(WORD).trim_end();
                let text = format!(
                    "{login}: farhaul there uses version {} of the protocol over ssh, this is {ours}; install the same version on both ends (--install-remote copies this one there), or name another one there with --remote-bin",
                    text::plain(theirs)
                );
                Failure::new(Exit::Version, text)
            }
        }
    }
}

/// Failure for a far end of which nothing was received.
fn silent(ssh: &mut Running, noise: &str) -> Failure {
    let ended = ssh.end();
    let login = &ssh.login;
    let status = match &ended {
        Ok(ended) => ended.status.code(),
        Err(_) => None,
    };
    if status == Some(127) {
        let text = format!(
            "{login}: farhaul is not installed there; --install-remote copies this one there; or put one into \
             ~/.local/bin, or give its path with --remote-bin"
        );
        return Failure::new(Exit::RemoteMissing, text);
    }
    if status == Some(i32::from(Exit::Usage.number())) && ssh.what == "_cp" {
        let text = format!(
            "{login}: farhaul there cannot send to another host; install the same version everywhere"
        );
        return Failure::new(Exit::Version, text);
    }
    let how = match (ended, status) {
        (Err(e), _) => format!("could not be ended ({e})"),
        (Ok(Ended { killed: true, .. }), _) => format!(
            "sent nothing more, did not end within {} s and was killed",
            child::EXIT_TIMEOUT.as_secs()
        ),
        (Ok(_), Some(code)) => format!("ended with status {code}"),
        (Ok(_), None) => "ended with a signal".into(),
    };
    let noise = match noise.trim() {
        "" => String::new(),
        some => format!(
            "; received instead of an answer: {}; the cause may be an old farhaul there, or a shell that prints \
             something and exits",
            text::plain(&some.chars().take(400).collect::<String>())
        ),
    };
    let text = format!("ssh {login} {how}; its output is above{noise}");
    Failure::new(Exit::Ssh, text)
}

/// Name that ssh's own configuration gives the host.
fn configured(call: &Call, login: &str) -> Option<String> {
    let mut command = call.to(&["-G"], login);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut asked = child::start(&mut command).ok()?;
    let stdout = asked.stdout.take()?;
    // Its output fits into the pipe, so it can be waited for first: its configuration may run programs.
    let ended = child::end(&mut asked).ok()?;
    let mut text = String::new();
    let said = stdout.take(lines::MOST).read_to_string(&mut text);
    if !ended.status.success() || said.is_err() {
        return None;
    }
    let line = text.lines().find_map(|l| l.strip_prefix("hostname "));
    line.map(|l| l.trim().to_string())
}

/// Advice for a `host` that has no address and is such a name.
pub(crate) fn alias_hint(call: &Call, host: &str) -> Option<String> {
    let name = configured(call, host)?;
    let other = !name.eq_ignore_ascii_case(host);
    other.then(|| format!("names of ssh's configuration hold with one colon: {host}:PATH"))
}

/// Names of the host: that of ssh's own configuration, then what was typed, then where ssh arrived.
fn hosts(call: &Call, login: &str, arrived: Option<IpAddr>) -> Vec<String> {
    let configured = configured(call, login);
    let typed = login.rsplit_once('@').map_or(login, |(_, host)| host);
    let typed = typed.trim_start_matches('[').trim_end_matches(']');
    let mut hosts: Vec<String> = Vec::new();
    let arrived = arrived.map(|ip| ip.to_string());
    for host in configured
        .into_iter()
        .chain([typed.to_string()])
        .chain(arrived)
    {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_typed_is_a_flag_of_ssh() {
        let call = Call::new(Some("ssh".into()), vec!["-4".into()], None, None, None);
        let words = |login: &str| {
            let command = call.to(&["-G"], login);
            let words = command.get_args().map(|w| w.to_str().unwrap().to_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("-oProxyCommand=x"), "-4 -G -- -oProxyCommand=x");
        assert_eq!(words("me@[2001:db8::1]"), "-4 -G -- me@2001:db8::1");
    }
}
