//! Changes entries of a share for a session that reads: removes, moves and copies them, makes
//! folders. Each change is one act of a worker; a copy is as many as it has pieces.
//!
//! - Folders are moved only as deep in the share as they were, and links no further up: so links lead no further up
//!   than when they were delivered, and no tree gets deeper than paths can name.
//! - Whatever takes or gives back a name is one act beside all others of its share: what is freed is what went.
//! - Nothing is removed or moved around a place that a copy of this server delivers to.
//! - What is answered is on the disk, unless nothing is synced.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use farhaul_core::units::Size;
use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::jobs::{Named, changed};
use crate::{
    confine::{self, Dir},
    disk::File,
    error::TransferError,
    lacks,
    pages::Pages,
    pool::Stop,
    quota::{Claim, Quota},
    receiver::Lock,
    state_names,
    wire::{BLOCK, Change, Exit, path},
};

/// Bytes of a copy that one act of a worker copies.
const PIECE: u64 = 64 << 20;

/// True if a copy delivers to this path of the machine, below it, or, to a folder, around it.
pub(crate) type Busy = Arc<dyn Fn(&[u8], bool) -> bool + Send + Sync>;

/// A change that a peer asked for.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    /// Name of the share.
    pub share: &'a [u8],
    /// Path of the entry in the share.
    pub path: &'a [u8],
    /// The change itself.
    pub change: &'a Change,
    /// Reason that the change was refused or failed, if it was.
    pub failed: Option<&'a TransferError>,
}

/// Called with each change, by any thread; must not wait.
pub type TellChange = Arc<dyn Fn(&Changed<'_>) + Send + Sync>;

/// Conditions of changes in a share.
#[derive(Clone)]
pub(crate) struct Terms {
    /// Name of the share.
    pub(crate) share: Vec<u8>,
    pub(crate) tell: Option<TellChange>,
    /// True if a change is on the disk before it is answered.
    pub(crate) sync: bool,
    pub(crate) quota: Option<Quota>,
    pub(crate) busy: Busy,
    /// Held while names of the share change.
    pub(crate) names: Arc<Mutex<()>>,
}

impl Terms {
    fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        // A thread that panicked left the names as they are.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of an entry of a share.
pub(super) struct Order {
    pub(super) named: Named,
    pub(super) change: Change,
    pub(super) terms: Terms,
}

/// State of a change after an act.
pub(super) enum Act {
    Done,
    /// Piece of a copy: further ones follow.
    More(Box<Copying>),
}

type Result<T> = std::result::Result<T, TransferError>;

fn refused(code: Exit, text: &str, fix: &str) -> TransferError {
    TransferError::new(code, text).fix(fix)
}

/// The failure of a change by what the system answered.
fn failed(e: &io::Error) -> TransferError {
    let (code, text) = match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            (Exit::SourceMissing, e.to_string())
        }
        io::ErrorKind::StaleNetworkFileHandle => (Exit::SourceChanged, e.to_string()),
        io::ErrorKind::AlreadyExists => {
            let text = "something has this name, and is not replaced";
            (Exit::DestError, text.into())
        }
        io::ErrorKind::DirectoryNotEmpty => {
            let text = "the folder is not empty; interrupted copies may have left hidden files in it, which `farhaul clean` removes on the server";
            (Exit::DestError, text.into())
        }
        io::ErrorKind::CrossesDevices => {
            let text =
                "the two places are on different file systems: copy the entry, then remove it";
            (Exit::DestError, text.into())
        }
        _ if confine::met_a_link(e) => {
            let text = "a link, or behind one: links are not followed in a share";
            (Exit::Partial, text.into())
        }
        _ => (Exit::of_write(e), e.to_string()),
    };
    TransferError::new(code, text)
}

fn of_call<T>(done: std::result::Result<T, impl Into<io::Error>>) -> Result<T> {
    done.map_err(|e| failed(&e.into()))
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// A name in a folder that is open.
struct Place<'a> {
    dir: Dir,
    name: &'a [u8],
}

impl<'a> Place<'a> {
    fn of(root: &Dir, path: &'a [u8]) -> Result<Self> {
        let (parent, name) = path::split(path);
        // To be synced it must be open to be read.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = of_call(confine::open_beneath(root, parent, flags))?;
        Ok(Self {
            dir: Arc::new(dir),
            name,
        })
    }

