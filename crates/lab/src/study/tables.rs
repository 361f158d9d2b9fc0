//! Turns runs into a table: a row per case, a column per metric. With `line`, the metrics of each
//! value of that variable stand side by side in one row.

use std::collections::BTreeMap;

use super::{
    FigurePlan, Shape,
    figures::{World, value},
};
use crate::{
    report::Table,
    scenario::{Case, Outcome, Spread, Term, exact, fits, name_of, table_of},
    unit::Unit,
};

impl FigurePlan {
    /// Table of each world, of the runs there.
    pub(super) fn tables(&self, worlds: &[World<'_>]) -> Vec<Table> {
        if self.shape != Shape::Table {
            return Vec::new();
        }
        let several = worlds.len() > 1;
        let run = worlds.iter().filter(|world| {
            let mut cases = world.outcomes.iter().map(|o| &o.case);
            cases.any(|case| fits(case, &self.when))
        });
        let each = run.map(|world| {
            let name = world.name();
            let (head, rows) = self.table(world);
            Table {
                id: if several {
                    format!("{}-{name}", self.id)
                } else {
                    self.id.clone()
                },
                place: self.place.clone(),
                caption: format!("{} ({name})", self.caption),
                head,
                rows,
            }
        });
        each.collect()
    }

    fn table(&self, world: &World<'_>) -> (Vec<String>, Vec<Vec<String>>) {
        let plans = || {
            world
                .file
                .plans
                .iter()
                .filter(|p| fits(&p.case, &self.when))
        };
        let line = |case: &Case| self.line.as_ref().map(|line| value(case, line));
        let mut lines: Vec<Option<String>> = Vec::new();
        let mut keys: Vec<Vec<String>> = Vec::new();
        let variables = self.variables(&plans().map(|p| &p.case).collect::<Vec<_>>());
        let mut cells: BTreeMap<(usize, usize), &Case> = BTreeMap::new();
        for plan in plans() {
            let key = variables
                .iter()
                .map(|name| value(&plan.case, name))
                .collect();
            let at = (place(&mut keys, key), place(&mut lines, line(&plan.case)));
            cells.insert(at, &plan.case);
        }
        // Values of a table without a name stand in columns of their own.
        let short = |name: &String| name.rsplit('.').next().map(Into::into);
        let mut head: Vec<String> = variables.iter().filter_map(short).collect();
        for (line, term) in lines
            .iter()
            .flat_map(|l| self.terms.iter().map(move |t| (l, t)))
        {
            let unit = match self.shown(term) {
                (unit, _) if unit.is_empty() => String::new(),
                (unit, _) => format!(", {unit}"),
            };
            let of = line.as_ref().map(|l| format!("{l}: ")).unwrap_or_default();
            head.push(format!("{of}{}{unit}", term.to_string().replace('_', " ")));
        }
        head.push("runs".into());
        let rows = keys.into_iter().enumerate().map(|(row, mut key)| {
            let mut least = usize::MAX;
            for column in 0..lines.len() {
                let case = cells.get(&(row, column)).copied();
                least = least.min(case.map_or(0, |case| runs(world, case).1.len()));
                let term = |term| case.map_or_else(nothing, |case| self.cell(world, case, term));
                key.extend(self.terms.iter().map(term));
            }
            key.push(least.to_string());
            key
        });
        (head, rows.collect())
    }

    /// Names of those that differ between the rows.
    fn variables(&self, cases: &[&Case]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in cases.iter().flat_map(|c| c.keys()) {
            let table = table_of(name);
            let own = name_of(table);
            let named = cases.iter().any(|c| c.contains_key(&own));
            let name = if named { table } else { name.as_str() };
            let line = self.line.as_deref();
            let mut values = cases.iter().map(|c| value(c, name));
            let first = values.next();
            let differs = values.any(|other| Some(other) != first);
            if differs && line != Some(name) && !names.iter().any(|n| n == name) {
                names.push(name.into());
            }
        }
        names
    }

    /// The unit of a column and by how much values are divided for it.
    fn shown(&self, term: &Term) -> (String, f64) {
        let unit = term.metric.unit();
        if unit == self.term().metric.unit() {
            return self.unit.clone();
        }
        let (name, divisor) = unit.scale();
        (name.into(), divisor)
    }

    /// The median, with the rate of the link if it was lowered; without a valid run, a dash.
    fn cell(&self, world: &World<'_>, case: &Case, term: &Term) -> String {
        let words = term.to_string();
        let (rate, runs) = runs(world, case);
        let figures: Vec<f64> = runs
            .iter()
            .filter_map(|o| *o.figures.get(&words)?)
            .collect();
        if figures.is_empty() {
            return nothing();
        }
        let text = Unit::Number.show(Spread::of(figures).median / self.shown(term).1);
        match rate {
            Some(rate) => format!("{text} (link of {})", Unit::Rate.show(exact(rate))),
            None => text,
        }
    }
}

fn nothing() -> String {
    "-".into()
}

/// The valid runs of a case at the highest rate of its link, and that rate if it is not the scenario's.
fn runs<'a>(world: &World<'a>, case: &Case) -> (Option<u64>, Vec<&'a Outcome>) {
    let of = || world.outcomes.iter().filter(|o| o.case == *case);
    let rate = |o: &Outcome| o.lowered.unwrap_or(u64::MAX);
    let highest = of().map(|o| rate(o)).max().unwrap_or(u64::MAX);
    let runs = of().filter(|o| rate(o) == highest).copied();
    (Some(highest).filter(|r| *r < u64::MAX), runs.collect())
}

