//! A simulated disk. A call takes time, fails, writes less than requested, or stops because its
//! machine was killed; the disk notes what was done.

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use farhaul_core::rng::Rng;
use farhaul_transfer::{Answer, Call, Interposer, VirtualTime};
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};

use super::{pick, tree};

/// Beginning of the name of a transfer's journal.
const JOURNAL: &[u8] = b".farhaul-journal-";
/// Bytes of a file's content that are counted at most.
const COUNTED: usize = 64;
/// Files that are not forgotten yet: the run that gave one its name looks at it once more.
const KEPT: usize = 64;

/// Faults that may happen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The longest a call takes.
    pub(crate) slow: Duration,
    /// Call from which on the disk hangs for so long, once.
    pub(crate) hang: Option<(u64, Duration)>,
    /// Call that fails.
    pub(crate) error: Option<u64>,
    /// Number of calls in a million that fail.
    pub(crate) errors: u64,
    /// Bytes it still takes.
    pub(crate) space: Option<u64>,
    /// True if writes and reads may be short.
    pub(crate) short: bool,
    /// Call at which its machine is killed.
    pub(crate) kill: Option<u64>,
    /// True for the planted fault of reporting a sync that was not done.
    pub(crate) lies: bool,
    /// True if a file is counted a little after it got its name, and is gone: there may be more
    /// than a machine can keep.
    pub(crate) forgets: bool,
    /// Planted: so many bytes are kept of each.
    pub(crate) leaks: usize,
}

/// Files, and the sum of a hash of each one's name and content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) files: u64,
    sum: u64,
}

impl Count {
    pub(crate) fn add(&mut self, name: &[u8], content: &[u8]) {
        let bytes = name.iter().chain(b"/").chain(content);
        let hash = bytes.fold(0, |hash, byte| mix(hash, u64::from(*byte)));
        self.files += 1;
        self.sum = self.sum.wrapping_add(hash);
    }
}

/// Change that was made to the files.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        dir: u64,
        name: Vec<u8>,
        file: u64,
        mode: u32,
    },
    MakeDir {
        dir: u64,
        name: Vec<u8>,
        file: u64,
        mode: u32,
    },
    Link {
        dir: u64,
        name: Vec<u8>,
        file: u64,
        text: Vec<u8>,
    },
    Rename {
        dir: u64,
        from: Vec<u8>,
        to: Vec<u8>,
        file: u64,
    },
    Remove {
        dir: u64,
        name: Vec<u8>,
    },
    Write {
        file: u64,
        at: u64,
        bytes: Arc<[u8]>,
    },
    Resize {
        file: u64,
        len: u64,
    },
    Punch {
        file: u64,
        from: u64,
        to: u64,
    },
    Mode {
        file: u64,
        mode: u32,
    },
    Time {
        file: u64,
        time: (i64, u64),
    },
    Sync {
        file: u64,
    },
    SyncAll,
    /// Success was reported.
    Success,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    faults: Faults,
    calls: u64,
    injected: u64,
    dead: bool,
    ops: Option<Vec<Op>>,
    journals: BTreeSet<u64>,
    /// True if a change was made that no sync has followed.
    unsynced: bool,
    trace: u64,
    /// Files that have their names and are to be forgotten.
    named: VecDeque<(OwnedFd, Vec<u8>)>,
    forgotten: Count,
    leaked: Vec<Vec<u8>>,
}

/// The disk of a simulated machine.
#[derive(Debug)]
pub(crate) struct Disk {
    time: Arc<VirtualTime>,
    state: Mutex<State>,
}

