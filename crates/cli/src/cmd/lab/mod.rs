//! `farhaul lab`: the experiments of papers, run in the simulator or the emulator, stored, shown beside what is
//! published, and held against it; named grids of paths; and the questions about fairness.

mod check;
mod fairness;
mod grids;
mod open;
mod report;
mod results;
mod study;

use std::path::{Path, PathBuf};

use farhaul_lab::{
    grid::{self, Backend, Grid, Kept, RunStore, Trial},
    nearest,
    study::Library,
};

use crate::exit::{Exit, Failure};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// List the studies, their experiments, and the grids
    List(grids::List),
    /// Run a study, one of its experiments, or a grid, and store each result
    Run(grids::Run),
    /// Show the results of a study or grid
    Report(report::Report),
    /// Compare results with what is published or owed; exit code 22 for misses
    Check(check::Check),
    /// Serve the page of a study to this machine's browser, live while its runs are made
    Open(study::Open),
    /// Measure the fixed table of cells and store it
    Results(results::Results),
}

/// Which runs, and where they are stored.
#[derive(Debug, clap::Args)]
struct Where {
    /// A study, STUDY/EXPERIMENT, a study's FILE.toml, or a grid; `farhaul lab list` has the names
    #[arg(value_name = "NAME")]
    name: String,
    /// In virtual time, or through real sockets on an emulated network; both for studies: sim,emu [default: the
    /// first that each scenario is for; sim for grids]
    #[arg(long, value_name = "BACKEND", value_delimiter = ',')]
    backend: Vec<Backend>,
    /// The short version of a study, for a first look: fewer cases, less time, one seed
    #[arg(long)]
    quick: bool,
    /// The parent of a folder per study, or per grid and backend
    #[arg(long, value_name = "FOLDER", default_value = "lab/runs")]
    out: PathBuf,
}

impl Where {
    /// The study, if it is one.
    fn study(&self) -> Option<study::Which> {
        study::is_one(&self.name).then(|| study::Which {
            name: self.name.clone(),
            quick: self.quick,
            out: self.out.clone(),
        })
    }

    /// The one world of a grid.
    fn backend(&self) -> Backend {
        self.backend.first().copied().unwrap_or_default()
    }

    /// Refuses what only studies have.
    fn no_study(&self) -> Result<(), Failure> {
        if self.backend.len() > 1 {
            let text = "a grid runs in one world at a time: name one backend";
            return Err(Failure::usage(text));
        }
        Ok(())
    }

    fn grid(&self) -> Result<Grid, Failure> {
        grid::grid(&self.name).map_err(|text| {
            let studies = Library::names();
            let near = nearest(&self.name, studies.iter().copied());
            let near = near.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"));
            let text = format!("{text}; studies are: {}{near}", studies.join(", "));
            Failure::usage(text)
        })
    }

    fn run_store<T: Kept>(&self) -> RunStore<T> {
        RunStore::new(&self.out, &self.name, self.backend())
    }

    /// The latest run of every question; at least one.
    fn kept(&self) -> Result<Vec<Trial>, Failure> {
        self.grid()?;
        self.latest()
    }

    /// The same of any kind of run.
    fn latest<T: Kept>(&self) -> Result<Vec<T>, Failure> {
        let store = self.run_store();
        let unreadable =
            |e| Failure::new(Exit::Config, format!("{}: {e}", store.folder().display()));
        let trials = store.latest().map_err(unreadable)?;
        if trials.is_empty() {
            let text = format!(
                "{} has no runs: run `farhaul lab run {} --backend {}`",
                store.folder().display(),
                self.name,
                self.backend().name()
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
        Args::Results(results) => results.run(),
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
