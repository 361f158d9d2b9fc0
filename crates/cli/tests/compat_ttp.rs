//! `farhaul compat ttp` against a peer in Python that was written from the description of the
//! Tsunami UDP protocol alone (`peers/ttp.py`). The peer checks what it receives, over real sockets
//! with loss, reordering and duplication. Needs `python3`.

#![allow(clippy::unwrap_used, reason = "a test")]

mod environment;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

const REVISION: [u8; 4] = [0x20, 0x06, 0x10, 0x25];

fn farhaul(args: &[&str]) -> Command {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut command = environment::command(env!("CARGO_BIN_EXE_farhaul"), place);
    command.args(["compat", "ttp"]).args(args);
    command
}

fn python(args: &[&str]) -> Option<Command> {
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("skipped: there is no python3 for the peer");
        return None;
    }
    let mut command = Command::new("python3");
    command.arg("tests/peers/ttp.py").args(args);
    Some(command)
}

/// A program that serves, ended with the test, and its port.
struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        // It runs until it is ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The port behind `before` in a line of `said`.
fn port(printed: impl Read + Send + 'static, before: &str) -> u16 {
    let mut lines = BufReader::new(printed).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains(before)).unwrap();
    let rest = &line[line.find(before).unwrap() + before.len()..];
    // A program that writes to a pipe that nobody reads waits for ever.
    std::thread::spawn(move || lines.for_each(drop));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

impl Server {
    fn ours(share: &Path, more: &[&str]) -> Self {
        let share = format!("s={}", share.display());
        let mut command = farhaul(&["serve", "--listen", "127.0.0.1:0", "--share", &share]);
        let mut child = command.args(more).stderr(Stdio::piped()).spawn().unwrap();
        let port = port(child.stderr.take().unwrap(), "127.0.0.1:");
        Self(child, port)
    }

    fn theirs(folder: &Path, more: &[&str]) -> Option<Self> {
        let mut command = python(&["serve", folder.to_str().unwrap()])?;
        let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
        let port = port(child.stdout.take().unwrap(), "listening ");
        Some(Self(child, port))
    }

    fn at(&self) -> String {
        format!("127.0.0.1:{}", self.1)
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| u8::try_from(i * i / 7 % 251).unwrap())
        .collect()
}

fn folder(sizes: &[usize]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for bytes in sizes {
        fs::write(folder.path().join(bytes.to_string()), content(*bytes)).unwrap();
    }
    folder
}

#[track_caller]
fn ends(output: &Output, code: i32, text: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert!(printed.contains(text), "{printed}");
}

const SIZES: [usize; 5] = [0, 1, 1_000, 1_001, 2_000_000];

#[test]
fn our_server_serves_a_stranger_through_loss() {
    let served = folder(&SIZES);
    let server = Server::ours(served.path(), &[]);
    let got = tempfile::tempdir().unwrap();
    let (port, into) = (server.1.to_string(), got.path().to_str().unwrap());
    let args = ["get", "127.0.0.1", &port, "*", "--into", into];
    let more = ["--block", "1000", "--loss", "0.05", "--seed", "5"];
    let Some(mut peer) = python(&[&args[..], &more[..]].concat()) else {
        return;
    };
    let output = peer.output().unwrap();
    ends(&output, 0, "");
    for bytes in SIZES {
        let file = got.path().join(bytes.to_string());
        assert_eq!(fs::read(file).unwrap(), content(bytes), "{bytes}");
    }
    let lines = String::from_utf8(output.stdout).unwrap();
    let largest = lines.lines().find(|line| line.contains("s/2000000"));
    let reported: Value = serde_json::from_str(largest.unwrap()).unwrap();
    assert!(reported["requests"].as_u64().unwrap() > 0, "{reported}");
    let list = python(&["list", "127.0.0.1", &port]);
    let output = list.unwrap().output().unwrap();
    ends(&output, 0, "");
    assert!(String::from_utf8(output.stdout).unwrap().contains("s/1001"));
}

#[test]
fn our_client_fetches_from_a_stranger_through_loss_and_reordering() {
    let served = folder(&SIZES);
    let lossy = [
        "--loss",
        "0.05",
        "--dup",
        "0.05",
        "--reorder",
        "0.05",
        "--seed",
        "4",
    ];
    let Some(server) = Server::theirs(served.path(), &lossy) else {
        return;
    };
    let got = tempfile::tempdir().unwrap();
    let into = got.path().to_str().unwrap();
    let args = ["get", &server.at(), "*", into, "--block", "1000"];
    let mut get = farhaul(&args);
    ends(&get.args(["--rate", "100Mbit"]).output().unwrap(), 0, "");
    for bytes in SIZES {
        let file = fs::read(got.path().join(bytes.to_string())).unwrap();
        assert_eq!(file, content(bytes), "{bytes}");
    }
    let list = farhaul(&["list", &server.at()]).output().unwrap();
    ends(&list, 0, "");
    let listed = String::from_utf8(list.stdout).unwrap();
    assert!(listed.contains("2000000 2000000"), "{listed}");
    let to = got.path().join("none");
    let to = to.to_str().unwrap();
    ends(
        &farhaul(&["get", &server.at(), "none", to])
            .output()
            .unwrap(),
        3,
        "has no none",
    );
}

