//! How does our UDT compare with libudt? `cargo xtask udt4-bench` lets both cross the same emulated
//! paths, one after the other, and reports goodput at the receiver and processor time per bit.
//! Every run is added to `udt4.jsonl` in the folder named; the table of medians is `udt4.md` beside
//! it, and the number of runs, and in which the emulator was late. Cells that are named
//! (`50ms/1%`) are measured alone: a quiet minute is easier to find than ten.
//!
//! libudt gets 1,000 MB for each of its buffers; everybody's packets have 8,972 bytes.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    Outcome,
    emulated::{Emulated, median, number, object, succeed},
};

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

/// Goodput, bit/s, and per cent of a core per Gbit/s at the sender and at the receiver.
type Figures = [f64; 3];
/// What they are called in `udt4.jsonl`.
const NAMES: [&str; 3] = ["goodput_bits_per_second", "sender_cpu", "receiver_cpu"];

struct Bench {
    path: Emulated,
    peer: PathBuf,
    seconds: u32,
}

/// `cargo xtask udt4-bench SECONDS FOLDER [CELL...]`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let [seconds, out, cells @ ..] = args else {
        let usage = "usage: cargo xtask udt4-bench SECONDS FOLDER [RTT/LOSS...] (as lab/results/DATE-MACHINE 50ms/1%)";
        return Err(vec![usage.into()]);
    };
    chosen(cells)
        .and_then(|cells| measure_all(root, seconds, &root.join(out), &cells))
        .map_err(|text| vec![text])
}

/// The cells named, or all of them.
fn chosen(named: &[&str]) -> Result<Vec<(&'static str, &'static str)>, String> {
    if named.is_empty() {
        return Ok(CELLS.to_vec());
    }
    let name = |(rtt, loss): &(&str, &str)| format!("{rtt}/{loss}");
    let find = |wanted: &&str| {
        let known = CELLS.iter().find(|cell| name(cell) == **wanted);
        known.copied().ok_or_else(|| {
            let all: Vec<String> = CELLS.iter().map(name).collect();
            format!("{wanted}: no such cell; there are {}", all.join(", "))
        })
    };
    named.iter().map(find).collect()
}

fn measure_all(
    root: &Path,
    seconds: &str,
    out: &Path,
    cells: &[(&'static str, &'static str)],
) -> Result<(), String> {
    let seconds = seconds
        .parse()
        .map_err(|_| format!("{seconds}: give whole seconds"))?;
    if !out.is_dir() {
        return Err(format!("{}: no such folder", out.display()));
    }
    let bench = Bench::build(root, seconds)?;
    for &(rtt, loss) in cells {
        for (row, name) in ROWS {
            let (figures, late) = bench.measure(row, rtt, loss)?;
            note(out, (rtt, loss, name), figures, late, seconds)?;
        }
    }
    let kept = fs::read_to_string(out.join("udt4.jsonl")).map_err(|e| e.to_string())?;
    let runs: Vec<Value> = kept
        .lines()
        .map(|line| object(line.as_bytes()))
        .collect::<Result<_, _>>()?;
    fs::write(out.join("udt4.md"), table(&runs)?).map_err(|e| e.to_string())
}

/// Adds a run to `udt4.jsonl`.
fn note(
    out: &Path,
    (rtt, loss, who): (&str, &str, &str),
    figures: Figures,
    late: bool,
    seconds: u32,
) -> Result<(), String> {
    let mut run = json!({"rtt": rtt, "loss": loss, "who": who, "late": late, "seconds": seconds});
    for (name, figure) in NAMES.into_iter().zip(figures) {
        run[name] = figure.into();
    }
    let file = out.join("udt4.jsonl");
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&file)
        .and_then(|mut file| writeln!(file, "{run}"))
        .map_err(|e| format!("{}: {e}", file.display()))
}

