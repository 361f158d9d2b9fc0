//! Runs a study scenario by scenario, in one folder. Every run is appended to the folder as it
//! ends, so that a stopped study is taken up again.

use std::{
    collections::BTreeSet,
    fs::{self, File as Disk, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use farhaul_io::Stop;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use super::{Experiment, Library, Progress, Study, StudyError, progress::Pace};
use crate::{
    emulated::{Program, System},
    run_store::{Backend, RunStore},
    scenario::{self, Case, File, Outcome, Plan, Results, RunError, Variant, Vary, Wanted},
};
use farhaul_measure::disk::{self, replace};

/// More runs than this are a mistake.
const MAX_RUNS: u64 = 1_000_000;

/// Parts of a study to run, and the manner.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Name of the one experiment to run.
    pub experiment: Option<String>,
    /// Worlds to run in, as far as a scenario is for them; if empty, in the first that each is for.
    pub backends: Vec<Backend>,
    /// True with the keys of `[quick]`.
    pub quick: bool,
    /// Seeds instead of each scenario's own.
    pub seeds: Option<(u64, u64)>,
    /// Values of the only cases to run.
    pub cases: Case,
    /// Values of the only cases to run, in place of the scenarios' own.
    pub vary: Vary,
    /// Congestion laws of the only cases to run, in place of the one that the study tries.
    pub laws: Vec<String>,
    /// True if stored runs of other builds of the program are not made again.
    pub any_build: bool,
    /// Simulations at a time.
    pub jobs: usize,
    /// The farhaul binary.
    pub program: PathBuf,
    /// Set by a signal, after which no run is begun.
    pub stop: Option<Stop>,
}

/// One scenario in one world.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Name of the part, as experiments use it.
    pub(super) name: String,
    pub(super) file: File,
    /// True if the part is to be run, not only shown.
    pub(super) chosen: bool,
}

/// Size of runs. Those that end by an amount of data may take less time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Effort {
    /// Runs: cases times seeds.
    pub runs: u64,
    /// Time on the emulated network at most, s, which is real time.
    pub emulated_seconds: f64,
    /// Time on the simulated network at most, s.
    pub simulated_seconds: f64,
}

/// The runs of a study, stored in a folder.
#[derive(Debug)]
pub struct Runs {
    /// Name as it was asked for.
    pub(super) named: String,
    pub(super) study: Study,
    pub(super) choice: Choice,
    pub(super) parts: Vec<Part>,
    store: RunStore<Outcome>,
}

