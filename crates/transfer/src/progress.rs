//! How far is it? Counters that the transfer's thread writes and any other thread reads.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use farhaul_core::stats::Why;

/// What a transfer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not connected yet.
    #[default]
    Connecting,
    /// Files move.
    Moving,
    /// Everything has been sent; waiting for digests, renames and the peer's last message.
    Finishing,
    /// Over.
    Done,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Connecting, Self::Moving, Self::Finishing, Self::Done];

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Moving => "moving",
            Self::Finishing => "finishing",
            Self::Done => "done",
        }
    }
}

/// Shared counters of one transfer.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    resumed: AtomicU64,
    files_done: AtomicU64,
    files_total: AtomicU64,
    retries: AtomicU64,
    scanned: AtomicBool,
    phase: AtomicU8,
    /// Index into [`Why::HOLDS`] plus one.
    hold: AtomicU8,
}

impl Progress {
    /// Content bytes that have arrived in this run.
    pub fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Content bytes of all files found so far.
    pub fn bytes_total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Content bytes that need not be sent: found in place, or holes.
    pub fn bytes_resumed(&self) -> u64 {
        self.resumed.load(Relaxed)
    }

    /// Files that are over.
    pub fn files_done(&self) -> u64 {
        self.files_done.load(Relaxed)
    }

    /// Files found so far.
    pub fn files_total(&self) -> u64 {
        self.files_total.load(Relaxed)
    }

    /// Times that content was sent again because it was wrong or had changed.
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// True once the totals are final.
    pub fn is_scanned(&self) -> bool {
        self.scanned.load(Relaxed)
    }

    /// What is going on.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Relaxed)) % Phase::ALL.len()]
    }

    /// What held the sender most lately, if anything did.
    pub fn hold(&self) -> Option<Why> {
        let index = usize::from(self.hold.load(Relaxed)).checked_sub(1)?;
        Why::HOLDS.get(index).copied()
    }

    pub(crate) fn set_hold(&self, why: Option<Why>) {
        let index = why.and_then(|why| Why::HOLDS.iter().position(|w| *w == why));
        let index = index.and_then(|i| u8::try_from(i + 1).ok());
        self.hold.store(index.unwrap_or(0), Relaxed);
    }

    pub(crate) fn found(&self, size: u64) {
        self.files_total.fetch_add(1, Relaxed);
        self.total.fetch_add(size, Relaxed);
    }

    /// A file that was found is longer by `bytes`.
    pub(crate) fn grew(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn scan_done(&self) {
        self.scanned.store(true, Relaxed);
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(crate) fn set(&self, tally: &crate::message::Tally) {
        self.done.store(tally.bytes, Relaxed);
        self.resumed.store(tally.resumed, Relaxed);
        let over = tally.files_ok + tally.files_skipped + tally.files_failed;
        self.files_done.store(over, Relaxed);
    }

    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }
}
