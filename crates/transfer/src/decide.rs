//! Decides what becomes of a listed entry. The receiver acts on the decision, the dry run reports it.
//!
//! - [`decide`] is pure. [`There::look`] reads the destination before it, and changes nothing.

use std::io;

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

use crate::{
    confine,
    disk::File,
    error::TransferError,
    reach::{Reach, TAKEN, UNSURE},
    sender::Identity,
    wire::{
        Action, BLOCK, Entry, Existing, Exit, Kind, Mirror, RequestOptions, Symlinks,
        path::{self, Tag},
    },
};

/// Options of a copy, as its receiver and its dry run see them.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Rules {
    /// True if the sender may create the single file and no other name, as of a backup or of
    /// content that stayed wrong.
    pub(crate) alone: bool,
    /// True if files reach the disk before they count.
    pub(crate) sync: bool,
    pub(crate) existing: Existing,
    /// True if files of the same size are compared by content, whatever their times.
    pub(crate) checksum: bool,
    /// True if what was written is read again from the disk before it counts.
    pub(crate) verify_disk: bool,
    pub(crate) reach: Reach,
    /// True if others than the sender may copy to this place: it delivers nothing under the names
    /// of their state.
    pub(crate) strangers: bool,
    pub(crate) mirror: Mirror,
    /// True if the content comes through a pipe: one file, which grows, and which the sender cannot
    /// send again.
    pub(crate) pipe: bool,
    /// Stripes of files are put together, of all senders that have the same scope.
    pub(crate) stripe_scope: Option<Tag>,
}

impl Rules {
    /// Rules by a client's options, for its own files.
    pub(crate) const fn of(options: &RequestOptions) -> Self {
        Self {
            alone: false,
            sync: true,
            existing: options.existing,
            checksum: options.checksum,
            verify_disk: options.verify_disk,
            reach: Reach::All,
            strangers: false,
            mirror: options.mirror,
            pipe: options.pipe,
            stripe_scope: None,
        }
    }
}

/// Record that earlier runs left of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// No run left a record.
    #[default]
    Nothing,
    /// A run gave the file its name and ended before the file was synced.
    Unsure,
    /// A run gave the file, a small one, its name, and the sync failed.
    Suspect,
}

/// The destination, at the name of an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct There {
    /// Facts about what has the name.
    pub(crate) stat: Option<Stat>,
    /// True if that is the same link as the entry.
    pub(crate) same_link: bool,
    pub(crate) earlier: Earlier,
    /// True if stripes of the file are collected: what has the name will be replaced.
    pub(crate) collected: bool,
}

/// Fate of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The existing entry stays, as requested by the client.
    Stay,
    /// The existing entry is this one.
    Same,
    /// The content decides whether the existing file is replaced.
    Compare,
    /// The entry is made where nothing is.
    Make,
    /// The entry takes the place of another.
    Replace,
    /// The entry waits, beside it, until the folder that has the name is deleted.
    Wait,
}

impl Decision {
    /// True if the entry is made.
    pub(crate) const fn makes(self) -> bool {
        matches!(self, Self::Make | Self::Replace | Self::Wait)
    }

    /// Action that a dry run reports.
    pub(crate) const fn action(self, kind: Kind) -> Action {
        match (self, kind) {
            (Self::Stay | Self::Same, _) => Action::Keep,
            (Self::Compare, _) => Action::Compare,
            (_, Kind::Dir) => Action::Make,
            (_, Kind::Symlink | Kind::HardLink) => Action::Link,
            (Self::Make, Kind::File) => Action::Send,
            (Self::Replace | Self::Wait, Kind::File) => Action::Replace,
        }
    }
}

/// Reason that an entry fails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: Exit,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(code: Exit, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { code, why }
    }

    /// Refusal of a link to the file `to`, which this copy has not put in place.
    pub(crate) fn of_link_to(to: &[u8]) -> Self {
        let to = path::show(to);
        let why = format!("is the same file as {to}, which did not arrive");
        Self::new(Exit::SourceChanged, why)
    }
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Self {
        Self::new(Exit::of_write(&e), e.to_string())
    }
}

impl From<Errno> for Refusal {
    fn from(e: Errno) -> Self {
        io::Error::from(e).into()
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        Self::new(Exit::DestError, why)
    }
}

impl There {
    /// Looks at `name` in `dir`, where `entry` belongs.
    pub(crate) fn look(dir: &File, name: &[u8], entry: &Entry) -> io::Result<Self> {
        let stat = confine::stat(dir, name)?;
        let is_link = entry.kind == Kind::Symlink && stat.is_some();
        let same = |to| to == entry.target;
        Ok(Self {
            stat,
            same_link: is_link && dir.readlinkat(name).is_ok_and(same),
            ..Self::default()
        })
    }

    /// Compares it with the file `source`, to which the entry is a further link.
    pub(crate) fn compare_inode(&mut self, source: &Stat) -> io::Result<()> {
        if FileType::from_raw_mode(source.st_mode) != FileType::RegularFile {
            return Err(confine::swapped());
        }
        let inode = |stat: &Stat| (stat.st_dev, stat.st_ino);
        self.same_link = self.stat.as_ref().map(inode) == Some(inode(source));
        Ok(())
    }

