//! The other side: the program that speaks through libudt.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock},
};

/// Held while a child is made and while a port is tried: a child has every socket of ours until it
/// is the other program, and would keep the port in use.
pub(crate) static FORK: Mutex<()> = Mutex::new(());

/// The program, built once; `None` where libudt is not installed.
pub(crate) fn program() -> Option<&'static Path> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    PEER.get_or_init(|| {
        if !Path::new("/usr/include/udt/udt.h").exists() {
            eprintln!("skipped: libudt-dev is not installed (apt-get install libudt-dev g++)");
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/udt_peer.cpp");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("udt_peer");
        let built = Command::new("g++")
            .args(["-O2", "-o"])
            .args([&program, &source])
            .args(["-ludt", "-lpthread"])
            .status();
        match built {
            Ok(status) => {
                assert!(status.success(), "the peer does not compile");
                Some(program)
            }
            Err(e) => {
                eprintln!("skipped: g++: {e}");
                None
            }
        }
    })
    .as_deref()
}

/// A peer that is killed if the test fails.
pub(crate) struct Peer {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended already, or is of no more use.
        let _ = self.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    pub(crate) fn start(
        options: &[String],
        (how, host, port): (&str, IpAddr, u16),
        action: &[String],
    ) -> Self {
        let program = program().expect("asked before");
        let mut command = Command::new(program);
        command
            .args(options)
            .args([how, &host.to_string(), &port.to_string()])
            .args(action)
            .stdout(Stdio::piped());
        let fork = FORK.lock().unwrap();
        let child = command.spawn();
        drop(fork);
        let mut child = child.unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The port it prints.
    pub(crate) fn port(&mut self) -> u16 {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().parse().expect("a port")
    }

    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()
    }

    /// Whether it went well, and what else it printed, once it has ended.
    pub(crate) fn end(&mut self) -> (bool, String) {
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }
}
