//! Gathers verdicts by published number: each number with its worst case, and how many have which
//! outcome.

use std::collections::BTreeMap;

use super::{Outcome, Page, Section, Verdict};
use crate::reference::Kind;

#[cfg(test)]
mod tests;

/// A published number and the cases in which ours was compared with it.
#[derive(Clone, Debug)]
pub struct Number<'a> {
    /// The first experiment that compares the number.
    pub section: &'a Section,
    /// One per case and world.
    pub cases: Vec<&'a Verdict>,
    /// Verdict on the number.
    pub outcome: Outcome,
    /// The case farthest from what is allowed, of those that decided the verdict.
    pub worst: &'a Verdict,
}

/// Outcomes of one world's cases, the worst first: each decides over those behind it.
const WORST: [Outcome; 9] = [
    Outcome::Missed,
    Outcome::Known,
    Outcome::Incomplete,
    Outcome::NotRun,
    Outcome::Met,
    Outcome::FittedOutside,
    Outcome::Fitted,
    Outcome::NotComparable,
    Outcome::Shown,
];

/// Outcomes of several worlds: a world that judges a number decides over one that does not.
const WORLDS: [Outcome; 9] = [
    Outcome::Missed,
    Outcome::Known,
    Outcome::Met,
    Outcome::FittedOutside,
    Outcome::Fitted,
    Outcome::Incomplete,
    Outcome::NotComparable,
    Outcome::Shown,
    Outcome::NotRun,
];

/// First of `order` among `outcomes`.
fn first(order: [Outcome; 9], outcomes: &[Outcome]) -> Outcome {
    let found = order.into_iter().find(|o| outcomes.contains(o));
    found.unwrap_or(Outcome::NotRun)
}

/// Outcome of the cases of one world. A number is not met while some of its cases lack runs. More
/// runs are of no use to a number that holds for none of those made.
fn of_world(outcomes: &[Outcome]) -> Outcome {
    let worst = first(WORST, outcomes);
    let lacks = matches!(worst, Outcome::Incomplete | Outcome::NotRun);
    let judged = outcomes.contains(&Outcome::Met);
    if lacks && !judged && outcomes.contains(&Outcome::NotComparable) {
        return Outcome::NotComparable;
    }
    if lacks && outcomes.iter().any(|o| *o != worst) {
        return Outcome::Incomplete;
    }
    worst
}

impl<'a> Number<'a> {
    fn new(section: &'a Section, cases: Vec<&'a Verdict>) -> Option<Self> {
        let mut worlds: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        for case in &cases {
            worlds.entry(case.backend).or_default().push(case.outcome);
        }
        let each: BTreeMap<&str, Outcome> = worlds
            .iter()
            .map(|(world, of)| (*world, of_world(of)))
            .collect();
        let outcome = first(WORLDS, &each.values().copied().collect::<Vec<_>>());
        let decided = |v: &&&Verdict| each.get(v.backend) == Some(&outcome);
        let same = |v: &&&Verdict| v.outcome == outcome;
        let farthest = |all: &mut dyn Iterator<Item = &&'a Verdict>| {
            all.max_by(|a, b| a.off.total_cmp(&b.off)).copied()
        };
        let worst = farthest(&mut cases.iter().filter(decided).filter(same))
            .or_else(|| farthest(&mut cases.iter().filter(decided)))?;
        Some(Self {
            section,
            cases,
            outcome,
            worst,
        })
    }

    /// Words on the verdict; those on conditions are of each case.
    pub fn note(&self) -> &str {
        match self.outcome {
            Outcome::NotComparable => "",
            _ => &self.worst.note,
        }
    }

    /// Cases by outcome.
    pub fn tally(&self) -> Tally {
        tally(self.cases.iter().map(|v| v.outcome))
    }
}

/// Count by outcome.
pub type Tally = BTreeMap<Outcome, usize>;

pub(super) fn tally(outcomes: impl IntoIterator<Item = Outcome>) -> Tally {
    let mut tally = Tally::new();
    for outcome in outcomes {
        *tally.entry(outcome).or_default() += 1;
    }
    tally
}

/// The tally as in `12 met; 1 missed`.
pub fn counted(tally: &Tally) -> String {
    let there = Outcome::ALL.iter().filter_map(|o| Some((o, tally.get(o)?)));
    let words: Vec<_> = there.map(|(o, n)| format!("{n} {}", o.name())).collect();
    words.join("; ")
}

/// Every number that these experiments compare, in their order. Verdicts on the same row of the
/// table are on one number; without a row, those on the same quantity.
pub fn numbers<'a>(sections: impl IntoIterator<Item = &'a Section>) -> Vec<Number<'a>> {
    type Key<'a> = (&'a str, &'a str, &'a str, &'a str);
    let mut order: Vec<Key<'_>> = Vec::new();
    let mut found: BTreeMap<Key<'_>, (&Section, Vec<&Verdict>)> = BTreeMap::new();
    for section in sections {
        for verdict in &section.verdicts {
            let key: Key<'_> = match &verdict.row {
                Some(row) => (row, "", "", ""),
                None => (
                    &section.id,
                    &verdict.place,
                    &verdict.what,
                    &verdict.published,
                ),
            };
            let of = found.entry(key).or_insert_with(|| {
                order.push(key);
                (section, Vec::new())
            });
            of.1.push(verdict);
        }
    }
    let each = order.iter().filter_map(|key| found.remove(key));
    each.filter_map(|(section, cases)| Number::new(section, cases))
        .collect()
}

