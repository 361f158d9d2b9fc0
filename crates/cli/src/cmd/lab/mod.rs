//! `farhaul lab`: named grids of paths, run in the simulator or the emulator, kept, shown, and held
//! against what was reached before; and the questions about fairness, which are no paths.

mod check;
mod fairness;
mod grids;
mod report;
mod results;
mod utcp;

use std::path::{Path, PathBuf};

use farhaul_lab::grid::{self, Backend, Grid, Kept, RunStore, Trial};

use crate::exit::{Exit, Failure};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// List the grids
    List(grids::List),
    /// Run every cell of a grid, and store each result
    Run(grids::Run),
    /// Show the results of a grid
    Report(report::Report),
    /// Compare the results of a grid with its bounds; exit code 22 below them
    Check(check::Check),
    /// Measure the fixed table of cells and store it
    Results(results::Results),
}

/// Which runs, and where they are stored.
#[derive(Debug, clap::Args)]
struct Where {
    /// The grid; `farhaul lab list` has the names
    #[arg(value_name = "NAME")]
    name: String,
    /// In virtual time, or through real sockets on an emulated network
    #[arg(long, value_name = "WORLD", default_value = "sim", value_parser = backend)]
    backend: Backend,
    /// The parent of a folder per grid and backend
    #[arg(long, value_name = "FOLDER", default_value = "lab/runs")]
    out: PathBuf,
}

fn backend(text: &str) -> Result<Backend, String> {
    [Backend::Sim, Backend::Emu]
        .into_iter()
        .find(|b| b.name() == text)
        .ok_or_else(|| "there are: sim, emu".into())
}

impl Where {
    fn grid(&self) -> Result<Grid, Failure> {
        grid::grid(&self.name).map_err(Failure::usage)
    }

    /// Processor time is of the real world only.
    fn world(&self) -> Backend {
        if utcp::asked(self) {
            Backend::Emu
        } else {
            self.backend
        }
    }

    fn run_store<T: Kept>(&self) -> RunStore<T> {
        RunStore::new(&self.out, &self.name, self.world())
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
                self.world().name()
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
