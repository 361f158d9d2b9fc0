//! `farhaul lab results`: the fixed table of cells, measured on this machine and kept.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_emu::{WanReport, wan};
use farhaul_lab::{
    bench::Report,
    emulated::{EmulatedRun, EmulatedRunError, network},
    host::Host,
    registry::{self, Choice},
    results::{AGREEMENT, AGREEMENT_LINK, CELLS, COPIES, Cell, Run, Store, What},
};
use farhaul_sim::Scenario;

use crate::{
    exit::{Exit, Failure},
    out,
};

/// The link of every cell, but for the comparison of worlds.
const LINK: Rate = Rate::gbit(10);

/// What of it, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Results {
    /// The parent of a folder per date and machine
    #[arg(long, value_name = "FOLDER", default_value = "lab/results")]
    out: PathBuf,
    /// 8 s a run instead of 30, smaller files
    #[arg(long)]
    quick: bool,
    /// Maximum attempts of a run while the emulator is late [default: 3; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    attempts: Option<u32>,
    /// Run only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',', default_values = ["bench", "copy", "agreement"], value_parser = ["bench", "copy", "agreement"])]
    only: Vec<String>,
}

impl Results {
    /// Measures, prints and stores.
    pub(super) fn run(self) -> Result<(), Failure> {
        wan::enter_user_namespace().map_err(|e| run(EmulatedRunError::Wan(e)))?;
        let host = Host::read();
        if host.debug_build {
            errln!("farhaul: a debug build: these figures are not worth keeping");
        }
        let date = today()?;
        let mut store = Store::open(&self.out, &date, &host).map_err(|e| disk(&self.out, &e))?;
        let (seconds, attempts) = if self.quick { (8, 1) } else { (30, 3) };
        let attempts = self.attempts.unwrap_or(attempts);
        let program =
            env::current_exe().map_err(|e| Failure::new(Exit::Internal, e.to_string()))?;
        let wants = |part: &str| self.only.iter().any(|p| p == part);
        let mut keep = |run: Run| {
            out::line(row(&run));
            store.keep(&run).map_err(|e| disk(&self.out, &e))
        };
        if wants("bench") {
            for cell in CELLS {
                for system in [System::Haul, System::Bbr] {
                    keep(settled(attempts, || {
                        measure(cell, LINK, system, seconds, &program)
                    }))?;
                }
            }
        }
        if wants("copy") {
            for (what, cell) in COPIES {
                let folder = Folder::fill(what, self.quick)?;
                keep(settled(attempts, || copy(what, cell, &folder, &program)))?;
            }
        }
        if wants("agreement") {
            for cell in AGREEMENT {
                keep(simulate(cell, seconds)?)?;
                keep(settled(attempts, || Run {
                    what: What::Emulated,
                    ..measure(cell, AGREEMENT_LINK, System::Haul, seconds, &program)
                }))?;
            }
        }
        let text = store
            .summarise(&date, &host)
            .map_err(|e| disk(&self.out, &e))?;
        out::line(format!("\n{text}\nkept in {}", store.folder().display()));
        Ok(())
    }
}

/// Runs until the emulator was in time, but no more than `attempts` times.
fn settled(attempts: u32, mut run: impl FnMut() -> Run) -> Run {
    let mut last = run();
    for _ in 1..attempts {
        if last.invalid.is_none() {
            break;
        }
        last = run();
    }
    last
}

#[derive(Clone, Copy)]
enum System {
    Haul,
    Bbr,
}

impl System {
    const fn name(self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Bbr => "tcp bbr",
        }
    }
}

fn row(run: &Run) -> String {
    let Cell {
        mtu,
        rtt_ms,
        loss_percent,
    } = run.cell;
    let invalid = run
        .invalid
        .as_deref()
        .map(|why| format!("  NOT VALID: {why}"));
    format!(
        "{:?}, mtu {mtu}, {rtt_ms} ms, {loss_percent} %, {}: {} over {:.2} s{}",
        run.what,
        run.system,
        Rate::from_f64(run.goodput_bits_per_second),
        run.seconds,
        invalid.unwrap_or_default()
    )
}

/// One run on a network of its own. A failure is a result too.
fn measure(cell: Cell, link: Rate, system: System, seconds: u64, program: &Path) -> Run {
    let attempt = || -> Result<(Report, WanReport), EmulatedRunError> {
        let run = EmulatedRun::build(&network(cell, link, 1), program)?;
        let report = match system {
            System::Haul => run.bench(seconds, &["-i", "0"])?,
            System::Bbr if have_iperf3() => run.iperf3("bbr", seconds, None)?,
            System::Bbr => run.tcp("bbr", seconds)?,
        };
        Ok((report, run.finish()?))
    };
    let empty = Run {
        what: What::Bench,
        cell,
        system: system.name().into(),
        goodput_bits_per_second: 0.0,
        seconds: 0.0,
        invalid: None,
        report: None,
        max_rss_bytes: None,
    };
    match attempt() {
        Ok((report, wan)) => Run {
            goodput_bits_per_second: report.goodput_bits_per_second,
            seconds: report.seconds,
            invalid: invalid(&wan),
            report: Some(report),
            ..empty
        },
        Err(e) => Run {
            invalid: Some(e.to_string()),
            ..empty
        },
    }
}

