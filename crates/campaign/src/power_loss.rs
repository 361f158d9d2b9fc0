//! Remains after a power failure. A copy's changes are noted, and after each of them the disk may
//! hold any state that its contract allows ([`model`]).
//!
//! - After success was reported everything exists.
//! - Before, files that the copy replaces are as they were or as they are to be. Files that it has
//!   nothing to do with are untouched.
//! - The same command then makes it so, and leaves nothing of its own. With a flag that keeps files it takes none for
//!   there whose content the crash has spoiled.

mod model;

use std::{
    fs, io,
    panic::{self, AssertUnwindSafe},
    path::Path,
    time::Duration,
};

use farhaul_core::rng::Rng;
use farhaul_transfer::Existing;

use crate::{
    Scale,
    report::Report,
    simulated::{
        self,
        copy::{self, Day, Task},
        disk::Op,
        pick,
        tree::{self, Thing, Tree},
    },
    spread::spread,
};
use model::{Disk, Model};

/// Crashes of the gate and of the documented campaign.
const GATE: u64 = 400;
const FULL: u64 = 100_000;
/// Crashes of one copy.
const EACH: u64 = 25;
/// Copies that a child has.
const LOT: u64 = 2;

/// Counts of all runs.
#[derive(Debug, Default)]
struct Seen {
    crashes: u64,
    after_success: u64,
    changes: u64,
}

pub(crate) fn run(scale: &Scale) -> Report {
    // A lot is of copies.
    let copies = match scale.runs {
        Some(copies) if scale.lot => copies,
        _ => scale.runs(GATE, FULL).div_ceil(EACH),
    };
    spread("power-loss", scale, (copies, LOT), seeds)
}

fn seeds(scale: &Scale) -> Report {
    let mut report = Report::new("power-loss");
    let folder = match simulated::folder() {
        Ok(folder) => folder,
        Err(e) => {
            report.skip(format!("no folder can be made: {e}"));
            return report;
        }
    };
    for seed in scale.seeds() {
        let (at, mut seen) = (folder.path().join(seed.to_string()), Seen::default());
        let one = || one(&at, seed, scale.planted, &mut seen);
        let found = panic::catch_unwind(AssertUnwindSafe(one));
        report.ran();
        match found {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => report.fault(format!("--seed {seed} --runs 1: {fault}")),
            Err(_) => report.fault(format!("--seed {seed} --runs 1: panicked")),
        }
        let _gone = fs::remove_dir_all(&at);
        report.sum("crashes", seen.crashes);
        report.sum("of them after success was reported", seen.after_success);
        report.sum("changes noted", seen.changes);
        report.most("last seed", seed);
    }
    report
}

/// One copy, and crashes of it.
fn one(folder: &Path, seed: u64, planted: bool, seen: &mut Seen) -> Result<(), String> {
    let io = |e: io::Error| format!("cannot prepare: {e}");
    let mut rng = Rng::new(seed);
    let task = Task {
        put: rng.chance(0.5),
        from: folder.join("from"),
        to: folder.join("to"),
    };
    for dir in [&task.from, &task.to] {
        fs::create_dir_all(dir).map_err(io)?;
    }
    tree::make(&task.from, &mut rng).map_err(io)?;
    tree::age(&task.from, &task.to, &mut rng).map_err(io)?;
    let (wanted, before) = (
        tree::read(&task.from).map_err(io)?,
        tree::read(&task.to).map_err(io)?,
    );
    let durable = Model::read(&task.to).map_err(io)?;
    let mut day = Day {
        noted: true,
        ..Day::default()
    };
    for disk in &mut day.disks {
        disk.slow = Duration::from_micros(*pick(&mut rng, &[0, 500, 5_000]));
        disk.short = rng.chance(0.3);
        disk.lies = planted;
    }
    let ran = copy::run(&task, &day, seed)?;
    if !ran.is_success() {
        return Err(format!("put {}: reported {}", task.put, ran.outcome()));
    }
    seen.changes += ran.ops.len() as u64;
    let ends = ran.ops.len() as u64;
    let outcome = ran.ops.iter().position(|op| matches!(op, Op::Success));
    for n in 0..EACH {
        // Every copy is asked what it leaves at its very end, too.
        let at = if n == 0 { ends } else { rng.below(ends + 1) };
        let at = usize::try_from(at).unwrap_or_default();
        let mut disk = Disk::new(durable.clone());
        ran.ops[..at].iter().for_each(|op| disk.step(op));
        let success = outcome.is_some_and(|outcome| outcome < at);
        seen.crashes += 1;
        seen.after_success += u64::from(success);
        empty(&task.to).map_err(io)?;
        let ordered = rng.chance(0.5);
        let left = disk.crash(ordered, &mut rng);
        left.put(&task.to).map_err(io)?;
        let left = tree::read(&task.to).map_err(io)?;
        let place = format!("put {}, crash {n} after {at} of {ends} changes", task.put);
        check(&wanted, &before, &left, success).map_err(|e| format!("{place}: {e}"))?;
        // Elsewhere a file may have its new name and not its time: no run can distinguish it from a
        // user's newer file.
        let kept = if ordered {
            keeping(&task, &wanted, &before, &mut rng)
        } else {
            Ok(())
        };
        kept.and_then(|()| again(&task, &wanted, &before, rng.next_u64()))
            .map_err(|e| format!("{place}: {e}"))?;
    }
    fs::remove_dir_all(folder).map_err(io)
}

