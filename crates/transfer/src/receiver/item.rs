//! State of a listed entry: its properties, and how far it is.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use rustix::fs::Stat;

use super::{journal::Journal, target::Meta};
use crate::{
    bounds,
    digest::{BlockTree, Leaves, block_count, block_range},
    disk::File,
    ranges::RangeSet,
    wire::{Entry, Hash, Kind, Root, Stripe},
};

/// Value in place of a count of blocks compared: the part is being named.
pub(super) const COMMITTED: u64 = u64::MAX;

/// A listed entry.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct Incoming {
    pub(super) path: Vec<u8>,
    pub(super) meta: Meta,
    pub(super) is_file: bool,
    /// Stripe of the file, if the entry is not all of it.
    pub(super) stripe: Option<Box<Stripe>>,
    /// True if the stripe was found complete where its file is collected.
    pub(super) collected: bool,
    /// True if something has its name already.
    pub(super) replaces: bool,
    /// The permissions of what has it.
    pub(super) mode_there: Option<u32>,
    /// Reason that the existing entry may not be replaced, if it is not the same.
    pub(super) stands: Option<&'static str>,
    /// True if later entries may be links to it.
    pub(super) linked: bool,
    /// True if blocks of the existing file may be the same.
    pub(super) reuses: bool,
    /// True if the file was already there.
    pub(super) stayed: bool,
    /// True if its content was requested twice.
    pub(super) repaired: bool,
    /// True if the journal has its name, which it may get before its content is on the disk.
    pub(super) noted: bool,
    pub(super) root: Option<Root>,
    pub(super) state: State,
}

impl Incoming {
    /// Makes the state of an entry that was just listed.
    pub(super) fn new(path: Vec<u8>, entry: &Entry, meta: Meta) -> Self {
        Self {
            path,
            meta,
            is_file: matches!(entry.kind, Kind::File | Kind::HardLink),
            stripe: entry.stripe.clone(),
            linked: entry.facts.as_ref().is_some_and(|facts| facts.linked),
            ..Self::default()
        }
    }

    /// The part of it that is collected on disk.
    pub(super) fn part(&mut self) -> Option<&mut Part> {
        match &mut self.state {
            State::Part(part) => Some(part),
            _ => None,
        }
    }

    /// Notes the existing file, whose blocks may be `reused`. The file may have to stay, or keep its permissions.
    pub(super) fn note_there(
        &mut self,
        there: &Stat,
        stands: Option<&'static str>,
        keeps_mode: bool,
        reuses: bool,
    ) {
        self.stands = stands;
        self.reuses = reuses;
        self.mode_there = Some(there.st_mode & 0o777);
        if keeps_mode {
            self.meta.mode = u16::try_from(there.st_mode & 0o777).unwrap_or(0);
        }
    }

    /// True for a file that gets its name once its content has arrived.
    pub(super) const fn is_wanted(&self) -> bool {
        use State::{Memory, Part, Wanted, Working};
        self.is_file && matches!(self.state, Wanted | Memory { .. } | Part(_) | Working)
    }

    /// False from when its content was found to match the received root until that turns out to be
    /// wrong. The root then reported is the one that was checked.
    pub(super) fn takes_root(&self) -> bool {
        match &self.state {
            State::Part(part) => part.compared != Some(COMMITTED),
            State::Waits(_) | State::Wanted | State::Memory { .. } | State::Checking(_) => true,
            State::Over | State::InPlace | State::Link(_) | State::Working | State::GivenUp => {
                false
            }
        }
    }
}

#[derive(Default)]
pub(super) enum State {
    /// Ended: nothing more will be done.
    #[default]
    Over,
    /// Ended, and in place.
    InPlace,
    /// A link to a file listed before, made once all before it is over.
    Link(Box<Entry>),
    /// A worker still has one of this name that was given up: decided on when that is done.
    Waits(Box<Entry>),
    /// Requested: no byte has arrived.
    Wanted,
    /// A small file being collected.
    Memory {
        bytes: Vec<u8>,
        left: usize,
    },
    /// A worker has it.
    Working,
    /// A worker has it, and the sender has given it up: it is over when the worker is done.
    GivenUp,
    /// The existing file may be the same; its root once known, and whether holes went into it as
    /// such.
    Checking(Option<(Hash, bool)>),
    Part(Box<Part>),
}

impl State {
    pub(super) fn part(part: Part) -> Self {
        Self::Part(Box::new(part))
    }

    /// True if nothing more will be done.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Over | Self::InPlace)
    }
}

