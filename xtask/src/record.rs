//! Checks how long the gate may take: its budget, what each stage took when the record was made,
//! and whether this machine was otherwise idle.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

/// Kept seconds of each stage.
const RECORD: &str = "xtask/record.csv";
/// Minutes with nothing built before, and with everything but this workspace built before. They are
/// what the slowest machine seen needs when it is idle, and a margin, since machines differ by a
/// factor of two. The targets are 25 and 12.
const COLD: u64 = 50;
const WARM: u64 = 35;
/// Share of its processors' time that others may take on an idle machine.
const OTHERS: f64 = 0.05;
/// Ticks of the kernel's clock in a second, as in every field of /proc on Linux.
const TICKS: f64 = 100.0;

/// Seconds that the processors of this machine worked, by whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    all: f64,
    own: f64,
}

impl Work {
    /// Work up to now, of this process with those that it has waited for.
    pub(crate) fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            all: all(&stat),
            own: own_of(&own),
        }
    }
}

/// Busy ticks and those that the host took: user, nice, system, interrupts, stolen.
fn all(stat: &str) -> f64 {
    let fields = stat.lines().next().unwrap_or_default().split_whitespace();
    let fields: Vec<f64> = fields.skip(1).map_while(|f| f.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6, 7];
    busy.iter().filter_map(|at| fields.get(*at)).sum::<f64>() / TICKS
}

/// User and system ticks of a process and of its children.
fn own_of(stat: &str) -> f64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<_> = fields.split_whitespace().collect();
    let ticks = (11..15).filter_map(|at| fields.get(at)?.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// Share of the processors' time that others took between two moments.
fn others(from: Work, to: Work, took: Duration, cores: f64) -> f64 {
    let others = (to.all - from.all) - (to.own - from.own);
    others.max(0.0) / (took.as_secs_f64() * cores).max(1.0)
}

/// Verdict on the time of the whole gate: an error if it took too long; else a text, with the reason if it was not judged.
pub(crate) fn verdict(cold: bool, took: Duration, from: Work, to: Work) -> Result<String, String> {
    let (budget, state) = if cold {
        (COLD, "empty")
    } else {
        (WARM, "warm")
    };
    let minutes = took.as_secs_f64() / 60.0;
    let said = format!("{minutes:.1} min with {state} caches, budget {budget} min");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "a number of processors")]
    let others = others(from, to, took, cores as f64);
    #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
    let within = minutes <= budget as f64;
    if within {
        Ok(said)
    } else if others > OTHERS {
        let percent = others * 100.0;
        Ok(format!(
            "{said}; not judged: others took {percent:.0} % of the processors"
        ))
    } else if cores < 2 {
        Ok(format!(
            "{said}; not judged: the budget is for two processors"
        ))
    } else {
        Err(format!(
            "{said}: shorten the stages that grew, or move what is long to `cargo xtask soak`"
        ))
    }
}

/// Seconds of each stage, by the column of the record.
fn recorded(text: &str, cold: bool) -> BTreeMap<&str, u64> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut cells = row.split(',');
        let name = cells.next()?;
        let seconds = cells.nth(usize::from(!cold))?.parse().ok()?;
        Some((name, seconds))
    })
    .collect()
}

/// The three stages that grew most since the record, longest growth first.
pub(crate) fn grown(root: &Path, cold: bool, stages: &[(&str, u64)]) -> Vec<String> {
    let text = fs::read_to_string(root.join(RECORD)).unwrap_or_default();
    grown_since(&recorded(&text, cold), stages)
}

fn grown_since(before: &BTreeMap<&str, u64>, stages: &[(&str, u64)]) -> Vec<String> {
    if before.is_empty() {
        return Vec::new();
    }
    let mut grown: Vec<_> = stages
        .iter()
        .map(|(name, now)| {
            (
                now.saturating_sub(*before.get(name).unwrap_or(&0)),
                *name,
                *now,
            )
        })
        .filter(|(more, ..)| *more > 0)
        .collect();
    grown.sort_by_key(|(more, ..)| std::cmp::Reverse(*more));
    grown
        .into_iter()
        .take(3)
        .map(|(more, name, now)| format!("{name}: {now} s, {more} s more than in {RECORD}"))
        .collect()
}

/// Writes this run's seconds into the record.
pub(crate) fn keep(root: &Path, cold: bool, stages: &[(&str, u64)]) -> Result<(), String> {
    let path = root.join(RECORD);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let other = recorded(&text, !cold);
    let mut lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    lines.push("stage,cold,warm".into());
    for (name, seconds) in stages {
        let other = other.get(name).map_or(String::new(), u64::to_string);
        lines.push(if cold {
            format!("{name},{seconds},{other}")
        } else {
            format!("{name},{other},{seconds}")
        });
    }
    fs::write(&path, lines.join("\n") + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = "# A machine.\nstage,cold,warm\nbuild,300,100\ntest,90,80\n";

    #[test]
    fn the_three_stages_that_grew_most_are_named() {
        let before = recorded(RECORDED, false);
        assert_eq!(before, BTreeMap::from([("build", 100), ("test", 80)]));
        let now = [("build", 101), ("test", 100), ("new", 7), ("other", 1)];
        let said = grown_since(&before, &now).join("\n");
        let names: Vec<_> = said
            .lines()
            .map(|line| line.split(':').next().unwrap_or(""))
            .collect();
        assert_eq!(names, ["test", "new", "build"], "{said}");
        assert!(grown_since(&before, &[("build", 100)]).is_empty());
        assert!(grown_since(&BTreeMap::new(), &now).is_empty());
    }

    #[test]
    fn only_an_idle_machine_is_judged() {
        let from = Work { all: 0.0, own: 0.0 };
        let took = Duration::from_secs(60 * (WARM + 1));
        let busy = Work {
            all: 2_000.0,
            own: 500.0,
        };
        let idle = Work {
            all: 1_010.0,
            own: 1_000.0,
        };
        assert!(verdict(false, took, from, busy).is_ok_and(|said| said.contains("not judged")));
        if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            assert!(verdict(false, took, from, idle).is_err());
        }
        assert!(verdict(true, took, from, idle).is_ok());
    }

    #[test]
    fn the_work_of_all_and_of_oneself_is_read() {
        let stat = "cpu  100 10 50 1000 5 1 2 32 0 0\ncpu0 1 1 1\n";
        assert!((all(stat) - 1.95).abs() < 1e-9);
        let own = "7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 100 50 30 20 20 0";
        assert!((own_of(own) - 2.0).abs() < 1e-9);
    }
}
