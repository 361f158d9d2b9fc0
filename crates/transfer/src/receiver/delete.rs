//! Deletes files that the destination has and the source has not. The folders that were listed are
//! walked once all is in place. An entry that is neither listed nor excluded is deleted, or
//! renamed.
//!
//! - Only in what the sender listed as folders, and not through a link. After any failure, nothing.
//! - Counted before the first is deleted, if there is a limit.
//! - Arrived files are on the disk before something else is deleted. So a file that had been moved
//!   at the source before it was listed is never absent at the destination. A file that moves
//!   between two folders while they are listed may be missed by both.

use std::{
    collections::{BTreeMap, HashSet},
    io,
};

use rustix::{
    fs::{FileType, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
};

use super::{
    backups,
    disks::Disks,
    target::{NOW, Target},
};
use crate::{
    bounds::LISTED,
    confine::{self, Dir},
    disk::File,
    error::TransferError,
    failure_log::FailureLog,
    filter::Filter,
    names::Cursor,
    pool::Stop,
    requested::Requested,
    role::RoleCore,
    wire::{
        Exit, Kind, Mirror, NOT_LISTED, Suffix,
        path::{self, Own},
    },
};

/// Names of files that stay although they are not at the source, for people.
const TOLD: usize = 3;
/// The text where something is not known for sure.
const INCOMPLETE: &str = "nothing was deleted, since some files failed or could not be listed: run the same command again";

/// Paths that were listed, as digests of 8 bytes each.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Listed {
    /// True if paths are remembered, for a copy that deletes.
    deletes: bool,
    /// Folders whose entries are looked at.
    folders: Vec<u64>,
    /// Entries that stay with all that is in them, unless they wait for a folder.
    others: Vec<u64>,
    /// Listed as a file (`true`) or link where a folder is: they wait until that is deleted, beside it,
    /// except in a plan.
    waiting: BTreeMap<Vec<u8>, (Option<Target>, bool)>,
    /// True if the entries of the destination itself are looked at.
    root: bool,
    /// True if names that differ only in case are one.
    folds: bool,
    /// True if there are more than can be remembered.
    full: bool,
}

/// Target of an entry that waits for its name, and whether the entry is a file.
pub(super) type Waiting = (Target, bool);

/// Entries that wait for folders to be deleted.
const WAITING: usize = 10_000;

impl Listed {
    /// A folder has the name of this file, or link; an error if too many wait.
    pub(crate) fn wait(
        &mut self,
        path: &[u8],
        target: Option<Target>,
        is_file: bool,
    ) -> io::Result<()> {
        if self.waiting.len() >= WAITING && !self.waiting.contains_key(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.waiting.insert(path.to_vec(), (target, is_file));
        Ok(())
    }

    /// The entries that wait, and whether each is a file.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let all = self.waiting.iter();
        all.map(|(path, (_, is_file))| (&path[..], *is_file))
    }

