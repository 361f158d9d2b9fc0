//! Which figures does the project quote? One fixed table of cells, run the same way each time, kept
//! as it was measured (`raw.jsonl`, one object per run), with the machine it was measured on
//! (`machine.txt`) and the table that is quoted (`summary.md`).
//!
//! The summary is made from the raw lines alone, so it can be made again.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use farhaul_core::units::{Rate, Size};
use serde::{Deserialize, Serialize};

use crate::{bench::Report, host::Host};

/// A path: 10 Gbit/s with a queue of 18 MB, this MTU, this rtt, this loss in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// Round-trip time, ms.
    pub rtt_ms: u32,
    /// Packets lost, per cent, in each direction.
    pub loss_percent: f64,
}

const fn cell(mtu: u32, rtt_ms: u32, loss_percent: f64) -> Cell {
    Cell {
        mtu,
        rtt_ms,
        loss_percent,
    }
}

/// The cells of the table.
pub const CELLS: [Cell; 7] = [
    cell(9000, 0, 0.0),
    cell(9000, 50, 0.1),
    cell(9000, 100, 1.0),
    cell(9000, 200, 1.0),
    cell(9000, 400, 2.0),
    cell(1500, 0, 0.0),
    cell(1500, 100, 0.1),
];

/// The cells in which simulator and emulator are held against each other.
pub const AGREEMENT: [Cell; 3] = [
    cell(9000, 50, 0.1),
    cell(9000, 100, 1.0),
    cell(9000, 400, 2.0),
];

/// Their link: slow enough that the processor is not what is measured.
pub const AGREEMENT_LINK: Rate = Rate::gbit(1);

/// Which files are copied, and where.
pub const COPIES: [(What, Cell); 3] = [
    (What::LargeFile, cell(9000, 100, 1.0)),
    (What::SmallFiles, cell(9000, 100, 1.0)),
    (What::LargeFile, cell(9000, 400, 2.0)),
];

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was run.
    pub what: What,
    /// Where.
    pub cell: Cell,
    /// Which system: `haul`, `tcp bbr`, ...
    pub system: String,
    /// Goodput at the receiver, bit/s.
    pub goodput_bits_per_second: f64,
    /// Over this long, s.
    pub seconds: f64,
    /// Why the figure must not be quoted, if so: the emulator was late, the run failed.
    pub invalid: Option<String>,
    /// The complete output of the bench, if it was one.
    pub report: Option<Report>,
    /// The most memory that sender and receiver of a copy held, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<[u64; 2]>,
}

/// What was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Memory to memory over the emulator.
    Bench,
    /// Memory to memory in the simulator, on [`AGREEMENT_LINK`].
    Simulated,
    /// Memory to memory over the emulator, on [`AGREEMENT_LINK`].
    Emulated,
    /// One large file.
    LargeFile,
    /// Many small files.
    SmallFiles,
}

/// A folder of results.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    raw: File,
}

impl Store {
    /// Starts, or continues, the folder `below/DATE-MACHINE`.
    pub fn open(below: &Path, date: &str, host: &Host) -> io::Result<Self> {
        let folder = below.join(format!("{date}-{}", host.slug()));
        fs::create_dir_all(&folder)?;
        let load = crate::host::line("/proc/loadavg").unwrap_or_default();
        fs::write(
            folder.join("machine.txt"),
            format!("{host}\nload       {load} (when the measurement began)\n"),
        )?;
        let raw = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("raw.jsonl"))?;
        Ok(Self { folder, raw })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps a run at once, so that a crash later loses nothing.
    pub fn keep(&mut self, run: &Run) -> io::Result<()> {
        let mut line = serde_json::to_vec(run)?;
        line.push(b'\n');
        self.raw.write_all(&line)?;
        self.raw.flush()
    }

    /// Every run kept so far.
    pub fn runs(&self) -> io::Result<Vec<Run>> {
        let raw = BufReader::new(File::open(self.folder.join("raw.jsonl"))?);
        raw.lines()
            .map(|line| Ok(serde_json::from_str(&line?)?))
            .collect()
    }

    /// Writes the table.
    pub fn summarise(&self, date: &str, host: &Host) -> io::Result<String> {
        let text = summary(&self.runs()?, date, host);
        fs::write(self.folder.join("summary.md"), &text)?;
        Ok(text)
    }
}

/// The last run of its kind in `cell`.
fn last<'a>(runs: &'a [Run], what: What, cell: Cell, system: &str) -> Option<&'a Run> {
    runs.iter()
        .rev()
        .find(|r| r.what == what && r.cell == cell && r.system == system)
}

