//! How is a study run? Scenario by scenario, in one folder: every run is appended to it as it ends, so that
//! what was stopped midway is taken up again.

use std::{
    collections::BTreeMap,
    fs::{self, File as Disk, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Library, Study, StudyError};
use crate::{
    grid::{Backend, RunStore},
    scenario::{self, Case, File, Outcome, Results, RunError, Variant},
};

/// What of a study is run, and how.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Only this experiment.
    pub experiment: Option<String>,
    /// In these worlds, as far as a scenario is for them; if empty, in the first that each is for.
    pub backends: Vec<Backend>,
    /// With the keys of `[quick]`.
    pub quick: bool,
    /// With these seeds instead of each scenario's own.
    pub seeds: Option<(u64, u64)>,
    /// Only the cases with these values.
    pub cases: Case,
    /// Simulations at a time.
    pub jobs: usize,
    /// The farhaul binary.
    pub program: PathBuf,
}

/// One scenario in one world.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// As experiments name it.
    pub(super) name: String,
    pub(super) file: File,
    /// Whether it is to be run, not only shown.
    pub(super) chosen: bool,
}

/// The runs of a study, stored in a folder.
#[derive(Debug)]
pub struct Runs {
    /// As it was asked for.
    pub(super) named: String,
    pub(super) study: Study,
    pub(super) choice: Choice,
    pub(super) parts: Vec<Part>,
    store: RunStore<Outcome>,
}

/// How far a study's runs are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Runs that have ended, those stored before included.
    pub ended: usize,
    /// All of them.
    pub runs: usize,
    /// Of the run that ended last, or is about to begin.
    pub scenario: String,
    /// Its world.
    pub backend: Backend,
    /// Its case.
    pub case: String,
    /// How long the rest will take, s; not known before the first has ended.
    pub left_seconds: Option<f64>,
    /// Who makes them.
    pub process: u32,
}

/// Whose folder it is.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Owner {
    study: String,
    quick: bool,
}

impl Runs {
    /// Reads the study called `name` and what `choice` needs of it; its folder is below `below`.
    pub fn read(name: &str, choice: Choice, below: &Path) -> Result<Self, StudyError> {
        let (study, library) = Library::find(name)?;
        let named = name.to_string();
        if let Some(id) = &choice.experiment {
            study.experiment(id).map_err(StudyError::Unknown)?;
        }
        let mut parts = Vec::new();
        let mut none = String::new();
        for name in study.scenarios(choice.experiment.as_deref()) {
            let text = library.text("scenarios", name)?;
            let worlds = File::backends(name, &text)?;
            for (number, backend) in worlds.into_iter().enumerate() {
                let variant = Variant {
                    backend,
                    quick: choice.quick,
                };
                let file = library.scenario(&study, name, variant)?;
                let chosen = match choice.backends.as_slice() {
                    [] => number == 0,
                    wanted => wanted.contains(&backend),
                };
                match file.only(&choice.cases) {
                    Ok(file) => parts.push(Part {
                        name: name.into(),
                        file,
                        chosen,
                    }),
                    Err(text) => none = text,
                }
            }
        }
        if !parts.iter().any(|p| p.chosen) {
            let why = if none.is_empty() {
                let names: Vec<_> = choice.backends.iter().map(|b| b.name()).collect();
                format!(
                    "nothing of it runs in {}: omit --backend",
                    names.join(" or ")
                )
            } else {
                none
            };
            return Err(StudyError::Unknown(format!("{}: {why}", study.name)));
        }
        let quick = if choice.quick { "-quick" } else { "" };
        let folder = below.join(format!("{}{quick}", study.name));
        Ok(Self {
            named,
            study,
            choice,
            parts,
            store: RunStore::at(folder),
        })
    }

    /// The study.
    pub const fn study(&self) -> &Study {
        &self.study
    }

    /// Where its runs are.
    pub fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// Whether something of it runs on real sockets.
    pub fn needs_emulator(&self) -> bool {
        let emulated = |p: &Part| p.chosen && p.file.variant.backend == Backend::Emu;
        self.parts.iter().any(emulated)
    }

