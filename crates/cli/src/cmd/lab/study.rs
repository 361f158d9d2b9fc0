//! `farhaul lab run|report|check|open` of a study: its runs in one folder, its page, and the
//! numbers that are missed.

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
};

use farhaul_emu::wan::{self, Wan, WanConfig};
use farhaul_io::Stop;
use farhaul_lab::{
    report::{self, Outcome as Word, Page, Section, Source, Verdict},
    run_store::Backend,
    scenario::{self, Case, Outcome, Vary},
    study::{Choice, KnownMisses, Progress, Runs, StudyError},
};
use serde_json::{Value, json};

use crate::{
    exit::{self, Exit, Failure},
    interrupt, out, read,
};

/// Study, and where its runs are.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// NAME or NAME/EXPERIMENT, as `farhaul lab list` names them; or a study's FILE.toml
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// The short version, for a first look: fewer cases, less time, one seed
    #[arg(long)]
    pub(super) quick: bool,
    /// Folder with one folder of results for each study
    #[arg(long, value_name = "FOLDER", default_value = "lab/runs")]
    pub(super) out: PathBuf,
}

/// Options of a run.
#[derive(Debug, Default)]
pub(super) struct How {
    pub(super) backends: Vec<Backend>,
    pub(super) seeds: Option<(u64, u64)>,
    pub(super) cases: Case,
    pub(super) vary: Vary,
    pub(super) laws: Vec<String>,
    pub(super) any_build: bool,
    pub(super) jobs: Option<NonZeroUsize>,
    pub(super) stop: Option<Stop>,
}

/// True if the study is named by its file.
fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "toml")
}

/// The study and the experiment of `NAME/EXPERIMENT`; a file has slashes of its own.
pub(super) fn parts(name: &str) -> (&str, Option<&str>) {
    if let Some(at) = name.find(".toml") {
        let (file, rest) = name.split_at(at + ".toml".len());
        return (file, rest.strip_prefix('/'));
    }
    match name.split_once('/') {
        Some((study, experiment)) => (study, Some(experiment)),
        None => (name, None),
    }
}

impl Which {
    pub(super) fn runs(&self, how: &How) -> Result<Runs, Failure> {
        let (name, experiment) = parts(&self.name);
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let choice = Choice {
            experiment: experiment.map(Into::into),
            backends: how.backends.clone(),
            quick: self.quick,
            seeds: how.seeds,
            cases: how.cases.clone(),
            vary: how.vary.clone(),
            laws: how.laws.clone(),
            any_build: how.any_build,
            stop: how.stop.clone(),
            jobs: how.jobs.map_or(cores, NonZeroUsize::get),
            program: crate::line::program().map_err(|e| Failure::internal(&e))?,
        };
        Runs::read(name, choice, &self.out).map_err(unreadable)
    }

    /// The page of the stored runs.
    fn page(runs: &Runs, known: &KnownMisses) -> Result<Page, Failure> {
        runs.page(known).map_err(|e| {
            let text = format!("{}: {e}", runs.folder().display());
            Failure::new(Exit::Config, text)
        })
    }

