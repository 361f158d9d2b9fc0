//! `farhaul sim run FILE.toml`: runs a scenario file. Every case with every seed, a table, and
//! whether expectations are met.

pub(super) mod report;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use farhaul_lab::{
    plot::series::Format,
    reference::Reference,
    run_store::{Backend, RunStore},
    scenario::{self, Done, File, Output, Plot, Results, Runs, Summary, Variant},
};
use serde_json::{Value, json};

use self::report::Tally;
use crate::{
    exit::{self, Exit, Failure},
    figure::{file_can_be_written, folder_can_be_written},
    out, read,
    wait::Wait,
};

/// Arguments.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Scenario files; docs/scenarios.md is their reference
    #[arg(required = true, value_name = "FILE.toml")]
    files: Vec<PathBuf>,
    /// Run with these seeds instead of the file's, as in 1..32 or 7
    #[arg(long, value_name = "SEEDS", value_parser = scenario::seeds)]
    seed: Option<(u64, u64)>,
    /// Run only the cases in which a variable has this value; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    case: Vec<(String, String)>,
    /// Runs at once [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Store results of every run in a folder per scenario here, and do not repeat stored runs
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    keep: Option<PathBuf>,
    /// Keep stored runs of other builds of the program, too, instead of making them again
    #[arg(long, requires = "keep")]
    any_build: bool,
    /// Write a report, and a CSV per flow, below this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw goodput, window, rtt, queue and losses of every flow over time: of a single run as FILE.svg or
    /// FILE.png, of several as series.svg in a folder per case and seed below DIR
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "keep")]
    plot: Option<PathBuf>,
    /// Also write the packets that enter this link, as pcapng; NAME:back is the return direction and nic:HOST
    /// an interface
    #[arg(long, value_name = "LINK", requires = "out")]
    pcap: Vec<String>,
    /// Also write the events of every flow's sender, as qlog in JSON-SEQ
    #[arg(long, requires = "out")]
    qlog: bool,
    /// Fail if an expectation of a file is not met
    #[arg(long)]
    check: bool,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
    /// Only expectations and results, as tables in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not NAME=VALUE, as in rtt=50ms"))?;
    Ok((name.trim().into(), value.trim().into()))
}

