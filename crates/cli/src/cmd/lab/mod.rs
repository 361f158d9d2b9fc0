//! `farhaul lab`: the experiments of papers, run in the simulator or the emulator, stored, shown beside what is
//! published, and held against it; and the questions about fairness.

mod check;
mod fairness;
mod grids;
mod open;
mod report;
mod study;

use std::path::{Path, PathBuf};

use farhaul_lab::grid::{Backend, Kept, RunStore};

use crate::exit::{Exit, Failure};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// List the studies and their experiments
    List(grids::List),
    /// Run a study or one of its experiments, and store each result
    Run(grids::Run),
    /// Show the results of a study
    Report(report::Report),
    /// Compare results with what is published or owed; exit code 22 for misses
    Check(check::Check),
    /// Serve the page of a study to this machine's browser, live while its runs are made
    Open(study::Open),
}

/// Which runs, and where they are stored.
#[derive(Debug, clap::Args)]
struct Where {
    /// A study, STUDY/EXPERIMENT, or a study's FILE.toml; `farhaul lab list` has the names
    #[arg(value_name = "NAME")]
    name: String,
    /// In virtual time, or through real sockets on an emulated network; or both: sim,emu [default: the first that
    /// each scenario is for]
    #[arg(long, value_name = "BACKEND", value_delimiter = ',')]
    backend: Vec<Backend>,
    /// Of a study, these seeds instead of its scenarios' own, as in 1..4 or 7
    #[arg(long, value_name = "SEEDS", value_parser = study::seeds)]
    seeds: Option<(u64, u64)>,
    /// Only the cases of a study in which a variable has this value; may be given for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = study::setting)]
    case: Vec<(String, String)>,
    /// The short version of a study, for a first look: fewer cases, less time, one seed
    #[arg(long)]
    quick: bool,
    /// The parent of a folder per study
    #[arg(long, value_name = "FOLDER", default_value = "lab/runs")]
    out: PathBuf,
}

impl Where {
    /// The study, unless it is fairness.
    fn study(&self) -> Option<study::Which> {
        (self.name != fairness::NAME).then(|| study::Which {
            name: self.name.clone(),
            quick: self.quick,
            out: self.out.clone(),
        })
    }

    /// What of a study is meant.
    fn how(&self) -> study::How {
        study::How {
            backends: self.backend.clone(),
            seeds: self.seeds,
            cases: self.case.iter().cloned().collect(),
            ..study::How::default()
        }
    }

    /// Refuses what only studies have.
    fn no_study(&self) -> Result<(), Failure> {
        let studies = [
            (!self.case.is_empty(), "--case"),
            (self.seeds.is_some(), "--seeds"),
        ];
        if let Some((_, flag)) = studies.iter().find(|(given, _)| *given) {
            let text = format!("{flag} is for studies; fairness has --seed");
            return Err(Failure::usage(text));
        }
        fairness::asked(self).map(drop)
    }

    fn run_store<T: Kept>(&self) -> RunStore<T> {
        RunStore::new(&self.out, &self.name, Backend::Sim)
    }

    /// The latest run of every question; at least one.
    fn latest<T: Kept>(&self) -> Result<Vec<T>, Failure> {
        let store = self.run_store();
        let unreadable =
            |e| Failure::new(Exit::Config, format!("{}: {e}", store.folder().display()));
        let trials = store.latest().map_err(unreadable)?;
        if trials.is_empty() {
            let text = format!(
                "{} has no runs: run `farhaul lab run {}`",
                store.folder().display(),
                self.name
            );
            return Err(Failure::new(Exit::SourceMissing, text));
        }
        Ok(trials)
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

/// Runs cannot be stored in `folder`, or read there.
fn disk(folder: &Path, error: &std::io::Error) -> Failure {
    let text = format!(
        "{}: {error}: choose a folder that can be written with --out",
        folder.display()
    );
    Failure::new(Exit::DestError, text)
}
