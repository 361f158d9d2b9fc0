//! What is kept of a run, and where? `runs.jsonl` with one object per run and `machine.txt`, in a
//! folder per grid and backend. Appended to as each run ends, so that a crash loses one run at most and
//! the rest can be resumed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    marker::PhantomData,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::host::Host;

/// Which world a grid is run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The simulator: virtual time, repeatable.
    #[default]
    Sim,
    /// The emulator: real sockets on this machine.
    Emu,
}

impl Backend {
    /// The name used in names and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Emu => "emu",
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Sim, Self::Emu]
            .into_iter()
            .find(|backend| backend.name() == text)
            .ok_or_else(|| format!("'{text}' is not a backend; there are: sim, emu"))
    }
}

/// A run that can be kept.
pub trait Kept: Serialize + DeserializeOwned {
    /// Whether this run answers the same question as `other`, whatever the answers are.
    fn asks(&self, other: &Self) -> bool;
}

/// A folder of runs of one kind.
#[derive(Debug)]
pub struct RunStore<T> {
    folder: PathBuf,
    kind: PhantomData<T>,
}

impl<T: Kept> RunStore<T> {
    /// The folder of `grid` and `backend` below `below`; it need not exist.
    pub fn new(below: &Path, grid: &str, backend: Backend) -> Self {
        Self {
            folder: below.join(format!("{grid}-{}", backend.name())),
            kind: PhantomData,
        }
    }

    /// The folder itself.
    pub const fn at(folder: PathBuf) -> Self {
        Self {
            folder,
            kind: PhantomData,
        }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self) -> PathBuf {
        self.folder.join("runs.jsonl")
    }

    /// Every run kept so far, in order; none if there is no folder. A last line cut short by a crash is
    /// left out.
    pub fn trials(&self) -> io::Result<Vec<T>> {
        let file = match File::open(self.file()) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let lines = BufReader::new(file)
            .lines()
            .collect::<io::Result<Vec<_>>>()?;
        let mut trials = Vec::with_capacity(lines.len());
        for (i, line) in lines.iter().enumerate() {
            match serde_json::from_str(line) {
                Ok(trial) => trials.push(trial),
                Err(e) if i + 1 == lines.len() && e.is_eof() => {}
                Err(e) => {
                    let text = format!("{}:{}: {e}", self.file().display(), i + 1);
                    return Err(io::Error::new(ErrorKind::InvalidData, text));
                }
            }
        }
        Ok(trials)
    }

    /// Creates the folder, with a description of the machine.
    pub fn prepare(&self, host: &Host) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join("machine.txt"), format!("{host}\n"))?;
        self.mend()
    }

    /// Cuts off a last line without an end, which a killed process left.
    fn mend(&self) -> io::Result<()> {
        let bytes = match fs::read(self.file()) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        if whole == bytes.len() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(self.file())?;
        file.set_len(u64::try_from(whole).unwrap_or(u64::MAX))
    }

    /// Keeps a run.
    pub fn keep(&self, trial: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(trial)?;
        line.push(b'\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file())?;
        file.write_all(&line)
    }

    /// The last run of every question, in the order of their first runs.
    pub fn latest(&self) -> io::Result<Vec<T>> {
        let mut latest: Vec<T> = Vec::new();
        for trial in self.trials()? {
            match latest.iter_mut().find(|t| t.asks(&trial)) {
                Some(earlier) => *earlier = trial,
                None => latest.push(trial),
            }
        }
        Ok(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Run {
        rtt_ms: u32,
        goodput: f64,
    }

    impl Kept for Run {
        fn asks(&self, other: &Self) -> bool {
            self.rtt_ms == other.rtt_ms
        }
    }

    const fn example(rtt_ms: u32, goodput: f64) -> Run {
        Run { rtt_ms, goodput }
    }

    #[test]
    fn runs_are_kept_and_the_last_of_a_question_counts() {
        let below = tempfile::tempdir().unwrap();
        let run_store = RunStore::new(below.path(), "papers", Backend::Sim);
        assert!(run_store.trials().unwrap().is_empty());
        run_store.prepare(&Host::read()).unwrap();
        for trial in [example(0, 1e9), example(50, 2e9), example(0, 3e9)] {
            run_store.keep(&trial).unwrap();
        }
        assert_eq!(run_store.trials().unwrap().len(), 3);
        assert_eq!(
            run_store.latest().unwrap(),
            [example(0, 3e9), example(50, 2e9)]
        );
        assert!(run_store.folder().ends_with("papers-sim"));
    }

    #[test]
    fn a_line_cut_short_costs_only_itself() {
        let below = tempfile::tempdir().unwrap();
        let run_store = RunStore::new(below.path(), "g", Backend::Emu);
        run_store.prepare(&Host::read()).unwrap();
        run_store.keep(&example(0, 1e9)).unwrap();
        let mut text = fs::read_to_string(run_store.file()).unwrap();
        let cut = text[..10].to_string();
        text += &cut;
        fs::write(run_store.file(), &text).unwrap();
        assert_eq!(run_store.trials().unwrap(), [example(0, 1e9)]);
        run_store.prepare(&Host::read()).unwrap();
        run_store.keep(&example(50, 1e9)).unwrap();
        assert_eq!(run_store.trials().unwrap().len(), 2);
        fs::write(run_store.file(), format!("nonsense\n{text}")).unwrap();
        let error = run_store.trials().unwrap_err().to_string();
        assert!(error.contains("runs.jsonl:1:"), "{error}");
    }
}