/// Runs the files one after the other.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let files = args
        .files
        .iter()
        .map(|path| Ok((path, file_at(path, args)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let plot = plot(args, &files)?;
    let mut objects = Vec::new();
    let mut tally = Tally::default();
    for (path, file) in &files {
        let summary = simulate(file, args, plot.as_ref(), files.len() > 1)?;
        tally.add(&summary.verdicts);
        if args.json {
            objects.push(object(&path.display().to_string(), file, &summary));
        } else if args.markdown {
            report::markdown(file, &summary);
        } else {
            report::text(file, &summary);
        }
    }
    if files.len() > 1 && !args.json {
        out::line(format!("\nin all: {tally}"));
    }
    let whole = whole(&objects, &tally, args.check)?;
    if args.json {
        out::json(&whole);
    }
    Ok(())
}

/// An error if there are runs that say nothing, as where a law is faulty.
pub(super) fn refuse_invalid(results: &Results) -> Result<(), Failure> {
    let outcomes = results.outcomes();
    let mut invalid = outcomes.filter_map(|o| Some((o, o.invalid.as_deref()?)));
    let Some((outcome, why)) = invalid.next() else {
        return Ok(());
    };
    let label = scenario::label(&outcome.case);
    let case = if label.is_empty() {
        String::new()
    } else {
        format!("{label}, ")
    };
    let more = match invalid.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let text = format!("{case}seed {}: {why}{more}", outcome.seed);
    Err(Failure::new(Exit::Internal, text))
}

/// The object of `--json`; a failure with it if expectations had to be met and are not.
pub(super) fn whole(objects: &[Value], tally: &Tally, check: bool) -> Result<Value, Failure> {
    let passed = tally.deviate == 0 || !check;
    let exit = if passed { Exit::Ok } else { Exit::Threshold };
    let whole = json!({
        "schema": "farhaul.scenarios/2",
        "ok": passed,
        "version": env!("CARGO_PKG_VERSION"),
        "fitted_outside": tally.fitted,
        "scenarios": objects,
        "exit": exit::object(exit),
    });
    if passed {
        return Ok(whole);
    }
    let text = format!(
        "{} of {} expectations are not met",
        tally.deviate,
        tally.judged()
    );
    Err(Failure::new(exit, text).with_object(whole))
}

fn file_at(path: &Path, args: &Args) -> Result<File, Failure> {
    let text = read::settings(path).map_err(|error| {
        let text = format!("cannot read {}: {error}", path.display());
        Failure::new(Exit::SourceMissing, text)
    })?;
    let name = path.display().to_string();
    let reference = Reference::beside(path).map_err(Failure::usage)?;
    let file = File::read_as(&name, &text, Variant::default(), &reference)
        .map_err(|problem| Failure::usage(problem.to_string()))?;
    let when: BTreeMap<_, _> = args.case.iter().cloned().collect();
    let file = file
        .only(&when)
        .map_err(|text| Failure::usage(format!("{name}: {text}")))?;
    for link in &args.pcap {
        if let Some(plan) = file.plans.iter().find(|plan| !plan.links.contains(link)) {
            let known = plan.links.join(", ");
            let text = format!("{name}: no link '{link}'; there are: {known}");
            return Err(Failure::usage(text));
        }
    }
    Ok(file)
}

/// Plot of the figures, if they can be written: any mistake is found before the first run.
fn plot(args: &Args, files: &[(&PathBuf, File)]) -> Result<Option<Plot>, Failure> {
    let Some(path) = &args.plot else {
        return Ok(None);
    };
    for (name, file) in files {
        if file.plans.iter().any(|p| p.scenario(1).interval.is_zero()) {
            let text = format!(
                "{}: with sample = \"0ms\" there is nothing to plot",
                name.display()
            );
            return Err(Failure::usage(text).fix("give it a time, as sample = \"100ms\""));
        }
    }
    let folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let format = if folder {
        None
    } else {
        Format::of(path).map_err(|e| Failure::usage(format!("--plot: {e}, or a folder")))?
    };
    let Some(format) = format else {
        folder_can_be_written(path)?;
        return Ok(Some(Plot::Below(path.clone())));
    };
    let runs = |(_, file): &(&PathBuf, File)| {
        let (first, last) = args.seed.unwrap_or(file.seeds);
        (last - first)
            .saturating_add(1)
            .saturating_mul(file.plans.len() as u64)
    };
    let runs = files.iter().map(runs).fold(0, u64::saturating_add);
    if runs != 1 {
        let text = format!("{} is one file, but there are {runs} runs", path.display());
        let fix = "give --plot a folder, or choose one run with --case and --seed";
        return Err(Failure::usage(text).fix(fix));
    }
    file_can_be_written(path)?;
    Ok(Some(Plot::File(path.clone(), format)))
}

fn simulate(
    file: &File,
    args: &Args,
    plot: Option<&Plot>,
    several: bool,
) -> Result<Summary, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let below = |dir: &PathBuf| {
        if several {
            dir.join(&file.name)
        } else {
            dir.clone()
        }
    };
    let output = Output {
        dir: args.out.as_ref().map(below),
        traces: args.pcap.clone(),
        events: args.qlog,
        plot: plot.map(|plot| match plot {
            Plot::Below(dir) => Plot::Below(below(dir)),
            Plot::File(..) => plot.clone(),
        }),
    };
    let wanted = output.dir.is_some() || output.plot.is_some();
    let keep = args.keep.as_ref();
    let store = keep.map(|below| RunStore::new(below, &file.name, Backend::Sim));
    let runs = Runs {
        seeds: args.seed.unwrap_or(file.seeds),
        jobs: args.jobs.map_or(cores, NonZeroUsize::get),
        output: wanted.then_some(output),
        store: store.as_ref(),
        any_build: args.any_build,
        program: Path::new(""),
        stop: None,
        abort: None,
        onlooker: None,
    };
    let shown = io::stderr().is_terminal();
    let name = file.name.clone();
    let first = move |time: Duration| format!("{name}: the first run, {} s", time.as_secs());
    let mut wait = Some(Wait::start(first));
    let mut progress = |done: &Done<'_>| {
        drop(wait.take());
        if shown {
            errln!(
                "{}/{} {}: {}, seed {}",
                done.ended,
                done.runs,
                file.name,
                scenario::label(&done.outcome.case),
                done.outcome.seed
            );
        }
    };
    let results = file.run(&runs, &mut progress)?;
    refuse_invalid(&results)?;
    Ok(file.summary(&results))
}

pub(super) fn object(path: &str, file: &File, summary: &Summary) -> Value {
    json!({
        "file": path,
        "name": file.name,
        "about": file.about,
        "source": file.source,
        "kept": summary.kept,
        "cases": summary.cases,
        "verdicts": summary.verdicts,
    })
}