    fn stat(&self) -> Result<Option<Stat>> {
        of_call(confine::stat(&self.dir, self.name))
    }

    /// Facts about an entry that may be removed or moved.
    fn there(&self) -> Result<Stat> {
        let stat = self.stat()?.ok_or_else(|| failed(&Errno::NOENT.into()))?;
        if confine::is_special(&stat).is_some() {
            let text = "devices, pipes and sockets are neither removed nor moved";
            return Err(TransferError::new(Exit::DestError, text));
        }
        Ok(stat)
    }

    /// Facts about the entry whose name is to be taken, if there is one and it may be replaced.
    fn taken(&self, replace: bool) -> Result<Option<Stat>> {
        let there = self.stat()?;
        match &there {
            Some(_) if !replace => Err(failed(&Errno::EXIST.into())),
            Some(stat) if is_dir(stat) => {
                let text = "a folder has this name, and is not replaced";
                Err(TransferError::new(Exit::DestError, text))
            }
            Some(stat) => match confine::is_special(stat) {
                Some(why) => Err(TransferError::new(Exit::DestError, why)),
                None => Ok(there),
            },
            None => Ok(None),
        }
    }

    /// Error if a copy of this server delivers there.
    fn is_free(&self, terms: &Terms, is_folder: bool) -> Result<()> {
        let mut whole = of_call(self.dir.path())?;
        if whole != b"/" {
            whole.push(b'/');
        }
        whole.extend_from_slice(self.name);
        if (terms.busy)(&whole, is_folder) {
            let text = "a copy of this server delivers there now";
            return Err(refused(
                Exit::Locked,
                text,
                "try again when the copy has ended",
            ));
        }
        Ok(())
    }

    /// Waits until the disk has the names in the folder.
    fn sync(&self, terms: &Terms, stop: &Stop) -> Result<()> {
        if !terms.sync {
            return Ok(());
        }
        match stop.sync(|| self.dir.sync()) {
            // Where folders cannot be synced, the file system has its own order.
            Err(e) if lacks::is_refusal(e) => Ok(()),
            synced => synced.map_err(|e| {
                let text = format!(
                    "it is done, and may not be on the disk: {}",
                    io::Error::from(e)
                );
                TransferError::new(Exit::DestError, text)
            }),
        }
    }
}

impl Order {
    /// Carries the change out, or the next piece of its copy.
    pub(super) fn act(
        &self,
        copying: Option<Box<Copying>>,
        scratch: &mut Pages,
        stop: &Stop,
    ) -> Result<Act> {
        let act = match copying {
            Some(copying) => copying.proceed(scratch, stop),
            None => self.carry_out(stop),
        };
        if let (Some(tell), Err(_) | Ok(Act::Done)) = (&self.terms.tell, &act) {
            tell(&Changed {
                share: &self.terms.share,
                path: &self.named.path,
                change: &self.change,
                failed: act.as_ref().err(),
            });
        }
        act
    }

    fn carry_out(&self, stop: &Stop) -> Result<Act> {
        let (root, path) = (&self.named.root, &self.named.path[..]);
        match &self.change {
            Change::Remove => self.remove(&Place::of(root, path)?, stop)?,
            Change::RemoveFolder => self.remove_folder(&Place::of(root, path)?, stop)?,
            Change::MakeFolder { parents } => self.make_folder(path, *parents, stop)?,
            Change::Move { to, replace } => {
                let below = to.strip_prefix(path);
                if below.is_some_and(|below| below.starts_with(b"/")) {
                    let text = "an entry cannot be moved into itself";
                    return Err(TransferError::new(Exit::Usage, text));
                }
                // Whatever is wrong is found before folders are made.
                self.movable(&Place::of(root, path)?, to)?;
                let to_place = self.target(to, stop)?;
                self.give((&Place::of(root, path)?, &to_place), to, *replace, stop)?;
            }
            Change::Copy { to, replace } => {
                let copying = Copying::begin(self, to, *replace, stop)?;
                return Ok(Act::More(Box::new(copying)));
            }
        }
        Ok(Act::Done)
    }

    fn free(&self, stat: Option<&Stat>) {
        if let (Some(quota), Some(stat)) = (&self.terms.quota, stat)
            && (is_dir(stat) || stat.st_nlink <= 1)
        {
            quota.free(stat);
        }
    }

