//! Copies whole trees on bad disks, which must end well. Small trees, both directions, disks that
//! are slow, hung, full, failing and short of breath. Ends are killed anywhere, and the network
//! loses and reorders.
//!
//! - Nothing panics, and everybody ends.
//! - Success is reported only if the destination equals the source, and was synced.
//! - Nothing but the destination is touched.
//! - The same command without faults then makes it so.

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    time::Duration,
};

use farhaul_core::rng::Rng;

use crate::{
    Scale,
    report::Report,
    simulated::{
        self,
        copy::{self, Day, Ran, Task},
        disk::mix,
        pick,
        tree::{self, Tree},
    },
    spread::spread,
};

/// Words of the warning for permissions, times and owners that a disk refused.
const REFUSED: &str = "cannot be set";
const UNNOTED: &str = "the journal cannot be written";
/// Runs of the gate and of the documented campaign, and how many a child has.
const GATE: u64 = 200;
const FULL: u64 = 100_000;
const LOT: u64 = 20;

pub(crate) fn run(scale: &Scale) -> Report {
    spread("transfers", scale, (scale.runs(GATE, FULL), LOT), seeds)
}

fn seeds(scale: &Scale) -> Report {
    let mut report = Report::new("transfers");
    let folder = match simulated::folder() {
        Ok(folder) => folder,
        Err(e) => {
            report.skip(format!("no folder can be made: {e}"));
            return report;
        }
    };
    for seed in scale.seeds() {
        let one = || one(&folder.path().join(seed.to_string()), seed, scale.planted);
        let found = panic::catch_unwind(AssertUnwindSafe(one));
        report.ran();
        match found {
            Ok(Ok(ran)) => {
                for ran in ran {
                    report.sum("copies", 1);
                    report.sum("of them reported as a success", u64::from(ran.is_success()));
                    report.sum("calls that failed", ran.injected);
                    report.sum("events", ran.events);
                    report.mixed("trace", mix(seed, ran.trace));
                }
            }
            Ok(Err(fault)) => report.fault(format!("--seed {seed} --runs 1: {fault}")),
            Err(_) => report.fault(format!("--seed {seed} --runs 1: panicked")),
        }
    }
    report
}

/// Faults of that day, for a copy that makes so many calls and events without faults.
fn day(rng: &mut Rng, calls: [u64; 2], events: u64) -> Day {
    let mut day = Day::default();
    for (faults, calls) in day.disks.iter_mut().zip(calls) {
        faults.slow = Duration::from_micros(*pick(rng, &[0, 50, 2_000, 100_000]));
        faults.short = rng.chance(0.3);
        match rng.below(8) {
            0 => faults.hang = Some((rng.below(calls.max(1)), Duration::from_secs(rng.below(120)))),
            1 => faults.space = Some(rng.below(3 << 20)),
            2 | 3 => faults.error = Some(rng.below(calls.max(1))),
            4 => faults.errors = *pick(rng, &[1_000, 20_000, 200_000]),
            5 => faults.kill = Some(rng.below(calls.max(1))),
            _ => {}
        }
    }
    if rng.below(4) == 0 {
        let who = usize::from(rng.chance(0.5));
        day.kill = Some((rng.below(events.max(1)), who));
    }
    day
}

/// One tree, copied on bad days until a good one.
pub(crate) fn one(folder: &Path, seed: u64, planted: bool) -> Result<Vec<Ran>, String> {
    let mut rng = Rng::new(seed);
    let io = |e: std::io::Error| format!("cannot prepare: {e}");
    let task = Task {
        put: rng.chance(0.5),
        from: folder.join("from"),
        to: folder.join("to"),
    };
    for dir in [&task.from, &task.to] {
        fs::create_dir_all(dir).map_err(io)?;
    }
    fs::write(folder.join("sentinel"), "untouched").map_err(io)?;
    tree::make(&task.from, &mut rng).map_err(io)?;
    if rng.chance(0.6) {
        tree::age(&task.from, &task.to, &mut rng).map_err(io)?;
    }
    let ran = attempts(folder, &task, &mut rng, planted)?;
    fs::remove_dir_all(folder).map_err(io)?;
    Ok(ran)
}

