//! `farhaul sim run FILE.toml`: what does a scenario file come to? Every case with every seed, a table,
//! and whether it came out as the file expects.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::PathBuf,
    thread,
};

use farhaul_lab::scenario::{
    self, CaseSummary, Done, File, Output, RunError, Runs, Spread, Summary, Verdict,
};
use serde_json::{Value, json};

use crate::{
    exit::{Exit, Failure},
    out,
};

/// Arguments.
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
    /// Write a report, and a CSV per flow, below this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write the packets that enter this link, as pcapng; NAME:back is the way back and
    /// nic:HOST an interface
    #[arg(long, value_name = "LINK", requires = "out")]
    pcap: Vec<String>,
    /// Also write the events of every flow's sender, as qlog in JSON-SEQ
    #[arg(long, requires = "out")]
    qlog: bool,
    /// Fail if a file's expectation does not hold
    #[arg(long)]
    check: bool,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
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
        .map(|path| Ok((path, read(path, args)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut objects = Vec::new();
    let (mut failed, mut judged) = (0, 0);
    for (path, file) in &files {
        let summary = simulate(file, args, files.len() > 1)?;
        failed += summary.verdicts.iter().filter(|v| v.fails()).count();
        judged += summary.verdicts.len();
        if args.json {
            objects.push(object(&path.display().to_string(), file, &summary));
        } else {
            tell(file, &summary);
        }
    }
    let passed = failed == 0 || !args.check;
    let exit = if passed { Exit::Ok } else { Exit::Threshold };
    let whole = json!({
        "schema": "farhaul.scenarios/1",
        "ok": passed,
        "version": env!("CARGO_PKG_VERSION"),
        "scenarios": objects,
        "exit": exit.object(),
    });
    if !passed {
        let text = format!("{failed} of {judged} expectations do not hold");
        return Err(Failure::new(exit, text).told(whole));
    }
    if args.json {
        out::json(&whole);
    }
    Ok(())
}

fn read(path: &PathBuf, args: &Args) -> Result<File, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        let text = format!("cannot read {}: {error}", path.display());
        Failure::new(Exit::SourceMissing, text)
    })?;
    let name = path.display().to_string();
    let file = File::read(&name, &text).map_err(|problem| Failure::usage(problem.to_string()))?;
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
    let runs = Runs {
        seeds: args.seed.unwrap_or(file.seeds),
        jobs: args.jobs.map_or(cores, NonZeroUsize::get),
        output,
    };
    let shown = io::stderr().is_terminal();
    let progress = |done: &Done<'_>| {
        if shown {
            eprintln!(
                "{}/{} {}: {}, seed {}",
                done.ended, done.runs, file.name, done.case, done.report.seed
            );
        }
    };
    file.run(&runs, &progress).map_err(|error| {
        let exit = match &error {
            RunError::Write { .. } => Exit::DestError,
            RunError::Choice(_) => Exit::Usage,
            _ => Exit::Internal,
        };
        Failure::new(exit, error.to_string())
    })
}

fn object(path: &str, file: &File, summary: &Summary) -> Value {
    json!({
        "file": path,
        "name": file.name,
        "about": file.about,
        "source": file.source,
        "cases": summary.cases,
        "verdicts": summary.verdicts,
    })
}

fn tell(file: &File, summary: &Summary) {
    out::line(format!("{}: {}", file.name, file.about));
    for case in &summary.cases {
        tell_case(case);
    }
    if summary.verdicts.is_empty() {
        return;
    }
    out::line("");
    out::line("expected                                  paper          ours           bounds");
    for verdict in &summary.verdicts {
        tell_verdict(verdict);
    }
    let count =
        |wanted: fn(&Verdict) -> bool| summary.verdicts.iter().filter(|v| wanted(v)).count();
    out::line(format!(
        "{} hold, {} deviate, {} deviate as known, {} only compared, {} were not run",
        count(|v| v.holds == Some(true)),
        count(Verdict::fails),
        count(|v| v.holds == Some(false) && !v.fails()),
        count(|v| v.holds.is_none() && v.ours.is_some()),
        count(|v| v.ours.is_none()),
    ));
}

