//! Which of several nodes that list the same tree sends what? Every node partitions the listing in the same way, and sends
//! its own shard.
//!
//! - The listing is not held: it is partitioned in windows of bounded size. In each the largest file is assigned first, to
//!   the shard with the fewest bytes so far (longest processing time first, Graham 1969), so that shards differ by no more
//!   than the largest file, and by about the smallest ones of the last window where that is possible.
//! - What has no content (empty files, links) is assigned in turn.
//! - Folders are everybody's: whoever puts something into one gives it its time and permissions at the end, so the last
//!   to end does.

use std::{cmp::Reverse, collections::BinaryHeap, fmt};

use rustix::fs::{FileType, Stat};

use super::is_dir;
use crate::{digest::Hash, path};

/// Entries that are assigned together.
const WINDOW: usize = 16 << 10;
/// Bytes of their paths.
const WINDOW_BYTES: usize = 4 << 20;
/// Begins the digest of a listing: another way to partition has another one.
const DIGEST_DOMAIN: &[u8] = b"farhaul split 1\n";

/// One of several parts of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 1 on.
    index: u32,
    /// How many there are.
    count: u32,
}

impl Shard {
    /// The most shards of a copy.
    pub const MOST: u32 = 10_000;

    /// Number `index`, from 1 on, of `count`, if there is such a shard.
    pub fn new(index: u32, count: u32) -> Option<Self> {
        let there_is = (1..=count).contains(&index) && count <= Self::MOST;
        there_is.then_some(Self { index, count })
    }

    /// Its number, from 1 on.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// How many there are.
    pub const fn count(self) -> u32 {
        self.count
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// Regular files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// How many.
    pub files: u64,
    /// Bytes, by their sizes.
    pub bytes: u64,
}

impl Content {
    const fn add(&mut self, size: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size);
    }
}

/// How a listing was partitioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Digest of all that was listed, paths, kinds and sizes, in hexadecimal: the same for each shard of a tree.
    pub listing: String,
    /// What this shard sends.
    pub own: Content,
    /// What all of them send.
    pub whole: Content,
}

/// An entry that is not assigned yet.
pub(super) struct Pending {
    /// Index of the source.
    pub(super) source: usize,
    pub(super) rel: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
}

/// Assigns entries to shards.
pub(super) struct Partitioner {
    shard: Shard,
    loads: LeastLoaded,
    window: Vec<Pending>,
    /// Of their paths.
    bytes: usize,
    listing: blake3::Hasher,
    own: Content,
    whole: Content,
}

impl Partitioner {
    pub(super) fn new(shard: Shard) -> Self {
        let mut listing = blake3::Hasher::new();
        listing.update(DIGEST_DOMAIN);
        Self {
            loads: LeastLoaded::new(shard.count),
            shard,
            window: Vec::new(),
            bytes: 0,
            listing,
            own: Content::default(),
            whole: Content::default(),
        }
    }

    /// Takes note of an entry; true if the window is full.
    pub(super) fn add(&mut self, pending: Pending) -> bool {
        self.bytes += pending.rel.len() + pending.name.len();
        self.window.push(pending);
        self.window.len() >= WINDOW || self.bytes >= WINDOW_BYTES
    }

    /// What of the window is this shard's, in its order.
    pub(super) fn drain_window(&mut self) -> Vec<Pending> {
        self.bytes = 0;
        let window = std::mem::take(&mut self.window);
        let weights: Vec<_> = window.iter().map(|p| Weight::of(&p.stat)).collect();
        let owners = self.loads.assign(&weights);
        let own = self.shard.index - 1;
        let all = window.into_iter().zip(weights).zip(owners);
        let mine = all.filter_map(|((pending, weight), owner)| {
            self.listing.update(&[weight.kind()]);
            self.listing.update(&weight.size().to_be_bytes());
            self.listing
                .update(&(pending.name.len() as u64).to_be_bytes());
            self.listing.update(&pending.name);
            let mine = owner.is_none_or(|owner| owner == own);
            if let Weight::File(size) = weight {
                self.whole.add(size);
                if mine {
                    self.own.add(size);
                }
            }
            mine.then_some(pending)
        });
        mine.collect()
    }

    /// Everything was listed and assigned.
    pub(super) fn end(self) -> Partition {
        let listing: Hash = *self.listing.finalize().as_bytes();
        Partition {
            listing: path::hex(&listing),
            own: self.own,
            whole: self.whole,
        }
    }
}

/// What an entry counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// Everybody's.
    Folder,
    /// A file of this size.
    File(u64),
    /// Anything else.
    Other,
}

impl Weight {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            _ if is_dir(stat) => Self::Folder,
            FileType::RegularFile => Self::File(stat.st_size.cast_unsigned()),
            _ => Self::Other,
        }
    }

    const fn kind(self) -> u8 {
        match self {
            Self::Folder => b'd',
            Self::File(_) => b'f',
            Self::Other => b'o',
        }
    }

    const fn size(self) -> u64 {
        match self {
            Self::File(size) => size,
            Self::Folder | Self::Other => 0,
        }
    }
}

/// What the shards have so far.
struct LeastLoaded {
    /// Bytes, files with content and number of each, the least first.
    loads: BinaryHeap<Reverse<(u64, u64, u32)>>,
    count: u32,
    /// Who gets the next entry without content.
    next: u32,
}

impl LeastLoaded {
    fn new(count: u32) -> Self {
        Self {
            loads: (0..count).map(|shard| Reverse((0, 0, shard))).collect(),
            count,
            next: 0,
        }
    }

    /// The shard, from 0 on, of each entry of a window; of none if it is everybody's.
    fn assign(&mut self, window: &[Weight]) -> Vec<Option<u32>> {
        let mut owners = vec![None; window.len()];
        let mut files = Vec::new();
        for (at, weight) in window.iter().enumerate() {
            match weight {
                Weight::Folder => {}
                Weight::File(size @ 1..) => files.push((Reverse(*size), at)),
                Weight::File(0) | Weight::Other => {
                    owners[at] = Some(self.next);
                    self.next = (self.next + 1) % self.count;
                }
            }
        }
        files.sort_unstable();
        for (Reverse(size), at) in files {
            let Some(mut least) = self.loads.peek_mut() else {
                break;
            };
            let Reverse((bytes, files, shard)) = &mut *least;
            *bytes = bytes.saturating_add(size);
            *files += 1;
            owners[at] = Some(*shard);
        }
        owners
    }
}

#[cfg(test)]
mod tests;
