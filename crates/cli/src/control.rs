//! Finds the control socket of a running server, in the runtime directory of its user.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{ffi::OsStrExt as _, net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::{Exit, Failure};

/// Time after which a server that does not answer is stuck.
const WITHIN: Duration = Duration::from_secs(5);

/// Requests to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Lists its sessions.
    Sessions,
    /// Changes some of its sessions.
    Change {
        /// Sessions to change.
        target: Target,
        /// Change to make.
        change: Change,
    },
}

/// Sessions to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    All,
    Session(u64),
}

/// Changes to sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// Highest rate in bits per second; the largest number is no limit.
    Rate(u64),
    Pause,
    Resume,
}

/// Answer of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) error: Option<String>,
    pub(crate) sessions: Vec<Value>,
    pub(crate) draining: bool,
    pub(crate) changed: usize,
}

impl Answer {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self {
            error: Some(why.into()),
            ..Self::default()
        }
    }
}

/// Directory of control sockets: the one that a service manager made, or else the user's own.
pub(crate) fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let of_service = env::var_os("RUNTIME_DIRECTORY").and_then(|dirs| {
        // Several are separated by colons.
        let first = dirs.as_bytes().split(|b| *b == b':').next()?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(first))).filter(|p| p.is_absolute())
    });
    let root = || {
        rustix::process::geteuid()
            .is_root()
            .then(|| PathBuf::from("/run/farhaul"))
    };
    of_service
        .or_else(|| absolute("XDG_RUNTIME_DIR").map(|dir| dir.join("farhaul")))
        .or_else(root)
}

/// The one socket that is meant if none is named.
fn only_one() -> Result<PathBuf, Failure> {
    let none = || {
        Failure::new(Exit::NetSetup, "no server of yours is running here")
            .fix("name its control socket: `farhaul serve` says where it is")
    };
    let dir = directory().ok_or_else(none)?;
    let entries = fs::read_dir(&dir).map_err(|_| none())?;
    let paths = entries.flatten().map(|e| e.path());
    let mut sockets: Vec<_> = paths
        .filter(|p| p.extension().is_some_and(|e| e == "sock"))
        .collect();
    // Of a server that was killed only the file is left.
    sockets.retain(|p| UnixStream::connect(p).is_ok());
    sockets.sort();
    match sockets.len() {
        0 => Err(none()),
        1 => Ok(sockets.remove(0)),
        _ => {
            let names: Vec<_> = sockets.iter().map(|p| p.display().to_string()).collect();
            Err(Failure::usage(format!(
                "several servers are running: name one (`top SOCKET`, `ctl VERB --socket SOCKET`): {}",
                names.join(", ")
            )))
        }
    }
}

/// Asks the server at `socket`, or the only one there is.
pub(crate) fn ask(socket: Option<&Path>, request: &Request) -> Result<Answer, Failure> {
    let path = socket.map_or_else(only_one, |path| Ok(path.to_path_buf()))?;
    let failed = |e: &dyn std::fmt::Display| {
        Failure::new(Exit::NetSetup, format!("{}: {e}", path.display()))
            .fix("name the control socket of a server that is running")
    };
    let stream = UnixStream::connect(&path).map_err(|e| failed(&e))?;
    let talk = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(WITHIN))?;
        stream.set_write_timeout(Some(WITHIN))?;
        let mut text = serde_json::to_string(request)?;
        text.push('\n');
        (&stream).write_all(text.as_bytes())?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        Ok(line)
    };
    let line = talk().map_err(|e| failed(&e))?;
    let answer: Answer = serde_json::from_str(&line).map_err(|e| failed(&e))?;
    match &answer.error {
        Some(why) => Err(Failure::usage(why.as_str()).fix("`farhaul top` shows them")),
        None => Ok(answer),
    }
}
