//! Divides a listing among several nodes that list the same tree. Every node partitions the listing
//! in the same way, and sends its own shard.
//!
//! - The listing is not held: it is partitioned in windows of bounded size. In each the largest file is assigned first, to
//!   the shard with the fewest bytes so far (longest processing time first, Graham 1969).
//! - A file of 64 MiB or more that would take its shard beyond its target is divided. The shard is
//!   filled, and the rest goes on with the next (wrap-around, McNaughton 1959). So shards differ by
//!   less than 100 MiB, and in a window not more files are divided than there are shards.
//! - What has no content (empty files, links) is assigned in turn.
//! - Folders are everybody's: each node that puts something into one sets its time and permissions
//!   at the end. So the last to end does.

use std::{cmp::Reverse, collections::BinaryHeap, fmt};

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::{
    confine::is_dir,
    wire::{
        BLOCK, Entry, Hash, MOST_SHARDS, Stripe,
        path::{self, Tag},
    },
};

/// Entries that are assigned together.
const WINDOW: usize = 16 << 10;
/// Bytes of their paths.
const WINDOW_BYTES: usize = 4 << 20;
/// Begins the digest of a listing: another way to partition has another one.
const DIGEST_DOMAIN: &[u8] = b"farhaul split 2\n";
/// The shortest stripe, bytes: less is not worth a file of its own.
const MIN_STRIPE: u64 = 32 * BLOCK;

/// One of several parts of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the shard, from 1 on.
    index: u32,
    /// Number of shards.
    count: u32,
}

impl Shard {
    /// The most shards of a copy.
    pub const MOST: u32 = MOST_SHARDS;

    /// Number `index`, from 1 on, of `count`, if there is such a shard.
    pub fn new(index: u32, count: u32) -> Option<Self> {
        let there_is = (1..=count).contains(&index) && count <= Self::MOST;
        there_is.then_some(Self { index, count })
    }

    /// Number of the shard, from 1 on.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Number of shards.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Number of files.
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

/// Partition of a listing, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Digest of all that was listed, paths, kinds, sizes and times of large files, in hexadecimal: the same for each shard
    /// of a tree.
    pub listing: String,
    /// Content that this shard sends.
    pub own: Content,
    /// Content that all shards send.
    pub whole: Content,
    /// Number of files that several shards send in stripes.
    pub divided: u64,
}

/// An entry that is not assigned yet.
pub(super) struct Pending {
    /// Index of the source.
    pub(super) source: usize,
    pub(super) rel: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
    /// Piece of the entry that this shard sends, if that is not all.
    pub(super) cut: Option<Cut>,
}

/// Piece of a divided file that a shard sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    stripe: Stripe,
    /// Bytes of the piece.
    size: u64,
}

impl Cut {
    /// Makes the entry of a file that of the stripe. How much of it is stored is not known, but whether all is.
    pub(super) fn apply(&self, entry: &mut Entry) {
        let whole = u128::from(entry.size.max(1));
        let stored = u128::from(entry.allocated) * u128::from(self.size) / whole;
        entry.allocated = u64::try_from(stored).unwrap_or(self.size);
        entry.size = self.size;
        entry.stripe = Some(Box::new(self.stripe));
    }
}

/// Assigns entries to shards.
pub(super) struct Partitioner {
    shard: Shard,
    loads: LeastLoaded,
    window: Vec<Pending>,
    /// Bytes of the paths.
    bytes: usize,
    listing: blake3::Hasher,
    own: Content,
    whole: Content,
    divided: u64,
    /// Tag of the copy that all shards are parts of.
    copy: Tag,
}

impl Partitioner {
    pub(super) fn new((shard, copy): (Shard, Tag)) -> Self {
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
            divided: 0,
            copy,
        }
    }

    /// Takes note of an entry; true if the window is full.
    pub(super) fn add(&mut self, pending: Pending) -> bool {
        // The same on every node, wherever its tree is mounted.
        self.bytes += 2 * pending.name.len();
        self.window.push(pending);
        self.window.len() >= WINDOW || self.bytes >= WINDOW_BYTES
    }

    /// Takes the part of the window that is this shard's, in its order.
    pub(super) fn drain_window(&mut self) -> Vec<Pending> {
        self.bytes = 0;
        let window = std::mem::take(&mut self.window);
        let weights: Vec<_> = window.iter().map(|p| Weight::of(&p.stat)).collect();
        let owners = self.loads.assign(&weights);
        let all = window.into_iter().zip(weights).zip(owners);
        all.filter_map(|((pending, weight), owner)| self.take_own(pending, weight, &owner))
            .collect()
    }

    /// The entry, if it is, or a stripe of it, this shard's.
    fn take_own(&mut self, mut pending: Pending, weight: Weight, owner: &Owner) -> Option<Pending> {
        self.list(&pending, weight);
        let own = self.shard.index - 1;
        let mine = match owner {
            Owner::All => true,
            Owner::One(shard) => *shard == own,
            Owner::Several(parts) => {
                self.divided += 1;
                pending.cut = self.cut(&pending, parts);
                pending.cut.is_some()
            }
        };
        if let Weight::File(size) = weight {
            self.whole.add(size);
            // One of them counts the file.
            match &pending.cut {
                None if mine => self.own.add(size),
                Some(cut) if cut.stripe.index > 0 => self.own.bytes += cut.size,
                Some(cut) => self.own.add(cut.size),
                None => {}
            }
        }
        mine.then_some(pending)
    }

    /// Adds an entry to the digest.
    fn list(&mut self, pending: &Pending, weight: Weight) {
        self.listing.update(&[weight.kind()]);
        self.listing.update(&weight.size().to_be_bytes());
        // Stripes of two states of a file are not put together.
        if weight.size() >= 2 * MIN_STRIPE {
            self.listing.update(&state_of(&pending.stat).concat());
        }
        self.listing
            .update(&(pending.name.len() as u64).to_be_bytes());
        self.listing.update(&pending.name);
    }

    /// Piece that this shard sends of a file that is divided among the shards of `parts`, which
    /// have so many bytes each. None if it is not one of them.
    fn cut(&self, pending: &Pending, parts: &[(u32, u64)]) -> Option<Cut> {
        let (stat, sizes) = (&pending.stat, parts.iter().map(|p| p.1.to_be_bytes()));
        let index = parts.iter().position(|p| p.0 == self.shard.index - 1)?;
        let offset = parts[..index].iter().map(|p| p.1).sum();
        let stripe = Stripe {
            offset,
            file_size: stat.st_size.cast_unsigned(),
            index: u32::try_from(index).ok()?,
            count: u32::try_from(parts.len()).ok()?,
            id: path::tag(&self.copy, state_of(stat).into_iter().chain(sizes)),
        };
        let size = parts[index].1;
        Some(Cut { stripe, size })
    }

    /// Ends the partition: everything was listed and assigned.
    pub(super) fn end(self) -> Partition {
        let listing: Hash = *self.listing.finalize().as_bytes();
        Partition {
            listing: path::hex(&listing),
            own: self.own,
            whole: self.whole,
            divided: self.divided,
        }
    }
}