/// A file collected on disk.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct Part {
    pub(super) file: Option<Arc<File>>,
    /// True if the part is collected with others, and counts among those that are open.
    pub(super) striped: bool,
    /// True if the part exists on disk.
    pub(super) made: bool,
    /// True if missing bytes in it read as zeros.
    pub(super) cleared: bool,
    /// Device and inode of the file that it then is.
    pub(super) inode: Option<(u64, u64)>,
    /// Number of the part in the journal.
    pub(super) journal: Option<u64>,
    /// Blocks that some bytes have been written of.
    pub(super) gathering: BTreeMap<u64, Gathering>,
    pub(super) tree: BlockTree,
    /// Values of the sender's blocks compared so far, once they were requested.
    pub(super) compared: Option<u64>,
    /// Blocks that differ.
    pub(super) bad: Vec<Range<u64>>,
    /// Blocks that counted as holes and are to be hashed as they are stored.
    pub(super) stored: RangeSet,
    /// True if its disk gave something else back.
    pub(super) lost: bool,
    /// The existing file, until it has been compared.
    pub(super) basis: Option<Box<Basis>>,
}

impl Part {
    pub(super) fn new(size: u64) -> Self {
        Self {
            cleared: true,
            tree: BlockTree::new(size),
            ..Self::default()
        }
    }

    /// A part that exists: an earlier run left it.
    pub(super) fn left(size: u64, file: Arc<File>, striped: bool) -> Self {
        Self {
            striped,
            made: true,
            inode: inode(&file),
            file: Some(file),
            ..Self::new(size)
        }
    }

    /// The blocks that differ, once the old file has been compared as a whole.
    pub(super) fn take_compared(&mut self, size: u64) -> Option<Vec<Range<u64>>> {
        let basis = self.basis.as_ref()?;
        if self.compared != Some(block_count(size)) || basis.pending > 0 {
            return None;
        }
        self.compared = None;
        let basis = self.basis.take()?;
        Some(basis.differ.iter().collect())
    }

    /// Takes the values of blocks of the sender's that are to be compared with the old file's; none if they are
    /// not next.
    pub(super) fn take_values(
        &mut self,
        size: u64,
        first: u64,
        values: &[Hash],
    ) -> Option<Vec<(u64, Hash)>> {
        let upto = first + values.len() as u64;
        let basis = self.basis.as_mut()?;
        if self.compared != Some(first) || upto > block_count(size) {
            return None;
        }
        self.compared = Some(upto);
        let all = (first..).zip(values.iter().copied());
        let wanted: Vec<_> = all
            .filter(|(i, _)| !basis.claimed.contains(&(*i..*i + 1)))
            .collect();
        basis.pending += wanted.len();
        Some(wanted)
    }

    /// Notes the values of blocks that are there; returns their bytes.
    pub(super) fn claim(
        &mut self,
        blocks: Vec<(u64, Hash)>,
        size: u64,
        journal: &mut Journal,
    ) -> u64 {
        let mut bytes = 0;
        for (index, value) in blocks {
            let block = block_range(index, size);
            bytes += block.end - block.start;
            self.tree.set(index, value);
            if let Some(number) = self.journal {
                journal.block(number, index, &value);
            }
        }
        bytes
    }
}

/// An older file of the same name.
pub(super) struct Basis {
    pub(super) old: Arc<File>,
    /// True if space for all of it was set aside.
    pub(super) promised: bool,
    /// Blocks that workers have.
    pub(super) pending: usize,
    /// Blocks that an earlier run left.
    pub(super) claimed: RangeSet,
    /// Blocks that are to be requested, and the end of the last of them.
    pub(super) differ: RangeSet,
    last: u64,
}

impl Basis {
    pub(super) fn new(old: File, promised: bool, claimed: RangeSet) -> Self {
        Self {
            old: Arc::new(old),
            promised,
            pending: 0,
            claimed,
            differ: RangeSet::default(),
            last: 0,
        }
    }

    /// Notes blocks that are to be requested.
    pub(super) fn note(&mut self, differ: Vec<u64>) {
        for index in differ {
            // Of very many the good ones between them are requested too.
            let many = self.differ.len() >= bounds::RANGES;
            let from = if many { self.last.min(index) } else { index };
            self.differ.insert(from..index + 1);
            self.last = self.last.max(index + 1);
        }
    }
}

/// Device and number of an open file.
pub(super) fn inode(file: &File) -> Option<(u64, u64)> {
    let stat = file.stat().ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// A block that is not complete.
pub(super) struct Gathering {
    /// Bytes not written yet.
    pub(super) left: u64,
    /// Apart: a map of one block has room for many.
    pub(super) leaves: Box<Leaves>,
}

impl Gathering {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            left: bytes,
            leaves: Box::new(Leaves::new(bytes)),
        }
    }
}
