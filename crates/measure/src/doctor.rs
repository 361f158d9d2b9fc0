//! Checks whether this machine is fit. Each finding was tried, not assumed, and has what it costs
//! when something is missing, and the exact line that mends it.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    thread,
};

use farhaul_core::datagram::Ecn;
use farhaul_haul::crypto::cipher;
use farhaul_io::clock;
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SocketOptions, UdpSocket, netns};
use serde::Serialize;

use crate::host::{self, Host};

mod disk;
mod settings;
pub use disk::{DiskSpeed, disk, disk_speed};
pub use settings::{Setting, SettingsError, settings, write_settings};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The setting is as it should be.
    Good,
    /// Works, with a loss that `text` names.
    Fair,
    /// Something does not work at all.
    Bad,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub name: &'static str,
    /// Severity.
    pub grade: Grade,
    /// Text of the finding and its cost.
    pub text: String,
    /// Line that mends the finding, if one does.
    pub fix: Option<String>,
}

impl Finding {
    /// A finding without a line that mends it.
    pub fn new(name: &'static str, grade: Grade, text: impl Into<String>) -> Self {
        Self {
            name,
            grade,
            text: text.into(),
            fix: None,
        }
    }

    /// Adds the line that mends the finding.
    #[must_use]
    pub fn fix(mut self, line: impl Into<String>) -> Self {
        self.fix = Some(line.into());
        self
    }
}

/// Runs all checks that need no peer.
pub fn examine(host: &Host) -> Vec<Finding> {
    let mut findings = vec![build(host), sealing(), cores(host), clock_cost(host)];
    findings.extend(buffers());
    findings.extend(offloads());
    findings.push(namespaces());
    findings.push(tun());
    findings.push(tcp(host));
    findings
}

fn build(host: &Host) -> Finding {
    if host.debug_build {
        Finding::new("build", Grade::Fair, "a debug build: many times slower")
            .fix("cargo build --release")
    } else {
        Finding::new("build", Grade::Good, "optimised")
    }
}

/// Seals full datagrams for some milliseconds.
fn sealing() -> Finding {
    const DATAGRAM: usize = 8_900;
    const HEADER: usize = 20;
    const COUNT: u64 = 1_000;
    let by = cipher::sealing();
    let Some(key) = cipher::key_for_timing() else {
        return Finding::new("sealing", Grade::Bad, "no cipher: this build cannot seal");
    };
    let mut datagram = vec![0; DATAGRAM];
    let begin = clock::now();
    for number in 0..COUNT {
        key.seal(number, &mut datagram, HEADER);
    }
    let nanos = clock::now().since(begin).as_nanos().max(1);
    let gigabits = u128::from(COUNT) * DATAGRAM as u128 * 8 / nanos;
    let text = format!(
        "{} by {}{}: {gigabits} Gbit/s a core",
        by.cipher,
        by.library,
        if by.wide {
            ", several blocks at a time"
        } else {
            ""
        },
    );
    let grade = if gigabits < 10 {
        Grade::Fair
    } else {
        Grade::Good
    };
    Finding::new("sealing", grade, text)
}

fn cores(host: &Host) -> Finding {
    match host.cores {
        1 => Finding::new("cores", Grade::Fair, "one: files and network share it"),
        n => Finding::new("cores", Grade::Good, n.to_string()),
    }
}

/// Times reading the clock: a turn does it once.
fn clock_cost(host: &Host) -> Finding {
    const READS: u32 = 20_000;
    let begin = clock::now();
    for _ in 0..READS {
        std::hint::black_box(clock::now());
    }
    let each = clock::now().since(begin) / READS;
    let source = host.clock.as_deref().unwrap_or("unknown");
    let text = format!("{source}, {} ns to read", each.as_nanos());
    if each.as_nanos() > 1_000 {
        let text = format!("{text}: a slow clock is felt at every turn");
        Finding::new("clock", Grade::Fair, text)
    } else {
        Finding::new("clock", Grade::Good, text)
    }
}

/// A socket as sessions have it.
fn wanted() -> SocketOptions {
    SocketOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
}

fn local_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind(&wanted())
}

fn buffers() -> Vec<Finding> {
    let wanted = wanted();
    let got = match local_socket() {
        Ok(socket) => socket.capabilities(),
        Err(e) => {
            let text = format!("no UDP socket: {e}");
            return vec![Finding::new("sockets", Grade::Bad, text)];
        }
    };
    let one = |name, got: usize, wanted: usize, limit: &str, cost: &str| {
        let kib = |bytes: usize| bytes >> 10;
        if got >= wanted {
            Finding::new(name, Grade::Good, format!("{} KiB", kib(got)))
        } else {
            let text = format!("{} KiB of {} wanted: {cost}", kib(got), kib(wanted));
            Finding::new(name, Grade::Fair, text).fix(format!("sysctl -w {limit}={wanted}"))
        }
    };
    let (receive, send) = (wanted.receive_buffer, wanted.send_buffer);
    vec![
        one(
            "receive buffer",
            got.receive_buffer,
            receive,
            "net.core.rmem_max",
            "bursts overflow when this end is late",
        ),
        one(
            "send buffer",
            got.send_buffer,
            send,
            "net.core.wmem_max",
            "more system calls",
        ),
    ]
}

