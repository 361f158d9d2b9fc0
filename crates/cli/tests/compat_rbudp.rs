//! `farhaul compat rbudp` against a peer in Python that was written from the description of RBUDP
//! alone (`peers/rbudp.py`). Real sockets with loss, reordering and duplication join them. Needs
//! `python3`.

#![allow(clippy::unwrap_used, reason = "a test")]

mod environment;
#[path = "../../lab/tests/udt_interop/port.rs"]
mod port;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

use port::free_port;

fn farhaul() -> Command {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut command = environment::command(env!("CARGO_BIN_EXE_farhaul"), place);
    command.args(["compat", "rbudp"]);
    command
}

fn python() -> Option<Command> {
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("skipped: there is no python3 for the peer");
        return None;
    }
    let mut command = Command::new("python3");
    command.arg("tests/peers/rbudp.py");
    Some(command)
}

/// A server that says nothing but how large the file is, and then asks again and again.
#[test]
fn a_server_without_progress_is_disconnected() {
    use std::io::{Read as _, Write as _};
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        tcp.read_exact(&mut [0; 256]).unwrap();
        tcp.write_all(&1_000_000_u64.to_be_bytes()).unwrap();
        // It takes each answer, so that only the number of questions is a reason to leave.
        let mut answer = [0; 127];
        while tcp.write_all(b"\0\0\0\0EEE\0").is_ok() && tcp.read_exact(&mut answer).is_ok() {}
    });
    let to = folder.path().join("to");
    ends(&fetch(port, "s/f", &to, 1_000), 20, "nothing arrives");
    server.join().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A program that serves, ended with the test.
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
    fn ours(share: &Path, payload: u32) -> Self {
        let port = free_port();
        let mut command = farhaul();
        command
            .args([
                "sendfile",
                "--rate",
                "200Mbit",
                "--listen",
                &format!("127.0.0.1:{port}"),
            ])
            .args(["--payload", &payload.to_string()])
            .args(["--share", &format!("s={}", share.display())]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self {
            child,
            printed,
            port,
        };
        assert!(server.line().contains("warning: clear text"));
        assert!(server.line().contains("listening on 127.0.0.1"));
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.printed.read_line(&mut line).unwrap();
        line
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| u8::try_from(i * i / 7 % 251).unwrap())
        .collect()
}

fn ends(output: &Output, code: i32, text: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert!(printed.contains(text), "{printed}");
}

fn fetch(port: u16, name: &str, to: &Path, payload: u32) -> Output {
    let mut command = farhaul();
    command
        .args(["recvfile", &format!("127.0.0.1:{port}"), name])
        .arg(to);
    command
        .args(["--payload", &payload.to_string()])
        .output()
        .unwrap()
}

#[test]
fn our_sendfile_serves_a_stranger_through_loss() {
    let Some(mut peer) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = content(1_000_000);
    fs::write(folder.path().join("f"), &file).unwrap();
    let server = Server::ours(folder.path(), 1_200);
    let got = folder.path().join("got");
    let port = server.port.to_string();
    peer.args(["recv", "127.0.0.1", &port, "s/f"]).arg(&got);
    peer.args([
        "1200",
        "--loss",
        "0.1",
        "--duplicate",
        "0.05",
        "--seed",
        "3",
    ]);
    ends(&peer.output().unwrap(), 0, "");
    assert!(fs::read(&got).unwrap() == file);
}

#[test]
fn our_recvfile_fetches_from_a_stranger_through_loss_in_either_byte_order() {
    for order in [None, Some("--big-endian")] {
        let Some(mut peer) = python() else { return };
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = content(500_001);
        fs::write(&from, &file).unwrap();
        peer.args(["send", "0"])
            .arg(&from)
            .args(["1000", "--once", "--seed", "5"]);
        peer.args(["--loss", "0.1", "--reorder", "0.05", "--duplicate", "0.05"])
            .args(order);
        let mut peer = peer.stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(peer.stdout.take().unwrap()).lines();
        let line = printed.next().unwrap().unwrap();
        let port = line.strip_prefix("listening ").unwrap().parse().unwrap();
        ends(
            &fetch(port, "any/name", &to, 1_000),
            0,
            "500001 bytes, not verified",
        );
        assert!(fs::read(&to).unwrap() == file);
        assert_eq!(printed.next().unwrap().unwrap(), "asked any/name");
        assert!(peer.wait().unwrap().success());
    }
}

#[test]
fn both_of_ours_and_what_they_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share");
    fs::create_dir(&share).unwrap();
    let file = content(3_000_000);
    fs::write(share.join("f"), &file).unwrap();
    fs::write(share.join("empty"), b"").unwrap();
    fs::write(folder.path().join("secret"), b"secret").unwrap();
    let mut server = Server::ours(&share, 8_000);
    let to = folder.path().join("to");
    for (name, bytes) in [("s/f", &file[..]), ("s/empty", b"")] {
        ends(&fetch(server.port, name, &to, 8_000), 0, "not verified");
        assert!(fs::read(&to).unwrap() == bytes, "{name}");
        assert!(server.line().contains(name) && server.line().contains("done"));
    }
    for name in ["s/../secret", "secret", "/etc/passwd", "s/none", "s/"] {
        ends(
            &fetch(server.port, name, &to, 8_000),
            3,
            "it may have none of that name",
        );
        assert!(server.line().contains("refused"), "{name}");
    }
    ends(
        &fetch(server.port, "s/f", &to, 1_000),
        20,
        "the same --payload",
    );
    assert!(server.line().contains("s/f"));
    assert!(server.line().contains("broke the protocol"));
    assert!(
        fs::read(&to).unwrap().is_empty(),
        "what was there is still there"
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        3,
        "no part is left"
    );
    ends(
        &fetch(free_port(), "s/f", &to, 1_000),
        17,
        "is sendfile running there?",
    );
}