    /// Error unless at least one run is stored, and all of them are of this study.
    fn stored(&self, runs: &Runs) -> Result<(), Failure> {
        runs.owned().map_err(|error| folder_failed(runs, &error))?;
        if runs.folder().join("runs.jsonl").exists() {
            return Ok(());
        }
        let quick = if self.quick { " --quick" } else { "" };
        let text = format!("{} has no runs", runs.folder().display());
        let fix = format!("run `farhaul lab run {}{quick}`", self.name);
        Err(Failure::new(Exit::SourceMissing, text).fix(fix))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
pub(super) fn unreadable(error: StudyError) -> Failure {
    let exit = match &error {
        StudyError::Io(..) => Exit::SourceMissing,
        _ => Exit::Usage,
    };
    Failure::new(exit, error.to_string())
}

/// Runs the missing runs, and writes the page.
pub(super) fn run(which: &Which, how: &How, json: bool) -> Result<(), Failure> {
    let mut runs = which.runs(how)?;
    // Whatever is wrong with the rest of the study is found before hours of runs.
    runs.whole().map_err(unreadable)?;
    if runs.needs_emulator() {
        // What cannot be built now cannot be for any run.
        wan::enter_user_namespace()
            .and_then(|()| Wan::start(&WanConfig::default()))
            .and_then(Wan::finish)
            .map_err(super::super::wan::failure)?;
        if cfg!(debug_assertions) {
            errln!("farhaul: a debug build: these figures are not worth keeping");
        }
    }
    let stop = interrupt::stop()?;
    runs.stop_with(stop);
    announce(&runs, which)?;
    let shown = io::stderr().is_terminal();
    let mut tell = |progress: &Progress, outcome: Option<&Outcome>| {
        let invalid = outcome.and_then(|o| o.invalid.as_ref());
        if let Some(why) = invalid {
            errln!("{}: NOT VALID: {why}", progress.words());
        } else if shown {
            errln!("{}", progress.words());
        }
    };
    let (made, invalid) = runs.run(&mut tell).map_err(Failure::from)?;
    let page = written(&runs)?;
    let object = |failure: Option<&Failure>| {
        let mut object = json!({
            "schema": "farhaul.lab.run/2",
            "ok": invalid.is_empty(),
            "version": env!("CARGO_PKG_VERSION"),
            "study": runs.study().name,
            "quick": which.quick,
            "folder": runs.folder(),
            "made": made,
            "invalid": invalid,
            "numbers": numbers(&page),
            "verdicts": verdicts(&page),
        });
        if let Some(failure) = failure {
            object["error"] = json!(failure.text);
            object["exit"] = exit::object(failure.exit);
        }
        object
    };
    if !invalid.is_empty() {
        let text = format!(
            "{} of {made} runs have no valid result: the page says why; the same command runs those again",
            invalid.len()
        );
        let failure = Failure::new(Exit::Partial, text);
        let object = object(Some(&failure));
        return Err(failure.with_object(object));
    }
    if json {
        out::json(&object(None));
    } else {
        let noun = if made == 1 { "run" } else { "runs" };
        out::line(format!("{made} {noun} done. {}", tally(&page)));
        if let Some(bar) = bar(&page) {
            out::line(bar);
        }
        out::line(format!(
            "page: {}",
            runs.folder().join("report.html").display()
        ));
    }
    Ok(())
}

/// Prints the announcement before the first run.
fn announce(runs: &Runs, which: &Which) -> Result<(), Failure> {
    let others = runs
        .of_other_builds()
        .map_err(|error| folder_failed(runs, &error))?;
    if others > 0 {
        errln!(
            "farhaul: {others} stored runs are of another build of this program and are made again; --any-build takes them as they are"
        );
    }
    if is_file(parts(&which.name).0) {
        for command in runs.commands() {
            errln!("farhaul: this study runs: {command}");
        }
    }
    Ok(())
}

fn folder_failed(runs: &Runs, error: &io::Error) -> Failure {
    let text = format!("{}: {error}", runs.folder().display());
    Failure::new(Exit::DestError, text)
}

/// Writes the page of the whole study; that of what was chosen of it is returned.
fn written(runs: &Runs) -> Result<Page, Failure> {
    let known = known(None)?;
    let whole = runs.whole().map_err(unreadable)?;
    let page = Which::page(&whole, &known)?;
    let unwritten = |e: io::Error| folder_failed(runs, &e);
    report::write(&page, whole.folder()).map_err(unwritten)?;
    whole.write_cells().map_err(unwritten)?;
    Which::page(runs, &known)
}

fn known(file: Option<&Path>) -> Result<KnownMisses, Failure> {
    let Some(file) = file else {
        return KnownMisses::built_in().map_err(unreadable);
    };
    let name = file.display().to_string();
    let text = read::settings(file)
        .map_err(|e| Failure::new(Exit::SourceMissing, format!("{name}: {e}")))?;
    KnownMisses::read(&name, &text).map_err(unreadable)
}

/// The verdict by published number, and the count of comparisons.
fn tally(page: &Page) -> String {
    let (sentence, count) = (page.score().sentence(), every(page).count());
    let noun = if count == 1 {
        "comparison"
    } else {
        "comparisons"
    };
    format!("{sentence} {count} {noun} in all.")
}

/// The bar of the verdict with its legend, for a terminal.
fn bar(page: &Page) -> Option<String> {
    let score = page.score();
    (score.numbers() > 0).then(|| format!("{}\n{}", score.bar(), score.legend()))
}

/// Count of published numbers by outcome.
fn numbers(page: &Page) -> Value {
    let counts = page.score().tally;
    counts
        .iter()
        .map(|(outcome, n)| (outcome.name().to_string(), json!(n)))
        .collect()
}

fn every(page: &Page) -> impl Iterator<Item = &Verdict> {
    page.sections.iter().flat_map(|s| &s.verdicts)
}

fn verdicts(page: &Page) -> Value {
    let of = |v: &Verdict| {
        json!({
            "row": v.row, "place": v.place, "quantity": v.quantity, "what": v.what, "case": v.case, "backend": v.backend,
            "published": v.published, "ours": v.ours, "range": v.range, "bounds": v.bounds,
            "outcome": v.outcome.name(), "note": v.note,
        })
    };
    let sections = page.sections.iter();
    let each = sections.flat_map(|s| {
        s.verdicts.iter().map(move |v| {
            let mut object = of(v);
            object["experiment"] = json!(s.id);
            object
        })
    });
    each.collect()
}

/// Writes the page again, and prints it as Markdown or for programs.
pub(super) fn report(which: &Which, how: &How, csv: bool, json: bool) -> Result<(), Failure> {
    let runs = which.runs(how)?;
    which.stored(&runs)?;
    let page = written(&runs)?;
    if json {
        out::json(&json!({
            "schema": "farhaul.lab.report/2",
            "ok": true,
            "version": env!("CARGO_PKG_VERSION"),
            "study": page.name,
            "folder": runs.folder(),
            "numbers": numbers(&page),
            "verdicts": verdicts(&page),
        }));
    } else if csv {
        let text = runs.cells().map_err(|e| Failure::internal(&e))?;
        out::line(text.trim_end());
    } else {
        out::line(report::markdown(&page).trim_end());
    }
    Ok(())
}

/// Ends with the exit code of a threshold if a published number is missed. With `new` only misses
/// count that are not listed as known.
pub(super) fn check(
    which: &Which,
    how: &How,
    (list, new): (Option<&Path>, bool),
    json: bool,
) -> Result<(), Failure> {
    let runs = which.runs(how)?;
    which.stored(&runs)?;
    let known = known(list)?;
    let page = Which::page(&runs, &known)?;
    let useless = if new {
        let useless = runs.useless(&known);
        useless.map_err(|error| folder_failed(&runs, &error))?
    } else {
        Vec::new()
    };
    let counts = |v: &&Verdict| match v.outcome {
        Word::Missed => true,
        Word::Known => !new,
        _ => false,
    };
    let missed: Vec<&Verdict> = every(&page).filter(counts).collect();
    let mut object = json!({
        "schema": "farhaul.lab.check/2",
        "ok": missed.is_empty(),
        "version": env!("CARGO_PKG_VERSION"),
        "study": page.name,
        "numbers": numbers(&page),
        "verdicts": verdicts(&page),
    });
    if missed.is_empty() {
        if !useless.is_empty() {
            let text = format!(
                "entries of the list of known misses are of no use, remove them: {}",
                useless.join("; ")
            );
            return Err(Failure::new(Exit::Config, text));
        }
        if let Some(failure) = unjudged(which, how, &runs, &page)? {
            object["ok"] = json!(false);
            return Err(failure.with_object(object));
        }
        if json {
            out::json(&object);
        } else {
            out::line(tally(&page));
            if let Some(bar) = bar(&page) {
                out::line(bar);
            }
        }
        return Ok(());
    }
    for v in &missed {
        errln!("{}", missed_by(v));
    }
    let text = format!("{} comparisons are missed. {}", missed.len(), tally(&page));
    let failure = Failure::new(Exit::Threshold, text);
    object["error"] = json!(failure.text);
    object["exit"] = exit::object(failure.exit);
    Err(failure.with_object(object))
}

/// Text about a missed number, and by how much.
fn missed_by(v: &Verdict) -> String {
    // A target is a bound itself.
    let asked = if v.published.starts_with(&v.bounds) {
        v.published.clone()
    } else {
        format!("published {}, bounds {}", v.published, v.bounds)
    };
    format!(
        "{} ({}): {} [{}] is {}; {asked}; {}",
        v.place, v.backend, v.what, v.case, v.ours, v.note
    )
}

/// Reason that nothing was missed, if too little was judged to say so: runs are lacking, or no
/// number has a bound.
fn unjudged(
    which: &Which,
    how: &How,
    runs: &Runs,
    page: &Page,
) -> Result<Option<Failure>, Failure> {
    let partial = |text| Failure::new(Exit::Partial, text);
    let open = |v: &Verdict| matches!(v.outcome, Word::NotRun | Word::Incomplete);
    let unread = |e| Failure::new(Exit::Config, format!("{}: {e}", page.name));
    let lacking = runs.lacking().map_err(unread)?;
    let of = |section: &Section| {
        let own = section.verdicts.iter().filter(|v| open(v));
        own.filter(|v| lacking.contains(&(section.id.as_str(), v.backend)))
            .count()
    };
    let lacking: usize = page.sections.iter().map(of).sum();
    if lacking > 0 {
        let quick = if which.quick { " --quick" } else { "" };
        let worlds: Vec<_> = how.backends.iter().map(|b| b.name()).collect();
        let backend = match worlds.as_slice() {
            [] => String::new(),
            worlds => format!(" --backend {}", worlds.join(",")),
        };
        return Ok(Some(partial(format!(
            "{lacking} numbers are not judged, as runs are not made or not valid: run `farhaul lab run {}{quick}{backend}` with the same --case, --seeds and --out. {}",
            which.name,
            tally(page)
        ))));
    }
    if !every(page).any(|v| v.outcome.is_verdict()) {
        let failure = partial(tally(page).trim_end_matches('.').into());
        return Ok(Some(if which.quick {
            let full = format!("run `farhaul lab run {}`, without --quick", which.name);
            failure.fix(full)
        } else {
            failure
        }));
    }
    Ok(None)
}

/// Arguments of `lab open`.
#[derive(Debug, clap::Args)]
pub(crate) struct Open {
    #[command(flatten)]
    which: Which,
    /// Address of the page, on this machine only; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

impl Open {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let runs = self.which.runs(&How::default())?;
        runs.owned().map_err(|error| folder_failed(&runs, &error))?;
        if let Err(none) = self.which.stored(&runs) {
            errln!("{none}; the page fills meanwhile");
        }
        let source = Stored {
            which: &self.which,
            runs,
            known: known(None)?,
        };
        super::open::serve(&source, self.listen)
    }
}

/// Runs as they are stored, from which the served page is made.
struct Stored<'a> {
    which: &'a Which,
    runs: Runs,
    known: KnownMisses,
}

impl Source for Stored<'_> {
    fn version(&self) -> io::Result<String> {
        let of = |name: &str| self.runs.folder().join(name);
        let files = [of("runs.jsonl"), of("progress.json")];
        let files = report::version(files.iter().map(PathBuf::as_path))?;
        // A process that was killed leaves both as they are.
        let written = self.runs.progress().is_some();
        Ok(format!("{files}.{}", u8::from(written)))
    }

    fn page(&self) -> Result<Page, String> {
        // With the cases that have come since.
        let runs = self.which.runs(&How::default()).map_err(|e| e.text)?;
        runs.page(&self.known).map_err(|e| e.to_string())
    }
}

/// The case that `NAME=VALUE` selects.
pub(super) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not NAME=VALUE, as in rtt=50ms"))?;
    Ok((name.trim().into(), value.trim().into()))
}

pub(super) use scenario::seeds;