    fn remove(&self, place: &Place<'_>, stop: &Stop) -> Result<()> {
        let names = self.terms.one_at_a_time();
        let stat = place.there()?;
        if is_dir(&stat) {
            let text = "a folder, which is removed by another request";
            return Err(TransferError::new(Exit::DestError, text));
        }
        of_call(place.dir.unlinkat(place.name))?;
        self.free(Some(&stat));
        drop(names);
        place.sync(&self.terms, stop)
    }

    fn remove_folder(&self, place: &Place<'_>, stop: &Stop) -> Result<()> {
        let names = self.terms.one_at_a_time();
        let stat = place.there()?;
        if !is_dir(&stat) {
            return Err(TransferError::new(Exit::DestError, "no folder"));
        }
        place.is_free(&self.terms, true)?;
        of_call(place.dir.rmdirat(place.name))?;
        self.free(Some(&stat));
        drop(names);
        place.sync(&self.terms, stop)
    }

    /// The place that an entry is to get, whose folders are made.
    fn target<'a>(&self, path: &'a [u8], stop: &Stop) -> Result<Place<'a>> {
        let (parent, _) = path::split(path);
        if !parent.is_empty() {
            self.make_folder(parent, true, stop)?;
        }
        Place::of(&self.named.root, path)
    }

    fn make_folder(&self, path: &[u8], parents: bool, stop: &Stop) -> Result<()> {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        let ends = ends.map(|(end, _)| end).filter(|_| parents);
        for end in ends.chain([path.len()]) {
            let place = Place::of(&self.named.root, &path[..end])?;
            match place.stat()? {
                Some(stat) if parents && is_dir(&stat) => continue,
                Some(stat) if parents && is_link(&stat) => {
                    return Err(failed(&Errno::LOOP.into()));
                }
                Some(_) => return Err(failed(&Errno::EXIST.into())),
                None => {}
            }
            let mut claim = self.terms.quota.clone().map(Claim::new);
            let full = |why| TransferError::new(Exit::NoSpace, why);
            let held = claim.as_mut().map_or(Ok(()), Claim::hold_inode);
            held.map_err(full)?;
            let made = place.dir.mkdirat(place.name, Mode::from_raw_mode(0o777));
            if let Some(claim) = &mut claim {
                claim.settle_inode(made.is_ok());
            }
            match made {
                // Another session has made it meanwhile.
                Err(Errno::EXIST) if parents => {}
                made => of_call(made)?,
            }
            place.sync(&self.terms, stop)?;
        }
        Ok(())
    }

    /// Facts about an entry that may be moved to `to`.
    fn movable(&self, from: &Place<'_>, to: &[u8]) -> Result<Stat> {
        let stat = from.there()?;
        if is_dir(&stat) && depth(to) != depth(&self.named.path) {
            let text = "a folder is moved only to a place as deep in the share: a link in it could lead out of the share from another";
            return Err(refused(Exit::DestError, text, "copy it, then remove it"));
        }
        Ok(stat)
    }

    /// Gives the entry another place, whose path is `path`.
    fn give(
        &self,
        (from, to): (&Place<'_>, &Place<'_>),
        path: &[u8],
        replace: bool,
        stop: &Stop,
    ) -> Result<()> {
        let names = self.terms.one_at_a_time();
        let stat = self.movable(from, path)?;
        let (folder, up) = (is_dir(&stat), depth(path) < depth(&self.named.path));
        from.is_free(&self.terms, folder)?;
        to.is_free(&self.terms, false)?;
        let taken = to.stat()?;
        if taken.as_ref().is_some_and(|taken| is_same(taken, &stat)) {
            self.rename_the_same(from, to, &stat)?;
        } else {
            let taken = to.taken(replace && !folder)?;
            if up {
                link(from, to, taken.is_some())?;
            } else if taken.is_some() {
                of_call(from.dir.rename_to(from.name, &to.dir, to.name))?;
            } else {
                of_call(confine::move_new(
                    &from.dir,
                    from.name,
                    &to.dir,
                    (to.name, folder),
                ))?;
            }
            self.free(taken.as_ref());
        }
        drop(names);
        to.sync(&self.terms, stop)?;
        from.sync(&self.terms, stop)
    }

    /// Gives a file the second of its two names alone, or a name in other letters where the file system folds case.
    fn rename_the_same(&self, from: &Place<'_>, to: &Place<'_>, stat: &Stat) -> Result<()> {
        if self.named.path == self.change.to().unwrap_or_default() {
            return Err(refused(
                Exit::Usage,
                "the entry has this name",
                "name another place",
            ));
        }
        if is_dir(stat) || stat.st_nlink <= 1 {
            return of_call(from.dir.rename_to(from.name, &to.dir, to.name));
        }
        let here = of_call(from.dir.stat())?;
        let there = of_call(to.dir.stat())?;
        if is_same(&here, &there) && from.name.eq_ignore_ascii_case(to.name) {
            let text = "the file has this name in other letters, and further names";
            return Err(refused(Exit::DestError, text, "name another place"));
        }
        of_call(from.dir.unlinkat(from.name))
    }
}

