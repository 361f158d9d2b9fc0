//! Shows and changes a running server, through a unix socket that only its user can open. One
//! request, one answer, each a line with a JSON object.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    os::unix::{
        fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_io::{Controls, service};
use farhaul_transfer::Phase;
use serde_json::{Value, json};

use super::{
    log,
    sessions::{Sessions, View},
};
use crate::control::{Answer, Change, Request, Target};

/// A request is no longer, and takes no longer: the next one waits for it.
const LONGEST: u64 = 4_096;
const WITHIN: Duration = Duration::from_millis(500);

/// The socket, until it is dropped.
pub(super) struct Socket {
    path: PathBuf,
    closed: Arc<AtomicBool>,
}

impl Socket {
    pub(super) fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.closed.store(true, Relaxed);
        // Wakes who listens.
        let _woken = UnixStream::connect(&self.path);
        // If it cannot be removed, the next server finds nobody there and takes its place.
        let _left = fs::remove_file(&self.path);
    }
}

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// Age from which on a socket without a listener is not one that is being made.
const OLD: Duration = Duration::from_mins(1);

/// Removes from `dir` the sockets of servers that were killed. One that stays costs nothing but its name.
pub(super) fn sweep(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let own = name.is_some_and(|name| name.starts_with("serve-") && name.ends_with(".sock"));
        let made = path.symlink_metadata().and_then(|meta| meta.modified());
        let old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > OLD));
        if own && old && is_abandoned(&path) {
            let _gone = fs::remove_file(&path);
        }
    }
}

/// Listens at `path`.
pub(super) fn start(
    path: &Path,
    sessions: &Arc<Sessions>,
    controls: &Controls,
) -> io::Result<Socket> {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
    }
    let listener = match UnixListener::bind(path) {
        // One that a server left that was killed.
        Err(e) if e.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    let closed = Arc::new(AtomicBool::new(false));
    let socket = Socket {
        path: path.to_path_buf(),
        closed: Arc::clone(&closed),
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let (sessions, controls) = (Arc::clone(sessions), controls.clone());
    let warn = |line: &str| log::note("warning", line);
    service::spawn("control", warn, move || {
        let mut failing = false;
        for stream in listener.incoming() {
            if closed.load(Relaxed) {
                return;
            }
            match &stream {
                // A client that asks nothing, or does not take the answer, gets none.
                Ok(stream) => drop(serve(stream, &sessions, &controls)),
                // Of descriptors, say: others give some back.
                Err(e) => {
                    if !failing {
                        warn(&format!("the control socket fails for now: {e}"));
                    }
                    thread::park_timeout(PAUSE);
                }
            }
            failing = stream.is_err();
        }
    })?;
    Ok(socket)
}

/// True if the path is a socket that refuses connections: a file of another kind that has the name
/// refuses them as well, and stays.
fn is_abandoned(path: &Path) -> bool {
    let refused = |e: io::Error| e.kind() == ErrorKind::ConnectionRefused;
    fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(refused)
}

fn serve(stream: &UnixStream, sessions: &Sessions, controls: &Controls) -> io::Result<()> {
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(&request, sessions, controls),
        Err(e) => Answer::failed(format!("not a request: {e}")),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

fn answer(request: &Request, sessions: &Sessions, controls: &Controls) -> Answer {
    let views = sessions.all();
    let Request::Change { target, change } = request else {
        return Answer {
            sessions: views.iter().map(|view| shown(view)).collect(),
            draining: controls.is_draining(),
            ..Answer::default()
        };
    };
    let named = |view: &&Arc<View>| match target {
        Target::All => true,
        Target::Session(id) => view.id == *id,
    };
    let chosen: Vec<_> = views.iter().filter(named).collect();
    if chosen.is_empty() && *target != Target::All {
        return Answer::failed("there is no such session");
    }
    for view in &chosen {
        view.change(|control| match change {
            Change::Rate(bps) => control.set_rate(Rate::from_bps(*bps)),
            Change::Pause => control.hold(true),
            Change::Resume => control.hold(false),
        });
    }
    Answer {
        changed: chosen.len(),
        ..Answer::default()
    }
}

/// Object of a session, for those who look.
fn shown(view: &View) -> Value {
    let (facts, figures) = (view.facts(), view.figures());
    let (stats, progress) = (&figures.stats, view.handle.progress());
    let rate = view.control.rate();
    let state = match progress.phase() {
        _ if view.control.is_held() => "paused",
        _ if facts.share.is_none() => "connecting",
        Phase::Finishing | Phase::Done => "finishing",
        Phase::Connecting | Phase::Waiting | Phase::Moving => "moving",
    };
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let loss =
        (stats.datagrams_sent > 0).then(|| stats.packets_lost as f64 / stats.datagrams_sent as f64);
    json!({
        "session": view.id,
        "peer": view.from.to_string(),
        "key": facts.key.map(|key| key.to_string()),
        "name": facts.name,
        "share": facts.share,
        "lane": facts.lane,
        "direction": facts.share.as_ref().map(|_| if facts.put { "put" } else { "get" }),
        "state": state,
        "bytes_done": progress.bytes_done() + progress.bytes_resumed(),
        "bytes_total": progress.bytes_total(),
        "files_done": progress.files_done(),
        "files_total": progress.files_total(),
        "goodput_bps": figures.rate.as_f64(),
        "rtt_s": stats.rtt_smoothed.map(|d| d.as_secs_f64()),
        "loss_ratio": loss,
        "limited_by": progress.hold().map(farhaul_core::stats::Why::name),
        "max_rate_bps": (rate != Rate::UNLIMITED).then(|| rate.bps()),
    })
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::{AtFlags, CWD, Timestamps, utimensat},
        time::Timespec,
    };

    use super::*;

    #[test]
    fn only_a_socket_that_nobody_listens_at_is_replaced() {
        let tmp = tempfile::tempdir().unwrap();
        let (file, socket) = (tmp.path().join("file"), tmp.path().join("socket"));
        fs::write(&file, "kept").unwrap();
        assert!(!is_abandoned(&file));
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(!is_abandoned(&socket));
        drop(listener);
        assert!(is_abandoned(&socket));
    }

    #[test]
    fn old_sockets_of_servers_that_were_killed_are_removed() {
        let tmp = tempfile::tempdir().unwrap();
        let bind = |name: &str| UnixListener::bind(tmp.path().join(name)).unwrap();
        let alive = bind("serve-1.sock");
        for name in ["serve-2.sock", "serve-3.sock", "other.sock"] {
            drop(bind(name));
        }
        fs::write(tmp.path().join("serve-4.sock"), "no socket").unwrap();
        for name in ["serve-1.sock", "serve-2.sock", "serve-4.sock", "other.sock"] {
            let old = Timespec {
                tv_sec: 1_000_000_000,
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: old,
                last_modification: old,
            };
            utimensat(CWD, tmp.path().join(name), &times, AtFlags::empty()).unwrap();
        }
        sweep(tmp.path());
        let left = fs::read_dir(tmp.path()).unwrap();
        let mut left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            ["other.sock", "serve-1.sock", "serve-3.sock", "serve-4.sock"]
        );
        drop(alive);
    }
}