    /// Takes the targets of the entries that wait.
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        let waiting = self.waiting.values_mut();
        let waiting = waiting.filter_map(|(target, is_file)| Some((target.take()?, *is_file)));
        waiting.collect()
    }

    /// True if this entry waits for a folder to be deleted.
    pub(super) fn waits(&self, path: &[u8]) -> bool {
        self.waiting.contains_key(path)
    }

    /// Makes an empty list, for a copy that `deletes`; names that differ only in case are one if it
    /// `folds`.
    pub(crate) fn new(deletes: bool, folds: bool) -> Self {
        Self {
            deletes,
            folds,
            ..Self::default()
        }
    }

    fn key(&self, path: &[u8]) -> u64 {
        u64::from_be_bytes(path::folded_digest(path, self.folds))
    }

    /// Adds an entry; the folder without a name is the destination itself.
    pub(crate) fn add(&mut self, path: &[u8], kind: Kind) {
        if kind != Kind::Dir {
            self.keep(path);
        } else if path.is_empty() {
            self.root = true;
        } else if self.takes_more() {
            self.folders.push(self.key(path));
        }
    }

    /// Adds entries that the source has and does not list; an error if they were not requested.
    pub(crate) fn keep_all(
        &mut self,
        paths: &[Vec<u8>],
        requested: &Requested,
    ) -> Result<(), TransferError> {
        for path in paths {
            requested.check_kept(path)?;
            self.keep(path);
        }
        Ok(())
    }

    /// Adds an entry that is no folder.
    fn keep(&mut self, path: &[u8]) {
        if self.takes_more() {
            self.others.push(self.key(path));
        }
    }

    /// True if this path was listed, or said to be there, and is no folder.
    pub(super) fn has_other(&self, path: &[u8]) -> bool {
        self.others.contains(&self.key(path))
    }

    /// Forgets an entry that failed: its part must not get the name of the folder.
    pub(super) fn waits_no_more(&mut self, path: &[u8]) {
        self.waiting.remove(path);
    }

    fn takes_more(&mut self) -> bool {
        self.full |= self.folders.len() + self.others.len() >= LISTED;
        self.deletes && !self.full
    }

    /// Sorts the digests, so that they can be searched.
    fn sorted(mut self) -> Self {
        self.folders.sort_unstable();
        self.others.sort_unstable();
        self
    }

    fn has_folder(&self, path: &[u8]) -> bool {
        self.folders.binary_search(&self.key(path)).is_ok()
    }

    fn has(&self, path: &[u8]) -> bool {
        self.has_folder(path) || self.others.binary_search(&self.key(path)).is_ok()
    }
}

/// Goes through what the destination has.
#[derive(Debug)]
pub(crate) struct Walk {
    root: Dir,
    listed: Listed,
    /// Selection: excluded entries stay.
    filter: Option<Filter>,
    suffix: Option<Suffix>,
    /// True if deletions are only counted.
    dry: bool,
    frames: Vec<Frame>,
    /// Handle on the innermost folder.
    here: Option<File>,
    /// Names deleted, or to be.
    count: u64,
    /// Entries neither deleted nor listed: devices, pipes and sockets.
    special: Vec<Vec<u8>>,
    /// Digests of the folders that make room for what waits.
    freed: HashSet<u64>,
}

/// A folder.
#[derive(Debug)]
struct Frame {
    path: Vec<u8>,
    names: Cursor,
    /// True if the folder was not listed.
    doomed: bool,
    /// True if something in the folder stays.
    kept: bool,
    /// Permissions and time of the folder before something in it was deleted.
    mode: Mode,
    mtime: Timespec,
    touched: bool,
}

/// Result of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// The step deleted nothing.
    Nothing,
    /// The path is deleted, or would be.
    Gone(Vec<u8>),
    /// The path cannot be deleted.
    Failed(Vec<u8>, io::Error),
    End,
}

impl Walk {
    /// Beneath `root`; it changes nothing if it is `dry`.
    pub(crate) fn new(
        root: Dir,
        listed: Listed,
        mirror: &Mirror,
        filter: Filter,
        dry: bool,
    ) -> io::Result<Self> {
        let all = mirror.delete.is_some_and(|delete| delete.excluded);
        let mut walk = Self {
            root,
            listed: listed.sorted(),
            filter: Some(filter).filter(|filter| !all && !filter.is_empty()),
            suffix: mirror.backup,
            dry,
            frames: Vec::new(),
            here: None,
            count: 0,
            special: Vec::new(),
            freed: HashSet::new(),
        };
        walk.enter(Vec::new(), false)?;
        Ok(walk)
    }

