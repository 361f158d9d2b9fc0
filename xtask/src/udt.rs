//! How does our UDT stand beside the real one? `cargo xtask udt4-bench` lets both cross the same
//! emulated paths, one after the other, and prints goodput at the receiver and processor time per bit.
//!
//! libudt gets 1,000 MB for each of its buffers; everybody's packets have 8,972 bytes.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::Outcome;

const MSS: &str = "mss=8972";
const PEER: &str = "-m 8972 -b 1000000000";
/// Round-trip time and loss in each direction.
const CELLS: [(&str, &str); 5] = [
    ("0ms", "0%"),
    ("50ms", "0%"),
    ("100ms", "0%"),
    ("50ms", "0.1%"),
    ("50ms", "1%"),
];

/// Who sends to whom.
#[derive(Clone, Copy)]
enum Row {
    Libudt,
    Ours,
    TunedToLibudt,
}

const ROWS: [(Row, &str); 3] = [
    (Row::Libudt, "libudt to libudt"),
    (Row::Ours, "udt4 to udt4"),
    (Row::TunedToLibudt, "udt4-tuned to libudt"),
];

struct Figures {
    goodput: f64,
    sender_cpu: f64,
    receiver_cpu: f64,
}

struct Bench {
    farhaul: PathBuf,
    peer: PathBuf,
    seconds: u32,
    folder: PathBuf,
}

/// `cargo xtask udt4-bench [SECONDS]`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let fail = |text: String| vec![text];
    let seconds = match args {
        [] => 10,
        [seconds] => seconds
            .parse()
            .map_err(|_| fail(format!("{seconds}: give whole seconds")))?,
        _ => return Err(fail("usage: cargo xtask udt4-bench [SECONDS]".into())),
    };
    let bench = Bench::build(root, seconds).map_err(fail)?;
    let say = |text: String| {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").map_err(|e| fail(e.to_string()))
    };
    say("| RTT | loss | who | Gbit/s | CPU %/Gbps, sender / receiver |".into())?;
    say("|--:|--:|---|--:|--:|".into())?;
    for (rtt, loss) in CELLS {
        for (row, name) in ROWS {
            let f = bench.measure(row, rtt, loss).map_err(fail)?;
            say(format!(
                "| {rtt} | {loss} | {name} | {:.3} | {:.1} / {:.1} |",
                f.goodput / 1e9,
                f.sender_cpu,
                f.receiver_cpu
            ))?;
        }
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status))
}

fn object(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("{e}: {}", String::from_utf8_lossy(bytes)))
}

fn number(value: &Value, what: &str) -> Result<f64, String> {
    value
        .as_f64()
        .ok_or_else(|| format!("no {what} was reported"))
}

/// Per cent of a core per Gbit/s of what was taken: a sender's own count has what it only buffered.
fn cost(side: &Value, taken: &Value) -> Result<f64, String> {
    let bits = number(&taken["bytes"], "bytes")? * 8.0;
    Ok(number(&side["cpu_seconds"], "processor time")? * 1e11 / bits.max(1.0))
}

impl Bench {
    fn build(root: &Path, seconds: u32) -> Result<Self, String> {
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("udt4-bench");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let peer = folder.join("udt_peer");
        let source = root.join("tests/interop/udt_peer.cpp");
        succeed(
            Command::new("g++")
                .args(["-O2", "-o"])
                .args([&peer, &source])
                .args(["-ludt", "-lpthread"]),
        )
        .map_err(|e| format!("{e}\nlibudt-dev and g++ are needed"))?;
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        succeed(Command::new(cargo).current_dir(root).args([
            "build",
            "--release",
            "-p",
            "farhaul",
        ]))?;
        Ok(Self {
            farhaul: target.join("release/farhaul"),
            peer,
            seconds,
            folder,
        })
    }

    fn measure(&self, row: Row, rtt: &str, loss: &str) -> Result<Figures, String> {
        let (farhaul, peer, t) = (self.farhaul.display(), self.peer.display(), self.seconds);
        match row {
            Row::Ours => {
                let far = format!("{farhaul} bench serve --protocol udt4:{MSS}");
                let near =
                    format!("{farhaul} bench 10.99.0.2 --protocol udt4:{MSS} -t {t} -i 0 -J");
                let report = object(&self.wan(rtt, loss, &far, &near)?)?;
                let cpu = |side: &str| number(&report[side]["cpu_percent_per_gbps"], side);
                Ok(Figures {
                    goodput: number(&report["goodput_bits_per_second"], "goodput")?,
                    sender_cpu: cpu("sender")?,
                    receiver_cpu: cpu("receiver")?,
                })
            }
            Row::Libudt => self.against_sink(
                rtt,
                loss,
                &format!("{peer} {PEER} connect 10.99.0.2 9000 blast {t}"),
            ),
            Row::TunedToLibudt => {
                let protocol = format!("udt4-tuned:{MSS}");
                let client =
                    format!("{farhaul} compat udt4 client 10.99.0.2 --protocol {protocol}");
                self.against_sink(rtt, loss, &format!("{client} -t {t} -J"))
            }
        }
    }

    /// Lets `sender` send to libudt, whose account comes back through a pipe: the far end is ended with
    /// the near one.
    fn against_sink(&self, rtt: &str, loss: &str, sender: &str) -> Result<Figures, String> {
        let (pipe, taken) = (self.folder.join("pipe"), self.folder.join("taken"));
        if pipe.exists() {
            fs::remove_file(&pipe).map_err(|e| format!("{}: {e}", pipe.display()))?;
        }
        succeed(Command::new("mkfifo").arg(&pipe))?;
        let (pipe, taken_at) = (pipe.display(), taken.display());
        let far = format!(
            "{} {PEER} listen 10.99.0.2 9000 sink > {pipe}",
            self.peer.display()
        );
        let near = format!("tail -n 1 {pipe} > {taken_at} & {sender}; wait");
        let sent = object(&self.wan(rtt, loss, &far, &near)?)?;
        let taken = object(&fs::read(&taken).map_err(|e| format!("{}: {e}", taken.display()))?)?;
        Ok(Figures {
            goodput: number(&taken["goodput_bits_per_second"], "goodput")?,
            sender_cpu: cost(&sent, &taken)?,
            receiver_cpu: cost(&taken, &taken)?,
        })
    }

    fn wan(&self, rtt: &str, loss: &str, far: &str, near: &str) -> Result<Vec<u8>, String> {
        let report = self.folder.join("wan.json");
        let out = succeed(
            Command::new(&self.farhaul)
                .args([
                    "wan", "run", "--rtt", rtt, "--loss", loss, "--rate", "10Gbit",
                ])
                .args(["--mtu", "9000", "--queue", "18MB", "--json", "--report"])
                .arg(&report)
                .args(["--far", far, "--", "sh", "-c", near]),
        )?;
        let health = object(&fs::read(&report).map_err(|e| format!("{}: {e}", report.display()))?)?;
        if health["valid"] == Value::Bool(false) {
            eprintln!("{rtt} {loss}: the emulator was late; the next figure says little");
        }
        Ok(out)
    }
}