/// Sends a marked train of datagrams over loopback and checks how it arrives.
fn offloads() -> Vec<Finding> {
    const SEGMENT: usize = 1_000;
    const SEGMENTS: usize = 8;
    let trial = || -> io::Result<(UdpSocket, UdpSocket, usize, Ecn)> {
        let (mut from, mut to) = (local_socket()?, local_socket()?);
        let bytes = [7; SEGMENT * SEGMENTS];
        from.send(&Outgoing {
            to: to.local_addr()?,
            from: None,
            ecn: Ecn::Ect0,
            segment: SEGMENT,
            bytes: &bytes,
        });
        let mut inbox = Inbox::new();
        let (mut longest, mut ecn, mut heard) = (0, Ecn::NotEct, 0);
        // Loopback delivers within the send call, so that what is missing now will not arrive.
        while heard < bytes.len() {
            if !matches!(to.receive(&mut inbox), ReceiveOutcome::Some { .. }) {
                break;
            }
            for message in inbox.messages() {
                longest = longest.max(message.bytes.len() / message.segment);
                heard += message.bytes.len();
                ecn = message.ecn;
            }
        }
        Ok((from, to, longest, ecn))
    };
    let (from, _, longest, ecn) = match trial() {
        Ok(done) => done,
        Err(e) => {
            let text = format!("the trial failed: {e}");
            return vec![Finding::new("offloads", Grade::Bad, text)];
        }
    };
    let gso = if from.capabilities().gso && from.counters().send_calls == 1 {
        Finding::new(
            "gso",
            Grade::Good,
            "a train of datagrams leaves in one call",
        )
    } else {
        let text = "a call per train is refused: sending costs several times as much";
        Finding::new("gso", Grade::Fair, text)
    };
    let gro = if longest > 1 {
        Finding::new(
            "gro",
            Grade::Good,
            "a train of datagrams arrives as one message",
        )
    } else {
        let text = "trains arrive one by one: receiving costs several times as much";
        Finding::new("gro", Grade::Fair, text)
    };
    let ecn = if ecn == Ecn::Ect0 {
        Finding::new("ecn", Grade::Good, "marks are set and seen")
    } else {
        let text = "marks are not seen: congestion shows as loss only";
        Finding::new("ecn", Grade::Fair, text)
    };
    vec![gso, gro, ecn]
}

/// Tries to enter a network of its own, on a thread that ends at once.
fn namespaces() -> Finding {
    const NAME: &str = "namespaces";
    let root = fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt as _;
        m.uid() == 0
    });
    if root {
        let trial = thread::Builder::new().spawn(netns::enter_new_network);
        return match trial.map_or_else(|e| Ok(Err(e)), thread::JoinHandle::join) {
            Ok(Ok(())) => Finding::new(NAME, Grade::Good, "allowed (root)"),
            Ok(Err(e)) => Finding::new(
                NAME,
                Grade::Fair,
                format!("refused ({e}): `wan` and `demo` use the UDP relay"),
            ),
            Err(_) => Finding::new(NAME, Grade::Bad, "the trial broke"),
        };
    }
    for (path, forbids, fix) in [
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "sysctl -w user.max_user_namespaces=15000",
        ),
    ] {
        if host::line(path).as_deref() == Some(forbids) {
            let text = "not allowed without root: `wan` and `demo` use the UDP relay";
            return Finding::new(NAME, Grade::Fair, text).fix(fix);
        }
    }
    Finding::new(NAME, Grade::Good, "not forbidden to this user")
}

fn tun() -> Finding {
    const DEVICE: &str = "/dev/net/tun";
    let opened = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    match opened {
        Ok(_) => Finding::new("tun", Grade::Good, "can be opened"),
        Err(e) if e.kind() == ErrorKind::NotFound && Path::new("/dev").exists() => {
            let text = "no /dev/net/tun: `wan` and `demo` use the UDP relay";
            Finding::new("tun", Grade::Fair, text).fix("modprobe tun")
        }
        Err(e) => Finding::new(
            "tun",
            Grade::Fair,
            format!("{e}: `wan` and `demo` use the UDP relay"),
        ),
    }
}

fn tcp(host: &Host) -> Finding {
    let laws = host.tcp_laws.join(" ");
    if host.tcp_laws.iter().any(|l| l == "bbr") {
        Finding::new("tcp", Grade::Good, laws)
    } else {
        let text = format!("{laws}: no bbr to compare with");
        Finding::new("tcp", Grade::Fair, text).fix("modprobe tcp_bbr")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_checked_and_nothing_breaks() {
        let findings = examine(&Host::read());
        let names: Vec<_> = findings.iter().map(|f| f.name).collect();
        for expected in [
            "build",
            "receive buffer",
            "gso",
            "gro",
            "ecn",
            "namespaces",
            "tun",
        ] {
            assert!(names.contains(&expected), "{expected} in {names:?}");
        }
        assert!(
            findings.iter().all(|f| f.grade < Grade::Bad),
            "{findings:?}"
        );
        assert!(findings.iter().all(|f| !f.text.is_empty()));
    }
}
