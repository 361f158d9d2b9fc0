//! `farhaul cp --merge`: checks that a data set is complete that several nodes sent in shards.
//! Reads what each of them reported.
//!
//! - A report is untrusted: it is bounded, and counts only if all that is needed of it is there.
//! - Only complete shards are compared by what they listed: one that failed is to be run again anyway.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use farhaul_core::{text, units::Size};
use farhaul_transfer::{Content, Partition, Shard, Striped};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Args;
use crate::{
    exit::{Exit, Failure},
    out, place, read,
};

const SCHEMA: &str = "farhaul.transfer/1";
/// Highest number of incomplete shards that are named for people.
const MOST_NAMED: usize = 20;

/// Bytes shown of a text in a report: the name of an exit code, a destination.
const MOST_NAME: usize = 64;
const MOST_PLACE: usize = 16 << 10;

/// Members of the object of `cp --json` that count.
#[derive(Debug, Deserialize)]
struct Told {
    schema: String,
    ok: bool,
    #[serde(default)]
    dry_run: bool,
    exit: Option<Ended>,
    shard: Option<Part>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Ended {
    code: u8,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Part {
    index: u32,
    count: u32,
    sources: Vec<String>,
    destination: String,
    /// Null before everything was listed.
    #[serde(flatten)]
    partition: Option<Partition>,
    #[serde(default)]
    stripes: Option<Vec<Striped>>,
}

/// A report of a shard.
#[derive(Debug)]
struct Report {
    /// File of the report.
    file: String,
    part: Part,
    ended: Option<Ended>,
    /// True if all that the shard sent is there.
    done: bool,
}

/// Reads all reports, and prints whether the whole is there.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match merged(args)? {
        (object, _) if args.json => out::json(&object),
        _ if args.quiet => {}
        (_, line) => out::line(line),
    }
    Ok(())
}

/// Reads all reports; the object of `--json`, and a line for people.
pub(super) fn merged(args: &Args) -> Result<(Value, String), Failure> {
    refuse_others(args)?;
    let mut merged = Merged::default();
    for path in &args.paths {
        merged.read(Path::new(path))?;
    }
    merged.compare()?;
    let verdict = merged.verdict();
    let object = merged.object(verdict.is_ok());
    match verdict {
        Ok(line) => Ok((object, line)),
        Err(failure) => Err(failure.with_object(object)),
    }
}

fn not_whole(files: &[&str]) -> Failure {
    let mut named: Vec<_> = files
        .iter()
        .take(MOST_NAMED)
        .map(|file| text::plain(file))
        .collect();
    if files.len() > MOST_NAMED {
        named.push(format!("and {} more", files.len() - MOST_NAMED));
    }
    let (count, named) = (files.len(), named.join(", "));
    let noun = if count == 1 { "file" } else { "files" };
    let text = format!(
        "{count} {noun} of which several shards sent a part did not become whole: {named}: what was there was changed or removed meanwhile, or the shards had different keys in a share in which peers replace nothing"
    );
    let fix = "run all shards again, in a :wo or :create share with one key (-i): what has arrived is not sent again";
    Failure::new(Exit::Partial, text).fix(fix)
}

/// Refuses flags of a copy: nothing is copied.
fn refuse_others(args: &Args) -> Result<(), Failure> {
    let is_meant = |flag: &str| matches!(flag, "merge" | "json" | "quiet" | "verbose");
    let Some(flag) = args.given.first_typed(|flag| !is_meant(flag)) else {
        return Ok(());
    };
    let text = format!("{flag} means nothing with --merge, which copies nothing");
    Err(Failure::usage(text).fix("leave it out"))
}

/// Reports that were read.
#[derive(Debug, Default)]
struct Merged {
    reports: Vec<Report>,
    /// Files of runs that ended before they could say which shard they were.
    silent: Vec<String>,
}

impl Merged {
    fn read(&mut self, path: &Path) -> Result<(), Failure> {
        let file = place::local(path);
        let read = read::report(path);
        let text = read.map_err(|e| {
            Failure::usage(format!("--merge {file}: {e}"))
                .fix("name the files to which each shard wrote its --json")
        })?;
        self.take(file, &text)
    }

