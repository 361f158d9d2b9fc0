//! Reports to the sender how far the transfer is, now and then, and what else both sides should
//! know.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::watch::DiskWatch;
use crate::{
    role::RoleCore,
    wire::{Message, Tally},
};

/// Completed entries before they are reported to the sender.
const REPORT_EVERY: u64 = 1024;
/// Longest time between reports while something changes.
pub(super) const REPORT_AFTER: Duration = Duration::from_millis(200);

/// Last reports.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) resolved: u64,
    tally: Tally,
    at: Option<Instant>,
    /// Bytes from the start of what comes through a pipe that the sender may forget.
    taken: u64,
    /// True if answers wait to leave.
    pub(super) unheard: bool,
    pub(super) watch: DiskWatch,
}

impl Reports {
    /// Time at which `tally` is to be reported, if it is not.
    pub(super) fn due(&self, tally: &Tally) -> Option<Instant> {
        let at = self.at.filter(|_| self.tally != *tally)?;
        Some(at + REPORT_AFTER)
    }

    /// Reports, if it is time to, that entries below `resolved` are over.
    pub(super) fn report(&mut self, core: &mut RoleCore, resolved: u64, now: Instant) {
        core.progress.set(&core.tally);
        let at = *self.at.get_or_insert(now);
        let changed = self.resolved != resolved || self.tally != core.tally;
        let late = now.since(at) >= REPORT_AFTER;
        let due = resolved - self.resolved >= REPORT_EVERY || late;
        if changed && due && !core.is_finished() {
            self.resolved = resolved;
            self.tally = core.tally;
            self.at = Some(now);
            core.report(resolved);
        } else if late {
            self.at = Some(now);
        }
    }

    /// Reports the end of the bytes of the pipe's `file` that will not be requested again.
    pub(super) fn take(&mut self, core: &mut RoleCore, file: u64, upto: u64) {
        if upto > self.taken {
            self.taken = upto;
            core.out.push(&Message::Taken { file, upto });
        }
    }
}