#[test]
fn only_a_client_with_the_secret_is_admitted() {
    let served = folder(&[10]);
    let secret = served.path().join("secret");
    fs::write(&secret, "dog\nand more\n").unwrap();
    let secret = secret.to_str().unwrap();
    let server = Server::ours(served.path(), &["--secret-file", secret]);
    let to = served.path().join("to");
    let to = to.to_str().unwrap();
    let get = |more: &[&str]| {
        let mut get = farhaul(&["get", &server.at(), "s/10", to]);
        get.args(more).output().unwrap()
    };
    ends(&get(&[]), 15, "does not accept this client");
    assert!(fs::metadata(to).is_err());
    ends(&get(&["--secret-file", secret]), 0, "not verified");
    let port = server.1.to_string();
    let Some(mut peer) = python(&["list", "127.0.0.1", &port, "--secret", "cat"]) else {
        return;
    };
    ends(&peer.output().unwrap(), 1, "");
}

#[test]
fn nothing_outside_the_share_is_served() {
    let served = folder(&[10]);
    std::os::unix::fs::symlink("/etc/passwd", served.path().join("link")).unwrap();
    fs::create_dir(served.path().join("sub")).unwrap();
    let server = Server::ours(served.path(), &[]);
    let to = served.path().join("to");
    let to = to.to_str().unwrap();
    for name in [
        "/etc/passwd",
        "s/../s/10",
        "s//10",
        "s/link",
        "s/sub",
        "t/10",
        "10",
    ] {
        let output = farhaul(&["get", &server.at(), name, to]).output().unwrap();
        ends(&output, 3, "the server has no");
    }
    let list = farhaul(&["list", &server.at()]).output().unwrap();
    assert_eq!(String::from_utf8(list.stdout).unwrap().lines().count(), 1);
    assert!(fs::metadata(to).is_err());
}

/// Bytes to write after so many bytes read.
type Answers = Vec<(usize, Vec<u8>)>;

/// The blocks of a file of two, and a server that closes right behind them. First comes one that is
/// no block, from another port, then a late one of no file.
#[test]
fn strangers_do_not_come_between_and_a_whole_file_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        tcp.write_all(&[&REVISION[..], &[7; 64]].concat()).unwrap();
        tcp.read_exact(&mut [0; 20]).unwrap();
        tcp.write_all(&[0]).unwrap();
        tcp.read_exact(&mut [0; 2]).unwrap();
        tcp.write_all(&[0]).unwrap();
        tcp.read_exact(&mut [0; 20]).unwrap();
        let numbers = [
            &1_500_u64.to_be_bytes()[..],
            &[0, 0, 3, 232, 0, 0, 0, 2],
            &[0; 4],
        ];
        tcp.write_all(&numbers.concat()).unwrap();
        let mut port = [0; 2];
        tcp.read_exact(&mut port).unwrap();
        let to = ("127.0.0.1", u16::from_be_bytes(port));
        let block =
            |number: u8, kind: u8| [&[0, 0, 0, number, 0, kind][..], &[number; 1_000]].concat();
        let [stranger, own] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        stranger.send_to(&block(0, b'O'), to).unwrap();
        own.send_to(&block(1, b'O'), to).unwrap();
        own.send_to(&block(2, b'X'), to).unwrap();
    });
    let into = tempfile::tempdir().unwrap();
    let to = into.path().join("to");
    let at = at.to_string();
    let mut get = farhaul(&["get", &at, "f", to.to_str().unwrap(), "--block", "1000"]);
    ends(&get.output().unwrap(), 0, "not verified");
    assert_eq!(
        fs::read(to).unwrap(),
        [[1; 1_000].to_vec(), vec![2; 500]].concat()
    );
    server.join().unwrap();
}