    /// Takes one report; an empty one is of a run that was killed.
    fn take(&mut self, file: String, text: &str) -> Result<(), Failure> {
        let no_report = |why: &str| {
            let text = format!("--merge {file}: not a report of a shard: {why}");
            Failure::usage(text)
                .fix("name what `farhaul cp --shard I/N --json` printed, a file for each shard")
        };
        if text.trim().is_empty() {
            self.silent.push(file);
            return Ok(());
        }
        let told: Value = serde_json::from_str(text).map_err(|e| no_report(&e.to_string()))?;
        // A shard that failed before there was a copy had nothing to report but that.
        if told["ok"] == false && told["shard"].is_null() && told["schema"].is_string() {
            self.silent.push(file);
            return Ok(());
        }
        let told: Told = serde_json::from_value(told).map_err(|e| no_report(&e.to_string()))?;
        if told.schema != SCHEMA {
            return Err(no_report(&format!("its schema is not {SCHEMA}")));
        }
        if told.dry_run {
            return Err(no_report("it is that of a dry run, which copies nothing"));
        }
        let part = told
            .shard
            .ok_or_else(|| no_report("the copy was not divided"))?;
        if Shard::new(part.index, part.count).is_none() {
            let why = format!("there is no shard {}/{}", part.index, part.count);
            return Err(no_report(&why));
        }
        let is_long = told
            .exit
            .as_ref()
            .is_some_and(|exit| exit.name.len() > MOST_NAME);
        if is_long || part.destination.len() > MOST_PLACE {
            return Err(no_report("its texts are too long"));
        }
        let exit = told.exit.as_ref().map(|exit| exit.code);
        let done = told.ok && exit == Some(0);
        if done && part.partition.is_none() {
            return Err(no_report("it does not say what was listed"));
        }
        self.reports.push(Report {
            file,
            part,
            ended: told.exit,
            done,
        });
        Ok(())
    }

    /// Refuses reports that are not of one copy.
    fn compare(&self) -> Result<(), Failure> {
        let Some(first) = self.reports.first() else {
            let text = "--merge: no report says which shard it is of, so none of them is complete";
            return Err(Failure::new(Exit::Partial, text)
                .fix("run all shards again, each with --json to a file of its own"));
        };
        for other in &self.reports {
            let (one, two) = (&first.part, &other.part);
            let what = if one.count != two.count {
                format!("one of {} shards, one of {}", one.count, two.count)
            } else if one.sources != two.sources {
                "their sources differ".to_string()
            } else if one.destination != two.destination {
                format!(
                    "one went to {}, one to {}",
                    text::plain(&one.destination),
                    text::plain(&two.destination)
                )
            } else {
                continue;
            };
            let text = format!(
                "{} and {} are not of one copy: {what}",
                first.file, other.file
            );
            return Err(Failure::usage(text).fix("name the reports of one data set"));
        }
        let mut complete = BTreeMap::new();
        for report in self.reports.iter().filter(|r| r.done) {
            if let Some(before) = complete.insert(report.part.index, report) {
                let text = format!(
                    "{} and {} are both of shard {}",
                    before.file, report.file, report.part.index
                );
                return Err(Failure::usage(text).fix("name one report of each shard"));
            }
        }
        Ok(())
    }

    /// Number of shards.
    fn count(&self) -> u32 {
        self.reports.first().map_or(0, |report| report.part.count)
    }

    /// Shards that are complete.
    fn done(&self) -> impl Iterator<Item = (&Report, &Partition)> {
        let done = self.reports.iter().filter(|report| report.done);
        done.filter_map(|report| Some((report, report.part.partition.as_ref()?)))
    }

    /// Shards to be run again.
    fn incomplete(&self) -> Vec<u32> {
        let done: BTreeSet<_> = self.done().map(|(report, _)| report.part.index).collect();
        (1..=self.count()).filter(|i| !done.contains(i)).collect()
    }

    /// Two complete shards that listed something else.
    fn at_odds(&self) -> Option<(&str, &str)> {
        let (first, listed) = self.done().next()?;
        let same =
            |other: &Partition| (&other.listing, other.whole) == (&listed.listing, listed.whole);
        let other = self.done().find(|(_, done)| !same(done))?;
        Some((&first.file, &other.0.file))
    }