/// The medians of all runs, by cell and who.
fn table(runs: &[Value]) -> Result<String, String> {
    let mut text = String::from(
        "Emulated path of 10 Gbit/s with a queue of 18 MB and random loss in both directions, packets of 8,972 bytes; \
         both ends and the emulator share the machine. Medians.\n\n\
         | RTT | loss | who | Gbit/s | CPU %/Gbps, sender / receiver | runs | emulator late in |\n\
         |--:|--:|---|--:|--:|--:|--:|\n",
    );
    for (rtt, loss) in CELLS {
        for (_, who) in ROWS {
            let of_cell =
                |run: &&Value| run["rtt"] == rtt && run["loss"] == loss && run["who"] == who;
            let cell: Vec<&Value> = runs.iter().filter(of_cell).collect();
            if cell.is_empty() {
                continue;
            }
            let mut medians = [0.0; 3];
            for (name, middle) in NAMES.into_iter().zip(&mut medians) {
                let all = cell.iter().map(|run| number(&run[name], name));
                *middle = median(all.collect::<Result<_, _>>()?);
            }
            let [goodput, sender, receiver] = medians;
            let late = cell.iter().filter(|run| run["late"] == true).count();
            writeln!(
                text,
                "| {rtt} | {loss} | {who} | {:.3} | {sender:.1} / {receiver:.1} | {} | {late} |",
                goodput / 1e9,
                cell.len(),
            )
            .map_err(|e| e.to_string())?;
        }
    }
    Ok(text)
}

/// Per cent of a core per Gbit/s of what was taken: a sender's own count has what it only buffered.
fn cost(side: &Value, taken: &Value) -> Result<f64, String> {
    let bits = number(&taken["bytes"], "bytes")? * 8.0;
    Ok(number(&side["cpu_seconds"], "processor time")? * 1e11 / bits.max(1.0))
}

impl Bench {
    fn build(root: &Path, seconds: u32) -> Result<Self, String> {
        let path = Emulated::build(root, "udt4-bench")?;
        let peer = path.folder.join("udt_peer");
        let source = root.join("tests/interop/udt_peer.cpp");
        succeed(
            Command::new("g++")
                .args(["-O2", "-o"])
                .args([&peer, &source])
                .args(["-ludt", "-lpthread"]),
        )
        .map_err(|e| format!("{e}\nlibudt-dev and g++ are needed"))?;
        Ok(Self {
            path,
            peer,
            seconds,
        })
    }

    /// Figures, and whether the emulator was late.
    fn measure(&self, row: Row, rtt: &str, loss: &str) -> Result<(Figures, bool), String> {
        let (farhaul, peer, t) = (
            self.path.farhaul.display(),
            self.peer.display(),
            self.seconds,
        );
        match row {
            Row::Ours => {
                let far = format!("{farhaul} bench serve --protocol udt4:{MSS}");
                let near =
                    format!("{farhaul} bench 10.99.0.2 --protocol udt4:{MSS} -t {t} -i 0 -J");
                let (report, late) = self.path.run(rtt, loss, &far, &near)?;
                let report = object(&report)?;
                let cpu = |side: &str| number(&report[side]["cpu_percent_per_gbps"], side);
                let goodput = number(&report["goodput_bits_per_second"], "goodput")?;
                Ok(([goodput, cpu("sender")?, cpu("receiver")?], late))
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

    /// Lets `sender` send to libudt, whose output is read from a pipe: the far end is ended with
    /// the near one.
    fn against_sink(&self, rtt: &str, loss: &str, sender: &str) -> Result<(Figures, bool), String> {
        let (pipe, taken) = (
            self.path.folder.join("pipe"),
            self.path.folder.join("taken"),
        );
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
        let (sent, late) = self.path.run(rtt, loss, &far, &near)?;
        let sent = object(&sent)?;
        let taken = object(&fs::read(&taken).map_err(|e| format!("{}: {e}", taken.display()))?)?;
        let goodput = number(&taken["goodput_bits_per_second"], "goodput")?;
        Ok(([goodput, cost(&sent, &taken)?, cost(&taken, &taken)?], late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), CELLS.len());
        assert_eq!(chosen(&["50ms/1%"]).unwrap(), [("50ms", "1%")]);
        assert!(chosen(&["50ms/3%"]).unwrap_err().contains("50ms/0.1%"));
    }
}