/// Moves a regular file, and nothing that takes its name meanwhile: the file gets a name that
/// no peer can use, is looked at there, and gets its own.
fn link(from: &Place<'_>, to: &Place<'_>, replace: bool) -> Result<()> {
    let staged = Staged::new(to)?;
    match to.dir.hard_link(&from.dir, from.name, &staged.part) {
        Err(e) if lacks::is_refusal(e) || e == Errno::PERM => {
            let text = "only files are moved to a folder further up, and only where the file system has hard links";
            return Err(refused(Exit::DestError, text, "copy it, then remove it"));
        }
        linked => of_call(linked)?,
    }
    let linked = of_call(confine::stat(&to.dir, &staged.part))?;
    let linked = linked.ok_or_else(|| failed(&changed()))?;
    if FileType::from_raw_mode(linked.st_mode) != FileType::RegularFile {
        let text = "only regular files are moved to a folder further up: a link, also one in a folder, could lead out of the share from there";
        return Err(refused(
            Exit::DestError,
            text,
            "move the files in it one by one",
        ));
    }
    staged.name(to, replace)?;
    let left = of_call(confine::stat(&from.dir, from.name))?;
    if left.is_some_and(|left| is_same(&left, &linked)) {
        of_call(from.dir.unlinkat(from.name))?;
    }
    Ok(())
}

const fn is_same(a: &Stat, b: &Stat) -> bool {
    a.st_dev == b.st_dev && a.st_ino == b.st_ino
}

/// Names in a path.
fn depth(path: &[u8]) -> usize {
    path.split(|b| *b == b'/').count()
}

/// A name beside the one that a file is to get, which no peer can use. A journal beside it says to
/// whom it belongs if this process is killed.
struct Staged {
    dir: Dir,
    part: Vec<u8>,
    journal: Lock,
}

impl Staged {
    fn new(place: &Place<'_>) -> Result<Self> {
        let mut tag = path::Tag::default();
        farhaul_io::system_rng().fill(&mut tag);
        let journal = Lock::take(&place.dir, tag)?;
        journal.set_idle(true);
        Ok(Self {
            dir: Arc::clone(&place.dir),
            part: state_names::part_name(place.name, tag),
            journal,
        })
    }

    /// Gives the file its name.
    fn name(&self, to: &Place<'_>, replace: bool) -> Result<()> {
        if replace {
            of_call(self.dir.rename_to(&self.part, &to.dir, to.name))
        } else {
            of_call(confine::move_new(
                &self.dir,
                &self.part,
                &to.dir,
                (to.name, false),
            ))
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Usually it has its own name by now. If it cannot be removed, its journal stays beside it.
        if confine::remove(&self.dir, &self.part).is_err() {
            self.journal.set_idle(false);
        }
    }
}

/// A copy of a file within a share.
pub(super) struct Copying {
    from: File,
    /// Facts about it as it was opened.
    stat: Stat,
    into: File,
    staged: Staged,
    to: Vec<u8>,
    replace: bool,
    claim: Option<Claim>,
    terms: Terms,
    /// Bytes below were copied.
    at: u64,
}

impl Copying {
    fn begin(order: &Order, to: &[u8], replace: bool, stop: &Stop) -> Result<Self> {
        let named = &order.named;
        let from = of_call(confine::open_to_read(&named.root, &named.path))?;
        let stat = of_call(from.stat())?;
        let to = order.target(to, stop)?;
        to.is_free(&order.terms, false)?;
        let taken = to.taken(replace)?;
        if taken.is_some_and(|taken| is_same(&taken, &stat)) {
            let text = "the file and its copy are the same";
            return Err(refused(
                Exit::Usage,
                text,
                "name another place for the copy",
            ));
        }
        let mut claim = order.terms.quota.clone().map(Claim::new);
        if let Some(claim) = &mut claim {
            let stored = stat.st_blocks.cast_unsigned().saturating_mul(512);
            let held = claim.hold(stored);
            held.map_err(|why| TransferError::new(Exit::NoSpace, why))?;
        }
        let free = of_call(to.dir.statvfs())?;
        let (free, stored) = (
            free.f_bavail.saturating_mul(free.f_frsize),
            stat.st_blocks.cast_unsigned().saturating_mul(512),
        );
        if free < stored {
            let [stored, free] = [stored, free].map(Size::from_bytes);
            let text = format!("needs {stored}, {free} are free on the disk");
            return Err(TransferError::new(Exit::NoSpace, text));
        }
        let staged = Staged::new(&to)?;
        let into = of_call(confine::create(&to.dir, &staged.part))?;
        of_call(into.set_len(stat.st_size.cast_unsigned()))?;
        Ok(Self {
            from,
            stat,
            into,
            staged,
            to: to.name.to_vec(),
            replace,
            claim,
            terms: order.terms.clone(),
            at: 0,
        })
    }

