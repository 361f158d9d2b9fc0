//! Stores runs: `runs.jsonl` with one object per run and `machine.txt`, in a folder per study, or
//! per scenario and backend. The file is appended to as each run ends, so that a crash loses one
//! run at most and the rest can be resumed.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, OpenOptions},
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    marker::PhantomData,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use farhaul_measure::{disk, host::Host};

/// World in which runs are made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
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
    /// Question that the run answers: equal texts are the same question.
    fn question(&self) -> String;
}

/// A folder of runs of one kind.
#[derive(Debug)]
pub struct RunStore<T> {
    folder: PathBuf,
    kind: PhantomData<T>,
}

impl<T: Kept> RunStore<T> {
    /// The folder of `scenario` and `backend` below `below`; it need not exist.
    pub fn new(below: &Path, scenario: &str, backend: Backend) -> Self {
        Self {
            folder: below.join(format!("{scenario}-{}", backend.name())),
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

    /// Folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self) -> PathBuf {
        self.folder.join("runs.jsonl")
    }

    /// Every run kept so far, in order; none if there is no folder. What a crash left at the end is no run.
    pub fn trials(&self) -> io::Result<Vec<T>> {
        let mut trials = Vec::new();
        self.whole(|number, line| {
            trials.push(serde_json::from_slice(line).map_err(|e| {
                let text = format!("{}:{number}: {e}", self.file().display());
                io::Error::new(ErrorKind::InvalidData, text)
            })?);
            Ok(())
        })?;
        Ok(trials)
    }

    /// Hands every whole line with its number to `each`; where the last one ends, and the file's length. A line
    /// that a process or a machine was stopped in has no end, or NULs, or both, and nothing follows it.
    fn whole(
        &self,
        mut each: impl FnMut(usize, &[u8]) -> io::Result<()>,
    ) -> io::Result<(u64, u64)> {
        let file = match disk::open(&self.file(), OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok((0, 0)),
            Err(e) => return Err(e),
        };
        let mut from = BufReader::new(file);
        let (mut end, mut length, mut damaged) = (0, 0, Vec::new());
        for number in 1.. {
            let mut line = Vec::new();
            let read = from.read_until(b'\n', &mut line)? as u64;
            if read == 0 {
                break;
            }
            length += read;
            if line.last() != Some(&b'\n') || line.contains(&0) {
                damaged.push((number, line));
                continue;
            }
            for (number, line) in damaged.drain(..) {
                each(number, &line)?;
            }
            each(number, &line)?;
            end = length;
        }
        Ok((end, length))
    }

    /// Creates the folder, with a description of the machine.
    pub fn prepare(&self, host: &Host) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let machine = format!("{host}\n");
        disk::replace(&self.folder.join("machine.txt"), machine.as_bytes())?;
        self.mend()
    }

    /// Cuts off what a crash left at the end.
    pub(crate) fn mend(&self) -> io::Result<()> {
        let (end, length) = self.whole(|_, _| Ok(()))?;
        if end == length {
            return Ok(());
        }
        let file = disk::open(&self.file(), OpenOptions::new().write(true))?;
        file.set_len(end)
    }

    /// Keeps a run; one that could not be read again is refused.
    pub fn keep(&self, trial: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(trial)?;
        serde_json::from_slice::<T>(&line).map_err(|e| {
            let text = format!("the run could not be read again: {e}");
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        line.push(b'\n');
        let mut file = disk::open(&self.file(), OpenOptions::new().create(true).append(true))?;
        file.write_all(&line)
    }

    /// The last run of every question, in the order of their first runs.
    pub fn latest(&self) -> io::Result<Vec<T>> {
        let mut latest: Vec<T> = Vec::new();
        let mut places = HashMap::new();
        for trial in self.trials()? {
            match places.entry(trial.question()) {
                Entry::Occupied(place) => latest[*place.get()] = trial,
                Entry::Vacant(place) => {
                    place.insert(latest.len());
                    latest.push(trial);
                }
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
        fn question(&self) -> String {
            self.rtt_ms.to_string()
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

    #[test]
    fn what_a_crash_leaves_at_the_end_costs_only_that_run() {
        let below = tempfile::tempdir().unwrap();
        let store = RunStore::new(below.path(), "g", Backend::Emu);
        store.prepare(&Host::read()).unwrap();
        store.keep(&example(0, 1e9)).unwrap();
        let whole = fs::read(store.file()).unwrap();
        // Without an end, in the middle of a character, and as blocks that were never written.
        let cut = b"{\"rtt_ms\":\"\xe2\x82".as_slice();
        for rest in [&whole[..whole.len() - 1], cut, &[0; 100], b"\0\0}\n\0\n"] {
            fs::write(store.file(), [&whole, rest].concat()).unwrap();
            assert_eq!(store.trials().unwrap(), [example(0, 1e9)], "{rest:?}");
            store.mend().unwrap();
            assert_eq!(fs::read(store.file()).unwrap(), whole, "{rest:?}");
        }
        // Between runs it is not what a crash leaves.
        fs::write(store.file(), [b"\0\n", &whole[..]].concat()).unwrap();
        let error = store.trials().unwrap_err().to_string();
        assert!(error.contains("runs.jsonl:1:"), "{error}");
    }

    #[test]
    fn a_run_that_could_not_be_read_again_is_refused() {
        let below = tempfile::tempdir().unwrap();
        let store = RunStore::new(below.path(), "g", Backend::Sim);
        store.prepare(&Host::read()).unwrap();
        let error = store.keep(&example(0, f64::INFINITY)).unwrap_err();
        assert!(error.to_string().contains("invalid type: null"), "{error}");
        assert!(store.trials().unwrap().is_empty());
    }

    #[test]
    fn the_last_of_very_many_runs_is_found_in_little_time() {
        let below = tempfile::tempdir().unwrap();
        let store = RunStore::<Run>::new(below.path(), "g", Backend::Sim);
        store.prepare(&Host::read()).unwrap();
        let lines = (0..20_000).map(|i| serde_json::to_string(&example(i % 10_000, 1e9)).unwrap());
        fs::write(store.file(), lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
        // Of 10^4 questions a quadratic search would take 10^8 comparisons.
        assert_eq!(store.latest().unwrap().len(), 10_000);
    }
}
