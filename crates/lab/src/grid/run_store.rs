//! What is kept of a run, and where? `runs.jsonl` with one object per run and `machine.txt`, in a
//! folder per grid and backend. Appended to as each run ends, so that a crash loses one run at most and
//! the rest can be resumed.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    marker::PhantomData,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{host::Host, results::Cell};

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

/// What is run on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Name of the protocol.
    pub protocol: String,
    /// The law with its parameters.
    pub cc: String,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.protocol == self.cc {
            f.write_str(&self.protocol)
        } else {
            write!(f, "{}/{}", self.protocol, self.cc)
        }
    }
}

/// One run as stored. Equal questions are those of [`Trial::asks`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The world.
    pub backend: Backend,
    /// What was run.
    #[serde(flatten)]
    pub system: System,
    /// Where.
    #[serde(flatten)]
    pub cell: Cell,
    /// The bottleneck, bit/s.
    pub rate_bits_per_second: u64,
    /// How long it was to send, s.
    pub asked_seconds: u64,
    /// Seed of the path's randomness.
    pub seed: u64,
    /// Program version.
    pub version: String,
    /// From the client's first act to the last new byte, s.
    pub seconds: f64,
    /// At the receiver, start included.
    pub goodput_bits_per_second: f64,
    /// UDP payload bytes sent back per GiB received, KiB.
    pub feedback_kib_per_gib: Option<f64>,
    /// UDP payload bytes sent per byte received.
    pub wire_over_goodput: Option<f64>,
    /// Bytes sent again.
    pub repaired_bytes: u64,
    /// Per cent of a core per Gbit/s at the sender; the simulator has none.
    pub sender_cpu_percent_per_gbps: Option<f64>,
    /// The same at the receiver.
    pub receiver_cpu_percent_per_gbps: Option<f64>,
    /// Shares of the time the sender did not send, by reason; `sending` is the rest.
    pub limited_by: BTreeMap<String, f64>,
    /// Equal for equal simulations.
    pub trace_hash: Option<String>,
    /// Why the figures must not be quoted, if so: the emulator was late, the run failed.
    pub invalid: Option<String>,
}

/// A run that can be kept.
pub trait Kept: Serialize + DeserializeOwned {
    /// Whether this run answers the same question as `other`, whatever the answers are.
    fn asks(&self, other: &Self) -> bool;
}

impl Kept for Trial {
    fn asks(&self, other: &Self) -> bool {
        self.backend == other.backend
            && self.system == other.system
            && self.cell == other.cell
            && self.rate_bits_per_second == other.rate_bits_per_second
            && self.asked_seconds == other.asked_seconds
            && self.seed == other.seed
    }
}

/// A folder of runs of one kind.
#[derive(Debug)]
pub struct RunStore<T = Trial> {
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
pub(super) fn example(rtt_ms: u32, goodput: f64) -> Trial {
    Trial {
        backend: Backend::Sim,
        system: System {
            protocol: "haul".into(),
            cc: "haul".into(),
        },
        cell: Cell {
            mtu: 9_000,
            rtt_ms,
            loss_percent: 1.0,
        },
        rate_bits_per_second: 10_000_000_000,
        asked_seconds: 30,
        seed: 1,
        version: "0".into(),
        seconds: 30.0,
        goodput_bits_per_second: goodput,
        feedback_kib_per_gib: Some(10.0),
        wire_over_goodput: Some(1.02),
        repaired_bytes: 5,
        sender_cpu_percent_per_gbps: None,
        receiver_cpu_percent_per_gbps: None,
        limited_by: BTreeMap::new(),
        trace_hash: None,
        invalid: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let cut = text[..40].to_string();
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
