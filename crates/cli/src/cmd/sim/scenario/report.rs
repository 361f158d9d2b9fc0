//! Prints results of a scenario: every case with its flows and links, and expectations beside
//! results; as text, or as tables for a page.

use std::fmt;

use farhaul_lab::scenario::{CaseSummary, File, Spread, Summary, Verdict};

use crate::out;

/// Every case, then what was expected.
pub(super) fn text(file: &File, summary: &Summary) {
    out::line(format!("{}: {}", file.name, file.about));
    if summary.kept > 0 {
        out::line(format!("{} runs were made before", summary.kept));
    }
    for case in &summary.cases {
        case_text(case);
    }
    if summary.verdicts.is_empty() {
        return;
    }
    out::line("");
    out::line("expected                                  paper          ours           bounds");
    for verdict in &summary.verdicts {
        verdict_text(verdict);
    }
    let mut tally = Tally::default();
    tally.add(&summary.verdicts);
    out::line(tally.to_string());
}

fn case_text(case: &CaseSummary) {
    let values: Vec<_> = case.case.iter().map(|(k, v)| format!("{k}={v}")).collect();
    out::line("");
    if !values.is_empty() {
        out::line(values.join(" "));
    }
    let hashes: Vec<_> = case
        .trace_hash
        .iter()
        .map(|(s, h)| format!("{s}:{h}"))
        .collect();
    out::line(format!(
        "  {} seeds, {} packets, traces {}",
        hashes.len(),
        case.packets,
        hashes.join(" ")
    ));
    out::line(
        "  flow               Mbit/s: mean   median      min      max   retransmits  timeouts",
    );
    for flow in &case.flows {
        let rate = flow.goodput_bits_per_second;
        out::line(format!(
            "  {:<22} {:>9.1} {:>8.1} {:>8.1} {:>8.1} {:>13.1} {:>9.1}  {}{}",
            flow.name,
            rate.mean / 1e6,
            rate.median / 1e6,
            rate.min / 1e6,
            rate.max / 1e6,
            flow.retransmits.mean,
            flow.timeouts.mean,
            flow.protocol,
            flow.law
                .as_ref()
                .map_or_else(String::new, |law| format!(", {law}")),
        ));
    }
    if case.flows.len() > 1 {
        let Spread { mean, min, max, .. } = case.jain;
        out::line(format!("  Jain's index {mean:.3} ({min:.3} to {max:.3})"));
    }
    for (name, loss) in &case.cross_loss {
        let [mean, max] = [loss.mean, loss.max].map(|share| share * 100.0);
        out::line(format!(
            "  cross traffic {name}: {mean:.2} % lost, at most {max:.2} %"
        ));
    }
    for link in &case.links {
        let drops: Vec<_> = link
            .drops
            .iter()
            .map(|(c, n)| format!("{c} {n:.1}"))
            .collect();
        out::line(format!(
            "  link {:<17} {:>5.1} % used, queue {:.1} KiB, p95 {:.1} KiB; dropped: {}",
            link.name,
            link.utilisation * 100.0,
            link.mean_queue_bytes / 1_024.0,
            link.p95_queue_bytes / 1_024.0,
            if drops.is_empty() {
                "none".into()
            } else {
                drops.join(", ")
            }
        ));
    }
}

fn verdict_text(verdict: &Verdict) {
    let bounds = verdict.bounds();
    let colon = if bounds.is_empty() { "" } else { ": " };
    out::line(format!("{} [{}]", verdict.what, verdict.case));
    out::line(format!(
        "  {:<39} {:<14} {:<14} {bounds}{colon}{}",
        verdict.source,
        show(verdict, verdict.paper),
        show(verdict, verdict.ours),
        word(verdict),
    ));
}

fn show(verdict: &Verdict, value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| verdict.unit.show(v))
}

fn word(verdict: &Verdict) -> String {
    match (verdict.holds, &verdict.fitted) {
        (Some(true), _) => "holds".into(),
        (Some(false), None) => "DEVIATES".into(),
        (Some(false), Some(why)) => format!("outside, though fitted: {why}"),
        (None, _) => match (verdict.ours, verdict.paper) {
            (Some(ours), Some(paper)) => format!("{:.2} times the paper's", ours / paper),
            (Some(_), None) => "nothing to compare with".into(),
            (None, _) => "not run".into(),
        },
    }
}

/// Expectations and results, a table per file.
pub(super) fn markdown(file: &File, summary: &Summary) {
    out::line(format!("\n### {}\n", file.about));
    if summary.verdicts.is_empty() {
        out::line("Nothing is expected of it.");
        return;
    }
    out::line("| figure | case | source | paper | ours | bounds | |");
    out::line("|---|---|---|--:|--:|---|---|");
    for verdict in &summary.verdicts {
        // A bar would end the cell.
        let cells = [
            verdict.what.clone(),
            verdict.case.clone(),
            verdict.source.clone(),
            show(verdict, verdict.paper),
            show(verdict, verdict.ours),
            verdict.bounds(),
            word(verdict),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        out::line(format!("| {} |", cells.join(" | ")));
    }
    let mut tally = Tally::default();
    tally.add(&summary.verdicts);
    out::line(format!("\n{tally}."));
}

/// Number of expectations by result. Known deviations are counted separately, never as met.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cmd::sim) struct Tally {
    hold: usize,
    pub(super) deviate: usize,
    pub(super) fitted: usize,
    compared: usize,
    not_run: usize,
}

impl Tally {
    pub(in crate::cmd::sim) fn add(&mut self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            *match verdict.holds {
                Some(true) => &mut self.hold,
                Some(false) if verdict.fails() => &mut self.deviate,
                Some(false) => &mut self.fitted,
                None if verdict.ours.is_some() => &mut self.compared,
                None => &mut self.not_run,
            } += 1;
        }
    }

    /// Expectations with bounds that were run.
    pub(super) const fn judged(&self) -> usize {
        self.hold + self.deviate + self.fitted
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} met, {} deviate, {} outside though fitted, {} only compared, {} were not run",
            self.hold, self.deviate, self.fitted, self.compared, self.not_run
        )
    }
}