    /// Copies the next piece, or gives the copy its name.
    pub(super) fn proceed(mut self: Box<Self>, scratch: &mut Pages, stop: &Stop) -> Result<Act> {
        let size = self.stat.st_size.cast_unsigned();
        let end = size.min(self.at.saturating_add(PIECE));
        while self.at < end {
            of_call(stop.check())?;
            self.copy_some(end, scratch)?;
        }
        let synced = self.terms.sync.then(|| stop.sync(|| self.into.sync_data()));
        of_call(synced.unwrap_or(Ok(())))?;
        if self.at < size {
            return Ok(Act::More(self));
        }
        self.finish(stop).map(|()| Act::Done)
    }

    /// Copies some bytes up to `end`, and leaves out what the source does not store, also beyond `end`.
    fn copy_some(&mut self, end: u64, scratch: &mut Pages) -> Result<()> {
        let size = self.stat.st_size.cast_unsigned();
        match self.from.seek_data(self.at) {
            Ok(data) => self.at = data.min(size),
            // Nothing but a hole follows.
            Err(Errno::NXIO) => self.at = size,
            // All of it counts as stored.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(failed(&e.into())),
        }
        if self.at >= end {
            return Ok(());
        }
        let hole = self.from.seek_hole(self.at).unwrap_or(end);
        let most = usize::try_from(end.min(hole.max(self.at + 1)) - self.at).unwrap_or(usize::MAX);
        let n = match self.from.copy_to(&self.into, self.at, most) {
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                scratch.fit(most.min(usize::try_from(BLOCK).unwrap_or(most)));
                let n = of_call(self.from.read_at(scratch, self.at))?;
                of_call(self.into.write_all_at(&scratch[..n], self.at))?;
                n
            }
            copied => of_call(copied)?,
        };
        if n == 0 {
            return Err(failed(&changed()));
        }
        self.at += n as u64;
        let arrived = self.claim.as_mut().map(|claim| claim.arrive(n as u64));
        arrived
            .unwrap_or(Ok(()))
            .map_err(|why| TransferError::new(Exit::NoSpace, why))
    }

    fn finish(self, stop: &Stop) -> Result<()> {
        let now = of_call(self.from.stat())?;
        let state = |s: &Stat| {
            (
                s.st_size,
                s.st_mtime,
                s.st_mtime_nsec,
                s.st_ctime,
                s.st_ctime_nsec,
            )
        };
        if state(&now) != state(&self.stat) {
            return Err(failed(&changed()));
        }
        of_call(
            self.into
                .set_mode(Mode::from_raw_mode(self.stat.st_mode & 0o777)),
        )?;
        if self.terms.sync {
            of_call(stop.sync(|| self.into.sync()))?;
        }
        let to = Place {
            dir: Arc::clone(&self.staged.dir),
            name: &self.to,
        };
        let names = self.terms.one_at_a_time();
        let taken = to.taken(self.replace)?;
        self.staged.name(&to, taken.is_some())?;
        if let (Some(quota), Some(taken)) = (&self.terms.quota, &taken)
            && taken.st_nlink <= 1
        {
            quota.free(taken);
        }
        drop(names);
        to.sync(&self.terms, stop)
    }
}