fn place<T: PartialEq>(all: &mut Vec<T>, one: T) -> usize {
    all.iter().position(|o| *o == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plot::Origin,
        run_store::Backend,
        scenario::Variant,
        study::{Library, Study},
    };

    fn table(study: &Study, id: &str, outcomes: &[Outcome]) -> Option<Table> {
        let variant = Variant {
            backend: Backend::Emu,
            quick: false,
        };
        let file = Library::BuiltIn.scenario(study, "cells/bench.toml", variant);
        let file = file.unwrap();
        let mut figures = study.figures_of("cells/bench.toml");
        let world = World {
            file: &file,
            outcomes: outcomes.iter().collect(),
            verdicts: &[],
            origin: Origin::Measured,
        };
        figures.find(|f| f.id == id).unwrap().tables(&[world]).pop()
    }

    #[test]
    fn a_row_has_the_runs_at_the_highest_rate_of_the_link() {
        let (study, _) = Library::find("cells").unwrap();
        let run = |protocol: &str, mbit: f64, lowered| Outcome {
            case: [
                ("cell.mtu", "1500"),
                ("cell.rtt", "0ms"),
                ("cell.loss", "0%"),
                ("law", "none"),
                ("protocol", protocol),
            ]
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into(),
            figures: [("goodput".to_string(), Some(mbit * 1e6))].into(),
            lowered,
            ..Outcome::default()
        };
        assert_eq!(table(&study, "bench-rates", &[]), None, "nothing was run");
        let runs = [
            run("haul", 4_000.0, Some(5_000_000_000)),
            run("kernel:bbr", 900.0, Some(1_000_000_000)),
            run("kernel:bbr", 1_900.0, Some(2_000_000_000)),
            run("haul", 9_000.0, None),
        ];
        let table = table(&study, "bench-rates", &runs).unwrap();
        assert_eq!(
            table.head[..4],
            ["loss", "mtu", "rtt", "haul: goodput, Gbit/s"]
        );
        assert_eq!(table.head.last().map(String::as_str), Some("runs"));
        let of = |row: &&Vec<String>| row[1] == "1500" && row[2] == "0ms";
        let row = table.rows.iter().find(of).unwrap();
        assert_eq!(row[3..5], ["9", "-"], "{row:?}");
        assert_eq!(row[6], "1.9 (link of 2 Gbit/s)");
        assert_eq!(table.rows.len(), 7);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    }
}
