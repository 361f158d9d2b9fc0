//! How is a host reached that runs no server? The user's own `ssh` starts one there for this one
//! transfer; both ends make one-time keys and tell them to each other over ssh, and the data goes over
//! UDP.
//!
//! What is said is one line each way, JSON after [`MAGIC`]: [`Ask`] and [`Answer`]. What a login shell
//! prints before is skipped. Nothing secret is said, and no path is seen by a shell. The server ends
//! when its standard input does.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Read as _, Write as _},
    net::IpAddr,
    process::{Child, ChildStdin, Command, Stdio},
};

use farhaul_haul::{Identity, PublicKey};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// What every line of ours begins with.
const WORD: &str = "farhaul-ssh/";
/// The same with the version of what follows.
pub(crate) const MAGIC: &str = "farhaul-ssh/2 ";
/// As much is read of the far end before our line must have come.
const MOST_NOISE: u64 = 64 << 10;
/// Where farhaul may be when a login shell's PATH is not set up.
const PLACES: &str = "$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin:/opt/homebrew/bin";

/// What the near end says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// The only key to be let in.
    pub(crate) key: String,
    /// Files are delivered, not fetched.
    pub(crate) put: bool,
    /// As typed, in hex; exactly one if files are delivered.
    pub(crate) paths: Vec<String>,
    /// The UDP ports to try, first and last.
    #[serde(default)]
    pub(crate) ports: Option<(u16, u16)>,
}

/// What the far end says.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Where it listens.
    pub(crate) port: u16,
    /// Its key.
    pub(crate) key: String,
    /// The paths in its only share in the same order, in hex.
    pub(crate) paths: Vec<String>,
    /// The address at which ssh reached it.
    pub(crate) address: Option<IpAddr>,
    /// Why it cannot, and the exit code.
    pub(crate) refusal: Option<(String, u8)>,
}

/// How ssh is called.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    program: OsString,
    /// Before the host.
    flags: Vec<OsString>,
    /// What farhaul is called there.
    remote: String,
    ports: Option<(u16, u16)>,
}

impl Call {
    /// `program`, or what `FARHAUL_SSH` says, or `ssh`, with `flags`; `remote`, or what
    /// `FARHAUL_REMOTE_BIN` says, or `farhaul` there, on one of `ports`.
    pub(crate) fn new(
        program: Option<OsString>,
        flags: Vec<OsString>,
        remote: Option<String>,
        ports: Option<(u16, u16)>,
    ) -> Self {
        let program = program.or_else(|| env::var_os("FARHAUL_SSH"));
        let remote = remote.or_else(|| env::var("FARHAUL_REMOTE_BIN").ok());
        Self {
            program: program.unwrap_or_else(|| OsString::from("ssh")),
            flags,
            remote: remote.unwrap_or_else(|| "farhaul".into()),
            ports,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.flags);
        command
    }
}

/// The name of the only share.
pub(crate) const SHARE: &str = "ssh";

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |i: usize| u8::from_str_radix(text.get(i..i + 2)?, 16).ok();
    let even = text.len().is_multiple_of(2);
    even.then(|| (0..text.len()).step_by(2).map(pair).collect())?
}

pub(crate) fn all_from_hex(texts: &[String]) -> Option<Vec<Vec<u8>>> {
    texts.iter().map(|text| from_hex(text)).collect()
}

/// A server that was started for us. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// Host names or addresses to try.
    pub(crate) hosts: Vec<String>,
    pub(crate) port: u16,
    pub(crate) key: PublicKey,
    /// In the share [`SHARE`], as many as were asked for.
    pub(crate) paths: Vec<Vec<u8>>,
    /// Who this end is.
    pub(crate) identity: Identity,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Bridge {
    /// Starts a server at `login`, which is `[user@]host`, for `paths` there.
    pub(crate) fn open(
        call: &Call,
        login: &str,
        paths: &[Vec<u8>],
        put: bool,
    ) -> Result<Self, Failure> {
        if login.starts_with('-') {
            let text = format!("'{login}' is no host: ssh would take it for a flag");
            return Err(Failure::usage(text));
        }
        let internal = |e: &dyn std::fmt::Display| Failure::new(Exit::Internal, e.to_string());
        let identity = Identity::generate().map_err(|e| internal(&e))?;
        let mut child = call
            .command()
            .arg(login)
            .arg(far_command(&call.remote))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| {
                let text = format!(
                    "cannot start {}: {e}; install it, or name it with --ssh",
                    call.program.to_string_lossy()
                );
                Failure::new(Exit::Ssh, text)
            })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(internal(&"ssh without pipes"));
        };
        let ask = Ask {
            key: identity.public().to_string(),
            put,
            paths: paths.iter().map(|path| to_hex(path)).collect(),
            ports: call.ports,
        };
        let line = serde_json::to_string(&ask).map_err(|e| internal(&e))?;
        // An ssh that has ended already says why by its status.
        let asked = writeln!(stdin, "{MAGIC}{line}").and_then(|()| stdin.flush());
        let heard = hear(&mut BufReader::new(stdout));
        let answer = match (asked, heard) {
            (Ok(()), Ok(answer)) => answer,
            (_, heard) => {
                drop(stdin);
                let unheard = heard.err().unwrap_or_default();
                return Err(unheard.failure(login, &mut child));
            }
        };
        if let Some((text, code)) = answer.refusal {
            let exit = if code == Exit::SourceMissing.code() {
                Exit::SourceMissing
            } else if code == Exit::NetSetup.code() {
                Exit::NetSetup
            } else if code == Exit::Usage.code() {
                Exit::Usage
            } else {
                Exit::DestError
            };
            return Err(Failure::new(exit, format!("{login}: {text}")));
        }
        let odd = || {
            Failure::new(
                Exit::Version,
                format!("{login}: its answer was not understood"),
            )
        };
        Ok(Self {
            hosts: hosts(call, login, answer.address),
            port: answer.port,
            key: answer.key.parse().map_err(|_| odd())?,
            paths: all_from_hex(&answer.paths)
                .filter(|found| found.len() == paths.len())
                .ok_or_else(odd)?,
            identity,
            child,
            stdin: Some(stdin),
        })
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // The far end leaves when it reads the end; then ssh does.
        drop(self.stdin.take());
        let _reaped = self.child.wait();
    }
}

