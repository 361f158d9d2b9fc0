//! Bounds the time in which nothing is written: beyond it the disk, or the sender, has stopped for
//! good.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::job::WriteJob;
use crate::{
    error::{Advice, TransferError},
    pool::Pool,
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

impl DiskWatch {
    /// Looks whether workers move on; true if nothing was done for too long. Waits for the disk, or for the
    /// sender to read, are bounded. Free space is no sign of that: the sender stops before there is none, and
    /// may have sent everything.
    pub(super) fn look(&mut self, pool: &Pool<WriteJob>, now: Instant, answered: bool) -> bool {
        let steps = pool.steps();
        let moved = std::mem::replace(&mut self.steps, steps) != steps || answered;
        let since = self.since.filter(|_| !moved).unwrap_or(now);
        self.since = (pool.outstanding() > 0).then_some(since);
        self.stuck_at(pool).is_some_and(|at| at <= now)
    }

    /// Time at which nothing will have been done for too long.
    pub(super) fn stuck_at(&self, pool: &Pool<WriteJob>) -> Option<Instant> {
        let timeout = if pool.is_syncing() { SYNCING } else { STUCK };
        self.since.map(|since| since + timeout)
    }
}

/// Error for a transfer in which nothing has been written for too long; `unheard` if answers wait to leave.
pub(super) fn stuck(unheard: bool) -> TransferError {
    let (code, text, fix) = if unheard {
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
    TransferError::new(code, text).fix(Advice::resume(fix))
}
