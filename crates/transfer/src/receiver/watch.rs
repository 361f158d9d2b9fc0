//! Bounds the time in which nothing is written: beyond it the disk, or the sender, has stopped for
//! good.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::Receiver;
use crate::{
    error::{Advice, TransferError},
    wire::Exit,
};

/// Time in which workers may get nothing done.
pub(super) const STUCK: Duration = Duration::from_mins(2);
/// Time in which workers may get nothing done if one of them syncs: the system may have kept
/// gigabytes for a slow disk.
pub(super) const SYNCING: Duration = Duration::from_mins(10);

/// Progress of workers.
#[derive(Debug, Default)]
pub(super) struct DiskWatch {
    /// Time since which workers have had something to do and got nothing done.
    since: Option<Instant>,
    /// Steps that the pool's jobs had made at the last look.
    steps: u64,
}

impl Receiver {
    /// Ends the transfer, as nothing has been written for too long.
    pub(super) fn get_stuck(&mut self) {
        let (code, text, fix) = if self.unheard {
            // Workers are done, and are not polled until their results can be reported.
            (
                Exit::ConnectionLost,
                "the peer has not read an answer for a long time",
                "run the same command again",
            )
        } else {
            (
                Exit::DestError,
                "the destination's disk has made no progress for a long time",
                "check the disk there, then run the same command again",
            )
        };
        self.core
            .fail(TransferError::new(code, text).fix(Advice::resume(fix)));
    }

    /// Waits for the disk, or for the sender to read, are bounded. Free space is no sign of
    /// that: the sender stops before there is none, and may have sent everything.
    pub(super) fn watch_disk(&mut self, now: Instant, answered: bool) {
        let steps = self.pool.steps();
        let moved = std::mem::replace(&mut self.watch.steps, steps) != steps || answered;
        let since = self.watch.since.filter(|_| !moved).unwrap_or(now);
        self.watch.since = (self.pool.outstanding() > 0).then_some(since);
        if self.stuck_at().is_some_and(|at| at <= now) {
            self.get_stuck();
        }
    }

    /// Time at which nothing will have been done for too long.
    pub(super) fn stuck_at(&self) -> Option<Instant> {
        let timeout = if self.pool.is_syncing() {
            SYNCING
        } else {
            STUCK
        };
        self.watch.since.map(|since| since + timeout)
    }
}