    /// Begins again from the start, and in earnest.
    fn again(mut self) -> io::Result<Self> {
        (self.dry, self.count) = (false, 0);
        self.frames.clear();
        self.special.clear();
        self.enter(Vec::new(), false)?;
        Ok(self)
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Names entries that are neither a file, a link nor a folder and stay.
    pub(crate) fn stays(&self) -> Option<String> {
        let shown: Vec<_> = self.special.iter().map(|path| path::show(path)).collect();
        (!shown.is_empty()).then(|| {
            let names = shown.join(", ");
            format!("devices, pipes and sockets are not deleted: {names}")
        })
    }

    /// Entries that do not get their names, and whether each is a file: those whose folders stay, or
    /// `all`, if nothing is deleted.
    pub(crate) fn unplaced(&self, all: bool) -> impl Iterator<Item = (&[u8], bool)> {
        let stays = move |path: &[u8]| all || !self.freed.contains(&self.listed.key(path));
        self.listed.waiting().filter(move |(path, _)| stays(path))
    }

    fn open(&self, path: &[u8]) -> io::Result<File> {
        confine::open_beneath(&self.root, path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn enter(&mut self, path: Vec<u8>, doomed: bool) -> io::Result<()> {
        let handle = confine::open_beneath(&self.root, &path, OFlags::PATH | OFlags::DIRECTORY)?;
        let stat = handle.stat()?;
        let held = self.frames.iter().map(|frame| frame.names.size()).sum();
        // One of our own that may not be read is opened, and closed again when it is left.
        let open = || {
            let dir = self.open(&path)?;
            if !self.dry {
                dir.may_be_entered()?;
            }
            let names = Cursor::within(&dir, held)?;
            Ok((dir, names))
        };
        let (dir, names) = confine::inside(&handle, !self.dry, open)?;
        let mtime = Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        };
        self.frames.push(Frame {
            path,
            names,
            doomed,
            kept: false,
            mode: Mode::from_raw_mode(stat.st_mode & 0o7777),
            mtime,
            touched: false,
        });
        self.here = Some(dir);
        Ok(())
    }

    /// Looks at one more name.
    pub(crate) fn step(&mut self) -> Step {
        let Some(frame) = self.frames.last_mut() else {
            return Step::End;
        };
        // A folder that cannot be read to its end is no longer one whose other entries are deleted.
        let next = match &mut self.here {
            here @ None if frame.names.needs_folder() => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                confine::open_beneath(&self.root, &frame.path, flags)
                    .and_then(|dir| Ok(frame.names.next(here.insert(dir))?.map(<[u8]>::to_vec)))
            }
            None => Ok(frame.names.held().map(<[u8]>::to_vec)),
            Some(here) => match frame.names.next(here) {
                Ok(name) => Ok(name.map(<[u8]>::to_vec)),
                Err(e) => Err(e.into()),
            },
        };
        let name = match next {
            Ok(Some(name)) => name,
            Ok(None) => return self.leave(),
            Err(e) => {
                let path = frame.path.clone();
                frame.names.end();
                self.keep();
                return Step::Failed(path, e);
            }
        };
        let path = path::join(&frame.path, &name);
        match self.look(&name, &path) {
            Ok(step) => step,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Step::Nothing,
            Err(e) => {
                self.keep();
                Step::Failed(path, e)
            }
        }
    }

    fn look(&mut self, name: &[u8], path: &[u8]) -> io::Result<Step> {
        let Some(frame) = self.frames.last() else {
            return Ok(Step::End);
        };
        let listed = !frame.doomed && self.listed.has(path);
        let outside = frame.path.is_empty() && !self.listed.root;
        if outside && !listed {
            return Ok(Step::Nothing);
        }
        if self.here.is_none() {
            self.here = Some(self.open(&frame.path)?);
        }
        let Some(here) = &self.here else {
            return Ok(Step::Nothing);
        };
        let Some(stat) = confine::stat(here, name)? else {
            return Ok(Step::Nothing);
        };
        let dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if listed {
            if dir && self.listed.has_folder(path) {
                self.enter(path.to_vec(), false)?;
            } else if dir && self.listed.waits(path) {
                self.enter(path.to_vec(), true)?;
            }
            return Ok(Step::Nothing);
        }
        if Own::of(name).is_some() || self.is_excluded(path, dir) || self.is_backup(name, dir) {
            self.keep();
            return Ok(Step::Nothing);
        }
        if confine::is_special(&stat).is_some() {
            self.keep();
            if self.special.len() < TOLD {
                self.special.push(path.to_vec());
            }
            return Ok(Step::Nothing);
        }
        if dir {
            self.enter(path.to_vec(), true)?;
            return Ok(Step::Nothing);
        }
        if let Some(suffix) = &self.suffix
            && self.listed.has(&[path, suffix.bytes()].concat())
        {
            return Err(io::Error::other(backups::LISTED));
        }
        if self.dry {
            confine::may_change(here, true)?;
            let backup = |suffix: &Suffix| confine::backup_name(here, name, suffix.bytes());
            self.suffix.as_ref().map(backup).transpose()?;
        } else {
            confine::inside(here, true, || match &self.suffix {
                Some(suffix) => confine::back_up(here, name, suffix.bytes(), false),
                None => confine::remove(here, name),
            })?;
        }
        if self.suffix.is_some() {
            self.keep();
        }
        Ok(self.gone(path))
    }

    fn gone(&mut self, path: &[u8]) -> Step {
        self.count += 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.touched = true;
        }
        Step::Gone(path.to_vec())
    }