/// State of a file by its times, also if its modification time was put back: that does not change
/// the change time.
const fn state_of(stat: &Stat) -> [[u8; 8]; 4] {
    [
        stat.st_mtime.to_be_bytes(),
        stat.st_mtime_nsec.to_be_bytes(),
        stat.st_ctime.to_be_bytes(),
        stat.st_ctime_nsec.to_be_bytes(),
    ]
}

/// Weight of an entry in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// Folder, which all shards list.
    Folder,
    /// A file of this size.
    File(u64),
    /// Any other entry.
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

/// Shards that send an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    All,
    /// The shard, from 0 on.
    One(u32),
    /// Several shards, each with its number of bytes, in the order of the file.
    Several(Vec<(u32, u64)>),
}

/// Bytes that the shards have so far.
struct LeastLoaded {
    /// Bytes, files with content and number of each, the least first.
    loads: BinaryHeap<Reverse<(u64, u64, u32)>>,
    count: u32,
    /// Shard that gets the next entry without content.
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

    /// Shards that send each entry of a window.
    fn assign(&mut self, window: &[Weight]) -> Vec<Owner> {
        let mut owners = vec![Owner::All; window.len()];
        let mut files = Vec::new();
        for (at, weight) in window.iter().enumerate() {
            match weight {
                Weight::Folder => {}
                Weight::File(size @ 1..) => files.push((Reverse(*size), at)),
                Weight::File(0) | Weight::Other => {
                    owners[at] = Owner::One(self.next);
                    self.next = (self.next + 1) % self.count;
                }
            }
        }
        files.sort_unstable();
        let bytes = files.iter().map(|(Reverse(size), _)| *size);
        let level = self.level(bytes.fold(0, u64::saturating_add));
        for (Reverse(size), at) in files {
            owners[at] = self.assign_file(size, level);
        }
        owners
    }

    /// Bytes that each shard has that does not have more already, once so many bytes are assigned
    /// evenly.
    fn level(&self, bytes: u64) -> u64 {
        let mut loads: Vec<u64> = self.loads.iter().map(|Reverse((load, ..))| *load).collect();
        loads.sort_unstable();
        let (mut sum, mut level) = (u128::from(bytes), u128::MAX);
        for (n, load) in (1..).zip(loads) {
            if u128::from(load) >= level {
                break;
            }
            sum += u128::from(load);
            level = sum.div_ceil(n);
        }
        u64::try_from(level).unwrap_or(u64::MAX)
    }

    /// Shards that send a file of this size, if no shard is to have much more than `level`.
    fn assign_file(&mut self, size: u64, level: u64) -> Owner {
        let mut parts: Vec<(u32, u64)> = Vec::new();
        let mut taken = Vec::new();
        let (mut left, mut missed) = (size, 0);
        while left > 0
            && let Some(Reverse((load, files, shard))) = self.loads.pop()
        {
            // The rest of a whole block goes to the next.
            let exact = level.saturating_sub(load).saturating_add(missed);
            let room = (exact / BLOCK * BLOCK).max(MIN_STRIPE);
            missed = exact.saturating_sub(room);
            let all = left < room.saturating_add(MIN_STRIPE)
                || size < 2 * MIN_STRIPE
                || self.loads.is_empty();
            let bytes = if all { left } else { room };
            left -= bytes;
            parts.push((shard, bytes));
            taken.push(Reverse((load.saturating_add(bytes), files + 1, shard)));
        }
        self.loads.extend(taken);
        match parts[..] {
            [(shard, _)] => Owner::One(shard),
            _ => Owner::Several(parts),
        }
    }
}

#[cfg(test)]
mod tests;
