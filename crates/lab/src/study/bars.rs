//! Turns runs into bars: a group for each value of the variable along x, or for each of several
//! metrics.

use super::{
    FigurePlan, Shape,
    figures::{OF_PAPER, World, chart, named, number, of_paper, spread, value},
    words,
};
use crate::{
    plot::{Axis, Bars, Body, Chart, Point},
    scenario::{Case, Metric, Verdict},
};

impl FigurePlan {
    /// True if the bars of each metric stand together.
    fn by_metric(&self) -> bool {
        self.shape == Shape::Bars && self.terms.iter().any(|t| t.metric != self.term().metric)
    }

    /// Group along x in which a figure stands: a value of the variable, or the special part of its
    /// metric's name.
    pub(super) fn group(&self, case: &Case, metric: &Metric) -> String {
        if self.by_metric() {
            return self.words(metric.name()).1.replace('_', " ");
        }
        let x = self.x.as_ref();
        x.map_or_else(String::new, |x| value(case, x))
    }

    /// The words that the names of all metrics have in common, and those of `name` that are its own.
    fn words(&self, name: &str) -> (String, String) {
        let all: Vec<Vec<&str>> = self
            .terms
            .iter()
            .map(|t| t.metric.name().split('_').collect())
            .collect();
        let own: Vec<&str> = name.split('_').collect();
        let common = |of: &dyn Fn(&[&str], usize) -> Option<String>| {
            let same = |at: &usize| {
                let word = of(&own, *at);
                word.is_some() && all.iter().all(|words| of(words, *at) == word)
            };
            (0..own.len().saturating_sub(1)).take_while(same).count()
        };
        let first = common(&|words, at| words.get(at).map(ToString::to_string));
        let last = common(&|words, at| words.iter().rev().nth(at).map(ToString::to_string));
        let last = last.min(own.len() - 1 - first);
        let end = own.len() - last;
        let common = [&own[..first], &own[end..]].concat();
        (common.join("_"), own[first..end].join("_"))
    }

    pub(super) fn bars(&self, worlds: &[World<'_>]) -> Chart {
        let (mut groups, mut colours) = (Vec::new(), Vec::new());
        let mut all = Vec::new();
        for world in worlds {
            for (name, values) in self.grouped(world) {
                for (group, _) in &values {
                    number(&mut groups, group);
                }
                all.push((name, values, world));
            }
        }
        let mut series: Vec<Bars> = Vec::new();
        for (name, values, world) in all {
            let of = |group: &String| {
                let found = values.iter().find(|(x, _)| x == group)?;
                spread(&found.1)
            };
            series.push(Bars {
                name: named(&name, worlds.len() > 1, world),
                origin: world.origin,
                colour: number(&mut colours, &name),
                values: groups.iter().map(of).collect(),
            });
        }
        let published = self.published(worlds);
        let at = |verdict: &Verdict| self.group(&verdict.values, &verdict.metric);
        for (name, origin) in OF_PAPER {
            // A group has as many as bars of ours.
            for nth in 0.. {
                let of = |group: &String| {
                    let own = published.iter().filter(|(verdict, fact)| {
                        at(verdict) == *group && of_paper(fact) == origin
                    });
                    self.fact(own.clone().nth(nth)?.1)
                };
                let values: Vec<Option<Point>> = groups.iter().map(of).collect();
                if values.iter().all(Option::is_none) {
                    break;
                }
                series.push(Bars {
                    name: name.into(),
                    origin,
                    colour: 0,
                    values,
                });
            }
        }
        let x = Axis {
            label: words::variable(self.x.as_deref().unwrap_or_default()),
            ..Axis::default()
        };
        let name = self.term().metric.name();
        let y = if self.by_metric() {
            self.y_axis(&self.words(name).0)
        } else {
            self.y_axis(name)
        };
        let groups = groups.iter().map(|x| words::value(x)).collect();
        chart(x, y, self.key(), Body::Bars { groups, series })
    }
}