    /// Notes that something in the innermost folder stays.
    fn keep(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.kept = true;
        }
    }

    /// Leaves the innermost folder, which has been looked at.
    fn leave(&mut self) -> Step {
        let Some(frame) = self.frames.pop() else {
            return Step::End;
        };
        let here = self.here.take();
        if frame.doomed && !frame.kept {
            return match self.remove_dir(&frame.path) {
                Ok(true) => {
                    if self.listed.waits(&frame.path) {
                        self.freed.insert(self.listed.key(&frame.path));
                    }
                    self.gone(&frame.path)
                }
                Ok(false) => {
                    self.keep();
                    Step::Nothing
                }
                Err(e) => {
                    self.keep();
                    Step::Failed(frame.path, e)
                }
            };
        }
        if frame.doomed {
            self.keep();
        }
        match self.close(&frame, here) {
            Ok(()) => Step::Nothing,
            Err(e) => Step::Failed(frame.path, e),
        }
    }

    /// Gives a folder the permissions and time back that it had before something in it was deleted.
    fn close(&self, frame: &Frame, here: Option<File>) -> io::Result<()> {
        let opened = !frame.mode.contains(Mode::RWXU);
        if self.dry || !frame.touched && !opened {
            return Ok(());
        }
        let dir = here.map_or_else(|| self.open(&frame.path), Ok)?;
        if opened && dir.stat()?.st_mode & 0o7777 != frame.mode.as_raw_mode() {
            dir.set_mode(frame.mode)?;
        }
        if frame.touched {
            dir.set_times(&Timestamps {
                last_access: NOW,
                last_modification: frame.mtime,
            })?;
        }
        Ok(())
    }

    /// False if something is in it after all.
    fn remove_dir(&self, path: &[u8]) -> io::Result<bool> {
        let (parent, name) = path::split(path);
        let parent = self.open(parent)?;
        if self.dry {
            confine::may_change(&parent, true)?;
            return Ok(true);
        }
        confine::inside(&parent, true, || match parent.rmdirat(name) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(e) => Err(e.into()),
        })
    }

    /// True if the filter leaves it out: its paths begin in the source, which is the destination
    /// itself or a folder in it.
    fn is_excluded(&self, path: &[u8], dir: bool) -> bool {
        let below = || path.iter().position(|b| *b == b'/').map(|i| &path[i + 1..]);
        let path = if self.listed.root {
            Some(path)
        } else {
            below()
        };
        let (Some(filter), Some(path)) = (&self.filter, path) else {
            return false;
        };
        if dir {
            !filter.enters(path)
        } else {
            !filter.takes(path, None)
        }
    }

    fn is_backup(&self, name: &[u8], dir: bool) -> bool {
        let ends = |suffix: &Suffix| !dir && name.ends_with(suffix.bytes());
        self.suffix.as_ref().is_some_and(ends)
    }
}

/// Counts of deletions.
#[derive(Debug, Default)]
pub(crate) struct Deleted {
    count: u64,
    /// Files that did not get their names, since folders have them.
    unplaced: u64,
    problems: Vec<(Exit, String)>,
}

