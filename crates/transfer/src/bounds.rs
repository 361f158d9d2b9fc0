//! Bounds how much a peer can make this side hold: the numbers that limit what one session keeps by
//! the other end's word. `docs/protocols/transfer.md` lists them message by message.
//!
//! - A receiver reads no message while its answers wait to leave. A sender always reads, since it
//!   answers nothing directly: its messages are produced when there is space. So of two ends with
//!   much to send one always reads, and neither buffers more than the other accepts.

use crate::wire::{ATTRIBUTES, BLOCK, Entry, Stripe, path::PATH_MAX};

/// Bytes queued on the ordered stream before a receiver reads no more, and a sender sends no
/// more.
pub(crate) const UNWRITTEN: usize = 1 << 20;
/// Charges of entries that may be listed and not over; the sender waits, the receiver insists.
pub(crate) const WINDOW: usize = 8 << 20;
/// Memory that an entry costs either end besides its names, bytes.
const ENTRY: usize = 416;
/// Memory that a file of several blocks costs besides, bytes.
const LARGE: usize = 352;
/// Memory that a stripe of one file costs besides, bytes.
const STRIPE: usize = 2 * size_of::<Stripe>();
/// The most that one can cost: both names of the longest kind, and as many attributes as may be.
pub(crate) const LARGEST: usize = ENTRY + LARGE + STRIPE + 4 * PATH_MAX + 3 * ATTRIBUTES;
/// Limit on how often a receiver may ask for the content of a file, in multiples of its size. The
/// whole may be asked for once, again if the existing file differs after all, and again if it
/// arrived wrong. One more is for receivers that lose count.
pub(crate) const ASKED: u64 = 4;
/// Times that a file is hashed again after its root was sent.
pub(crate) const REPAIRS: u32 = 3;
/// Highest number of blocks of which some bytes have been written and others not.
pub(crate) const GATHERED: usize = 4_096;
/// Stripes that workers note to be complete before no more messages are taken.
pub(crate) const COMPLETING: usize = 32;
/// The most that are open, each with a descriptor.
pub(crate) const STRIPES: usize = 1_024;
/// Separate ranges that are missing.
pub(crate) const GAPS: usize = 96 << 10;
/// Ranges of blocks that differ, and of stored bytes in one file.
pub(crate) const RANGES: usize = 1 << 16;
/// Bytes of folders that wait for their permissions and times.
pub(crate) const FOLDERS: usize = 1 << 20;
/// Files that were given up and are to be listed again; more count as failed.
pub(crate) const AGAIN: usize = 16 << 10;
/// Names compared where case is ignored: they fit a table of 4 MiB.
pub(crate) const FOLDED: usize = 225_000;
/// Paths that a copy that deletes remembers, 8 bytes each.
pub(crate) const LISTED: usize = 8 << 20;
/// Names of backups, and of files that could be: they fit two tables of 9 MiB.
pub(crate) const BACKUPS: usize = 900_000;
/// Files that later entries may be links to.
pub(crate) const LINKED: usize = 64 << 10;
/// Bytes of their paths at the sender.
pub(crate) const LINKED_BYTES: usize = 8 << 20;
/// Costs of files that earlier runs began and did not finish.
pub(crate) const CLAIMS: usize = 1 << 20;
/// Names kept of files that earlier runs left without a sync, of each kind; of more, all are meant.
pub(crate) const NAMED: usize = 16 << 10;
/// Blocks of these, if they store as much: 4 TiB.
pub(crate) const CLAIMED: usize = 4 << 20;

/// Memory that `entry` costs while it is listed and not over, bytes.
pub(crate) fn charge(entry: &Entry) -> usize {
    let facts = entry.facts.as_ref().map_or(0, |facts| facts.len());
    let large = if entry.size > BLOCK { LARGE } else { 0 };
    let stripe = entry.stripe.as_ref().map_or(0, |_| STRIPE);
    charge_of(entry.path.len() + entry.target.len()) + facts + large + stripe
}

/// Memory that an entry with names of so many bytes costs, bytes.
pub(crate) const fn charge_of(names: usize) -> usize {
    ENTRY + 2 * names
}
