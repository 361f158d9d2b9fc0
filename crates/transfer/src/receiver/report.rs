//! Reports to the sender how far the transfer is, now and then, and what else both sides should
//! know.

use std::{io, time::Duration};

use farhaul_core::time::Instant;

use super::Receiver;
use crate::wire::{Code, Message, NOT_LISTED, Tally, short};

/// Completed entries before they are reported to the sender.
const REPORT_EVERY: u64 = 1024;
/// Longest time between reports while something changes.
pub(super) const REPORT_AFTER: Duration = Duration::from_millis(200);

/// Last report.
#[derive(Debug, Default)]
pub(super) struct Reports {
    resolved: u64,
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
    /// Sends a sign of progress: a report, though nothing changed.
    pub(crate) fn send_keep_alive(&mut self) {
        self.out.push(&Message::Report {
            resolved: self.reports.resolved,
            tally: self.tally,
        });
    }

    pub(super) fn report(&mut self, now: Instant) {
        self.progress.set(&self.tally);
        let first = self.table.first();
        let finished = self.is_finished();
        let last = &mut self.reports;
        let at = *last.at.get_or_insert(now);
        let changed = last.resolved != first || last.tally != self.tally;
        let due = first - last.resolved >= REPORT_EVERY || now.since(at) >= REPORT_AFTER;
        if changed && due && !finished {
            last.resolved = first;
            last.tally = self.tally;
            last.at = Some(now);
            self.out.push(&Message::Report {
                resolved: first,
                tally: self.tally,
            });
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
        self.record(Code::Ok, text);
    }

    pub(super) fn record(&mut self, code: Code, text: String) {
        self.out.push(&Message::Trouble {
            file: NOT_LISTED,
            code,
            text: short(&text),
        });
        self.ledger.add(code, text);
    }
}