/// Deletes, unless there are more than `most`; then what waits for that gets its name.
pub(crate) fn delete(
    walk: io::Result<Walk>,
    waiting: &[Waiting],
    most: Option<u64>,
    disks: Option<&Disks>,
    stop: &Stop,
) -> Deleted {
    let mut deleted = Deleted::default();
    if let Err(e) = delete_all(walk, most, disks, stop, &mut deleted) {
        let why = format!("files that the source lacks cannot be deleted: {e}");
        deleted.problems.push((Exit::of_write(&e), why));
    }
    for waiting in waiting {
        deleted.place(waiting);
    }
    deleted
}

impl Deleted {
    /// Nothing is deleted, for a reason; what waits for that gets its name if nothing has it.
    pub(super) fn nothing(why: (Exit, String), waiting: &[Waiting]) -> Self {
        let mut deleted = Self::default();
        deleted.problems.push(why);
        for waiting in waiting {
            deleted.place(waiting);
        }
        deleted
    }

    /// Counts and reports it.
    pub(super) fn note(self, core: &mut RoleCore) {
        core.tally.deleted += self.count;
        core.tally.files_ok = core.tally.files_ok.saturating_sub(self.unplaced);
        core.tally.files_failed += self.unplaced;
        for (code, why) in self.problems {
            core.trouble(NOT_LISTED, code, why);
        }
    }

    /// Gives this its name, or gives it up if a folder still has that.
    fn place(&mut self, (target, is_file): &Waiting) {
        let Target { dir, part, .. } = target;
        if matches!(confine::stat(dir, part), Ok(None)) {
            // The entry did not arrive, and that was reported.
            return;
        }
        let rename = || confine::rename_new(dir, part, &target.name);
        let Err(e) = confine::inside(dir, target.closed, rename) else {
            return;
        };
        let name = path::show(&target.name);
        let left = match confine::remove(dir, part) {
            Ok(()) => String::new(),
            Err(e) => format!("; {} is left beside it: {e}", path::show(part)),
        };
        let why = format!("{name}: the folder of this name is not deleted: {e}{left}");
        self.unplaced += u64::from(*is_file);
        self.problems.push((Exit::DestError, why));
    }
}

fn delete_all(
    walk: io::Result<Walk>,
    most: Option<u64>,
    disks: Option<&Disks>,
    stop: &Stop,
    deleted: &mut Deleted,
) -> io::Result<()> {
    let mut walk = walk?;
    if let Some(most) = most {
        while !matches!(walk.step(), Step::End) {
            stop.check()?;
            if walk.count > most {
                deleted.problems.push((Exit::Limit, too_many(most)));
                return Ok(());
            }
        }
    }
    if let Some(disks) = disks {
        stop.sync(|| disks.sync_all())?;
    }
    let mut walk = walk.again()?;
    loop {
        stop.check()?;
        if most.is_some_and(|most| walk.count > most) {
            let text =
                "others have made files meanwhile: what is beyond --max-delete was not deleted";
            deleted.problems.push((Exit::Limit, text.into()));
            break;
        }
        match walk.step() {
            Step::Nothing | Step::Gone(_) => {}
            Step::Failed(path, e) => {
                let why = format!("{}: cannot be deleted: {e}", path::show(&path));
                deleted.problems.push((Exit::of_write(&e), why));
                if deleted.problems.len() > 1000 {
                    break;
                }
            }
            Step::End => break,
        }
    }
    deleted.count = walk.count;
    deleted
        .problems
        .extend(walk.stays().map(|why| (Exit::Ok, why)));
    Ok(())
}

/// The error for more deletions than were allowed.
pub(crate) fn too_many(most: u64) -> String {
    format!("more than {most} files and folders would be deleted (--max-delete): nothing was")
}

/// Reason that nothing is deleted, if the entries that the source lacks are not known for sure.
pub(crate) fn refusal(listed: &Listed, log: &FailureLog) -> Option<(Exit, String)> {
    if listed.full {
        let why =
            format!("nothing was deleted: more than {LISTED} files were listed: copy in parts");
        return Some((Exit::Limit, why));
    }
    (!log.is_clean()).then(|| (Exit::Ok, INCOMPLETE.into()))
}
