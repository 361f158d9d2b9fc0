//! The other side: the program that speaks through libudt.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{self, Child, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

/// The program; `None` where libudt is not installed.
pub(crate) fn program() -> Option<&'static Path> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    PEER.get_or_init(|| {
        if !Path::new("/usr/include/udt/udt.h").exists() {
            eprintln!("skipped: libudt-dev is not installed (apt-get install libudt-dev g++)");
            return None;
        }
        let source = Path::new("../lab/src/emulated/udt_peer.cpp");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("udt_peer");
        if is_newer(&program, source) || build(source, &program) {
            return Some(program);
        }
        eprintln!("skipped: g++ is not installed");
        None
    })
    .as_deref()
}

fn is_newer(program: &Path, source: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|about| about.modified());
    time(program).is_ok_and(|built| built > time(source).expect("it has one"))
}

/// Builds the peer, unless there is no compiler. It has its name once it is whole: other processes
/// build and run it, too.
fn build(source: &Path, program: &Path) -> bool {
    let mut name = program.as_os_str().to_owned();
    name.push(format!("-{}", process::id()));
    let built = Command::new("g++")
        .args(["-O2", "-o"])
        .args([&name, source.as_os_str()])
        .args(["-ludt", "-lpthread"])
        .status();
    let Ok(status) = built else {
        return false;
    };
    assert!(status.success(), "the peer does not compile");
    fs::rename(&name, program).unwrap();
    true
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
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Port that the peer prints.
    pub(crate) fn port(&mut self) -> u16 {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().parse().expect("a port")
    }

    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()
    }

    /// Waits for the end of the peer's program; true if the program went well, and what else it
    /// printed.
    pub(crate) fn end(&mut self) -> (bool, String) {
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }
}
