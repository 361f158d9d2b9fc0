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

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

/// What another process says of a transfer of its own; what is not known is as it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported {
    /// See [`Progress`].
    pub phase: Option<Phase>,
    /// Content bytes that have arrived.
    pub done: Option<u64>,
    /// Content bytes that need not be sent.
    pub resumed: Option<u64>,
    /// Content bytes of all files found so far.
    pub total: Option<u64>,
    /// Files that are over.
    pub files_done: Option<u64>,
    /// Files found so far.
    pub files_total: Option<u64>,
    /// What holds the sender; known whenever the rest is.
    pub hold: Option<Why>,
}

/// The most that is believed of a count of another process, so that sums of them can be made.
const MOST_REPORTED: u64 = u64::MAX / 4;

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

    /// The totals are final.
    pub fn scan_done(&self) {
        self.scanned.store(true, Relaxed);
    }

    /// Shows a transfer of another process.
    pub fn set_reported(&self, reported: &Reported) {
        let counters = [
            (&self.done, reported.done),
            (&self.resumed, reported.resumed),
            (&self.total, reported.total),
            (&self.files_done, reported.files_done),
            (&self.files_total, reported.files_total),
        ];
        for (counter, value) in counters {
            if let Some(value) = value {
                counter.store(value.min(MOST_REPORTED), Relaxed);
            }
        }
        if let Some(phase) = reported.phase {
            self.set_phase(phase);
        }
        self.set_hold(reported.hold);
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
