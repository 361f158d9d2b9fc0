//! How are the answers shown? As tables in Markdown that are read as they are, a row per law, under
//! the headings of RFC 9743.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Case, Figure, Run, STANDARDS, Setting, harm};

/// What a standard flow suffers from a flow of a law, compared with being alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Harm {
    /// The law that joined.
    pub law: String,
    /// The standard that was there.
    pub standard: String,
    /// The queue, per cent of the BDP.
    pub queue_percent: u32,
    /// The part of its rate that it lost, at most 1; half of it is a fair share.
    pub throughput: Option<f64>,
    /// Mean wait in the queue on top, ms.
    pub added_queue_ms: Option<f64>,
    /// Loss on top, -1 to 1.
    pub added_loss: Option<f64>,
}

/// The harm in every run against a standard whose run alone, in the same setting, is among `runs`.
pub fn harms(runs: &[Run]) -> Vec<Harm> {
    runs.iter().filter_map(|run| harm_in(runs, run)).collect()
}

fn harm_in(runs: &[Run], run: &Run) -> Option<Harm> {
    let Case::Against {
        standard,
        queue_percent,
    } = &run.question.case
    else {
        return None;
    };
    let alone = Case::Alone {
        queue_percent: *queue_percent,
    };
    let solo = runs.iter().find(|r| {
        r.question.law == *standard && r.question.case == alone && r.setting() == run.setting()
    })?;
    let both = |figure| solo.figure(figure).zip(run.figure(figure));
    let added = |figure| both(figure).map(|(solo, shared)| shared - solo);
    Some(Harm {
        law: run.question.law.clone(),
        standard: standard.clone(),
        queue_percent: *queue_percent,
        throughput: both(Figure::GoodputBitsPerSecond).and_then(|(s, shared)| harm(s, shared)),
        added_queue_ms: added(Figure::QueueMeanMs),
        added_loss: added(Figure::Loss),
    })
}

/// Every table, one set for each setting found among `runs`.
pub fn tables(runs: &[Run]) -> String {
    let mut settings: Vec<Setting> = Vec::new();
    for run in runs {
        if !settings.contains(&run.setting()) {
            settings.push(run.setting());
        }
    }
    let mut text = String::new();
    for setting in settings {
        let these = runs.iter().filter(|r| r.setting() == setting).cloned();
        one_setting(&mut text, &these.collect::<Vec<_>>(), setting);
    }
    text
}

fn one_setting(text: &mut String, runs: &[Run], setting: Setting) {
    let pace = if setting.quick { ", quick" } else { "" };
    let _ = writeln!(
        text,
        "Bottleneck of {}, base rtt 50 ms, seed {}{pace}. A dash: it never happened.",
        setting.rate, setting.seed
    );
    let view = View::new(runs);
    among(text, &view);
    round_trips(text, &view);
    for standard in STANDARDS {
        against(text, &view, standard);
    }
    alone(text, &view);
    rate_step(text, &view);
    collapse(text, &view);
    let failed: Vec<_> = runs.iter().filter(|r| r.invalid.is_some()).collect();
    if !failed.is_empty() {
        text.push_str("\n### Not valid\n\n");
    }
    for run in failed {
        let why = run.invalid.as_deref().unwrap_or_default();
        let _ = writeln!(text, "- {}, {}: {why}", run.question.law, run.question.case);
    }
    text.push('\n');
}

/// The runs of one setting, and its tests.
struct View<'a> {
    runs: &'a [Run],
    laws: Vec<&'a str>,
}

impl<'a> View<'a> {
    /// Laws are in the order of the registry, those with parameters after them.
    fn new(runs: &'a [Run]) -> Self {
        let mut laws: Vec<&str> = Vec::new();
        for run in runs {
            if !laws.contains(&run.question.law.as_str()) {
                laws.push(&run.question.law);
            }
        }
        let known = farhaul_congestion::laws();
        let rank = |law: &str| known.iter().position(|k| k.name == law);
        laws.sort_by_key(|law| (rank(law).unwrap_or(usize::MAX), *law));
        Self { runs, laws }
    }