/// Verdict on a whole page, by published number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// Numbers by outcome.
    pub tally: Tally,
    /// Reproduced numbers that are printed in the paper.
    printed: usize,
    /// True if some numbers are of a paper, and not targets of this project.
    of_paper: bool,
    quick: bool,
}

/// Signs in a bar of text at most.
const SIGNS: usize = 60;

impl Page {
    /// Verdict on the whole, by published number.
    pub fn score(&self) -> Score {
        let all = numbers(&self.sections);
        let printed =
            |n: &&Number<'_>| n.outcome == Outcome::Met && n.worst.kind == Some(Kind::Printed);
        let ours = |kind: Kind| matches!(kind, Kind::Owed | Kind::Recorded);
        Score {
            tally: tally(all.iter().map(|n| n.outcome)),
            printed: all.iter().filter(printed).count(),
            of_paper: all.iter().any(|n| n.worst.kind.is_some_and(|k| !ours(k))),
            quick: self.quick,
        }
    }
}

impl Score {
    /// Count of numbers.
    pub fn numbers(&self) -> usize {
        self.tally.values().sum()
    }

    /// True if at least one number is met or missed.
    pub fn judged(&self) -> bool {
        self.tally.keys().any(|o| o.is_verdict())
    }

    /// The verdict in a sentence, and how many of the reproduced numbers are printed if not all.
    pub fn sentence(&self) -> String {
        let all = self.numbers();
        if all == 0 {
            return "No published number has been compared yet.".into();
        }
        let noun = if all == 1 { "number" } else { "numbers" };
        let words = self.parts().join(", ");
        let (of, quick) = (format!("f {all} {noun}"), self.quick);
        match (self.judged(), quick) {
            (true, false) => format!("O{of}: {words}.{}", self.known()),
            (true, true) => format!("In a quick run, o{of}: {words}.{}", self.known()),
            (false, false) => format!("O{of}, not one is judged: {words}."),
            (false, true) => format!("O{of}, not one is judged in a quick run: {words}."),
        }
    }

    fn parts(&self) -> Vec<String> {
        let of = |outcome: Outcome| self.tally.get(&outcome).copied().unwrap_or_default();
        let met = if self.of_paper { "reproduced" } else { "met" };
        let known = match of(Outcome::Known) {
            0 => String::new(),
            known => format!(" ({known} known)"),
        };
        let (inside, outside) = (of(Outcome::Fitted), of(Outcome::FittedOutside));
        let missed = of(Outcome::Missed) + of(Outcome::Known);
        let mut parts = vec![
            (of(Outcome::Met), met.to_string()),
            (missed, format!("missed{known}")),
            (
                inside + outside,
                format!("fitted ({inside} inside, {outside} outside)"),
            ),
        ];
        let apart = [
            Outcome::Shown,
            Outcome::NotComparable,
            Outcome::Incomplete,
            Outcome::NotRun,
        ];
        parts.extend(apart.map(|o| (of(o), o.name().into())));
        let there = parts.into_iter().filter(|(count, _)| *count > 0);
        there
            .map(|(count, name)| format!("{count} {name}"))
            .collect()
    }

    /// Part of the reproduced numbers that the paper prints, if not all.
    fn known(&self) -> String {
        let met = self.tally.get(&Outcome::Met).copied().unwrap_or_default();
        let printed = self.printed;
        if !self.of_paper || printed == met {
            return String::new();
        }
        let printed = match printed {
            0 => "none".into(),
            count => count.to_string(),
        };
        format!(" The paper prints {printed} of the {met}; others are derived or assumed.")
    }

    /// A sign for each number, by outcome; of many numbers, for several each.
    pub fn bar(&self) -> String {
        let all = self.numbers();
        let of = |(outcome, n): (&Outcome, &usize)| {
            let signs = if all > SIGNS {
                (n * SIGNS).div_ceil(all)
            } else {
                *n
            };
            outcome.sign().repeat(signs)
        };
        let there = Outcome::ALL
            .iter()
            .filter_map(|o| Some((o, self.tally.get(o)?)));
        there.map(of).collect()
    }

    /// Meaning of the signs of the bar, each with its count.
    pub fn legend(&self) -> String {
        let there = Outcome::ALL
            .iter()
            .filter_map(|o| Some((o, self.tally.get(o)?)));
        let words: Vec<_> = there
            .map(|(o, n)| format!("{} {n} {}", o.sign(), o.name()))
            .collect();
        words.join("   ")
    }
}
