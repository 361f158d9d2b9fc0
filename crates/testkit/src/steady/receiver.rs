//! Reports arrivals, every 10 ms while data arrives: the prefix, the newest, and as many of the
//! spans between them as a report holds.

use std::time::Duration;

use farhaul_core::{
    codec::{NoRoom, Writer},
    loss::Ranges,
    time::Instant,
};

use super::wire::MAX_REPORT;

const INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct Receiver {
    have: Ranges,
    newest: u64,
    due: Option<Instant>,
}

impl Receiver {
    /// Positions `from..to` arrived; `to` is at most 2^63.
    pub(super) fn on_data(&mut self, now: Instant, from: u64, to: u64) {
        self.have.insert(from..to);
        self.newest = self.newest.max(to);
        self.due.get_or_insert(now + INTERVAL);
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Writes the report.
    pub(super) fn report(&mut self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.due = None;
        w.u64(self.have.prefix())?;
        w.u64(self.newest)?;
        for gap in self.have.gaps(self.have.prefix()..self.newest) {
            if w.room() < 16 || w.len() > MAX_REPORT {
                break;
            }
            w.u64(gap.start)?;
            w.u64(gap.end - gap.start)?;
        }
        Ok(())
    }
}