/// Owner of a folder.
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
        study.tries(&choice.laws)?;
        let quick = if choice.quick { "-quick" } else { "" };
        let folder = below.join(format!("{}{quick}", study.name));
        let mut runs = Self {
            named,
            study,
            choice,
            parts: Vec::new(),
            store: RunStore::at(folder),
        };
        runs.read_parts(&library)?;
        Ok(runs)
    }

    /// The scenarios of the chosen experiment in each of their worlds, with the cases that are chosen.
    fn read_parts(&mut self, library: &Library) -> Result<(), StudyError> {
        // If they cannot be read, that is said where they are needed.
        let stored = self.store.latest().unwrap_or_default();
        let (mut parts, mut none) = (Vec::new(), String::new());
        let mut unfit = Vec::new();
        for name in self.study.scenarios(self.choice.experiment.as_deref()) {
            let text = library.text("scenarios", name)?;
            let worlds = File::backends(name, &text)?;
            for (number, backend) in worlds.into_iter().enumerate() {
                let variant = Variant {
                    backend,
                    quick: self.choice.quick,
                };
                let file = library.scenario(&self.study, name, variant)?;
                let chosen = match self.choice.backends.as_slice() {
                    [] => number == 0,
                    wanted => wanted.contains(&backend),
                };
                let file = match self.cases(file, &text, name, &stored)? {
                    Ok(file) => file,
                    Err(text) => {
                        none = text;
                        continue;
                    }
                };
                let all: Vec<_> = file.plans.iter().map(|plan| plan.case.clone()).collect();
                match file.only(&self.choice.cases) {
                    Ok(file) => parts.push(Part {
                        name: name.into(),
                        file,
                        chosen,
                    }),
                    Err(_) if chosen => unfit.extend(all),
                    Err(_) => {}
                }
            }
        }
        if !parts.iter().any(|p| p.chosen) {
            if !unfit.is_empty() {
                none = scenario::none_of(unfit.iter(), &self.choice.cases);
            } else if none.is_empty() {
                let names: Vec<_> = self.choice.backends.iter().map(|b| b.name()).collect();
                let worlds = names.join(" or ");
                none = format!("nothing of it runs in {worlds}: omit --backend");
            }
            return Err(StudyError::Unknown(format!("{}: {none}", self.study.name)));
        }
        self.parts = parts;
        self.bounded()
    }

    /// The scenario with the cases that it may have, or why there is none.
    fn cases(
        &self,
        mut file: File,
        text: &str,
        name: &str,
        stored: &[Outcome],
    ) -> Result<Result<File, String>, StudyError> {
        let (mut among, mut vary) = (Case::new(), self.choice.vary.clone());
        if let Some((name, own)) = self
            .study
            .law
            .as_ref()
            .filter(|_| !self.choice.laws.is_empty())
        {
            among.insert(name.clone(), own.clone());
            let laws = self.choice.laws.iter().cloned();
            vary.entry(name.clone()).or_default().extend(laws);
        }
        if vary.is_empty() {
            // Values that were given to an earlier run; what the scenario can no longer be is left out.
            let of = |o: &&Outcome| o.scenario == file.name && o.backend == file.variant.backend;
            let cases: BTreeSet<Case> = stored.iter().filter(of).map(|o| o.case.clone()).collect();
            file.add(name, text, cases)?;
            return Ok(Ok(file));
        }
        let cases = match file.varied(&among, &vary) {
            Ok(cases) => cases,
            Err(text) => return Ok(Err(text)),
        };
        if let Some(refused) = file.add(name, text, cases.clone())?.into_iter().next() {
            return Err(refused.into());
        }
        file.plans.retain(|plan| cases.contains(&plan.case));
        Ok(Ok(file))
    }

    /// Number of seeds with which each case of `part` is run.
    fn seed_count(&self, part: &Part) -> u64 {
        let (first, last) = self.seeds(part);
        last.saturating_sub(first).saturating_add(1)
    }

    /// Size of the chosen runs, made before or not: of all, or those of one experiment.
    pub fn effort(&self, of: Option<&Experiment>) -> Effort {
        let mut effort = Effort::default();
        let own = |part: &&Part| of.is_none_or(|of| of.scenario == part.name);
        for part in self.chosen().map(|(_, part)| part).filter(own) {
            let seeds = self.seed_count(part);
            let cases = part.file.plans.len() as u64;
            effort.runs = effort.runs.saturating_add(seeds.saturating_mul(cases));
            let seconds: f64 = part.file.plans.iter().map(Plan::seconds).sum();
            let seconds = seconds * scenario::exact(seeds);
            match part.file.variant.backend {
                Backend::Sim => effort.simulated_seconds += seconds,
                Backend::Emu => effort.emulated_seconds += seconds,
            }
        }
        effort
    }

    /// Refuses more runs than anybody waits for.
    fn bounded(&self) -> Result<(), StudyError> {
        let runs = self.effort(None).runs;
        if runs <= MAX_RUNS {
            return Ok(());
        }
        let text = format!(
            "{}: {runs} runs are more than {MAX_RUNS}: choose fewer seeds or cases",
            self.study.name
        );
        Err(StudyError::Unknown(text))
    }

    /// All of the study that is in the folder, whatever was chosen of it.
    pub fn whole(&self) -> Result<Self, StudyError> {
        let choice = Choice {
            experiment: None,
            seeds: None,
            cases: Case::new(),
            vary: Vary::new(),
            laws: Vec::new(),
            ..self.choice.clone()
        };
        let below = self.folder().parent().unwrap_or(Path::new(""));
        Self::read(&self.named, choice, below)
    }

    /// The study.
    pub const fn study(&self) -> &Study {
        &self.study
    }

    /// Folder of the runs.
    pub fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// Experiments and worlds, of those chosen, in which runs are not made or not valid.
    pub fn lacking(&self) -> io::Result<BTreeSet<(&str, &'static str)>> {
        let mut lacking = BTreeSet::new();
        for (part, results) in self.parts.iter().zip(self.results()?) {
            if part.chosen && results.open() > 0 {
                let own = self
                    .study
                    .experiments
                    .iter()
                    .filter(|e| e.scenario == part.name);
                let world = part.file.variant.backend.name();
                lacking.extend(own.map(|e| (e.id.as_str(), world)));
            }
        }
        Ok(lacking)
    }

    /// Sets `stop`, after which no further run is begun. For a caller that can make one only later,
    /// as it needs a thread.
    pub fn stop_with(&mut self, stop: Stop) {
        self.choice.stop = Some(stop);
    }

    /// Commands that the study gives to the shell, each once, with their placeholders.
    pub fn commands(&self) -> BTreeSet<String> {
        let files = self.chosen().map(|(_, part)| &part.file);
        let drivers = files.flat_map(|f| &f.plans).flat_map(|p| &p.drivers);
        let programs = drivers.filter_map(|d| match &d.system {
            Some(System::Program(program)) => Some(program),
            _ => None,
        });
        let commands = programs.flat_map(Program::commands);
        commands.map(String::from).collect()
    }

    /// True if something of the study runs on real sockets.
    pub fn needs_emulator(&self) -> bool {
        let emulated = |p: &Part| p.chosen && p.file.variant.backend == Backend::Emu;
        self.parts.iter().any(emulated)
    }

    /// The stored runs of every part, whichever build of the program has made them. A folder of another study is
    /// refused.
    pub fn results(&self) -> io::Result<Vec<Results>> {
        self.owned()?;
        let every_seed = self.choice.seeds.is_none();
        self.sorted(every_seed, true)
    }

    fn sorted(&self, every_seed: bool, any_build: bool) -> io::Result<Vec<Results>> {
        let stored = self.store.latest()?;
        let of = |part: &Part| {
            let wanted = Wanted {
                seeds: self.seeds(part),
                every_seed,
                any_build,
            };
            part.file.sort_out(wanted, &stored).0
        };
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
    pub fn owned(&self) -> io::Result<()> {
        let at = self.folder().join("study.json");
        let foreign = |whose: String| {
            let text = format!("it holds {whose}: choose another --out");
            Err(io::Error::new(ErrorKind::InvalidData, text))
        };
        match disk::read(&at)? {
            // Empty or NULs is what a power loss leaves.
            Some(text) if text.iter().any(|b| *b != 0) => {
                match serde_json::from_slice::<Owner>(&text) {
                    Ok(owner) if owner == self.owner() => Ok(()),
                    Ok(Owner { study, quick }) => foreign(format!(
                        "the {}runs of {study}",
                        if quick { "quick " } else { "" }
                    )),
                    Err(e) => foreign(format!("a study.json that cannot be read ({e})")),
                }
            }
            _ if self.knows_all()? => Ok(()),
            _ => foreign("runs of no study, or of another one".into()),
        }
    }

    /// True if every stored run is of a scenario of this study.
    fn knows_all(&self) -> io::Result<bool> {
        let stored = self.store.trials()?;
        let names: BTreeSet<String> = if stored.is_empty() {
            BTreeSet::new()
        } else {
            let whole = self.whole().map_err(|e| io::Error::other(e.to_string()))?;
            whole.parts.into_iter().map(|p| p.file.name).collect()
        };
        Ok(stored.iter().all(|run| names.contains(&run.scenario)))
    }

    /// Takes the folder for this process.
    fn locked(&self) -> io::Result<Disk> {
        fs::create_dir_all(self.folder())?;
        self.owned()?;
        let lock = disk::open(
            &self.folder().join("lock"),
            OpenOptions::new().create(true).append(true),
        )?;
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
        self.store.mend()?;
        Ok(lock)
    }

    /// Count of stored runs to be made again, as another build of the program has made them.
    pub fn of_other_builds(&self) -> io::Result<usize> {
        self.owned()?;
        let results = self.sorted(false, self.choice.any_build)?;
        let own = self.parts.iter().zip(&results).filter(|(p, _)| p.chosen);
        Ok(own.map(|(_, results)| results.others).sum())
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
        let before = self.sorted(false, self.choice.any_build).map_err(failed)?;
        let mut pace = Pace::new(&before, &self.parts, self.choice.jobs);
        let at = self.folder().join("progress.json");
        let ran = self.run_parts(&mut pace, &at, shown);
        // Nobody is at it any more, however it ended.
        match fs::remove_file(&at) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(ran.err().unwrap_or_else(|| failed(e)))
            }
            _ => ran.map_err(|error| error.after(pace.ended, pace.runs)),
        }
    }

    fn run_parts(
        &self,
        pace: &mut Pace,
        at: &Path,
        shown: &mut dyn FnMut(&Progress, Option<&Outcome>),
    ) -> Result<(usize, Vec<Outcome>), RunError> {
        let (mut made, mut invalid, mut unwritten) = (0, Vec::new(), None);
        for (number, part) in self.chosen() {
            let mut tell = |outcome: Option<&Outcome>| {
                let progress = pace.progress(number, part, outcome);
                // Without it a page does not move; the runs themselves are stored all the same.
                if let Err(e) = serde_json::to_vec(&progress)
                    .map_err(io::Error::from)
                    .and_then(|text| replace(at, &text))
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
                any_build: self.choice.any_build,
                program: &self.choice.program,
                stop: self.choice.stop.as_ref(),
                abort: None,
                onlooker: None,
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
        match unwritten {
            Some(error) => Err(RunError::Keep {
                folder: self.folder().to_path_buf(),
                error,
            }),
            None => Ok((made, invalid)),
        }
    }

    /// Progress of the running process, if a process is at it.
    pub fn progress(&self) -> Option<Progress> {
        let text = disk::read(&self.folder().join("progress.json")).ok()??;
        let progress: Progress = serde_json::from_slice(&text).ok()?;
        // It may have been killed. The lock is not touched then: it could be in the way of the next one.
        let process = Pid::from_raw(i32::try_from(progress.process).ok()?)?;
        if test_kill_process(process) == Err(rustix::io::Errno::SRCH) {
            return None;
        }
        // Another process may have got its number.
        let how = &mut OpenOptions::new();
        let lock = disk::open(&self.folder().join("lock"), how.read(true)).ok()?;
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(progress)
    }
}
