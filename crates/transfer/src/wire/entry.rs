//! One line of the manifest: the kind of an entry, its name and its properties.

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use crate::wire::{
    Facts, Out, Stripe,
    fields::text,
    limits::{ENTRIES, NAMES},
    path,
};

/// "File number" of a problem with something that was never listed.
pub(crate) const NOT_LISTED: u64 = VARINT_MAX;
/// Flag in the first byte of an entry: facts follow.
const FACTS: u8 = 4;
/// Flag in the first byte of an entry: it is a stripe of a file, and its place follows.
const STRIPE: u8 = 8;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink,
    /// Hard link: another name of a file that was listed before, whose path is its target.
    HardLink,
}

/// One line of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Relative to the destination; empty for the destination directory itself.
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u16,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanos: u32,
    /// Bytes, of the stripe if it is one; 0 unless a file.
    pub(crate) size: u64,
    /// Bytes stored; less than `size` for sparse files.
    pub(crate) allocated: u64,
    /// Target of a link.
    pub(crate) target: Vec<u8>,
    /// Facts that are preserved besides.
    pub(crate) facts: Option<Box<Facts>>,
    /// Stripe, of a file that several nodes send.
    pub(crate) stripe: Option<Box<Stripe>>,
}

impl Entry {
    /// An entry without further facts.
    pub(crate) const fn named(kind: Kind, path: Vec<u8>) -> Self {
        Self {
            kind,
            path,
            mode: 0,
            mtime: 0,
            mtime_nanos: 0,
            size: 0,
            allocated: 0,
            target: Vec::new(),
            facts: None,
            stripe: None,
        }
    }

    /// About what it takes in a message.
    pub(crate) fn len(&self) -> usize {
        let facts = self.facts.as_ref().map_or(0, |facts| facts.len());
        let stripe = self.stripe.as_ref().map_or(0, |_| 40);
        self.path.len() + self.target.len() + facts + stripe + 48
    }

    /// Offset of the entry in its file, bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.stripe.as_ref().map_or(0, |stripe| stripe.offset)
    }

    /// Bytes of the file, of which the entry may be a stripe.
    pub(crate) fn file_size(&self) -> u64 {
        self.stripe
            .as_ref()
            .map_or(self.size, |stripe| stripe.file_size)
    }

    /// Appends their number and all of them.
    pub(super) fn encode_all(entries: &[Self], out: &mut Out<'_>) {
        out.varint(entries.len() as u64);
        let mut previous: &[u8] = b"";
        for entry in entries {
            entry.encode(previous, out);
            previous = &entry.path;
        }
    }

    /// Decodes all entries of a message.
    pub(super) fn decode_all(r: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        let count = r.varint()?;
        let mut all: Vec<Self> = Vec::new();
        let mut names = 0;
        for _ in 0..count {
            let previous = all.last().map_or(&b""[..], |e| &e.path);
            let entry = Self::decode(r, previous)?;
            names += entry.path.len() + entry.target.len();
            // A name may be far longer than what it takes in the message.
            if all.len() == ENTRIES || names > NAMES {
                return Err(DecodeError::Malformed("entries: too many in one message"));
            }
            all.push(entry);
        }
        Ok(all)
    }

    /// Appends it; what its path shares with that of the entry before is not repeated.
    pub(super) fn encode(&self, previous: &[u8], out: &mut Out<'_>) {
        let shared = self
            .path
            .iter()
            .zip(previous)
            .take_while(|(a, b)| a == b)
            .count();
        let kind = match self.kind {
            Kind::File => 0,
            Kind::Dir => 1,
            Kind::Symlink => 2,
            Kind::HardLink => 3,
        };
        let facts = if self.facts.is_some() { FACTS } else { 0 };
        let stripe = if self.stripe.is_some() { STRIPE } else { 0 };
        out.u8(kind | facts | stripe);
        out.varint(shared as u64);
        out.prefixed(&self.path[shared..]);
        out.varint(u64::from(self.mode));
        out.varint(zigzag(self.mtime));
        out.varint(u64::from(self.mtime_nanos));
        match self.kind {
            Kind::File => {
                out.varint(self.size);
                out.varint(self.allocated);
                if let Some(stripe) = &self.stripe {
                    stripe.encode(out);
                }
            }
            Kind::Dir => {}
            Kind::Symlink | Kind::HardLink => out.prefixed(&self.target),
        }
        if let Some(facts) = &self.facts {
            facts.encode(out);
        }
    }

    /// Decodes an entry.
    pub(super) fn decode(r: &mut Reader<'_>, previous: &[u8]) -> Result<Self, DecodeError> {
        let first = r.u8()?;
        let striped = first & STRIPE != 0;
        let kind = match first & !(FACTS | STRIPE) {
            0 => Kind::File,
            _ if striped => return Err(DecodeError::Malformed("entry kind")),
            1 => Kind::Dir,
            2 => Kind::Symlink,
            3 => Kind::HardLink,
            _ => return Err(DecodeError::Malformed("entry kind")),
        };
        let shared = usize::try_from(r.varint()?).ok();
        let shared = shared.and_then(|n| previous.get(..n));
        let shared = shared.ok_or(DecodeError::Malformed("shared prefix"))?;
        let path = [shared, r.prefixed()?].concat();
        if let Some(why) = path::refusal(&path) {
            return Err(DecodeError::Malformed(why));
        }
        if path.is_empty() && kind != Kind::Dir {
            return Err(DecodeError::Malformed("empty path"));
        }
        let mode = u16::try_from(r.varint()?).ok().filter(|m| *m <= 0o7777);
        let mode = mode.ok_or(DecodeError::Malformed("mode"))?;
        let mtime = unzigzag(r.varint()?);
        let nanos = u32::try_from(r.varint()?)
            .ok()
            .filter(|n| *n < 1_000_000_000);
        let mtime_nanos = nanos.ok_or(DecodeError::Malformed("nanoseconds"))?;
        let (size, allocated) = match kind {
            Kind::File => (r.varint()?, r.varint()?),
            _ => (0, 0),
        };
        if allocated > size {
            return Err(DecodeError::Malformed("allocated size"));
        }
        let stripe = striped.then(|| Stripe::decode(r, size)).transpose()?;
        let target = match kind {
            Kind::Symlink => text(r)?,
            Kind::HardLink => text(r).and_then(of_file)?,
            _ => Vec::new(),
        };
        let facts = (first & FACTS != 0).then(|| Facts::decode(r)).transpose()?;
        Ok(Self {
            kind,
            path,
            mode,
            mtime,
            mtime_nanos,
            size,
            allocated,
            target,
            facts: facts.map(Box::new),
            stripe: stripe.map(Box::new),
        })
    }
}

const fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)).cast_unsigned()
}

const fn unzigzag(v: u64) -> i64 {
    (v >> 1).cast_signed() ^ -((v & 1).cast_signed())
}

/// The path of a file that another is a link to.
fn of_file(path: Vec<u8>) -> Result<Vec<u8>, DecodeError> {
    match path::refusal(&path) {
        _ if path.is_empty() => Err(DecodeError::Malformed("empty path")),
        Some(why) => Err(DecodeError::Malformed(why)),
        None => Ok(path),
    }
}
