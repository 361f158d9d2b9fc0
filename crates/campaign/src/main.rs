//! Campaign of attacks and faults against farhaul. Each part attacks, breaks or exhausts the
//! program in one way and counts what must never happen. `cargo run --release -p farhaul-campaign
//! -- PART` runs a part at the scale of the gate, `--full` at that of `docs/security/campaign.md`.
//! `--planted` plants a fault that the part must find.

mod calls;
mod chaos;
mod faulty;
mod flood;
mod hung;
mod lying_peer;
mod many;
mod neighbour;
mod optimist;
mod power_loss;
mod program;
mod report;
mod signals;
mod simulated;
mod soak;
mod spread;
mod transfers;
mod tree;

use std::{ops::Range, process::ExitCode};

use clap::{Parser, Subcommand};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The most memory of one session whose handshake is finished, bytes.
const HEAP: usize = 64 << 20;

#[derive(Parser)]
#[command(
    name = "campaign",
    about = "Attacks, faults and long runs that farhaul must survive"
)]
struct Args {
    #[command(subcommand)]
    part: Part,
}

/// Scale of a part, and whether the part itself is on trial.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Scale {
    /// At the scale of the documented campaign
    #[arg(long)]
    full: bool,
    /// With a planted fault: the part fails unless it finds it
    #[arg(long)]
    planted: bool,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs, instead of the scale's
    #[arg(long)]
    runs: Option<u64>,
    /// Runs one of many lots, and prints its report for the parent
    #[arg(long, hide = true)]
    lot: bool,
}

impl Scale {
    /// Number of runs: `gate` in the gate, `full` in the documented campaign.
    const fn runs(&self, gate: u64, full: u64) -> u64 {
        match self.runs {
            Some(runs) => runs,
            None if self.full => full,
            None => gate,
        }
    }

    /// The seeds of a lot, or of a single run.
    fn seeds(&self) -> Range<u64> {
        self.seed..self.seed + self.runs.unwrap_or_default()
    }
}

#[derive(Subcommand)]
enum Part {
    /// Copies by the program while system calls of one end fail or hang
    Calls(Scale),
    /// Copies by the program with many faults at once
    Chaos(Scale),
    /// A peer that was let in lies to a session in virtual time
    LyingPeer(Scale),
    /// Attackers send as much as they can while others copy and connect
    Flood(Scale),
    /// A share whose file system stops answering one kind of call
    Hung(Scale),
    /// One session is on a file system that hangs
    Neighbour(Scale),
    /// A client reports packets that it has not seen
    Optimist(Scale),
    /// Signals to single threads of a server whose log nobody reads
    Signals(Scale),
    /// Copies and benches, keys and packet numbers without end
    Soak(Scale),
    /// The power fails at any point of a copy
    PowerLoss(Scale),
    /// Whole copies in virtual time on disks that are slow, hung, full and failing
    Transfers(Scale),
    /// More files than a machine can keep, in a bounded memory
    Many(Scale),
    /// A server with a planted fault, for the parts that are on trial
    #[command(hide = true)]
    Serve(faulty::Args),
}

fn main() -> ExitCode {
    let (scale, report) = match Args::parse().part {
        Part::Calls(scale) => (scale, calls::run(&scale)),
        Part::Chaos(scale) => (scale, chaos::run(scale)),
        Part::LyingPeer(scale) => (scale, lying_peer::run(&scale)),
        Part::Flood(scale) => (scale, flood::run(&scale)),
        Part::Hung(scale) => (scale, hung::run(&scale)),
        Part::Neighbour(scale) => (scale, neighbour::run(&scale)),
        Part::Optimist(scale) => (scale, optimist::run(&scale)),
        Part::Signals(scale) => (scale, signals::run(&scale)),
        Part::Soak(scale) => (scale, soak::run(&scale)),
        Part::PowerLoss(scale) => (scale, power_loss::run(&scale)),
        Part::Transfers(scale) => (scale, transfers::run(&scale)),
        Part::Many(scale) => (scale, many::run(&scale)),
        Part::Serve(args) => return served(&args),
    };
    if scale.lot {
        report::say(&report.encode());
        return ExitCode::SUCCESS;
    }
    report.conclude(scale.planted)
}

fn served(args: &faulty::Args) -> ExitCode {
    match faulty::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::say(&format!("serve: {error}"));
            ExitCode::FAILURE
        }
    }
}