    /// The run of `law` in `case`; one without a valid result has nothing to show.
    fn run(&self, law: &str, case: &Case) -> Option<&'a Run> {
        let mut runs = self.runs.iter();
        let asked = |r: &&Run| r.question.law == law && r.question.case == *case;
        runs.find(asked).filter(|r| r.invalid.is_none())
    }

    /// The tested cases, in order and each once, of those that `wanted` takes.
    fn cases(&self, wanted: impl Fn(&Case) -> bool) -> Vec<&'a Case> {
        let cases = self.runs.iter().map(|r| &r.question.case);
        let mut cases: Vec<_> = cases.filter(|c| wanted(c)).collect();
        cases.sort();
        cases.dedup();
        cases
    }

    /// A row for each law with a run of one of `cases`: what `cells` makes of its run of each.
    fn rows(
        &self,
        cases: &[&Case],
        cells: impl Fn(Option<&Run>) -> Vec<String>,
    ) -> Vec<Vec<String>> {
        let asked = |law: &&&str| cases.iter().any(|case| self.run(law, case).is_some());
        let row = |law: &&str| {
            let runs = cases.iter().map(|case| self.run(law, case));
            let cells = runs.flat_map(&cells);
            std::iter::once((*law).to_string()).chain(cells).collect()
        };
        self.laws.iter().filter(asked).map(row).collect()
    }
}

fn among(text: &mut String, view: &View<'_>) {
    let cases = view.cases(|c| matches!(c, Case::Among { .. }));
    let rows = view.rows(&cases, |run| {
        vec![
            number(run, Figure::Jain, 1.0, 3),
            number(run, Figure::ConvergedSeconds, 1.0, 0),
            number(run, Figure::Utilisation, 100.0, 1),
        ]
    });
    let heads = heads(&cases, |case| match case {
        Case::Among { flows } => vec![
            format!("{flows} flows: Jain"),
            "converged s".into(),
            "full %".into(),
        ],
        _ => Vec::new(),
    });
    section(text, "Fairness within the law", &heads, &rows);
}

fn round_trips(text: &mut String, view: &View<'_>) {
    let rows = view.rows(&[&Case::RoundTrips], |run| {
        vec![
            number(run, Figure::ShortOverLong, 1.0, 2),
            number(run, Figure::Utilisation, 100.0, 1),
        ]
    });
    let heads = ["20 ms / 200 ms".into(), "full %".into()];
    let title = "Fairness within the law: round trips of 20 and 200 ms";
    section(text, title, &heads, &rows);
}

fn against(text: &mut String, view: &View<'_>, standard: &str) {
    let cases = view.cases(|c| matches!(c, Case::Against { standard: s, .. } if s == standard));
    let rows = view.rows(&cases, |run| {
        let harm = run.and_then(|r| harm_in(view.runs, r));
        let harm = harm.as_ref();
        vec![
            number(run, Figure::Share, 100.0, 0),
            shown(harm.and_then(|h| h.throughput), 100.0, 0),
            shown(harm.and_then(|h| h.added_queue_ms), 1.0, 1),
            shown(harm.and_then(|h| h.added_loss), 100.0, 2),
        ]
    });
    let heads = heads(&cases, |case| match case {
        Case::Against { queue_percent, .. } => vec![
            format!("{}: share %", queue(*queue_percent)),
            "harm %".into(),
            "queue +ms".into(),
            "loss +%".into(),
        ],
        _ => Vec::new(),
    });
    let title = format!("General-purpose laws: against {standard}");
    section(text, &title, &heads, &rows);
}