/// Empties a folder.
fn empty(folder: &Path) -> io::Result<()> {
    fs::remove_dir_all(folder)?;
    fs::create_dir(folder)
}

/// Checks that what the crash `left` is what was promised.
fn check(wanted: &Tree, before: &Tree, left: &Tree, success: bool) -> Result<(), String> {
    if success {
        let mut left = left.clone();
        left.retain(|path, _| !tree::is_state(path));
        return match tree::differs(wanted, &left, before) {
            None => Ok(()),
            Some(differs) => Err(format!("success had been reported, and {differs}")),
        };
    }
    for (path, old) in before {
        let (new, now) = (wanted.get(path), left.get(path));
        let show = String::from_utf8_lossy(path).escape_debug().to_string();
        let found = now.map_or_else(|| "nothing".into(), tree::brief);
        let same = match (old, now) {
            (Thing::Dir { .. }, Some(Thing::Dir { .. })) => true,
            // Permissions and times of existing files are set in place.
            (Thing::File { bytes: old, .. }, Some(Thing::File { bytes: now, .. })) => {
                let new = match new {
                    Some(Thing::File { bytes, .. }) => Some(bytes),
                    _ => None,
                };
                old == now || Some(now) == new
            }
            (old, now) => Some(old) == now || (now.is_some() && now == new),
        };
        if !same {
            return Err(format!("{show} was {}, is {found}", tree::brief(old)));
        }
    }
    Ok(())
}

/// Runs the same command with a flag that keeps files, for some crashes: files reported as complete
/// are.
fn keeping(task: &Task, wanted: &Tree, before: &Tree, rng: &mut Rng) -> Result<(), String> {
    let existing = *pick(
        rng,
        &[Existing::Replace, Existing::Keep, Existing::KeepNewer],
    );
    if existing == Existing::Replace {
        return Ok(());
    }
    let day = Day {
        existing,
        ..Day::default()
    };
    let ran = copy::run(task, &day, rng.next_u64())?;
    if ran.hangs || !ran.is_success() {
        return Err(format!(
            "the next run, {existing:?}, reports {}",
            ran.outcome()
        ));
    }
    let there = tree::read(&task.to).map_err(|e| format!("cannot read: {e}"))?;
    let content = |tree: &Tree, path: &[u8]| match tree.get(path) {
        Some(Thing::File { bytes, .. }) => Some(bytes.clone()),
        _ => None,
    };
    for (path, thing) in wanted {
        let (Thing::File { bytes, .. }, now) = (thing, content(&there, path)) else {
            continue;
        };
        if now.as_ref() != Some(bytes) && (now.is_none() || now != content(before, path)) {
            let show = String::from_utf8_lossy(path).escape_debug().to_string();
            let found = there
                .get(path)
                .map_or_else(|| "nothing".into(), tree::brief);
            return Err(format!(
                "{show} is {found} after the next run, {existing:?}"
            ));
        }
    }
    Ok(())
}

/// Runs the same command, now that the power is back.
fn again(task: &Task, wanted: &Tree, before: &Tree, seed: u64) -> Result<(), String> {
    let ran = copy::run(task, &Day::default(), seed)?;
    if ran.hangs || !ran.is_success() {
        return Err(format!("the next run reports {}", ran.outcome()));
    }
    let there = tree::read(&task.to).map_err(|e| format!("cannot read: {e}"))?;
    match tree::differs(wanted, &there, before) {
        None => Ok(()),
        Some(differs) => Err(format!("after the next run {differs}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(seed: u64, planted: bool) -> Result<(), String> {
        let folder = simulated::folder().unwrap();
        one(
            &folder.path().join("x"),
            seed,
            planted,
            &mut Seen::default(),
        )
    }

    #[test]
    fn what_was_found_once_stays_mended() {
        // 3, 6: a client that had failed was due at once until its session had closed.
        for seed in [3, 6] {
            crash(seed, false).unwrap();
        }
    }

    #[test]
    fn files_that_are_named_before_they_are_synced_are_found_out() {
        assert!((1..10).any(|seed| crash(seed, true).is_err()));
    }
}
