//! The long forms of what the gate runs short. They are run by hand before a release and after a
//! change of the engine, each item once for a state of the engine, with one line per item in a kept
//! file.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    Outcome, campaign, fuzz, lab,
    run::{Runner, now},
    suite,
};

/// File in which results are kept.
const RESULTS: &str = "lab/results/soak.csv";
const HEAD: &str = "item,date,commit,engine,seconds,outcome";
/// Folders that the long forms examine: a change below these makes them due.
const ENGINE: [&str; 6] = [
    "crates/core",
    "crates/congestion",
    "crates/link",
    "crates/haul",
    "crates/protocols",
    "crates/sim",
];
/// Seconds of new inputs for each fuzz target.
const FUZZ_SECONDS: &str = "60";
/// One long form.
struct Item {
    name: String,
    work: Work,
}

enum Work {
    Tests,
    Study(lab::Part),
    Part(&'static str),
    Planted(&'static str),
    Fuzz(String),
}

/// Record of the last run of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    date: String,
    commit: String,
    engine: String,
    seconds: u64,
    outcome: String,
}

impl Row {
    fn passed(&self) -> bool {
        self.outcome == "passed"
    }
}

/// All items, the short ones first.
fn items(root: &Path) -> Result<Vec<Item>, Vec<String>> {
    let item = |name: String, work| Item { name, work };
    let mut items = vec![item("tests".into(), Work::Tests)];
    for part in campaign::names() {
        items.push(item(format!("planted/{part}"), Work::Planted(part)));
        items.push(item(format!("campaign/{part}"), Work::Part(part)));
    }
    for target in fuzz::targets(root)? {
        items.push(item(format!("fuzz/{target}"), Work::Fuzz(target)));
    }
    for part in lab::SOAK {
        items.push(item(format!("lab/{}", part.0), Work::Study(part)));
    }
    Ok(items)
}

/// `cargo xtask soak`: runs the items that are due, or those whose names begin with an argument;
/// `list` only shows them.
pub(crate) fn run(run: &mut Runner<'_>, args: &[&str]) -> Outcome {
    let root = run.root;
    let engine = engine(root)?;
    let mut kept = read(root)?;
    let mut chosen = items(root)?;
    match args {
        ["list"] => {
            for item in &chosen {
                let row = kept.get(&item.name);
                let state = row.map_or("never run".to_owned(), |row| {
                    let due = if row.passed() && row.engine == engine {
                        ""
                    } else {
                        ", due"
                    };
                    format!("{} on {} in {} s{due}", row.outcome, row.date, row.seconds)
                });
                run.say(&format!("{}: {state}", item.name));
            }
            return Ok(());
        }
        [] => chosen.retain(|item| {
            let row = kept.get(&item.name);
            !row.is_some_and(|row| row.passed() && row.engine == engine)
        }),
        [prefix] if !prefix.starts_with('-') => chosen.retain(|item| item.name.starts_with(prefix)),
        _ => return Err(vec!["usage: cargo xtask soak [list | ITEM]".into()]),
    }
    if chosen.is_empty() {
        let what = args.first().map_or("nothing is due".to_owned(), |name| {
            format!("no item begins with {name}: see `cargo xtask soak list`")
        });
        run.say(&what);
        return if args.is_empty() {
            Ok(())
        } else {
            Err(vec![what])
        };
    }
    unchanged(root)?;
    let (date, commit) = (
        asked(root, "date", &["-u", "+%F"])?,
        git(root, &["rev-parse", "--short=10", "HEAD"])?,
    );
    let mut complaints = Vec::new();
    for item in chosen {
        run.say(&format!("== {}", item.name));
        let began = now();
        let outcome = item.run(run);
        let row = Row {
            date: date.clone(),
            commit: commit.clone(),
            engine: engine.clone(),
            seconds: began.elapsed().as_secs(),
            outcome: if outcome.is_ok() { "passed" } else { "failed" }.into(),
        };
        run.keep(&format!(
            "soak: {} {} in {} s",
            item.name, row.outcome, row.seconds
        ));
        kept.insert(item.name, row);
        // After each, so that a run that is broken off goes on where it was.
        write(root, &kept)?;
        complaints.extend(outcome.err().into_iter().flatten());
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints)
    }
}