fn alone(text: &mut String, view: &View<'_>) {
    let cases = view.cases(|c| matches!(c, Case::Alone { .. }));
    let rows = view.rows(&cases, |run| {
        vec![
            number(run, Figure::QueueMean, 100.0, 0),
            number(run, Figure::QueueP95, 100.0, 0),
            number(run, Figure::Utilisation, 100.0, 1),
        ]
    });
    let heads = heads(&cases, |case| match case {
        Case::Alone { queue_percent } => vec![
            format!("{}: mean %", queue(*queue_percent)),
            "p95 %".into(),
            "full %".into(),
        ],
        _ => Vec::new(),
    });
    let title = "Bufferbloat: standing queue alone, in per cent of the BDP";
    section(text, title, &heads, &rows);
}

fn rate_step(text: &mut String, view: &View<'_>) {
    let rows = view.rows(&[&Case::RateStep], |run| {
        vec![
            number(run, Figure::DownSeconds, 1.0, 2),
            number(run, Figure::DownDropped, 1.0, 0),
            number(run, Figure::UpSeconds, 1.0, 2),
            number(run, Figure::UpDropped, 1.0, 0),
        ]
    });
    let heads = ["to 10 %: s", "dropped", "to 100 %: s", "dropped"].map(Into::into);
    section(text, "Transient events: rate step", &heads, &rows);
}

fn collapse(text: &mut String, view: &View<'_>) {
    let sent = [
        ("before", Figure::SentBefore, 0),
        ("1st second", Figure::SentFirst, 0),
        ("2nd half", Figure::SentSettled, 1),
    ];
    let rows = view.rows(&[&Case::ReportsLost], |run| {
        let sent = sent.map(|(_, figure, digits)| number(run, figure, 1.0, digits));
        let recovered = number(run, Figure::RecoveredSeconds, 1.0, 2);
        [&sent[..], &[recovered]].concat()
    });
    let heads = |more: &[&str]| -> Vec<String> {
        let sent = sent.iter().map(|(head, ..)| *head);
        sent.chain(more.iter().copied()).map(Into::into).collect()
    };
    let title = "Congestion collapse: all reports lost for 10 s, packets sent per second";
    section(text, title, &heads(&["recovered s"]), &rows);
    let rows = view.rows(&[&Case::CapacityLost], |run| {
        let sent = sent.map(|(_, figure, digits)| number(run, figure, 1.0, digits));
        let more = [
            number(run, Figure::CapacityPackets, 1.0, 0),
            number(run, Figure::DroppedSettled, 100.0, 1),
            number(run, Figure::RecoveredSeconds, 1.0, 2),
        ];
        [&sent[..], &more].concat()
    });
    let heads = heads(&["path carries", "dropped %", "recovered s"]);
    let title = "Congestion collapse: capacity falls to 1 %, packets sent per second";
    section(text, title, &heads, &rows);
}

fn heads(cases: &[&Case], of: impl Fn(&Case) -> Vec<String>) -> Vec<String> {
    cases.iter().flat_map(|case| of(case)).collect()
}

/// `0.1 BDP`.
fn queue(percent: u32) -> String {
    format!("{} BDP", f64::from(percent) / 100.0)
}

fn number(run: Option<&Run>, figure: Figure, times: f64, digits: usize) -> String {
    shown(run.and_then(|r| r.figure(figure)), times, digits)
}

fn shown(value: Option<f64>, times: f64, digits: usize) -> String {
    value.map_or_else(
        || "-".into(),
        |value| {
            let text = format!("{:.digits$}", value * times);
            // Less than nothing by less than a digit is nothing.
            match text.strip_prefix('-') {
                Some(rest) if rest.chars().all(|c| "0.".contains(c)) => rest.into(),
                _ => text,
            }
        },
    )
}

