//! Turns runs into figures: medians and ranges over the seeds, per value of a variable, with the
//! published numbers of the same quantity beside them.

use std::collections::{BTreeMap, BTreeSet};

use farhaul_core::units::{Rate, Size};

use super::{FigurePlan, Shape, words};
use crate::{
    plot::{Axis, Body, Chart, Line, Mark, Origin, Point},
    reference::{Fact, Kind},
    scenario::{Case, File, Outcome, Spread, Term, Verdict, exact, fits, name_of, unknown},
};

/// Values of the variable along x, each with a number per run.
pub(super) type Values = Vec<(String, Vec<f64>)>;

/// The runs of a scenario in one world, and what they say.
pub(super) struct World<'a> {
    pub(super) file: &'a File,
    pub(super) outcomes: Vec<&'a Outcome>,
    pub(super) verdicts: &'a [Verdict],
    pub(super) origin: Origin,
}

impl World<'_> {
    pub(super) fn name(&self) -> &'static str {
        self.file.variant.backend.name()
    }
}

impl FigurePlan {
    /// Refuses variables that the scenario does not have.
    pub(super) fn check(&self, file: &File) -> Result<(), String> {
        let cases = || file.plans.iter().map(|plan| &plan.case);
        let known = |name: &str| cases().any(|case| case.contains_key(name));
        let line = self.line.as_ref().filter(|line| *line != "flow");
        for name in self.x.iter().chain(line).chain(self.when.keys()) {
            if !known(name) && !known(&name_of(name)) {
                let names: BTreeSet<&str> =
                    cases().flat_map(|c| c.keys().map(String::as_str)).collect();
                let text = unknown("variable", name, names.iter().copied());
                return Err(self.wrong(file, &text));
            }
        }
        for term in &self.terms {
            let plans = file.plans.iter();
            let plans = plans.filter(|plan| fits(&plan.case, &self.when));
            let checked = term.checked(plans);
            checked.map_err(|text| self.wrong(file, &text))?;
        }
        Ok(())
    }

    fn wrong(&self, file: &File, text: &str) -> String {
        format!("figure {} of {}: {text}", self.id, file.name)
    }

    /// Terms drawn of each run: with a line for each flow, the figures of each of them.
    pub(super) fn terms_of(&self, file: &File) -> Vec<Term> {
        let each = self.line.as_deref() == Some("flow") && self.shape != Shape::Series;
        if !each || self.term().name.is_some() {
            return self.terms.clone();
        }
        let mut flows: Vec<&str> = Vec::new();
        for driver in file.plans.iter().flat_map(|p| &p.drivers) {
            if !flows.contains(&driver.name.as_str()) {
                flows.push(&driver.name);
            }
        }
        let of = |flow: &str| {
            let flow = flow.to_string();
            self.terms.iter().map(move |term| Term {
                name: Some(flow.clone()),
                ..term.clone()
            })
        };
        flows.into_iter().flat_map(of).collect()
    }