    /// One line, if everything is there.
    fn verdict(&self) -> Result<String, Failure> {
        if let Some((one, other)) = self.at_odds() {
            let text = format!(
                "{one} and {other} listed the sources differently: they changed between the shards, or farhaul is not of the same version everywhere"
            );
            let fix = "run all shards again while nothing changes, permissions and names of large files included: what has not changed is not sent again";
            return Err(Failure::new(Exit::SourceChanged, text).fix(fix));
        }
        let again = self.incomplete();
        if !again.is_empty() {
            return Err(self.to_run_again(&again));
        }
        let whole = self
            .done()
            .next()
            .map_or_else(Content::default, |(_, done)| done.whole);
        let sum = self.sum();
        if sum != whole {
            let text = format!(
                "the shards have {} files and {} bytes together, what they listed has {} and {}",
                sum.files, sum.bytes, whole.files, whole.bytes
            );
            return Err(Failure::usage(text).fix("name the reports as farhaul wrote them"));
        }
        let incomplete = self.incomplete_files();
        if !incomplete.is_empty() {
            return Err(not_whole(&incomplete));
        }
        Ok(format!(
            "complete: {} shards, {} files, {}",
            self.count(),
            whole.files,
            Size::from_bytes(whole.bytes)
        ))
    }

    /// Content of the complete shards together.
    fn sum(&self) -> Content {
        self.done()
            .fold(Content::default(), |sum, (_, done)| Content {
                files: sum.files.saturating_add(done.own.files),
                bytes: sum.bytes.saturating_add(done.own.bytes),
            })
    }

    /// Files that were divided and are not whole: stripes of theirs were collected. None of the
    /// shards completed the file in which all of the stripes are.
    fn incomplete_files(&self) -> Vec<&str> {
        let mut files: BTreeMap<&str, (BTreeSet<&str>, bool)> = BTreeMap::new();
        let stripes = self
            .done()
            .filter_map(|(report, _)| report.part.stripes.as_ref());
        for stripe in stripes.flatten() {
            let (generations, whole) = files.entry(&stripe.path).or_default();
            generations.insert(&stripe.generation);
            *whole |= stripe.whole;
        }
        let incomplete = files
            .into_iter()
            .filter(|(_, (all, whole))| all.len() > 1 || !whole);
        incomplete.map(|(path, _)| path).collect()
    }

    fn to_run_again(&self, again: &[u32]) -> Failure {
        let count = self.count();
        let why = |index: &u32| match self.last_of(*index) {
            Some(Report {
                file,
                ended: Some(ended),
                ..
            }) => {
                let name = text::plain(&ended.name);
                format!("{index} ({file}: {} {name})", ended.code)
            }
            Some(Report { file, .. }) => format!("{index} ({file})"),
            None => format!("{index} (no report)"),
        };
        let mut named: Vec<_> = again.iter().take(MOST_NAMED).map(why).collect();
        if again.len() > MOST_NAMED {
            named.push(format!("and {} more", again.len() - MOST_NAMED));
        }
        let silent = match &self.silent[..] {
            [] => String::new(),
            [file] => format!("; {file}: of a run that reported no shard"),
            [file, more @ ..] => format!(
                "; {file} and {} more: of runs that reported no shard",
                more.len()
            ),
        };
        let (n, named) = (again.len(), named.join(", "));
        let text = format!("{n} of {count} shards are not complete: {named}{silent}");
        let fix = "run these shards again: what has arrived is not sent again";
        Failure::new(Exit::Partial, text).fix(fix)
    }

    /// The report of a shard that was named last.
    fn last_of(&self, index: u32) -> Option<&Report> {
        self.reports.iter().rfind(|r| r.part.index == index)
    }

    fn object(&self, ok: bool) -> Value {
        let mut by_index: BTreeMap<u32, &Report> = BTreeMap::new();
        for report in &self.reports {
            let known = by_index.entry(report.part.index).or_insert(report);
            if !known.done {
                *known = report;
            }
        }
        let shards = (1..=self.count()).map(|index| {
            let report = by_index.get(&index);
            json!({
                "index": index,
                "ok": report.is_some_and(|report| report.done),
                "report": report.map(|report| report.file.as_str()),
                "exit": report.and_then(|report| report.ended.as_ref()),
            })
        });
        let listing = self.done().next().map(|(_, done)| done);
        let first = self.reports.first().map(|report| &report.part);
        // If they listed something else, no shard is the right one.
        let again = if self.at_odds().is_some()
            || self.incomplete().is_empty() && !self.incomplete_files().is_empty()
        {
            (1..=self.count()).collect()
        } else {
            self.incomplete()
        };
        json!({
            "schema": "farhaul.merge/1",
            "ok": ok,
            "count": self.count(),
            "listing": listing.map(|done| done.listing.as_str()),
            "sources": first.map(|part| &part.sources),
            "destination": first.map(|part| part.destination.as_str()),
            "done": self.sum(),
            "whole": listing.map(|done| done.whole),
            "incomplete": self.incomplete_files(),
            "run_again": again,
            "shards": shards.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests;