impl Item {
    fn run(&self, run: &mut Runner<'_>) -> Outcome {
        match &self.work {
            Work::Tests => suite::run(run, "soak", |tests| {
                tests.env(suite::FULL_SCALE, "1");
            }),
            Work::Study(part) => {
                let below =
                    tempfile::tempdir().map_err(|e| vec![format!("a folder for runs: {e}")])?;
                lab::studies(run, &[*part], below.path())
            }
            Work::Part(part) => campaign::parts(run, &[part], &["--full"]),
            Work::Planted(part) => campaign::parts(run, &[part], &["--planted"]),
            Work::Fuzz(target) => fuzz::run(run, &["--seconds", FUZZ_SECONDS, target]),
        }
    }
}

/// Items that are due, in lines for the end of the gate.
pub(crate) fn due(root: &Path) -> Vec<String> {
    let state = || -> Result<Vec<String>, Vec<String>> {
        let (engine, kept) = (engine(root)?, read(root)?);
        let due = items(root)?.into_iter().filter(|item| {
            let row = kept.get(&item.name);
            !row.is_some_and(|row| row.passed() && row.engine == engine)
        });
        Ok(due.map(|item| item.name).collect())
    };
    match state() {
        Ok(due) if due.is_empty() => Vec::new(),
        Ok(due) => vec![format!(
            "soak is due: {} items were not run since core, congestion, link, haul, protocols or sim changed \
             (cargo xtask soak; cargo xtask soak list)",
            due.len()
        )],
        Err(why) => vec![format!("soak: {}", why.join("; "))],
    }
}

/// The identity of what the items examine, at the last commit.
fn engine(root: &Path) -> Result<String, Vec<String>> {
    let mut state = String::new();
    for folder in ENGINE {
        let tree = git(root, &["rev-parse", &format!("HEAD:{folder}")])?;
        state.extend(tree.chars().take(8));
    }
    Ok(state)
}

/// Results are of a commit, so nothing may have been changed since.
fn unchanged(root: &Path) -> Outcome {
    let changed = git(root, &["status", "--porcelain", "--", "crates"])?;
    if changed.is_empty() {
        return Ok(());
    }
    Err(vec![format!(
        "results are kept by commit, and crates/ has changes: commit them first\n{changed}"
    )])
}

fn git(root: &Path, args: &[&str]) -> Result<String, Vec<String>> {
    asked(root, "git", args)
}

fn asked(root: &Path, program: &str, args: &[&str]) -> Result<String, Vec<String>> {
    let mut command = Command::new(program);
    let out = command
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .output();
    let out = out.map_err(|e| vec![format!("{program}: {e}")])?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(vec![format!("{program} {}: {said}", args.join(" "))])
}

/// The kept rows by item.
fn read(root: &Path) -> Result<BTreeMap<String, Row>, Vec<String>> {
    let path = root.join(RESULTS);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text).map_err(|line| vec![format!("{RESULTS}: not a row: {line}")]),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => Err(vec![format!("{RESULTS}: {e}")]),
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, Row>, String> {
    let rows = text
        .lines()
        .filter(|line| *line != HEAD && !line.is_empty());
    rows.map(|line| {
        let [item, date, commit, engine, seconds, outcome] =
            line.split(',').collect::<Vec<_>>()[..]
        else {
            return Err(line.to_owned());
        };
        let row = Row {
            date: date.into(),
            commit: commit.into(),
            engine: engine.into(),
            seconds: seconds.parse().map_err(|_| line.to_owned())?,
            outcome: outcome.into(),
        };
        Ok((item.to_owned(), row))
    })
    .collect()
}

fn write(root: &Path, kept: &BTreeMap<String, Row>) -> Outcome {
    let path = root.join(RESULTS);
    let new = path.with_extension("new");
    let written = fs::write(&new, format(kept)).and_then(|()| fs::rename(&new, &path));
    written.map_err(|e| vec![format!("{RESULTS}: {e}")])
}

fn format(kept: &BTreeMap<String, Row>) -> String {
    let rows = kept.iter().map(|(item, row)| {
        let Row {
            date,
            commit,
            engine,
            seconds,
            outcome,
        } = row;
        format!("{item},{date},{commit},{engine},{seconds},{outcome}\n")
    });
    format!("{HEAD}\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let row = Row {
            date: "2026-01-02".into(),
            commit: "abc".into(),
            engine: "def".into(),
            seconds: 7,
            outcome: "passed".into(),
        };
        let kept = BTreeMap::from([("lab/a --seeds 1..3".to_owned(), row)]);
        assert_eq!(parse(&format(&kept)), Ok(kept));
        assert!(parse("a,b,c\n").is_err());
    }
}