/// `9.31`, or `14 M` below a tenth of a Gbit/s; in brackets if it is not to be trusted.
fn gbps(run: Option<&Run>) -> String {
    let Some(run) = run else {
        return "-".into();
    };
    let g = run.goodput_bits_per_second / 1e9;
    let figure = if g < 0.1 {
        format!("{:.0} M", g * 1e3)
    } else {
        format!("{g:.2}")
    };
    match (&run.invalid, g > 0.0) {
        (None, _) => figure,
        (Some(_), true) => format!("({figure})"),
        (Some(_), false) => "failed".into(),
    }
}

fn number(x: Option<f64>) -> String {
    x.map_or_else(|| "-".into(), |x| format!("{x:.1}"))
}

/// The tables in Markdown.
pub fn summary(runs: &[Run], date: &str, host: &Host) -> String {
    let mut text = String::new();
    let machine = host.processor.as_deref().unwrap_or("an unknown processor");
    let kernel = host.kernel.as_deref().unwrap_or("unknown");
    let _ = writeln!(
        text,
        "{date}, {} x {machine}, Linux {kernel}. Emulated path of 10 Gbit/s with a queue of 18 MB and \
         random loss in both directions; both ends and the emulator share the machine.",
        host.cores
    );
    if runs.iter().any(|r| r.invalid.is_some()) {
        text.push_str(
            "In brackets: the machine was too busy for the emulator to keep its times, so the figure \
             says little.\n",
        );
    }
    text.push('\n');
    benches(&mut text, runs);
    copies(&mut text, runs);
    agreement(&mut text, runs);
    text
}

fn benches(text: &mut String, runs: &[Run]) {
    let quoted = CELLS
        .iter()
        .flat_map(|cell| ["haul", "tcp bbr"].map(|system| last(runs, What::Bench, *cell, system)));
    let Some((least, most)) = quoted.flatten().fold(None, |lasted, run| {
        let (least, most) = lasted.unwrap_or((run.seconds, run.seconds));
        Some((run.seconds.min(least), run.seconds.max(most)))
    }) else {
        return;
    };
    let lasted = match (format!("{least:.0}"), format!("{most:.0}")) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    };
    let _ = writeln!(
        text,
        "Memory to memory, {lasted} s with the start; haul is sealed, TCP is not:\n",
    );
    text.push_str(
        "| MTU | RTT ms | loss % | haul Gbit/s | kernel BBR Gbit/s | haul CPU %/Gbps, sender / receiver \
         | BBR CPU %/Gbps | haul feedback KiB/GiB | haul wire/goodput x (1 - loss) | haul MiB of memory, sender / receiver \
         | haul limited by |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for cell in CELLS {
        let haul = last(runs, What::Bench, cell, "haul");
        let bbr = last(runs, What::Bench, cell, "tcp bbr");
        let cpu = |run: Option<&Run>| {
            let report = run.and_then(|r| r.report.as_ref());
            let (s, r) = report.map_or((None, None), |r| {
                (
                    r.sender.cpu_percent_per_gbps,
                    r.receiver.cpu_percent_per_gbps,
                )
            });
            format!("{} / {}", number(s), number(r))
        };
        let report = haul.and_then(|r| r.report.as_ref());
        let wire = report.and_then(|r| r.wire_over_goodput);
        let wire = wire.map(|w| w * (1.0 - cell.loss_percent / 100.0));
        let _ = writeln!(
            text,
            "| {} | {} | {} | **{}** | {} | {} | {} | {} | {} | {} / {} | {} |",
            cell.mtu,
            cell.rtt_ms,
            cell.loss_percent,
            gbps(haul),
            gbps(bbr),
            cpu(haul),
            cpu(bbr),
            number(report.and_then(|r| r.feedback_kib_per_gib)),
            wire.map_or_else(|| "-".into(), |x| format!("{x:.3}")),
            mebibytes(report.and_then(|r| r.sender.max_rss_bytes)),
            mebibytes(report.and_then(|r| r.receiver.max_rss_bytes)),
            report.map_or_else(|| "-".into(), Report::limits),
        );
    }
}

