//! Reports of a part: figures and violations, as text for people, an exit code for the gate, and lines from a child to its
//! parent.

use std::process::ExitCode;

/// The most faults that are printed.
const SHOWN: usize = 20;

/// A figure, which says how it is put together with that of other seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Figure {
    /// Text that stands for itself.
    Text(String),
    Sum(u64),
    Most(u64),
    /// Hash of all traces, in any order.
    Mixed(u64),
}

/// Findings of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    part: &'static str,
    runs: u64,
    figures: Vec<(String, Figure)>,
    faults: Vec<String>,
    skipped: Option<String>,
}

impl Report {
    pub(crate) fn new(part: &'static str) -> Self {
        Self {
            part,
            ..Self::default()
        }
    }

    /// Counts a run.
    pub(crate) const fn ran(&mut self) {
        self.runs += 1;
    }

    /// A figure for the record.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "figures are made where they are printed"
    )]
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: impl ToString) {
        let text = Figure::Text(value.to_string());
        self.figures.push((name.into(), text));
    }

    /// A count, added to that of other seeds.
    pub(crate) fn sum(&mut self, name: &str, value: u64) {
        self.put(name, Figure::Sum(value));
    }

    /// Sets a figure; the highest value counts.
    pub(crate) fn most(&mut self, name: &str, value: u64) {
        self.put(name, Figure::Most(value));
    }

    /// A fingerprint of what happened: the same seeds give the same.
    pub(crate) fn mixed(&mut self, name: &str, value: u64) {
        self.put(name, Figure::Mixed(value));
    }

    fn put(&mut self, name: &str, figure: Figure) {
        let there = self.figures.iter_mut().find(|(of, there)| {
            of == name && !matches!(there, Figure::Text(_)) && !matches!(figure, Figure::Text(_))
        });
        match (there, figure) {
            (Some((_, Figure::Sum(all))), Figure::Sum(more)) => *all += more,
            (Some((_, Figure::Most(all))), Figure::Most(more)) => *all = more.max(*all),
            (Some((_, Figure::Mixed(all))), Figure::Mixed(more)) => *all = all.wrapping_add(more),
            (_, figure) => self.figures.push((name.into(), figure)),
        }
    }

    /// The count or maximum called `name`, 0 if there is none.
    pub(crate) fn figure_of(&self, name: &str) -> u64 {
        let figure = self.figures.iter().find(|(of, _)| of == name);
        match figure {
            Some((_, Figure::Sum(value) | Figure::Most(value))) => *value,
            _ => 0,
        }
    }

    /// A violation; `how` describes how to reproduce it.
    pub(crate) fn fault(&mut self, how: impl Into<String>) {
        self.faults.push(how.into());
    }

    /// Skips the part, which this machine does not let run.
    pub(crate) fn skip(&mut self, why: impl Into<String>) {
        self.skipped = Some(why.into());
    }

    /// Puts in what other seeds of the same part found.
    pub(crate) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        for (name, figure) in other.figures {
            self.put(&name, figure);
        }
        self.faults.extend(other.faults);
        self.skipped = self.skipped.take().or(other.skipped);
    }

    /// One line for each thing.
    pub(crate) fn encode(&self) -> String {
        let mut lines = vec![format!("runs\t{}", self.runs)];
        for (name, figure) in &self.figures {
            lines.push(match figure {
                Figure::Text(text) => format!("text\t{name}\t{text}"),
                Figure::Sum(value) => format!("sum\t{name}\t{value}"),
                Figure::Most(value) => format!("most\t{name}\t{value}"),
                Figure::Mixed(value) => format!("mixed\t{name}\t{value}"),
            });
        }
        let faults = self.faults.iter().map(|text| format!("fault\t{text}"));
        lines.extend(faults);
        lines.extend(self.skipped.iter().map(|text| format!("skipped\t{text}")));
        lines.push("over".into());
        // A fault may have lines, too.
        let lines = lines.iter().map(|line| line.replace('\n', " / "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` if the end is missing.
    pub(crate) fn decode(part: &'static str, text: &str) -> Option<Self> {
        let mut report = Self::new(part);
        for line in text.lines() {
            if line == "over" {
                return Some(report);
            }
            let (kind, rest) = line.split_once('\t')?;
            let named = || rest.split_once('\t');
            let number = || named().and_then(|(name, value)| Some((name, value.parse().ok()?)));
            match kind {
                "runs" => report.runs = rest.parse().ok()?,
                "text" => named().map(|(name, text)| report.figure(name, text))?,
                "sum" => number().map(|(name, value)| report.sum(name, value))?,
                "most" => number().map(|(name, value)| report.most(name, value))?,
                "mixed" => number().map(|(name, value)| report.mixed(name, value))?,
                "fault" => report.fault(rest),
                "skipped" => report.skip(rest),
                _ => return None,
            }
        }
        None
    }

    /// Prints the findings. Without faults the part passed; with one planted it passed only if it found
    /// some.
    pub(crate) fn conclude(&self, planted: bool) -> ExitCode {
        if let Some(why) = &self.skipped {
            say(&format!("campaign {}: skipped: {why}", self.part));
            return ExitCode::SUCCESS;
        }
        for (name, figure) in &self.figures {
            let value = match figure {
                Figure::Text(text) => text.clone(),
                Figure::Sum(value) | Figure::Most(value) => value.to_string(),
                Figure::Mixed(value) => format!("{value:016x}"),
            };
            say(&format!("{}: {name} {value}", self.part));
        }
        for fault in self.faults.iter().take(SHOWN) {
            say(&format!("campaign {}: FAULT {fault}", self.part));
        }
        say(&format!(
            "campaign {}: {} runs, {} faults{}",
            self.part,
            self.runs,
            self.faults.len(),
            if planted { " (one was planted)" } else { "" }
        ));
        ExitCode::from(u8::from(self.faults.is_empty() == planted))
    }
}

/// One line on stdout; a closed pipe is not worth a panic.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_from_a_child_as_it_was() {
        let mut report = Report::new("x");
        report.ran();
        report.figure("late", "seed 3: 2.10 windows");
        report.sum("copies", 3);
        report.most("bytes", 9);
        report.mixed("trace", u64::MAX);
        report.fault("a tab\tis no end");
        let text = report.encode();
        assert_eq!(Report::decode("x", &text), Some(report));
        assert_eq!(Report::decode("x", text.trim_end_matches("over")), None);
    }
}