/// Why a run's figure must not be quoted.
fn invalid(wan: &WanReport) -> Option<String> {
    (!wan.health.valid).then(|| wan.health.complaints.join("; "))
}

fn have_iperf3() -> bool {
    Command::new("iperf3")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
}

/// Files in memory to copy.
struct Folder {
    place: tempfile::TempDir,
    from: PathBuf,
}

impl Folder {
    fn fill(what: What, quick: bool) -> Result<Self, Failure> {
        let shm = Path::new("/dev/shm");
        let memory = if shm.is_dir() { shm } else { &env::temp_dir() };
        let failed = |e: std::io::Error| disk(memory, &e);
        let place = tempfile::tempdir_in(memory).map_err(failed)?;
        let from = place.path().join("from");
        fs::create_dir(&from).map_err(failed)?;
        let (files, size) = match (what, quick) {
            (What::LargeFile, false) => (1, 4 << 30),
            (What::LargeFile, true) => (1, 512 << 20),
            (_, false) => (10_000, 64 << 10),
            (_, true) => (1_000, 64 << 10),
        };
        crate::cmd::tree::fill(&from, files, size).map_err(failed)?;
        Ok(Self { place, from })
    }
}

/// Copies files from memory to memory.
fn copy(what: What, cell: Cell, folder: &Folder, program: &Path) -> Run {
    let attempt = || -> Result<_, EmulatedRunError> {
        let into = tempfile::tempdir_in(folder.place.path())
            .map_err(|e| EmulatedRunError::Start("a temporary folder".into(), e))?;
        let run = EmulatedRun::build(&network(cell, LINK, 1), program)?;
        let copied = run.copy(&[&folder.from], into.path())?;
        Ok((copied, run.finish()?))
    };
    let empty = Run {
        what,
        cell,
        system: "haul".into(),
        goodput_bits_per_second: 0.0,
        seconds: 0.0,
        invalid: None,
        report: None,
        max_rss_bytes: None,
    };
    match attempt() {
        Ok((copied, wan)) => Run {
            goodput_bits_per_second: copied.bits_per_second(),
            seconds: copied.seconds,
            invalid: invalid(&wan),
            max_rss_bytes: match copied.max_rss {
                [Some(sender), Some(receiver)] => Some([sender, receiver]),
                _ => None,
            },
            ..empty
        },
        Err(e) => Run {
            invalid: Some(e.to_string()),
            ..empty
        },
    }
}

/// The same cell in the simulator.
fn simulate(cell: Cell, seconds: u64) -> Result<Run, Failure> {
    let entry = registry::protocol("haul").map_err(|e| Failure::usage(e.to_string()))?;
    let choice = Choice {
        simulated: true,
        ..Choice::default()
    };
    let config = network(cell, AGREEMENT_LINK, 1);
    let mut forward = config.near_to_far;
    forward.mtu = Some(cell.mtu);
    let scenario = Scenario {
        back: forward.clone(),
        forward,
        duration: Duration::from_secs(seconds),
        interval: Duration::ZERO,
        interface_mtu: Some(cell.mtu),
        ..Scenario::default()
    };
    entry
        .client(&choice)
        .map_err(|e| Failure::usage(e.to_string()))?;
    let mut make = |_| {
        let made = "was made a moment ago";
        let client = entry.client(&choice).expect(made);
        (client, entry.server(&choice).expect(made))
    };
    let report = farhaul_sim::run(&scenario, &mut make)
        .map_err(|e| Failure::new(Exit::Internal, e.to_string()))?;
    Ok(Run {
        what: What::Simulated,
        cell,
        system: "haul".into(),
        goodput_bits_per_second: report.flows.iter().map(|f| f.goodput_bits_per_second).sum(),
        seconds: report.seconds,
        invalid: None,
        report: None,
        max_rss_bytes: None,
    })
}

/// The date as the system's own `date` has it: figures are dated, nothing is decided by it.
fn today() -> Result<String, Failure> {
    let failed = |why: String| Failure::new(Exit::Internal, format!("date: {why}"));
    let output = Command::new("date")
        .args(["-u", "+%Y-%m-%d"])
        .output()
        .map_err(|e| failed(e.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if text.len() == 10 {
        Ok(text)
    } else {
        Err(failed(format!("'{text}' is not a date")))
    }
}

fn disk(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::DestError, format!("{}: {error}", path.display()))
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn run(error: EmulatedRunError) -> Failure {
    Failure::new(Exit::NetSetup, error.to_string())
}