/// One word for the shell there; of what was typed it holds the program's name, quoted.
fn far_command(bin: &str) -> String {
    let bin = format!("'{}'", bin.replace('\'', r"'\''"));
    format!(
        "PATH=\"{PLACES}\"; export PATH; command -v {bin} >/dev/null || exit 127; exec {bin} _serve"
    )
}

/// What came instead of the far end's line.
#[derive(Debug, PartialEq, Eq)]
enum Unheard {
    /// Nothing of ours.
    Noise(String),
    /// A line of another version.
    Version(String),
}

impl Default for Unheard {
    fn default() -> Self {
        Self::Noise(String::new())
    }
}

impl Unheard {
    fn failure(&self, login: &str, child: &mut Child) -> Failure {
        match self {
            Self::Noise(noise) => silent(login, child, noise),
            Self::Version(theirs) => {
                let _reaped = child.wait();
                let ours = MAGIC.trim_start_matches(WORD).trim_end();
                let text = format!(
                    "{login}: farhaul there speaks version {} of what is said through ssh, this is \
                     {ours}; install the same version on both ends, or name another one there with --remote-bin",
                    theirs.escape_debug()
                );
                Failure::new(Exit::Version, text)
            }
        }
    }
}

/// The far end's line, or what came instead.
fn hear(stdout: &mut impl BufRead) -> Result<Answer, Unheard> {
    let mut noise = String::new();
    let mut lines = stdout.take(MOST_NOISE);
    loop {
        let mut line = Vec::new();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Err(Unheard::Noise(noise)),
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(json) = line.strip_prefix(MAGIC) {
            return serde_json::from_str(json).map_err(|e| Unheard::Noise(format!("{e}: {json}")));
        }
        if let Some((version, _)) = line.strip_prefix(WORD).and_then(|l| l.split_once(' ')) {
            return Err(Unheard::Version(version.chars().take(20).collect()));
        }
        noise += &line;
    }
}

/// Why nothing was heard.
fn silent(login: &str, child: &mut Child, noise: &str) -> Failure {
    let status = child.wait().ok().and_then(|s| s.code());
    if status == Some(127) {
        let text = format!(
            "{login}: farhaul is not there; install it (cargo install --path crates/cli), put it into \
             ~/.local/bin, or say where it is with --remote-bin"
        );
        return Failure::new(Exit::RemoteMissing, text);
    }
    let status = status.map_or_else(|| "a signal".into(), |c| format!("status {c}"));
    let noise = match noise.trim() {
        "" => String::new(),
        some => format!(
            "; instead of an answer came: {}; a farhaul there that is too old, or a shell that prints \
             something and leaves, does that",
            some.chars().take(400).collect::<String>().escape_debug()
        ),
    };
    let text = format!("ssh {login} ended with {status}; what it said is above{noise}");
    Failure::new(Exit::Ssh, text)
}

/// What ssh's own configuration calls the host, then what was typed, then where ssh arrived.
fn hosts(call: &Call, login: &str, arrived: Option<IpAddr>) -> Vec<String> {
    let asked = call
        .command()
        .args(["-G", login])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let configured = asked.ok().filter(|o| o.status.success()).and_then(|o| {
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        let line = text.lines().find_map(|l| l.strip_prefix("hostname "));
        line.map(|l| l.trim().to_string())
    });
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
    fn paths_survive_as_hex() {
        let odd = b"a/\xff\n'b";
        assert_eq!(from_hex(&to_hex(odd)).as_deref(), Some(&odd[..]));
        for bad in ["0", "zz", "0\u{e9}"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn noise_is_skipped_and_bounded() {
        let answer = Answer {
            port: 5,
            ..Answer::default()
        };
        let json = serde_json::to_string(&answer).unwrap();
        let mut said = b"Welcome!\n\xff\n".to_vec();
        said.extend_from_slice(format!("{MAGIC}{json}\n").as_bytes());
        assert_eq!(hear(&mut &said[..]).unwrap().port, 5);
        let noise = |said: &[u8]| match hear(&mut &said[..]) {
            Err(Unheard::Noise(noise)) => noise,
            other => panic!("{other:?}"),
        };
        assert_eq!(noise(b"no farhaul\n"), "no farhaul\n");
        assert!(noise(&vec![b'x'; 1 << 20]).len() <= 64 << 10);
        assert!(hear(&mut format!("{MAGIC}{{}}\n").as_bytes()).is_err());
        let old = hear(&mut &b"hello\nfarhaul-ssh/1 {}\n"[..]).unwrap_err();
        assert_eq!(old, Unheard::Version("1".into()));
    }

    #[test]
    fn flags_are_no_hosts() {
        let call = Call::new(None, Vec::new(), None, None);
        let e = Bridge::open(&call, "-oProxyCommand=x", &[Vec::new()], true).unwrap_err();
        assert_eq!(e.exit, Exit::Usage);
    }
}