/// A heading and a table; nothing without rows. The first column, the laws, stands left.
fn section(text: &mut String, title: &str, heads: &[String], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let head: Vec<String> = std::iter::once("law".to_string())
        .chain(heads.iter().cloned())
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let _ = writeln!(text, "\n### {title}\n");
    let line = |text: &mut String, row: &[String]| {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "| {cell:<width$} |")
            } else {
                write!(text, " {cell:>width$} |")
            };
        }
        text.push('\n');
    };
    line(text, &head);
    for (column, width) in widths.iter().enumerate() {
        text.push_str(if column == 0 { "|-" } else { "" });
        text.push_str(&"-".repeat(*width));
        text.push_str(if column == 0 { "-|" } else { "-:|" });
    }
    text.push('\n');
    for row in rows {
        line(text, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(law: &str, queue_percent: u32, goodput: f64, wait: f64) -> Run {
        let case = Case::Against {
            standard: "reno".into(),
            queue_percent,
        };
        let figures = [
            (Figure::GoodputBitsPerSecond, goodput),
            (Figure::QueueMeanMs, wait),
            (Figure::Share, 0.7),
        ];
        Run::example(law, case, &figures)
    }

    fn reno_alone(goodput: f64, wait: f64) -> Run {
        let figures = [
            (Figure::GoodputBitsPerSecond, goodput),
            (Figure::QueueMeanMs, wait),
            (Figure::Loss, 0.0),
        ];
        Run::example("reno", Case::Alone { queue_percent: 100 }, &figures)
    }

    #[test]
    fn harm_is_against_the_standard_alone_in_the_same_setting() {
        let pair = against("haul", 100, 30e6, 40.0);
        let mut elsewhere = reno_alone(1e6, 0.0);
        elsewhere.question.seed = 2;
        let harms = harms(&[elsewhere, pair, reno_alone(60e6, 25.0)]);
        assert_eq!(harms.len(), 1);
        let harm = &harms[0];
        assert_eq!((harm.law.as_str(), harm.queue_percent), ("haul", 100));
        assert!(harm.throughput.is_some_and(|h| (h - 0.5).abs() < 1e-9));
        assert!(
            harm.added_queue_ms
                .is_some_and(|ms| (ms - 15.0).abs() < 1e-9)
        );
        assert_eq!(harm.added_loss, None, "nothing was said of the pair's");
    }

    #[test]
    fn harm_needs_the_standard_alone() {
        let runs = [against("haul", 10, 30e6, 40.0), reno_alone(60e6, 25.0)];
        assert!(harms(&runs).is_empty(), "another queue is another setting");
        let text = tables(&runs);
        let row = text.lines().find(|line| line.starts_with("| haul"));
        let cells: Vec<_> = row
            .into_iter()
            .flat_map(|r| r.split('|'))
            .map(str::trim)
            .collect();
        assert_eq!(cells, ["", "haul", "70", "-", "-", "-", ""], "{text}");
    }

    #[test]
    fn tables_are_aligned_and_mark_what_never_occurred() {
        let case = || Case::Among { flows: 2 };
        let runs = [
            Run::example(
                "reno",
                case(),
                &[(Figure::Jain, 0.9876), (Figure::Utilisation, 0.95)],
            ),
            Run::example(
                "haul",
                case(),
                &[(Figure::Jain, 1.0), (Figure::ConvergedSeconds, 4.0)],
            ),
        ];
        let text = tables(&runs);
        let wanted = "\
### Fairness within the law

| law  | 2 flows: Jain | converged s | full % |
|------|--------------:|------------:|-------:|
| haul |         1.000 |           4 |      - |
| reno |         0.988 |           - |   95.0 |
";
        assert!(text.contains(wanted), "{text}");
        assert!(!text.contains("Bufferbloat"), "nothing was asked of it");
    }

    #[test]
    fn runs_without_a_valid_result_are_named() {
        let failed = Run {
            invalid: Some("a session ended: idle".into()),
            ..Run::example("reno", Case::RateStep, &[(Figure::UpSeconds, 1.0)])
        };
        let text = tables(&[failed]);
        assert!(
            text.contains("- reno, rate step: a session ended: idle"),
            "{text}"
        );
        assert!(!text.contains("Transient"), "{text}");
    }

    #[test]
    fn nothing_has_no_sign() {
        assert_eq!(shown(Some(-0.001), 1.0, 1), "0.0");
        assert_eq!(shown(Some(-0.06), 1.0, 1), "-0.1");
    }
}