fn attempts(folder: &Path, task: &Task, rng: &mut Rng, planted: bool) -> Result<Vec<Ran>, String> {
    let io = |e: std::io::Error| format!("cannot read: {e}");
    let wanted = tree::read(&task.from).map_err(io)?;
    let before = tree::read(&task.to).map_err(io)?;
    let mut all: Vec<Ran> = Vec::new();
    let bad = 1 + rng.below(3);
    // As a copy of a few files has them; the first attempt says more.
    let (mut calls, mut events) = ([300, 300], 400);
    for n in 0..=bad {
        let mut day = if n < bad {
            day(rng, calls, events)
        } else {
            Day::default()
        };
        for disk in &mut day.disks {
            disk.lies = planted;
        }
        let ran = copy::run(task, &day, rng.next_u64())?;
        let outcome = || {
            format!(
                "attempt {n}, put {}, {day:?}: reported {}",
                task.put,
                ran.outcome()
            )
        };
        if ran.hangs {
            return Err(format!("{}: does not end", outcome()));
        }
        if ran.outcome().starts_with("1:") {
            return Err(format!("{}: a fault of ours", outcome()));
        }
        outside(folder, task, &wanted).map_err(|e| format!("{}: {e}", outcome()))?;
        if ran.is_success() {
            let mut there = tree::read(&task.to).map_err(io)?;
            // An earlier attempt reported the entries that it kept aside.
            there.retain(|path, _| {
                !path.ends_with(b".bad") && !is_told_of(all.iter().chain([&ran]), path)
            });
            if n < bad {
                // A journal that says nothing and cannot be removed is left: it only clutters.
                there.retain(|path, _| !path.starts_with(b".farhaul-journal-"));
            }
            // A disk that refuses permissions and times has the content, and that is reported.
            let refused = ran.texts().any(|text| text.contains(REFUSED));
            let all_of = |tree: &Tree| {
                let tree = tree.clone();
                if refused { tree::content(tree) } else { tree }
            };
            let differs = tree::differs(&all_of(&wanted), &all_of(&there), &all_of(&before));
            if let Some(differs) = differs {
                return Err(format!("{}: {differs}", outcome()));
            }
            if ran.unsynced {
                return Err(format!("{}: not everything was synced", outcome()));
            }
        } else if n == bad {
            return Err(format!("{}: a good day is no success", outcome()));
        }
        // What the last one needed is what the next may need.
        calls = ran.calls.map(|c| c.max(20));
        events = ran.events.max(20);
        all.push(ran);
    }
    Ok(all)
}

/// True if an attempt reported that it could not remove this, or could not record what it began.
/// One whose disk failed, and which was killed, cannot report it.
fn is_told_of<'a>(mut attempts: impl Iterator<Item = &'a Ran>, path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    let left = format!("{} is left", farhaul_core::text::shown(name));
    let is_told = |text: &str| text.contains(&left) || text.contains(UNNOTED);
    let is_part = path.ends_with(b".farhaul-part");
    let was_silenced = |ran: &Ran| ran.outcome.is_none() && ran.injected > 0;
    is_part && attempts.any(|ran| was_silenced(ran) || ran.texts().any(is_told))
}

/// Returns what was changed outside the destination.
fn outside(folder: &Path, task: &Task, wanted: &Tree) -> Result<(), String> {
    let io = |e: std::io::Error| format!("cannot read: {e}");
    let names = fs::read_dir(folder).map_err(io)?.count();
    let sentinel = fs::read(folder.join("sentinel")).map_err(io)?;
    let source = tree::read(&task.from).map_err(io)?;
    if names != 3 || sentinel != b"untouched" || source != *wanted {
        return Err("something beside the destination was touched".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_once_stays_mended() {
        // 7, 8: a file that was there already kept its permissions. 94: a journal that could not be
        // removed. 190: a tail that no longer fitted a datagram kept the sender busy for ever.
        // 3553: files that a failing disk did not let go of, as reported. 25214, 28225, 45464: the
        // next run did not know of that.
        for seed in [7, 8, 94, 190, 3_553, 25_214, 28_225, 45_464] {
            let folder = simulated::folder().unwrap();
            one(&folder.path().join("x"), seed, false).unwrap();
        }
    }

    #[test]
    fn a_disk_that_lies_is_found_out() {
        let lies = |seed| {
            let folder = simulated::folder().unwrap();
            one(&folder.path().join("x"), seed, true).is_err()
        };
        assert!((1..10).any(lies));
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        let traces = |seed| {
            let folder = simulated::folder().unwrap();
            let ran = one(&folder.path().join("x"), seed, false).unwrap();
            ran.iter().map(|r| (r.trace, r.events)).collect::<Vec<_>>()
        };
        for seed in 1..20 {
            assert_eq!(traces(seed), traces(seed), "seed {seed}");
        }
        assert_ne!(traces(1), traces(2));
    }
}