    /// The stored runs of every part. A folder of another study is refused.
    pub fn results(&self) -> io::Result<Vec<Results>> {
        self.owned()?;
        let stored = self.store.latest()?;
        let of = |part: &Part| part.file.sort_out(self.seeds(part), &stored).0;
        Ok(self.parts.iter().map(of).collect())
    }

    fn chosen(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.chosen)
    }

    fn seeds(&self, part: &Part) -> (u64, u64) {
        self.choice.seeds.unwrap_or(part.file.seeds)
    }

    fn owner(&self) -> Owner {
        Owner {
            study: self.study.name.clone(),
            quick: self.choice.quick,
        }
    }

    /// Refuses the folder of another study.
    fn owned(&self) -> io::Result<()> {
        let at = self.folder().join("study.json");
        let foreign = |whose: String| {
            let text = format!("it holds {whose}: choose another --out");
            Err(io::Error::new(ErrorKind::InvalidData, text))
        };
        match fs::read(&at) {
            Ok(text) => match serde_json::from_slice::<Owner>(&text) {
                Ok(owner) if owner == self.owner() => Ok(()),
                Ok(Owner { study, quick }) => foreign(format!(
                    "the {}runs of {study}",
                    if quick { "quick " } else { "" }
                )),
                Err(e) => foreign(format!("a study.json that cannot be read ({e})")),
            },
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            Err(_) if self.folder().join("runs.jsonl").exists() => {
                foreign("runs of no study".into())
            }
            Err(_) => Ok(()),
        }
    }

    /// Takes the folder for this process.
    fn locked(&self) -> io::Result<Disk> {
        fs::create_dir_all(self.folder())?;
        self.owned()?;
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder().join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text =
                    "another process is writing runs there: wait for it, or choose another --out";
                return Err(io::Error::new(ErrorKind::ResourceBusy, text));
            }
            Err(TryLockError::Error(e)) => return Err(e),
        }
        let text = serde_json::to_vec(&self.owner())?;
        replace(&self.folder().join("study.json"), &text)?;
        Ok(lock)
    }

    /// Makes the runs that are missing; `shown` is called before the first and after each. How many were
    /// made, and those without a valid result.
    pub fn run(
        &self,
        shown: &mut dyn FnMut(&Progress, Option<&Outcome>),
    ) -> Result<(usize, Vec<Outcome>), RunError> {
        let failed = |error| RunError::Keep {
            folder: self.folder().to_path_buf(),
            error,
        };
        let _lock = self.locked().map_err(failed)?;
        let before = self.results().map_err(failed)?;
        let mut pace = Pace::new(&before, &self.parts, self.choice.jobs);
        let at = self.folder().join("progress.json");
        let (mut made, mut invalid, mut unwritten) = (0, Vec::new(), None);
        for (number, part) in self.chosen() {
            let mut tell = |outcome: Option<&Outcome>| {
                let progress = pace.progress(number, part, outcome);
                // Without it a page does not move; the runs themselves are stored all the same.
                if let Err(e) = serde_json::to_vec(&progress)
                    .map_err(io::Error::from)
                    .and_then(|text| replace(&at, &text))
                {
                    unwritten.get_or_insert(e);
                }
                shown(&progress, outcome);
            };
            tell(None);
            let runs = scenario::Runs {
                seeds: self.seeds(part),
                jobs: self.choice.jobs,
                output: None,
                store: Some(&self.store),
                program: &self.choice.program,
            };
            let mut done = |done: &scenario::Done<'_>| {
                made += 1;
                if done.outcome.invalid.is_some() {
                    invalid.push(done.outcome.clone());
                }
                tell(Some(done.outcome));
            };
            part.file.run(&runs, &mut done)?;
        }
        match fs::remove_file(&at) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        match unwritten {
            Some(error) => Err(failed(error)),
            None => Ok((made, invalid)),
        }
    }

    /// What is being run, if a process is at it.
    pub fn progress(&self) -> Option<Progress> {
        let text = fs::read(self.folder().join("progress.json")).ok()?;
        let progress: Progress = serde_json::from_slice(&text).ok()?;
        // It may have been killed.
        let lock = Disk::open(self.folder().join("lock")).ok()?;
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(progress)
    }
}

