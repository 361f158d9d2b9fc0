//! Reports to the sender how far the transfer is, now and then, and what else both sides should
//! know.

use std::{io, time::Duration};

use farhaul_core::time::Instant;

use super::Receiver;
use crate::wire::{Exit, NOT_LISTED, Tally};

/// Completed entries before they are reported to the sender.
const REPORT_EVERY: u64 = 1024;
/// Longest time between reports while something changes.
pub(super) const REPORT_AFTER: Duration = Duration::from_millis(200);

/// Last report.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) resolved: u64,
    tally: Tally,
    at: Option<Instant>,
    /// True if it was reported that the journal cannot be written.
    unnoted: bool,
}

impl Reports {
    /// Time at which `tally` is to be reported, if it is not.
    pub(super) fn due(&self, tally: &Tally) -> Option<Instant> {
        let at = self.at.filter(|_| self.tally != *tally)?;
        Some(at + REPORT_AFTER)
    }
}

impl Receiver {
    pub(super) fn report(&mut self, now: Instant) {
        self.core.progress.set(&self.core.tally);
        let first = self.table.first();
        let finished = self.core.is_finished();
        let last = &mut self.reports;
        let at = *last.at.get_or_insert(now);
        let changed = last.resolved != first || last.tally != self.core.tally;
        let due = first - last.resolved >= REPORT_EVERY || now.since(at) >= REPORT_AFTER;
        if changed && due && !finished {
            last.resolved = first;
            last.tally = self.core.tally;
            last.at = Some(now);
            self.core.report(first);
        } else if now.since(at) >= REPORT_AFTER {
            last.at = Some(now);
        }
    }

    /// Reports once that the journal cannot be written.
    pub(super) fn note_journal(&mut self, noted: io::Result<()>) {
        if let Err(e) = noted
            && !std::mem::replace(&mut self.reports.unnoted, true)
        {
            let text = "the journal cannot be written, so this transfer cannot be continued";
            self.warn(format!("{text}: {e}"));
        }
    }

    /// Notes a warning that both sides should know.
    pub(super) fn warn(&mut self, text: String) {
        self.record(Exit::Ok, text);
    }

    pub(super) fn record(&mut self, code: Exit, text: String) {
        self.core.trouble(NOT_LISTED, code, text);
    }
}
