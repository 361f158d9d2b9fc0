//! The progress of a transfer: counters that the transfer's thread writes and any other thread reads.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use farhaul_core::{stats::Why, units::Rate};

/// Phases of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Connecting: there is no session yet.
    #[default]
    Connecting,
    /// The request is with the other end, which has not answered it: another copy of the same may be ending there.
    Waiting,
    /// Files move.
    Moving,
    /// Sent everything; waiting for digests, renames and the peer's last message.
    Finishing,
    /// The transfer is over.
    Done,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 5] = [
        Self::Connecting,
        Self::Waiting,
        Self::Moving,
        Self::Finishing,
        Self::Done,
    ];

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Waiting => "waiting",
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

/// Report of another process about a transfer of its own; unknown fields keep their values.
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
    /// Reason that holds the sender; known whenever the rest is.
    pub hold: Option<Why>,
}

/// The most that is believed of a count of another process, so that sums of them can be made.
const MOST_REPORTED: u64 = u64::MAX / 4;

/// A file that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOver {
    /// Path below the destination, as it was listed.
    pub path: Vec<u8>,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// True if the file is in place.
    pub ok: bool,
    /// True if content of the file was sent, or it was made empty; false if it was already there.
    pub sent: bool,
}

/// Files that are over and wait to be fetched, at most.
const MAX_FILES: usize = 8_192;
/// Bytes of their paths.
const MAX_PATH_BYTES: usize = 1 << 20;

/// Files that are over and that nobody has fetched yet.
#[derive(Debug, Default)]
struct FilesOver {
    waiting: VecDeque<FileOver>,
    /// Bytes of their paths.
    charged: usize,
    /// Number of files for which there was no room.
    missed: u64,
}

/// The file that is next to be over.
#[derive(Debug, Default)]
struct Current {
    number: Option<u64>,
    path: Vec<u8>,
}

/// Shared counters of one transfer.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    resumed: AtomicU64,
    compared: AtomicU64,
    files_done: AtomicU64,
    files_total: AtomicU64,
    retries: AtomicU64,
    scanned: AtomicBool,
    phase: AtomicU8,
    /// Index into [`Why::HOLDS`] plus one.
    hold: AtomicU8,
    /// The limit of the rate that the user gave, bit/s; 0 if none was given.
    max_rate: AtomicU64,
    /// Time for which nothing was received although something should have been, ms.
    silent: AtomicU64,
    /// Time of all silences in this session, ms.
    silences: AtomicU64,
    /// True if somebody looks at the files.
    watched: AtomicBool,
    current: Mutex<Current>,
    over: Mutex<FilesOver>,
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

    /// Content bytes that this end has read to compare them, or to know what it sends.
    pub fn bytes_compared(&self) -> u64 {
        self.compared.load(Relaxed)
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

    /// Phase of the transfer.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Relaxed)) % Phase::ALL.len()]
    }

    /// Reason that held the sender most lately, if anything did.
    pub fn hold(&self) -> Option<Why> {
        let index = usize::from(self.hold.load(Relaxed)).checked_sub(1)?;
        Why::HOLDS.get(index).copied()
    }

    /// The limit of the rate that the user gave.
    pub fn max_rate(&self) -> Option<Rate> {
        let bps = self.max_rate.load(Relaxed);
        (bps > 0).then(|| Rate::from_bps(bps))
    }

    /// The user gave this limit of the rate.
    pub fn set_max_rate(&self, rate: Rate) {
        self.max_rate.store(rate.bps(), Relaxed);
    }

    /// Time for which nothing has been received from the other end, if it should have answered or
    /// sent meanwhile.
    pub fn silent(&self) -> Option<Duration> {
        let ms = self.silent.load(Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// Starts to record files: from now on [`Self::current`] and [`Self::take_files`] have
    /// something to return.
    pub fn watch_files(&self) {
        self.watched.store(true, Relaxed);
    }

    /// The path of the file that is next to be over; empty if there is none.
    pub fn current(&self) -> Vec<u8> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.path.clone()
    }

    /// Files that are over since the last call, and how many more there were than are kept for somebody so slow.
    pub fn take_files(&self) -> (Vec<FileOver>, u64) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = mem::take(&mut *over);
        (taken.waiting.into(), taken.missed)
    }

    pub(crate) fn set_silent(&self, silent: Option<Duration>, all: Duration) {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        self.silent.store(silent.map_or(0, ms), Relaxed);
        self.silences.store(ms(all), Relaxed);
    }

    /// Time for which the other end was silent in this session.
    pub(crate) fn silences(&self) -> Duration {
        Duration::from_millis(self.silences.load(Relaxed))
    }

    /// Notes that entry `number` is next to be over.
    pub(crate) fn set_current(&self, entry: Option<(u64, &[u8])>) {
        if !self.watched.load(Relaxed) {
            return;
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let number = entry.map(|(number, _)| number);
        if current.number != number {
            current.number = number;
            current.path.clear();
            current
                .path
                .extend_from_slice(entry.map_or(b"", |(_, path)| path));
        }
    }

    /// Notes that a file is over.
    pub(crate) fn file_over(&self, file: FileOver) {
        if !self.watched.load(Relaxed) {
            return;
        }
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if over.waiting.len() >= MAX_FILES || over.charged + file.path.len() > MAX_PATH_BYTES {
            over.missed += 1;
            return;
        }
        over.charged += file.path.len();
        over.waiting.push_back(file);
    }

    /// Notes that the totals are final.
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

    /// Adds bytes that were read, and whose digest is known.
    pub(crate) fn compared(&self, bytes: u64) {
        self.compared.fetch_add(bytes, Relaxed);
    }

    /// A file that was found is longer by `bytes`.
    pub(crate) fn grew(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(crate) fn set(&self, tally: &crate::wire::Tally) {
        self.done.store(tally.bytes, Relaxed);
        self.resumed.store(tally.resumed, Relaxed);
        let over = tally.files_ok + tally.files_skipped + tally.files_failed;
        self.files_done.store(over, Relaxed);
    }

    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_for_whoever_watches_and_not_without_end() {
        let progress = Progress::default();
        let over = |path: &[u8], bytes, ok| {
            progress.file_over(FileOver {
                path: path.to_vec(),
                bytes,
                ok,
                sent: ok,
            });
        };
        over(b"unseen", 1, true);
        progress.watch_files();
        for i in 0..MAX_FILES as u64 + 3 {
            over(b"f", i, i != 1);
        }
        let (files, missed) = progress.take_files();
        assert_eq!((files.len(), missed), (MAX_FILES, 3));
        assert!(files[0].ok && !files[1].ok && files[1].bytes == 1);
        assert_eq!(progress.take_files(), (Vec::new(), 0));
        over(&vec![b'x'; MAX_PATH_BYTES], 1, true);
        over(b"y", 1, true);
        assert_eq!(progress.take_files().1, 1, "long paths count");
    }

    #[test]
    fn the_current_file_is_the_one_that_was_named_last() {
        let progress = Progress::default();
        progress.set_current(Some((1, b"a")));
        assert!(progress.current().is_empty(), "nobody looks");
        progress.watch_files();
        progress.set_current(Some((1, b"a")));
        assert_eq!(progress.current(), b"a");
        progress.set_current(Some((2, b"b")));
        assert_eq!(progress.current(), b"b");
        progress.set_current(None);
        assert!(progress.current().is_empty());
    }
}