/// Writes a file at once or not at all.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A name of its own: the folder may be somebody else's, with links where we would write.
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map(|_| ()).map_err(|e| e.error)
}

/// How long does the rest take? As long as the runs of the same system took on average.
struct Pace {
    ended: usize,
    runs: usize,
    jobs: usize,
    /// Per part, and per system of it: runs that are to be made.
    open: Vec<BTreeMap<String, usize>>,
    /// Per part and system: seconds in all, and runs.
    took: BTreeMap<(usize, String), (f64, f64)>,
}

impl Pace {
    fn new(before: &[Results], parts: &[Part], jobs: usize) -> Self {
        let chosen = || parts.iter().zip(before).filter(|(part, _)| part.chosen);
        let ended = chosen().map(|(_, r)| r.kept).sum();
        let of = |(part, results): (&Part, &Results)| {
            let mut open = BTreeMap::new();
            if !part.chosen {
                return open;
            }
            let made: Vec<_> = results.outcomes().map(|o| &o.case).collect();
            let seeds = (results.kept + results.open) / part.file.plans.len().max(1);
            for plan in &part.file.plans {
                let there = made.iter().filter(|case| **case == &plan.case).count();
                *open.entry(system(&plan.case)).or_default() += seeds.saturating_sub(there);
            }
            open
        };
        Self {
            ended,
            runs: ended + chosen().map(|(_, r)| r.open).sum::<usize>(),
            jobs: jobs.max(1),
            open: parts.iter().zip(before).map(of).collect(),
            took: BTreeMap::new(),
        }
    }

    fn progress(&mut self, number: usize, part: &Part, outcome: Option<&Outcome>) -> Progress {
        if let Some(outcome) = outcome {
            let name = system(&outcome.case);
            self.ended += 1;
            if let Some(open) = self.open.get_mut(number).and_then(|o| o.get_mut(&name)) {
                *open = open.saturating_sub(1);
            }
            let took = self.took.entry((number, name)).or_default();
            took.0 += outcome.wall_seconds;
            took.1 += 1.0;
        }
        Progress {
            ended: self.ended,
            runs: self.runs,
            scenario: part.file.name.clone(),
            backend: part.file.variant.backend,
            case: outcome.map_or_else(String::new, |o| scenario::label(&o.case)),
            left_seconds: self.left(part),
            process: process::id(),
        }
    }

    fn left(&self, part: &Part) -> Option<f64> {
        let all = self
            .took
            .values()
            .fold((0.0, 0.0), |s, t| (s.0 + t.0, s.1 + t.1));
        if all.1 == 0.0 {
            return None;
        }
        let jobs = match part.file.variant.backend {
            Backend::Sim => scenario::exact(self.jobs as u64),
            Backend::Emu => 1.0,
        };
        let each = self.open.iter().enumerate().flat_map(|(number, open)| {
            open.iter().map(move |(name, open)| {
                let (seconds, runs) = *self.took.get(&(number, name.clone())).unwrap_or(&all);
                seconds / runs * scenario::exact(*open as u64)
            })
        });
        Some(each.sum::<f64>() / jobs)
    }
}

/// What of a case decides how long it takes, more or less.
fn system(case: &Case) -> String {
    let of = |(name, value): (&String, &String)| {
        ["system", "protocol", "law"]
            .iter()
            .any(|key| name.starts_with(key))
            .then(|| value.clone())
    };
    case.iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

impl Progress {
    /// How far it is, and how long the rest takes.
    pub fn words(&self) -> String {
        let left = self.left_seconds.map_or_else(String::new, |seconds| {
            let seconds = Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_secs();
            match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
                (0, 0, s) => format!(", about {s} s left"),
                (0, m, s) => format!(", about {m} min {s} s left"),
                (h, m, _) => format!(", about {h} h {m} min left"),
            }
        });
        let case = if self.case.is_empty() {
            String::new()
        } else {
            format!(": {}", self.case)
        };
        format!(
            "{}/{} {} ({}){case}{left}",
            self.ended,
            self.runs,
            self.scenario,
            self.backend.name()
        )
    }
}