fn tell_case(case: &CaseSummary) {
    let values: Vec<_> = case.case.iter().map(|(k, v)| format!("{k}={v}")).collect();
    out::line("");
    if !values.is_empty() {
        out::line(values.join(" "));
    }
    let hashes: Vec<_> = case
        .trace_hash
        .iter()
        .map(|(s, h)| format!("{s}:{h}"))
        .collect();
    out::line(format!(
        "  {} seeds, {} packets, traces {}",
        hashes.len(),
        case.packets,
        hashes.join(" ")
    ));
    out::line(
        "  flow               Mbit/s: mean   median      min      max   retransmits  timeouts",
    );
    for flow in &case.flows {
        let rate = flow.goodput_bits_per_second;
        out::line(format!(
            "  {:<22} {:>9.1} {:>8.1} {:>8.1} {:>8.1} {:>13.1} {:>9.1}  {}{}",
            flow.name,
            rate.mean / 1e6,
            rate.median / 1e6,
            rate.min / 1e6,
            rate.max / 1e6,
            flow.retransmits.mean,
            flow.timeouts.mean,
            flow.protocol,
            flow.law
                .as_ref()
                .map_or_else(String::new, |law| format!(", {law}")),
        ));
    }
    if case.flows.len() > 1 {
        let Spread { mean, min, max, .. } = case.jain;
        out::line(format!("  Jain's index {mean:.3} ({min:.3} to {max:.3})"));
    }
    for (name, loss) in &case.cross_loss {
        let [mean, max] = [loss.mean, loss.max].map(|share| share * 100.0);
        out::line(format!(
            "  cross traffic {name}: {mean:.2} % lost, at most {max:.2} %"
        ));
    }
    for link in &case.links {
        let drops: Vec<_> = link
            .drops
            .iter()
            .map(|(c, n)| format!("{c} {n:.1}"))
            .collect();
        out::line(format!(
            "  link {:<17} {:>5.1} % used, queue {:.1} KiB, p95 {:.1} KiB; dropped: {}",
            link.name,
            link.utilisation * 100.0,
            link.mean_queue_bytes / 1_024.0,
            link.p95_queue_bytes / 1_024.0,
            if drops.is_empty() {
                "none".into()
            } else {
                drops.join(", ")
            }
        ));
    }
}

fn tell_verdict(verdict: &Verdict) {
    let show = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| verdict.unit.show(v));
    let bounds = match (verdict.min, verdict.max) {
        (Some(min), Some(max)) => {
            format!("{} to {}", verdict.unit.show(min), verdict.unit.show(max))
        }
        (Some(min), None) => format!("at least {}", verdict.unit.show(min)),
        (None, Some(max)) => format!("at most {}", verdict.unit.show(max)),
        (None, None) => String::new(),
    };
    let share = verdict.share.map_or_else(String::new, |s| {
        format!(" in {:.0} % of the seeds", s * 100.0)
    });
    let word = match (verdict.holds, &verdict.known) {
        (Some(true), _) => "holds".into(),
        (Some(false), None) => "DEVIATES".into(),
        (Some(false), Some(why)) => format!("deviates, as known: {why}"),
        (None, _) => match (verdict.ours, verdict.paper) {
            (Some(ours), Some(paper)) => format!("{:.2} times the paper's", ours / paper),
            (Some(_), None) => "nothing to compare with".into(),
            (None, _) => "not run".into(),
        },
    };
    let colon = if bounds.is_empty() { "" } else { ": " };
    out::line(format!("{} [{}]", verdict.what, verdict.case));
    out::line(format!(
        "  {:<39} {:<14} {:<14} {bounds}{share}{colon}{word}",
        verdict.source,
        show(verdict.paper),
        show(verdict.ours),
    ));
}