impl Disk {
    pub(crate) fn new(time: &Arc<VirtualTime>, rng: Rng, faults: Faults, noted: bool) -> Self {
        Self {
            time: Arc::clone(time),
            state: Mutex::new(State {
                rng,
                faults,
                calls: 0,
                injected: 0,
                dead: false,
                ops: noted.then(Vec::new),
                journals: BTreeSet::new(),
                unsynced: false,
                trace: 0,
                named: VecDeque::new(),
                forgotten: Count::default(),
                leaked: Vec::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if its machine was killed.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    pub(crate) fn kill(&self) {
        self.state().dead = true;
    }

    /// Calls so far, and those that were refused.
    pub(crate) fn calls(&self) -> (u64, u64) {
        let state = self.state();
        (state.calls, state.injected)
    }

    /// True if something beside the journal was changed after the last sync.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.state().unsynced
    }

    /// Hash of the calls so far and their order.
    pub(crate) fn trace(&self) -> u64 {
        self.state().trace
    }

    /// Count of the files that are gone, as all are now.
    pub(crate) fn forgotten(&self) -> Count {
        let state = &mut *self.state();
        for (dir, name) in std::mem::take(&mut state.named) {
            state.forget(&dir, &name);
        }
        state.forgotten
    }

    pub(crate) fn note(&self, op: Op) {
        if let Some(ops) = &mut self.state().ops {
            ops.push(op);
        }
    }

    pub(crate) fn take_ops(&self) -> Vec<Op> {
        self.state().ops.take().unwrap_or_default()
    }
}

/// Mixes `value` into a trace.
pub(crate) const fn mix(trace: u64, value: u64) -> u64 {
    (trace.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl State {
    /// Counts what has a name, and removes it. What cannot be read is missing from the count.
    fn forget(&mut self, dir: &OwnedFd, name: &[u8]) {
        let mut content = [0; COUNTED];
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty());
        let read = file.and_then(|file| rustix::io::read(file, &mut content[..]));
        if let Ok(len) = read
            && rustix::fs::unlinkat(dir, name, AtFlags::empty()).is_ok()
        {
            self.forgotten.add(name, &content[..len]);
            if self.faults.leaks > 0 {
                self.leaked.push(vec![1; self.faults.leaks]);
            }
        }
    }

    fn answer(&mut self, call: &Call<'_>) -> Answer {
        let n = self.calls;
        self.calls += 1;
        if self.faults.kill == Some(n) {
            self.dead = true;
        }
        if self.dead {
            return Answer::Fail(Errno::IO);
        }
        let by_chance = self.faults.errors > 0 && self.rng.below(1_000_000) < self.faults.errors;
        if self.faults.error == Some(n) || by_chance {
            self.injected += 1;
            return Answer::Fail(*pick(&mut self.rng, errors(call)));
        }
        if let (Some(space), Call::Write(_, bytes)) = (&mut self.faults.space, call) {
            let len = bytes.len() as u64;
            if *space == 0 {
                self.injected += 1;
                return Answer::Fail(Errno::NOSPC);
            }
            let most = len.min(*space);
            *space -= most;
            if most < len {
                return Answer::Short(usize::try_from(most).unwrap_or_default());
            }
        }
        match call {
            Call::Write(_, bytes) if self.faults.short && bytes.len() > 1 => {
                self.short(bytes.len())
            }
            Call::Read(_, len) if self.faults.short && *len > 1 => self.short(*len),
            _ => Answer::Go,
        }
    }

    fn short(&mut self, len: usize) -> Answer {
        if self.rng.below(3) > 0 {
            return Answer::Go;
        }
        let most = 1 + self.rng.below(len as u64);
        Answer::Short(usize::try_from(most).unwrap_or(len))
    }

    fn took(&mut self) -> Duration {
        let most = u64::try_from(self.faults.slow.as_nanos()).unwrap_or(u64::MAX);
        let mut took = Duration::from_nanos(self.rng.below(most.max(1)));
        if let Some((from, time)) = self.faults.hang
            && self.calls >= from
        {
            self.faults.hang = None;
            took += time;
        }
        took
    }
}

/// Errors with which a call may fail.
const fn errors(call: &Call<'_>) -> &'static [Errno] {
    match call {
        Call::Open(_) => &[Errno::IO, Errno::MFILE, Errno::ACCESS],
        Call::Create(..) | Call::MakeDir(..) | Call::Link(..) | Call::HardLink(_) => {
            &[Errno::IO, Errno::NOSPC, Errno::MFILE, Errno::ROFS]
        }
        Call::Write(..) | Call::Resize(_) | Call::Punch(_) => {
            &[Errno::IO, Errno::NOSPC, Errno::DQUOT]
        }
        Call::Rename(..) | Call::Remove(_) | Call::RemoveDir(_) => {
            &[Errno::IO, Errno::NOSPC, Errno::ROFS]
        }
        Call::Sync | Call::SyncData | Call::SyncAll => &[Errno::IO, Errno::NOSPC],
        Call::SetMode(_) | Call::SetTimes(..) | Call::SetOwner(_) | Call::SetAttribute(_) => {
            // What a file system does not have is done without.
            &[
                Errno::IO,
                Errno::ROFS,
                Errno::PERM,
                Errno::ACCESS,
                Errno::NOSYS,
                Errno::OPNOTSUPP,
                Errno::INVAL,
                Errno::NOTTY,
            ]
        }
        Call::List => &[Errno::IO, Errno::NOENT, Errno::ACCESS],
        Call::Lock => &[Errno::IO, Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP],
        Call::Look | Call::Read(..) => &[Errno::IO],
    }
}

/// A number for the kind of call and its size.
fn kind(call: &Call<'_>) -> u64 {
    match call {
        Call::Open(path) => mix(1, path.len() as u64),
        Call::Create(name, _) => mix(2, name.len() as u64),
        Call::Look => 3,
        Call::Read(at, len) => mix(mix(4, *at), *len as u64),
        Call::Write(at, bytes) => mix(mix(5, *at), bytes.len() as u64),
        Call::Resize(len) => mix(6, *len),
        Call::Punch(range) => mix(7, range.start),
        Call::SetMode(_) => 8,
        Call::SetTimes(..) => 9,
        Call::MakeDir(..) => 10,
        Call::Link(..) => 11,
        Call::Rename(..) => 12,
        Call::Remove(_) => 13,
        Call::Sync => 14,
        Call::SyncData => 15,
        Call::SyncAll => 16,
        Call::Lock => 17,
        Call::SetOwner(_) => 18,
        Call::SetAttribute(_) => 19,
        Call::HardLink(_) => 20,
        Call::List => 22,
        Call::RemoveDir(_) => 21,
    }
}

fn facts(file: BorrowedFd<'_>) -> Option<Stat> {
    rustix::fs::fstat(file).ok()
}

fn child(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Change that a call made to a directory. Files are identified by their real inodes.
fn of_names(file: BorrowedFd<'_>, dir: u64, call: &Call<'_>) -> Option<Op> {
    let made = |name: &[u8]| child(file, name).map(|s| (s.st_ino, s.st_mode & 0o7777));
    Some(match call {
        Call::Create(name, _) => {
            let ((file, mode), name) = (made(name)?, name.to_vec());
            Op::Create {
                dir,
                name,
                file,
                mode,
            }
        }
        Call::MakeDir(name, _) => {
            let ((file, mode), name) = (made(name)?, name.to_vec());
            Op::MakeDir {
                dir,
                name,
                file,
                mode,
            }
        }
        Call::Link(name, text) => {
            let ((file, _), name, text) = (made(name)?, name.to_vec(), text.to_vec());
            Op::Link {
                dir,
                name,
                file,
                text,
            }
        }
        Call::Rename(from, to) => {
            let ((file, _), from, to) = (made(to)?, from.to_vec(), to.to_vec());
            Op::Rename {
                dir,
                from,
                to,
                file,
            }
        }
        Call::Remove(name) => {
            let name = name.to_vec();
            Op::Remove { dir, name }
        }
        _ => return None,
    })
}

/// Change that a call made to a file; `None` if it changes nothing.
fn of_file(dir: BorrowedFd<'_>, file: u64, call: &Call<'_>) -> Option<Op> {
    Some(match call {
        Call::Write(at, bytes) => Op::Write {
            file,
            at: *at,
            bytes: (*bytes).into(),
        },
        Call::Resize(len) => Op::Resize { file, len: *len },
        Call::Punch(range) => Op::Punch {
            file,
            from: range.start,
            to: range.end,
        },
        Call::SetMode(mode) => Op::Mode {
            file,
            mode: mode.as_raw_mode(),
        },
        Call::SetTimes(name, times) => {
            let file = if name.is_empty() {
                file
            } else {
                child(dir, name)?.st_ino
            };
            let time = &times.last_modification;
            let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
            Op::Time {
                file,
                time: (time.tv_sec, nanos),
            }
        }
        Call::Sync | Call::SyncData => Op::Sync { file },
        Call::SyncAll => Op::SyncAll,
        _ => return None,
    })
}

impl Interposer for Disk {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        let mut state = self.state();
        let took = state.took();
        let answer = state.answer(call);
        state.trace = mix(state.trace, kind(call));
        if let Answer::Short(n) = answer {
            state.trace = mix(state.trace, n as u64);
        }
        drop(state);
        self.time.spend(took);
        answer
    }

    fn after(&self, file: BorrowedFd<'_>, call: &Call<'_>) {
        if let Call::Open(name) = call
            && name.starts_with(JOURNAL)
            && let Some(journal) = child(file, name)
        {
            self.state().journals.insert(journal.st_ino);
        }
        if let Call::Rename(_, name) = call
            && !tree::is_state(name)
            && self.state().faults.forgets
        {
            let Ok(dir) = file.try_clone_to_owned() else {
                return;
            };
            let state = &mut *self.state();
            state.named.push_back((dir, name.to_vec()));
            if state.named.len() > KEPT
                && let Some((dir, name)) = state.named.pop_front()
            {
                state.forget(&dir, &name);
            }
            return;
        }
        let Some(own) = facts(file).map(|s| s.st_ino) else {
            return;
        };
        let op = of_names(file, own, call).or_else(|| of_file(file, own, call));
        let Some(op) = op else { return };
        let mut state = self.state();
        let of_journal = match &op {
            Op::Create { name, file, .. } if name.starts_with(JOURNAL) => {
                state.journals.insert(*file);
                true
            }
            Op::Remove { name, .. } => name.starts_with(JOURNAL),
            Op::Write { file, .. } | Op::Resize { file, .. } => state.journals.contains(file),
            Op::Sync { .. } | Op::SyncAll => true,
            _ => false,
        };
        if matches!(op, Op::SyncAll) && !state.faults.lies {
            state.unsynced = false;
        }
        state.unsynced |= !of_journal;
        let lie = state.faults.lies && matches!(op, Op::Sync { .. } | Op::SyncAll);
        if let Some(ops) = &mut state.ops
            && !lie
        {
            ops.push(op);
        }
    }
}
