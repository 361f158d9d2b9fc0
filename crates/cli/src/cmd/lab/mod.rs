//! `farhaul lab`: the experiments of papers, run in the simulator or the emulator, stored, shown
//! beside the published numbers, and compared with them.

mod check;
mod list;
mod open;
mod report;
mod run;
mod study;

use std::path::PathBuf;

use farhaul_lab::run_store::Backend;

use crate::exit::Failure;

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// List the studies and their experiments
    List(list::List),
    /// Run a study or one of its experiments, and store each result
    Run(run::Run),
    /// Show the results of a study
    Report(report::Report),
    /// Compare results with published numbers and targets; exit code 22 for misses
    Check(check::Check),
    /// Serve the page of a study to this machine's browser, live while its runs are made
    Open(study::Open),
}

/// Runs that are meant, and where they are stored.
#[derive(Debug, clap::Args)]
struct Where {
    /// A study, STUDY/EXPERIMENT, or a study's FILE.toml; `farhaul lab list` shows the names
    #[arg(value_name = "NAME")]
    name: String,
    /// sim (virtual time), emu (real sockets on an emulated network), or both: sim,emu [default:
    /// the first that each scenario is for]
    #[arg(long, value_name = "BACKEND", value_delimiter = ',')]
    backend: Vec<Backend>,
    /// Seeds in place of the study's own, as in 1..4 or 7
    #[arg(long, value_name = "SEEDS", value_parser = study::seeds)]
    seeds: Option<(u64, u64)>,
    /// Only the cases in which a variable has this value; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = study::setting)]
    case: Vec<(String, String)>,
    /// The short version of a study, for a first look: fewer cases, less time, one seed
    #[arg(long)]
    quick: bool,
    /// Folder with one folder of results for each study
    #[arg(long, value_name = "FOLDER", default_value = "lab/runs")]
    out: PathBuf,
}

impl Where {
    fn study(&self) -> study::Which {
        study::Which {
            name: self.name.clone(),
            quick: self.quick,
            out: self.out.clone(),
        }
    }

    /// Options of a study.
    fn how(&self) -> study::How {
        study::How {
            backends: self.backend.clone(),
            seeds: self.seeds,
            cases: self.case.iter().cloned().collect(),
            ..study::How::default()
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args {
        Args::List(list) => list.run(),
        Args::Run(run) => run.run(),
        Args::Report(report) => report.run(),
        Args::Check(check) => check.run(),
        Args::Open(open) => open.run(),
    }
}
