//! Findings of `doctor`, printed one by one, or kept for `--json`.

use std::path::PathBuf;

use farhaul_core::text;
use farhaul_measure::doctor::{DiskSpeed, Finding, Grade, Setting};
use serde_json::Value;

use crate::{exit::Failure, out};

/// Findings, printed already unless they are for `--json`.
pub(super) struct Report {
    pub(super) json: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) path: Value,
    pub(super) disk: Option<DiskSpeed>,
    pub(super) settings: Vec<Setting>,
    /// File in which settings were written.
    pub(super) written: Option<PathBuf>,
    pub(super) failure: Option<Failure>,
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        if !self.json {
            print(&finding);
        }
        self.findings.push(finding);
    }

    /// Notes a fault after which nothing works, and the failure that it ends with.
    pub(super) fn fail(&mut self, name: &'static str, failure: Failure) {
        let finding = Finding::new(name, Grade::Bad, failure.cause());
        self.add(match &*failure.fix {
            "" => finding,
            fix => finding.fix(fix),
        });
        self.failure = Some(failure);
    }

    /// A line of the report for people.
    pub(super) fn say(&self, text: &str) {
        if !self.json {
            out::line(text);
        }
    }
}

fn print(finding: &Finding) {
    let sign = match finding.grade {
        Grade::Good => "ok  ",
        Grade::Fair => "note",
        Grade::Bad => "BAD ",
    };
    // Both may quote what another machine said.
    let text = text::plain(&finding.text);
    out::line(format!("{sign} {:<15} {text}", finding.name));
    if let Some(fix) = &finding.fix {
        out::line(format!("     {:<15} fix: {}", "", text::plain(fix)));
    }
}