    fn kind(&self) -> Option<FileType> {
        let stat = self.stat.as_ref()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// The regular file that has the name.
    fn file(&self) -> Option<&Stat> {
        let stat = self.stat.as_ref();
        stat.filter(|_| self.kind() == Some(FileType::RegularFile))
    }

    /// True if an earlier run ended before it synced the file, which appears unchanged.
    pub(crate) fn is_unsure(&self, entry: &Entry, rules: &Rules) -> bool {
        let unsure = self.earlier == Earlier::Unsure && rules.sync && entry.size <= BLOCK;
        let as_left = |stat| Identity::of(entry).may_be(false, stat);
        unsure && self.file().is_some_and(as_left)
    }

    /// True if the disk may not have what the file seems to be.
    pub(crate) fn is_doubtful(&self, entry: &Entry, rules: &Rules) -> bool {
        self.earlier == Earlier::Suspect || self.is_unsure(entry, rules)
    }

    /// Reason that the existing entry may not be replaced, if it is not the same.
    pub(crate) fn stands(&self, entry: &Entry, rules: &Rules) -> Option<&'static str> {
        let why = rules.reach.refusal(self.stat.as_ref()?)?;
        let doubtful = self.is_doubtful(entry, rules);
        Some(if doubtful { UNSURE } else { why })
    }

    /// True if the client asked to keep the existing file. A file that has its name since a run that
    /// ended before the content was on the disk does not count.
    fn stays(&self, entry: &Entry, rules: &Rules) -> bool {
        let Some(stat) = &self.stat else { return false };
        let id = Identity::of(entry);
        // It may be shorter: a length is on the disk as soon as it was allocated.
        let remnant = self.earlier == Earlier::Unsure
            && entry.size <= BLOCK
            && (stat.st_size == 0 || id.has_time_of(stat));
        self.kind() != Some(FileType::Directory)
            && !remnant
            && !self.is_doubtful(entry, rules)
            && id.stays(rules.existing, stat)
    }

    /// True if the existing file counts as the same: both are empty, or size and time are equal and
    /// contents are not to be compared. A time that the file system stored in part is not enough. A
    /// peer that may not learn about existing files has their content compared, or replaces them.
    fn is_same(&self, entry: &Entry, rules: &Rules) -> bool {
        let suspect = self.earlier == Earlier::Suspect;
        let Some(stat) = self.file().filter(|_| !suspect) else {
            return false;
        };
        if entry.size == 0 && stat.st_size == 0 {
            return rules.reach != Reach::Content;
        }
        let compares = rules.checksum || rules.verify_disk || rules.pipe;
        !compares
            && rules.reach.is_all()
            && self.earlier == Earlier::Nothing
            && !self.collected
            && Identity::of(entry).is_exactly(stat)
    }

    /// True if the content of the existing file may be the same.
    fn may_be(&self, entry: &Entry, rules: &Rules) -> bool {
        let replaced = self.earlier == Earlier::Suspect || self.collected || rules.pipe;
        let same = |stat| Identity::of(entry).may_be(rules.checksum, stat);
        !replaced && self.file().is_some_and(same)
    }
}

/// The path of an entry at the destination, where a single file may be renamed.
pub(crate) fn named(entry: &Entry, rename: Option<&[u8]>) -> Result<Vec<u8>, TransferError> {
    match rename {
        None => Ok(entry.path.clone()),
        Some(name) if entry.kind == Kind::File && !entry.path.contains(&b'/') => Ok(name.to_vec()),
        Some(_) => Err(TransferError::protocol(
            "a single file was announced, a tree was listed",
        )),
    }
}

/// Refuses an entry that is not taken, whatever is there.
pub(crate) fn admit(entry: &Entry, rules: &Rules) -> Result<(), Refusal> {
    match entry.kind {
        Kind::HardLink if !rules.mirror.preserve.links => {
            Err("a hard link was listed, and none was asked for".into())
        }
        Kind::Symlink => match path::link_refusal(&entry.path, &entry.target) {
            Some(refusal) if !refusal.leads_out || rules.mirror.symlinks == Symlinks::Within => {
                let why = refusal.of(&entry.target);
                Err(Refusal::new(path::LinkRefusal::CODE, why))
            }
            _ => Ok(()),
        },
        Kind::File | Kind::Dir | Kind::HardLink => Ok(()),
    }
}

/// Decides on an entry for which `there` is at the destination.
pub(crate) fn decide(entry: &Entry, there: &There, rules: &Rules) -> Result<Decision, Refusal> {
    let (is_all, kind) = (rules.reach.is_all(), there.kind());
    let mirrors = rules.mirror.delete.is_some() && is_all;
    let is_dir = kind == Some(FileType::Directory);
    let special = there.stat.as_ref().and_then(confine::is_special);
    match entry.kind {
        Kind::Dir if is_dir || entry.path.is_empty() => return Ok(Decision::Same),
        _ if there.stat.is_none() => return Ok(Decision::Make),
        Kind::Dir if mirrors && special.is_none() => return Ok(Decision::Replace),
        Kind::Dir if kind == Some(FileType::Symlink) => return Err(Errno::LOOP.into()),
        Kind::Dir => return Err(Errno::NOTDIR.into()),
        Kind::Symlink | Kind::HardLink if there.same_link => return Ok(Decision::Same),
        Kind::File | Kind::HardLink if there.stays(entry, rules) => return Ok(Decision::Stay),
        Kind::File if there.is_same(entry, rules) => return Ok(Decision::Same),
        Kind::File | Kind::Symlink | Kind::HardLink => {}
    }
    let refused = match entry.kind {
        _ if special.is_some() => special,
        Kind::Symlink if !is_all => Some(TAKEN),
        _ if is_dir && mirrors && entry.stripe.is_none() => return Ok(Decision::Wait),
        _ if is_dir => return Err(io::Error::from(io::ErrorKind::IsADirectory).into()),
        Kind::File if there.may_be(entry, rules) => return Ok(Decision::Compare),
        Kind::File => there.stands(entry, rules),
        _ => (!is_all).then_some(TAKEN),
    };
    match refused {
        Some(why) => Err(why.into()),
        None => Ok(Decision::Replace),
    }
}

#[cfg(test)]
mod tests;
