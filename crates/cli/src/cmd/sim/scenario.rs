//! `farhaul sim run FILE.toml`: what are the results of a scenario file? Every case with every seed, a table,
//! and whether expectations are met.

mod report;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
};

use farhaul_lab::{
    grid::{Backend, RunStore},
    reference::Reference,
    scenario::{self, Done, File, Output, RunError, Runs, Summary, Variant},
};
use farhaul_sim::Error;
use serde_json::{Value, json};

use self::report::Tally;
use crate::{
    exit::{Exit, Failure},
    out, read,
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
    /// Run only the cases in which a variable has this value; may be given for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    case: Vec<(String, String)>,
    /// Runs at once [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Store results of every run in a folder per scenario here, and do not repeat stored runs
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    keep: Option<PathBuf>,
    /// Write a report, and a CSV per flow, below this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
    let mut objects = Vec::new();
    let mut tally = Tally::default();
    for (path, file) in &files {
        let summary = simulate(file, args, files.len() > 1)?;
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
    let passed = tally.deviate == 0 || !args.check;
    let exit = if passed { Exit::Ok } else { Exit::Threshold };
    let whole = json!({
        "schema": "farhaul.scenarios/1",
        "ok": passed,
        "version": env!("CARGO_PKG_VERSION"),
        "known_deviations": tally.known,
        "scenarios": objects,
        "exit": exit.object(),
    });
    if !passed {
        let text = format!(
            "{} of {} expectations are not met",
            tally.deviate,
            tally.judged()
        );
        return Err(Failure::new(exit, text).with_object(whole));
    }
    if args.json {
        out::json(&whole);
    }
    Ok(())
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

fn simulate(file: &File, args: &Args, several: bool) -> Result<Summary, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let output = args.out.as_ref().map(|dir| Output {
        dir: if several {
            dir.join(&file.name)
        } else {
            dir.clone()
        },
        traces: args.pcap.clone(),
        events: args.qlog,
    });
    let keep = args.keep.as_ref();
    let store = keep.map(|below| RunStore::new(below, &file.name, Backend::Sim));
    let runs = Runs {
        seeds: args.seed.unwrap_or(file.seeds),
        jobs: args.jobs.map_or(cores, NonZeroUsize::get),
        output,
        store: store.as_ref(),
        program: Path::new(""),
    };
    let shown = io::stderr().is_terminal();
    let mut progress = |done: &Done<'_>| {
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
    let results = file.run(&runs, &mut progress).map_err(|error| {
        let exit = match &error {
            RunError::Write { .. } | RunError::Keep { .. } => Exit::DestError,
            RunError::Sim {
                error: Error::Livelock { .. },
                ..
            } => Exit::Internal,
            RunError::Choice(_) | RunError::Sim { .. } => Exit::Usage,
            _ => Exit::Internal,
        };
        Failure::new(exit, error.to_string())
    })?;
    Ok(file.summary(&results))
}

fn object(path: &str, file: &File, summary: &Summary) -> Value {
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