/// Lists that a share is too large for are refused, not cut, and a pipe in it is left alone.
#[test]
fn a_list_is_whole_or_refused() {
    let served = folder(&[10]);
    let fifo = served.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let server = Server::ours(served.path(), &[]);
    let list = || farhaul(&["list", &server.at()]).output().unwrap();
    ends(&list(), 0, "");
    for i in 0..10_000 {
        fs::write(served.path().join(format!("{i:0>100}")), "").unwrap();
    }
    ends(&list(), 17, "ended the connection");
    fs::remove_file(served.path().join(format!("{:0>100}", 7))).unwrap();
    let output = list();
    ends(&output, 0, "");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().count(),
        10_000
    );
}

#[test]
fn one_address_cannot_take_every_place() {
    let served = folder(&[10]);
    let server = Server::ours(served.path(), &[]);
    let mut held: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(server.at()).unwrap())
        .collect();
    // Four are greeted, the fifth is sent away.
    for tcp in &mut held[..4] {
        tcp.read_exact(&mut [0; 4]).unwrap();
    }
    assert_eq!(held[4].read(&mut [0; 4]).unwrap(), 0);
    drop(held.pop());
    drop(held.pop());
    let mut tries = 0;
    // The place is free as soon as the server has seen it.
    while !farhaul(&["list", &server.at()])
        .output()
        .unwrap()
        .status
        .success()
    {
        tries += 1;
        assert!(tries < 100);
    }
}

/// A server that greets, and then follows `answers`: it answers each read of so many bytes.
fn liar(answers: Answers) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut tcp, _): (TcpStream, _) = listener.accept().unwrap();
        tcp.write_all(&[&REVISION[..], &[7; 64]].concat()).unwrap();
        tcp.read_exact(&mut [0; 20]).unwrap();
        tcp.write_all(&[0]).unwrap();
        for (read, answer) in answers {
            // The client may have left.
            if tcp.read_exact(&mut vec![0; read]).is_err() || tcp.write_all(&answer).is_err() {
                return;
            }
        }
    });
    (port, server)
}

#[test]
fn a_lying_server_gets_nothing_written() {
    let info = |size: u64, block: u32, blocks: u32| {
        [
            &size.to_be_bytes()[..],
            &block.to_be_bytes(),
            &blocks.to_be_bytes(),
            &[0; 4],
        ]
        .concat()
    };
    let ok = (2, vec![0]);
    let cases: [(Answers, i32, &str); 6] = [
        (vec![], 17, "ended the connection"),
        (vec![(2, vec![77])], 20, "verdict"),
        (
            vec![ok.clone(), (20, info(5, 999, 1))],
            20,
            "size of a block",
        ),
        (
            vec![ok.clone(), (20, info(u64::MAX, 1_466, 7))],
            20,
            "number of blocks",
        ),
        (
            vec![ok.clone(), (20, info(1 << 40, 1_466, 750_014_173))],
            20,
            "number of blocks",
        ),
        (
            vec![ok, (20, info(5_000, 1_466, 4)), (2, vec![1])],
            20,
            "nobody waits for",
        ),
    ];
    for (answers, code, text) in cases {
        let (port, server) = liar(answers);
        let into = tempfile::tempdir().unwrap();
        let to = into.path().join("to");
        let at = format!("127.0.0.1:{port}");
        let mut get = farhaul(&["get", &at, "f", to.to_str().unwrap()]);
        ends(&get.output().unwrap(), code, text);
        assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0, "{text}");
        server.join().unwrap();
    }
}

#[test]
fn names_that_a_server_lists_cannot_leave_the_folder() {
    let list = |names: &[u8], count: usize| {
        let mut head = names.len().to_string().into_bytes();
        head.resize(10, 0);
        head.extend(count.to_string().bytes());
        head.resize(20, 0);
        vec![(2, head), (8, names.to_vec()), (8, vec![])]
    };
    let long = [&[b'x'; 241][..], b"\0"].concat();
    for (names, why) in [
        (&b"a/..\0"[..], "no name here"),
        (b"..\0", "no name here"),
        (b"f\0a/\0", "no name here"),
        (b"f\0.bashrc\0", "no name here"),
        (&long, "no name here"),
        (b"x/f\0y/f\0", "a duplicate"),
        (b"a\nb\0", "cannot be requested"),
        (b"f\0there\0", "in the folder already"),
    ] {
        let count = names.split(|b| *b == 0).count() - 1;
        let (port, server) = liar(list(names, count));
        let into = tempfile::tempdir().unwrap();
        fs::write(into.path().join("there"), "mine").unwrap();
        let at = format!("127.0.0.1:{port}");
        let mut get = farhaul(&["get", &at, "*", into.path().to_str().unwrap()]);
        ends(&get.output().unwrap(), 4, why);
        assert_eq!(fs::read_dir(into.path()).unwrap().count(), 1);
        assert_eq!(fs::read(into.path().join("there")).unwrap(), b"mine");
        server.join().unwrap();
    }
}