    /// Charts of the figure, each with a word that distinguishes it if there are several.
    pub(super) fn charts(&self, worlds: &[World<'_>]) -> Vec<(String, Chart)> {
        match self.shape {
            Shape::Lines => vec![(String::new(), self.lines(worlds))],
            Shape::Bars => vec![(String::new(), self.bars(worlds))],
            Shape::Scatter => vec![(String::new(), self.scatter(worlds))],
            Shape::Heat => self.each(worlds, Self::heat),
            Shape::Series => self.each(worlds, Self::series),
            Shape::Table => Vec::new(),
        }
    }

    fn each(
        &self,
        worlds: &[World<'_>],
        chart: fn(&Self, &World<'_>) -> Chart,
    ) -> Vec<(String, Chart)> {
        let all = worlds.iter();
        all.map(|world| (world.name().to_string(), chart(self, world)))
            .collect()
    }

    /// First of the terms, which are all of the same metric.
    pub(super) fn term(&self) -> &Term {
        self.terms.first().expect("a figure has a term")
    }

    pub(super) fn y_axis(&self, name: &str) -> Axis {
        Axis {
            label: labelled(&name.replace('_', " "), &self.unit.0),
            log: self.log.1,
            range: None,
        }
    }

    fn x_axis(&self, unit: &str) -> Axis {
        let name = self.x.as_deref().unwrap_or_default();
        Axis {
            label: labelled(&words::variable(name), unit),
            log: self.log.0,
            range: None,
        }
    }

    /// The variable that lines or bars differ in.
    pub(super) fn key(&self) -> String {
        match self.line.as_deref() {
            None | Some("flow") => String::new(),
            Some(line) => words::variable(line),
        }
    }

    /// The figure's runs in `world`: by value of the line's variable, then of that along x; each with one
    /// number per run.
    pub(super) fn grouped(&self, world: &World<'_>) -> Vec<(String, Values)> {
        let mut lines: Vec<(String, Values)> = Vec::new();
        let terms = self.terms_of(world.file);
        for plan in world
            .file
            .plans
            .iter()
            .filter(|p| fits(&p.case, &self.when))
        {
            let value = |name: &Option<String>| {
                let name = name.as_ref();
                name.map_or_else(String::new, |name| value(&plan.case, name))
            };
            for term in &terms {
                let x = self.group(&plan.case, &term.metric);
                let line = match term.during {
                    _ if self.line.as_deref() == Some("flow") => {
                        term.name.clone().unwrap_or_default()
                    }
                    Some((from, to)) if self.terms.len() > 1 => format!("{from}..{to} s"),
                    _ => words::value(&value(&self.line)),
                };
                let words = term.to_string();
                let of = world.outcomes.iter().filter(|o| o.case == plan.case);
                let figures = of.filter_map(|o| *o.figures.get(&words)?);
                let figures = figures.map(|figure| figure / self.unit.1);
                entry(entry(&mut lines, line), x).extend(figures);
            }
        }
        lines
    }

    /// Published numbers of the same quantity in the figure's cases, each once: verdict and row.
    pub(super) fn published<'a>(&self, worlds: &'a [World<'_>]) -> Vec<(&'a Verdict, &'a Fact)> {
        let mut found: Vec<(&Verdict, &Fact)> = Vec::new();
        let each = worlds.iter().flat_map(|w| self.terms_of(w.file));
        let words: BTreeSet<String> = self
            .terms
            .iter()
            .cloned()
            .chain(each)
            .map(|term| term.to_string())
            .collect();
        for verdict in worlds.iter().flat_map(|w| w.verdicts) {
            let same = words.contains(&verdict.what) && fits(&verdict.values, &self.when);
            let Some(fact) = verdict.fact.as_ref().filter(|_| same) else {
                continue;
            };
            let at = |verdict: &Verdict| self.group(&verdict.values, &verdict.metric);
            let known =
                |(one, other): &(&Verdict, &Fact)| other.id == fact.id && at(one) == at(verdict);
            if !found.iter().any(known) {
                found.push((verdict, fact));
            }
        }
        found
    }

    fn lines(&self, worlds: &[World<'_>]) -> Chart {
        let grouped: Vec<_> = worlds.iter().map(|world| self.grouped(world)).collect();
        let values = grouped.iter().flatten().flat_map(|(_, values)| values);
        let scale = Along::of(values.map(|(x, _)| x.as_str()));
        let mut lines = Vec::new();
        let mut colours: Vec<String> = Vec::new();
        for (world, grouped) in worlds.iter().zip(&grouped) {
            for (name, points) in grouped {
                let points = points.iter().filter_map(|(x, figures)| {
                    let mut point = spread(figures)?;
                    point.x = scale.at(x)?;
                    Some(point)
                });
                lines.push(Line {
                    name: named(name, worlds.len() > 1, world),
                    origin: world.origin,
                    colour: number(&mut colours, name),
                    points: points.collect(),
                });
            }
        }
        let published = self.published(worlds);
        for (name, origin) in OF_PAPER {
            let points = published.iter().filter_map(|(verdict, fact)| {
                let mut point = self.fact(fact)?;
                point.x = scale.at(&value(&verdict.values, self.x.as_ref()?))?;
                (of_paper(fact) == origin).then_some(point)
            });
            let points: Vec<Point> = points.collect();
            if !points.is_empty() {
                lines.push(Line {
                    name: name.into(),
                    origin,
                    colour: 0,
                    points,
                });
            }
        }
        let (x, y) = (
            self.x_axis(scale.unit),
            self.y_axis(self.term().metric.name()),
        );
        chart(x, y, self.key(), Body::Lines(lines))
    }

    /// A published number as a mark, with its range or bound.
    pub(super) fn fact(&self, fact: &Fact) -> Option<Point> {
        let (low, high) = fact.bounds();
        let divisor = self.unit.1;
        let (y, mark) = match (fact.value, low, high) {
            (Some(value), ..) => (value, Mark::Value),
            (None, Some(low), Some(high)) => (f64::midpoint(low, high), Mark::Range),
            (None, Some(low), None) => (low, Mark::AtLeast),
            (None, None, Some(high)) => (high, Mark::AtMost),
            (None, None, None) => return None,
        };
        let range = fact
            .low
            .or(fact.high)
            .map(|_| (low.unwrap_or(y) / divisor, high.unwrap_or(y) / divisor));
        Some(Point {
            x: 0.0,
            y: y / divisor,
            range,
            label: Some(format!(
                "{}, {}: {}",
                fact.place,
                fact.quantity,
                fact.words()
            )),
            mark,
        })
    }

    fn heat(&self, world: &World<'_>) -> Chart {
        let rows = self.grouped(world);
        let mut columns = Vec::new();
        for (x, _) in rows.iter().flat_map(|(_, values)| values) {
            number(&mut columns, x);
        }
        let cells = rows.iter().map(|(_, values)| {
            let of = |x: &String| spread(&values.iter().find(|(v, _)| v == x)?.1).map(|p| p.y);
            columns.iter().map(of).collect()
        });
        let cells = cells.collect();
        let axis = |name: &Option<String>| Axis {
            label: words::variable(name.as_deref().unwrap_or_default()),
            ..Axis::default()
        };
        let body = Body::Heat {
            rows: rows.into_iter().map(|(name, _)| name).collect(),
            columns: columns.iter().map(|x| words::value(x)).collect(),
            cells,
        };
        let mut chart = chart(axis(&self.x), axis(&self.line), String::new(), body);
        chart.title = labelled(&self.term().metric.name().replace('_', " "), &self.unit.0);
        chart
    }

    /// A point for each number: ours over the published, or with pairs one term of an expectation over the other.
    fn scatter(&self, worlds: &[World<'_>]) -> Chart {
        let mut sets: Vec<Line> = Vec::new();
        let mut colours = Vec::new();
        for world in worlds {
            for verdict in world.verdicts {
                let point = if self.pairs {
                    self.pair(verdict)
                } else {
                    self.beside(verdict)
                };
                let Some(point) = point.filter(|_| fits(&verdict.values, &self.when)) else {
                    continue;
                };
                let name = match &self.line {
                    Some(line) => words::value(&value(&verdict.values, line)),
                    None => world.name().into(),
                };
                let colour = number(&mut colours, &name);
                let name = named(&name, worlds.len() > 1, world);
                match sets.iter_mut().find(|s| s.name == name) {
                    Some(set) => set.points.push(point),
                    None => sets.push(Line {
                        name,
                        origin: world.origin,
                        colour,
                        points: vec![point],
                    }),
                }
            }
        }
        let axis = |whose: &str| {
            let mut axis = self.y_axis(self.term().metric.name());
            axis.label = format!("{whose} {}", axis.label);
            axis.log = true;
            axis
        };
        let (x, y) = if self.pairs {
            ("the other's,", "ours,")
        } else {
            ("published", "ours,")
        };
        let body = Body::Scatter {
            sets,
            diagonal: true,
        };
        chart(axis(x), axis(y), self.key(), body)
    }

    /// Ours over the published number.
    fn beside(&self, verdict: &Verdict) -> Option<Point> {
        // Ratios of the metric are not in its unit.
        let own = &self.term().metric;
        let metric = verdict.metric == *own && verdict.unit == own.unit();
        let (ours, fact) = (verdict.ours?, verdict.fact.as_ref()?);
        let theirs = fact.value.filter(|_| metric)?;
        let divisor = self.unit.1;
        Some(Point {
            x: theirs / divisor,
            y: ours / divisor,
            range: verdict
                .range
                .map(|(low, high)| (low / divisor, high / divisor)),
            label: Some(format!("{}: {}", fact.place, fact.quantity)),
            ..Point::default()
        })
    }

    /// The first term of an expectation over the one that it is divided by.
    fn pair(&self, verdict: &Verdict) -> Option<Point> {
        let (ours, theirs) = verdict.pair?;
        let divisor = self.unit.1;
        (verdict.metric == self.term().metric).then(|| Point {
            x: theirs / divisor,
            y: ours / divisor,
            range: None,
            label: Some(format!("{}: {}", verdict.what, verdict.case)),
            ..Point::default()
        })
    }

    /// The first valid run of each case over time.
    fn series(&self, world: &World<'_>) -> Chart {
        let mut lines: Vec<Line> = Vec::new();
        for plan in world
            .file
            .plans
            .iter()
            .filter(|p| fits(&p.case, &self.when))
        {
            let Some(run) = world.outcomes.iter().find(|o| o.case == plan.case) else {
                continue;
            };
            let by_flow = self.line.as_deref().is_none_or(|line| line == "flow");
            for (driver, columns) in plan.drivers.iter().zip(&run.series) {
                let wanted = self.term().name.as_ref();
                if wanted.is_some_and(|n| *n != driver.name && *n != driver.group) {
                    continue;
                }
                let name = match &self.line {
                    Some(line) if !by_flow => words::value(&value(&plan.case, line)),
                    _ => driver.name.clone(),
                };
                lines.push(Line {
                    name,
                    origin: world.origin,
                    colour: lines.len(),
                    points: self.over_time(columns),
                });
            }
        }
        let x = Axis {
            label: "time, s".into(),
            ..Axis::default()
        };
        chart(x, self.y_axis(&self.column), self.key(), Body::Lines(lines))
    }

    fn over_time(&self, columns: &BTreeMap<String, Vec<Option<f64>>>) -> Vec<Point> {
        let (Some(at), Some(values)) = (columns.get("at"), columns.get(&self.column)) else {
            return Vec::new();
        };
        let point = |(at, value): (&Option<f64>, &Option<f64>)| {
            Some(Point {
                x: (*at)?,
                y: (*value)? / self.unit.1,
                ..Point::default()
            })
        };
        at.iter().zip(values).filter_map(point).collect()
    }
}

pub(super) fn chart(x: Axis, y: Axis, key: String, body: Body) -> Chart {
    Chart {
        title: String::new(),
        x,
        y,
        key,
        body,
    }
}

/// Numbers of a paper, and those read into it.
pub(super) const OF_PAPER: [(&str, Origin); 2] = [
    ("published", Origin::Published),
    ("derived or assumed", Origin::Inferred),
];

/// Origin as which a number is drawn.
pub(super) fn of_paper(fact: &Fact) -> Origin {
    if fact.kind == Kind::Printed {
        Origin::Published
    } else {
        Origin::Inferred
    }
}

fn labelled(name: &str, unit: &str) -> String {
    if unit.is_empty() || unit == "ratio" {
        name.into()
    } else {
        format!("{name}, {unit}")
    }
}

/// The value of a variable, also of one that is a table: its `name`.
pub(super) fn value(case: &Case, variable: &str) -> String {
    let own = case.get(variable);
    let found = own.or_else(|| case.get(&name_of(variable)));
    found.cloned().unwrap_or_default()
}

/// The number in a text such as `50ms`, in one unit for all texts of its kind, and that unit.
pub(super) fn numeric(text: &str) -> Option<(f64, &'static str)> {
    if let Ok(number) = text.parse() {
        return Some((number, ""));
    }
    if let Some(share) = text.strip_suffix('%') {
        return Some((share.trim().parse().ok()?, "%"));
    }
    if text.contains("bit") {
        let rate: Rate = text.parse().ok()?;
        return Some((rate.as_f64() / 1e6, "Mbit/s"));
    }
    if let Ok(time) = farhaul_link::duration(text) {
        return Some((time.as_secs_f64() * 1e3, "ms"));
    }
    let size = text.parse::<Size>().ok()?;
    Some((exact(size.bytes()) / 1e3, "kB"))
}

/// Values along x in one unit.
struct Along {
    unit: &'static str,
    divisor: f64,
}

/// Units with a thousand of the first in the second.
const GREATER: [(&str, &str); 4] = [
    ("ms", "s"),
    ("kB", "MB"),
    ("MB", "GB"),
    ("Mbit/s", "Gbit/s"),
];

impl Along {
    /// In the least unit in which no value needs more than four digits.
    fn of<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let numbers: Vec<_> = values.filter_map(numeric).collect();
        let most = numbers.iter().fold(0.0, |most: f64, (x, _)| most.max(*x));
        let (mut unit, mut divisor) = (numbers.last().map_or("", |(_, unit)| unit), 1.0);
        while most / divisor >= 1e4
            && let Some((_, greater)) = GREATER.iter().find(|(own, _)| *own == unit)
        {
            (unit, divisor) = (greater, divisor * 1e3);
        }
        Self { unit, divisor }
    }

    fn at(&self, text: &str) -> Option<f64> {
        Some(numeric(text)?.0 / self.divisor)
    }
}

pub(super) fn named(name: &str, several: bool, world: &World<'_>) -> String {
    match (name.is_empty(), several) {
        (true, _) => world.name().into(),
        (false, true) => format!("{name} ({})", world.name()),
        (false, false) => name.into(),
    }
}

pub(super) fn number(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    })
}

fn entry<T: Default>(list: &mut Vec<(String, T)>, name: String) -> &mut T {
    let at = list.iter().position(|(n, _)| *n == name);
    let at = at.unwrap_or_else(|| {
        list.push((name, T::default()));
        list.len() - 1
    });
    &mut list[at].1
}

/// The median, and the range if there are several.
pub(super) fn spread(figures: &[f64]) -> Option<Point> {
    if figures.is_empty() {
        return None;
    }
    let spread = Spread::of(figures.iter().copied());
    Some(Point {
        x: 0.0,
        y: spread.median,
        range: (figures.len() > 1).then_some((spread.min, spread.max)),
        label: None,
        ..Point::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{Along, numeric};

    #[test]
    fn an_axis_has_the_unit_in_which_its_values_are_short() {
        for (values, unit, last) in [
            (&["1kB", "10kB", "100MB"][..], "MB", 100.0),
            (&["1kB", "1MB"], "kB", 1_000.0),
            (&["0ms", "400ms"], "ms", 400.0),
            (&["100Mbit", "10Gbit"], "Gbit/s", 10.0),
            (&["0%", "2%"], "%", 2.0),
            (&["1", "80000"], "", 80_000.0),
            (&["1kB", "30GB"], "GB", 30.0),
        ] {
            let along = Along::of(values.iter().copied());
            assert_eq!(along.unit, unit, "{values:?}");
            assert_eq!(along.at(values[values.len() - 1]), Some(last));
        }
    }

    #[test]
    fn values_along_x_have_one_unit() {
        for (text, value) in [
            ("0.1%", (0.1, "%")),
            ("50ms", (50.0, "ms")),
            ("1s", (1_000.0, "ms")),
            ("800Mbit", (800.0, "Mbit/s")),
            ("1Gbit", (1_000.0, "Mbit/s")),
            ("10kB", (10.0, "kB")),
            ("100MB", (100_000.0, "kB")),
            ("8", (8.0, "")),
        ] {
            assert_eq!(numeric(text), Some(value));
        }
        assert_eq!(numeric("linux-2.6.29"), None);
    }
}