fn copies(text: &mut String, runs: &[Run]) {
    let runs_of = |(what, cell)| last(runs, what, cell, "haul");
    if COPIES.into_iter().find_map(runs_of).is_none() {
        return;
    }
    text.push_str(
        "\n`farhaul cp`, memory file system to memory file system, from the start of the command to its end:\n\n\
         | what | MTU | RTT ms | loss % | in all | seconds | Gbit/s | of the bench above | MiB of memory, sender / receiver |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (what, cell) in COPIES {
        let name = match what {
            What::SmallFiles => "files of 64 KiB",
            _ => "one file",
        };
        let run = runs_of((what, cell));
        let seconds = run.map_or_else(|| "-".into(), |r| format!("{:.2}", r.seconds));
        // The files' bytes, as the goodput was made from them.
        let bytes = run
            .map(|r| Rate::from_f64(r.goodput_bits_per_second))
            .zip(run.map(|r| Duration::from_secs_f64(r.seconds.max(0.0))))
            .map_or_else(
                || "-".into(),
                |(rate, time)| Size::from_bytes(rate.bytes_in(time)).to_string(),
            );
        let bench = last(runs, What::Bench, cell, "haul").map(|b| b.goodput_bits_per_second);
        let share = run.zip(bench.filter(|b| *b > 0.0)).map_or_else(
            || "-".into(),
            |(run, bench)| format!("{:.0} %", run.goodput_bits_per_second / bench * 100.0),
        );
        let [sender, receiver] = run
            .and_then(|r| r.max_rss_bytes)
            .map_or([None; 2], |m| m.map(Some));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {bytes} | {seconds} | {} | {share} | {} / {} |",
            cell.mtu,
            cell.rtt_ms,
            cell.loss_percent,
            gbps(run),
            mebibytes(sender),
            mebibytes(receiver),
        );
    }
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".into(), |n| n.div_ceil(1 << 20).to_string())
}

fn agreement(text: &mut String, runs: &[Run]) {
    if !runs.iter().any(|r| r.what == What::Simulated) {
        return;
    }
    let _ = write!(
        text,
        "\nThe simulator beside the emulator, haul, {AGREEMENT_LINK}:\n\n\
         | MTU | RTT ms | loss % | simulator Gbit/s | emulator Gbit/s | difference % |\n|--:|--:|--:|--:|--:|--:|\n",
    );
    for cell in AGREEMENT {
        let simulated = last(runs, What::Simulated, cell, "haul");
        let emulated = last(runs, What::Emulated, cell, "haul");
        let difference = simulated.zip(emulated).map(|(s, e)| {
            (s.goodput_bits_per_second / e.goodput_bits_per_second.max(1.0) - 1.0) * 100.0
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            cell.mtu,
            cell.rtt_ms,
            cell.loss_percent,
            gbps(simulated),
            gbps(emulated),
            number(difference)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: &str, cell: Cell, gbps: f64) -> Run {
        Run {
            what: What::Bench,
            cell,
            system: system.into(),
            goodput_bits_per_second: gbps * 1e9,
            seconds: 30.0,
            invalid: None,
            report: None,
            max_rss_bytes: None,
        }
    }

    #[test]
    fn runs_are_kept_and_the_table_quotes_the_last_valid_ones() {
        let below = tempfile::tempdir().unwrap();
        let host = Host::read();
        let mut store = Store::open(below.path(), "2026-01-02", &host).unwrap();
        for gbps in [1.0, 9.25] {
            store.keep(&run("haul", CELLS[2], gbps)).unwrap();
        }
        store.keep(&run("tcp bbr", CELLS[2], 0.014)).unwrap();
        let late = Run {
            invalid: Some("late".into()),
            ..run("haul", CELLS[0], 5.0)
        };
        store.keep(&late).unwrap();
        let short = Run {
            seconds: 8.0,
            ..run("tcp bbr", CELLS[1], 3.0)
        };
        store.keep(&short).unwrap();
        drop(store);
        let store = Store::open(below.path(), "2026-01-02", &host).unwrap();
        let text = store.summarise("2026-01-02", &host).unwrap();
        assert!(
            text.contains("| 9000 | 100 | 1 | **9.25** | 14 M |"),
            "{text}"
        );
        assert!(text.contains("| 9000 | 0 | 0 | **(5.00)** | - |"), "{text}");
        assert!(text.contains(" 8 to 30 s with the start"), "{text}");
        assert!(!text.contains("cp`") && !text.contains("simulator"));
        let (what, cell) = COPIES[0];
        let mut store = store;
        store
            .keep(&Run {
                what,
                max_rss_bytes: Some([20 << 20, 30 << 20]),
                ..run("haul", cell, 4.625)
            })
            .unwrap();
        let text = store.summarise("2026-01-02", &host).unwrap();
        assert!(text.contains("| 4.62 | 50 % | 20 / 30 |"), "{text}");
    }
}
