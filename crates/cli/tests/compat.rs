//! `farhaul compat udt4` against the programs of libudt: peers that speak the samples' framing
//! through the real library. Needs `libudt-dev` and `g++`.

#![allow(clippy::unwrap_used, reason = "a test")]

mod environment;
#[path = "../../lab/tests/udt_interop/peer.rs"]
mod peer;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

use peer::{Peer, program};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn farhaul() -> Command {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut command = environment::command(env!("CARGO_BIN_EXE_farhaul"), place);
    command.args(["compat", "udt4"]);
    command
}

/// A server of ours that is ended with the test.
struct Server {
    child: Child,
    printed: BufReader<ChildStderr>,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It runs until it is ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(command: &mut Command) -> Self {
        command.args(["--listen", "127.0.0.1:0"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut printed = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        assert!(line.contains("warning: clear text"), "{line}");
        line.clear();
        printed.read_line(&mut line).unwrap();
        let at = line.rsplit_once(':').unwrap().1;
        let port = at.split('/').next().unwrap().parse().unwrap();
        Self {
            child,
            printed,
            port,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.printed.read_line(&mut line).unwrap();
        line
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn content(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i % 249) as u8).collect()
}

fn complains(output: &Output, code: i32, text: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert!(printed.contains(text), "{printed}");
}

#[test]
fn our_sendfile_serves_a_real_recvfile() {
    if program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir_all(shared.join("sub")).unwrap();
    fs::write(shared.join("sub/f"), content(3_000_001)).unwrap();
    fs::write(shared.join("empty"), b"").unwrap();
    fs::write(folder.path().join("secret"), b"secret").unwrap();
    let here = folder.path().join("here");
    let share = format!("data={}:ro", shared.display());
    let mut server = Server::start(farhaul().args(["sendfile", "--share", &share]));
    for (name, size) in [
        ("data/sub/f", 3_000_001),
        ("data/empty", 0),
        ("data/../secret", -1),
        ("data/none", -1),
        ("other/f", -1),
        ("/etc/passwd", -1),
    ] {
        let action = words(&["ask", name, here.to_str().unwrap()]);
        let mut peer = Peer::start(&[], ("connect", HOST, server.port), &action);
        let (well, printed) = peer.end();
        assert!(well, "{name}");
        assert_eq!(printed.trim(), size.to_string(), "{name}");
        let line = server.line();
        let verb = if size < 0 { "refused" } else { "sent" };
        assert!(line.contains(verb) && line.contains(name), "{line}");
    }
    assert!(fs::read(&here).unwrap() == content(3_000_001));
}

#[test]
fn our_recvfile_fetches_from_a_real_sendfile() {
    if program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("f"), content(2_500_003)).unwrap();
    let fetch = |name: &str| {
        let action = words(&["give", folder.path().to_str().unwrap()]);
        let mut peer = Peer::start(&[], ("listen", HOST, 0), &action);
        let at = format!("127.0.0.1:{}", peer.port());
        let here = path("here");
        let output = farhaul().args(["recvfile", &at, name]).arg(here).output();
        peer.end();
        output.unwrap()
    };
    complains(&fetch("f"), 0, "2500003 bytes, not verified");
    assert!(fs::read(path("here")).unwrap() == content(2_500_003));
    fs::remove_file(path("here")).unwrap();
    complains(&fetch("none"), 3, "the server has no 'none'");
    assert!(!path("here").exists() && !path("here.farhaul-part").exists());
}

#[test]
fn our_client_and_server_count_what_real_ones_take_and_send() {
    if program().is_none() {
        return;
    }
    let mut peer = Peer::start(&[], ("listen", HOST, 0), &words(&["sink"]));
    let at = format!("127.0.0.1:{}", peer.port());
    let output = farhaul().args(["client", &at, "-n", "5MB", "-J"]).output();
    let output = output.unwrap();
    complains(&output, 0, "clear text");
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["bytes"], 5_000_000);
    let taken: serde_json::Value = serde_json::from_str(&peer.end().1).unwrap();
    assert_eq!(taken["bytes"], 5_000_000);

    let mut server = Server::start(farhaul().args(["server", "-1", "-J"]));
    let mut peer = Peer::start(
        &[],
        ("connect", HOST, server.port),
        &words(&["send", "1234567"]),
    );
    assert!(peer.end().0);
    let out = server.child.stdout.take().unwrap();
    let object: serde_json::Value = serde_json::from_reader(out).unwrap();
    assert_eq!(object["bytes"], 1_234_567);
}

#[test]
fn a_missing_peer_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("f");
    let mut command = farhaul();
    let output = command.args(["recvfile", "127.0.0.1:1", "f"]).arg(&local);
    complains(
        &output.output().unwrap(),
        16,
        "nothing listens on 127.0.0.1:1",
    );
    assert!(!folder.path().join("f.farhaul-part").exists());
}
