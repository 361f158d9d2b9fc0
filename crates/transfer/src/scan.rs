//! Lists what there is to send. A thread walks the sources and hands over manifest entries while
//! earlier ones are already on their way.
//!
//! - Every directory is opened beneath its source's root without following links. So a tree that is
//!   changed while it is walked cannot lead out of the root.
//! - The files of a directory are listed together, in byte order; sub-directories follow.
//! - Journals and parts of copies that are not complete are left out and named; what only looks like
//!   them is sent.
//! - What a filter leaves out is not opened. A list takes the place of the walk.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::Arc,
};

use rustix::fs::{FileType, OFlags, Stat};

use crate::{
    confine::{self, Dir, is_dir},
    disk::File,
    filter::Filter,
    names::{Cursor, Since},
    pool,
    progress::Progress,
    sender::Stamp,
    wire::{
        Entry, Exit, Kind, Preserve, Symlinks,
        path::{self, Tag},
    },
};

mod chosen;
mod facts;
mod kernel;
mod links;
mod listing;
mod lookup;
mod overlap;
mod partition;
mod special;
mod state;
use facts::Collector;
use kernel::{has_content, is_page_of_nothing, is_shorter};
use links::Through;
pub(crate) use listing::{Listing, start};
pub(crate) use lookup::{missing, resolve, some};
use overlap::{Earlier, Holder};
pub use partition::{Content, Partition, Shard};
use partition::{Cut, Partitioner, Pending};
use special::{SPECIAL, Special, is_special};
use state::is_state;

/// Items per batch.
const BATCH: usize = 256;
/// Entries that are not handed over between two looks at whether anybody still listens.
const TICKS: usize = 32;
/// Bytes of names and texts after which a batch is full.
const BATCH_BYTES: usize = 64 << 10;

/// One source: everything at or below `rel` in `root`, listed under `name`.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) root: Dir,
    /// Path within `root`; empty for `root` itself.
    pub(crate) rel: Vec<u8>,
    /// Path in the manifest; empty for the contents of a directory.
    pub(crate) name: Vec<u8>,
    /// True if the source was a regular file when it was looked up.
    pub(crate) is_file: bool,
    /// Source as it was typed, or the share and the path in it.
    pub(crate) typed: Vec<u8>,
}

impl Source {
    /// The source that `path` names on this machine; a trailing slash means "the contents of". Its folder is open from
    /// now on, or only when it is used: by its path from `top`, the root of this machine.
    pub(crate) fn local(path: &Path, top: Option<&Dir>) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        let real = path.canonicalize()?;
        let is_file = !real.is_dir();
        if is_file && bytes.ends_with(b"/") {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let (root, rel) = if let Some(top) = top {
            let rel = real.strip_prefix("/").unwrap_or(&real);
            (Arc::clone(top), rel.as_os_str().as_bytes().to_vec())
        } else if is_file {
            let parent = real.parent().unwrap_or(Path::new("/"));
            let name = real.file_name().map(|n| n.as_bytes().to_vec());
            (confine::open_root(parent)?, name.unwrap_or_default())
        } else {
            (confine::open_root(&real)?, Vec::new())
        };
        let contents = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        let name = path.file_name().filter(|_| !contents);
        let name = name.map_or_else(Vec::new, |n| n.as_bytes().to_vec());
        Ok(Self {
            root,
            rel,
            name,
            is_file,
            typed: bytes.to_vec(),
        })
    }

    /// Name for people of the entry that is listed as `name`.
    fn spoken(&self, name: &[u8]) -> Vec<u8> {
        if self.is_file {
            self.typed.clone()
        } else {
            let typed = self.typed.strip_suffix(b"/").unwrap_or(&self.typed);
            path::join(typed, self.inside(name))
        }
    }

    /// Path in the source of the entry that is listed as `name`.
    fn inside<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        if self.is_file {
            return path::split(name).1;
        }
        let rest = name.strip_prefix(&self.name[..]).unwrap_or(name);
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// The source at `rel` beneath `root`.
    pub(crate) fn beneath(root: Dir, rel: &[u8]) -> io::Result<Self> {
        let contents = rel.is_empty() || rel.ends_with(b"/");
        let rel = rel.strip_suffix(b"/").unwrap_or(rel);
        let fd = confine::open_beneath(&root, rel, OFlags::PATH)?;
        let stat = fd.stat()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        if stat.st_nlink == 0 {
            // The handle outlives the folder, which is then empty for ever.
            return Err(io::ErrorKind::NotFound.into());
        }
        if is_file && contents {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let name = if contents {
            Vec::new()
        } else {
            path::split(rel).1.to_vec()
        };
        Ok(Self {
            root,
            rel: rel.to_vec(),
            name,
            is_file,
            typed: rel.to_vec(),
        })
    }
}

/// Selection of entries of the sources.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub(crate) struct Selection {
    pub(crate) filter: Filter,
    /// Paths below the only source, which is a directory; nothing else is listed.
    pub(crate) list: Option<Arc<Vec<Vec<u8>>>>,
    /// True if omitted entries are reported.
    pub(crate) tell: bool,
    /// Facts that entries carry.
    pub(crate) preserve: Preserve,
    /// True if the receiver deletes entries that are neither listed nor said to be there.
    pub(crate) keep: bool,
    pub(crate) symlinks: Symlinks,
    /// True if file systems that are mounted below a source are left out.
    pub(crate) one_file_system: bool,
    /// True if attributes that only the administrator may read are included.
    pub(crate) guarded: bool,
    /// Others list and send the rest; the copy that all of them are of.
    pub(crate) shard: Option<(Shard, Tag)>,
}

/// Problem with an entry, which will not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Exit,
    pub(crate) text: String,
}

/// An entry and where its content is.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    pub(crate) entry: Entry,
    /// Root of the source, and the path within it.
    pub(crate) root: Dir,
    pub(crate) rel: Vec<u8>,
    /// Stamp of the file as it was seen.
    pub(crate) stamp: Stamp,
}

/// Findings of the scanner.
#[derive(Debug)]
pub(crate) enum Found {
    Entry(Box<Scanned>),
    Problem(Problem),
    /// Left out: the path within the source.
    Excluded(Vec<u8>),
    /// An entry exists, by this name in the manifest, and is not listed.
    Kept(Vec<u8>),
    /// Everything was listed; the partition of a shard.
    End(Option<Partition>),
    /// The scanner panicked.
    Broken(String),
}

/// The current activity of the scanner, as text.
pub(crate) const DOING: &str = "listing the sources";

/// Memory that a walk holds for large directories, bytes; it reads them again for the rest.
#[derive(Clone, Copy)]
struct Room {
    /// Names of the present one.
    names: usize,
    /// Paths of those that are yet to be opened.
    folders: usize,
    /// Paths of sub-directories that any directory may add to them.
    least: usize,
}

impl Room {
    const MOST: Self = Self {
        names: 16 << 20,
        folders: 16 << 20,
        least: 64 << 10,
    };
}

/// Reason why names of a directory may be missing.
const CHANGED: &str = "changed while it was listed in parts";

/// Sends a batch to the receiver of the channel.
type Give = Arc<dyn Fn(Vec<Found>) -> Result<(), Gone> + Send + Sync>;

fn scan(to: &Give, sources: &[Source], selection: Selection, progress: Arc<Progress>, room: Room) {
    let mut scanner = Scanner {
        to: Arc::clone(to),
        batch: Vec::new(),
        bytes: 0,
        ticks: 0,
        facts: Collector::new(&selection),
        special: Special::default(),
        device: None,
        partitioner: selection.shard.map(Partitioner::new),
        selection,
        sources,
        ancestors: Vec::new(),
        stacked: 0,
        room,
        earlier: Earlier::default(),
        progress,
    };
    to_the_end(to, move || scanner.all());
}

/// Runs the scanner; its last message reports whether it completed.
fn to_the_end(to: &Give, scan: impl FnOnce() -> Result<Option<Partition>, Gone>) {
    let last = match panic::catch_unwind(AssertUnwindSafe(scan)) {
        Ok(Ok(partition)) => Found::End(partition),
        Ok(Err(Gone)) => return,
        Err(payload) => Found::Broken(pool::panic_text(&*payload)),
    };
    // If the channel is closed, the result is not needed.
    let _unheard = to(vec![last]);
}

/// The sender is gone.
struct Gone;

struct Scanner<'a> {
    to: Give,
    sources: &'a [Source],
    batch: Vec<Found>,
    /// Bytes of names and texts in it.
    bytes: usize,
    /// Entries since the last that was handed over.
    ticks: usize,
    selection: Selection,
    partitioner: Option<Partitioner>,
    /// Directories around the present one that are listed once something in them is.
    ancestors: Vec<Ancestor>,
    /// Bytes of directories that are yet to be opened.
    stacked: usize,
    room: Room,
    /// Sources before the present one.
    earlier: Earlier,
    facts: Collector,
    special: Special,
    /// File system of the present source, where no other is to be entered.
    device: Option<u64>,
    progress: Arc<Progress>,
}

/// A directory that is not listed yet.
struct Ancestor {
    rel: Vec<u8>,
    name: Vec<u8>,
    stat: Stat,
}

/// A directory that is yet to be opened.
#[derive(Default)]
struct Folder {
    rel: Vec<u8>,
    name: Vec<u8>,
    /// The last of the links that led here.
    through: Option<Arc<Through>>,
    /// Names up to this one were listed; none of a folder that is new.
    after: Vec<u8>,
    /// State of the names at the first pass.
    since: Option<Since>,
}

impl Folder {
    /// Bytes that it takes until it is opened.
    const fn cost(&self) -> usize {
        size_of::<Self>() + self.rel.len() + self.name.len() + self.after.len()
    }
}

impl Scanner<'_> {
    fn all(&mut self) -> Result<Option<Partition>, Gone> {
        for (i, source) in self.sources.iter().enumerate() {
            self.source(i, source)?;
            self.earlier.add(source);
        }
        self.drain_window()?;
        self.tell_of_special()?;
        self.flush()?;
        self.progress.scan_done();
        Ok(self.partitioner.take().map(Partitioner::end))
    }

    /// Hands over what of the window is this shard's.
    fn drain_window(&mut self) -> Result<(), Gone> {
        let partitioner = self.partitioner.as_mut();
        for own in partitioner.map_or_else(Vec::new, Partitioner::drain_window) {
            let source = (own.source, &self.sources[own.source]);
            self.hand_over(source, &own.rel, &own.name, (&own.stat, own.cut.as_ref()))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        if batch.is_empty() {
            Ok(())
        } else {
            (self.to)(batch)
        }
    }

    /// Checks the channel periodically while nothing is handed over.
    fn tick(&mut self) -> Result<(), Gone> {
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS) {
            (self.to)(Vec::new())
        } else {
            Ok(())
        }
    }

    fn push(&mut self, found: Found) -> Result<(), Gone> {
        if let Found::Entry(scanned) = &found
            && scanned.entry.kind == Kind::File
        {
            self.progress.found(scanned.entry.size);
        }
        self.bytes += match &found {
            Found::Entry(scanned) => {
                let facts = scanned.entry.facts.as_ref().map_or(0, |facts| facts.len());
                scanned.entry.path.len() + scanned.entry.target.len() + facts
            }
            Found::Problem(problem) => problem.text.len(),
            Found::Excluded(path) | Found::Kept(path) => path.len(),
            Found::End(_) | Found::Broken(_) => 0,
        };
        self.batch.push(found);
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Reports a problem with the entry listed as `name`. A source whose content only is listed has
    /// the name that people call it.
    fn problem(
        &mut self,
        source: &Source,
        name: &[u8],
        code: Exit,
        why: &dyn std::fmt::Display,
    ) -> Result<(), Gone> {
        let name = if name.is_empty() { &source.typed } else { name };
        self.say(name, code, why)
    }

    fn say(&mut self, path: &[u8], code: Exit, why: &dyn std::fmt::Display) -> Result<(), Gone> {
        let text = format!("{}: {why}", path::show(path));
        self.push(Found::Problem(Problem { code, text }))
    }

    fn source(&mut self, index: usize, source: &Source) -> Result<(), Gone> {
        self.ancestors.clear();
        self.device = None;
        if let Some(list) = self.selection.list.clone() {
            return self.listed((index, source), &list);
        }
        if source.is_file {
            return match confine::stat(&source.root, &source.rel) {
                Ok(Some(stat)) if is_special(&stat) => {
                    self.problem(source, &source.name, Exit::Partial, &SPECIAL)
                }
                Ok(Some(stat)) => self.child((index, source), &source.rel, &source.name, &stat),
                Ok(None) => self.problem(source, &source.name, Exit::SourceChanged, &"vanished"),
                Err(e) => self.problem(source, &source.name, Exit::Partial, &e),
            };
        }
        let first = Folder {
            rel: source.rel.clone(),
            name: source.name.clone(),
            ..Folder::default()
        };
        self.stacked = first.cost();
        let mut stack = vec![first];
        while let Some(folder) = stack.pop() {
            self.stacked -= folder.cost();
            let mark = stack.len();
            let listed = self.directory((index, source), &folder, &mut stack)?;
            stack[mark..].reverse();
            if let Err(e) = listed {
                self.problem(source, &folder.name, Exit::of_read(&e), &e)?;
            }
        }
        Ok(())
    }

    /// Lists one directory; its sub-directories go onto the stack.
    fn directory(
        &mut self,
        source: (usize, &Source),
        folder: &Folder,
        stack: &mut Vec<Folder>,
    ) -> Result<io::Result<()>, Gone> {
        let Folder { rel, name, .. } = folder;
        let opened = open(&source.1.root, rel).and_then(|(fd, stat)| {
            let names = Cursor::behind(&fd, &folder.after, self.room.names, folder.since)?;
            Ok((fd, stat, names))
        });
        let (fd, stat, mut names) = match opened {
            Ok(found) => found,
            Err(e) => return Ok(Err(e)),
        };
        if self.is_elsewhere(&stat) {
            return self.excluded(source.1, name).map(Ok);
        }
        self.begin(source, folder, stat)?;
        let room = self.room.folders.saturating_sub(self.stacked) / 2;
        let full = self.stacked + room.max(self.room.least);
        loop {
            let child = match names.next(&fd) {
                Ok(Some(child)) => child,
                Ok(None) => {
                    // The last part tells of changes during any of them.
                    if names.has_changed() {
                        self.problem(source.1, name, Exit::SourceChanged, &CHANGED)?;
                    }
                    return Ok(Ok(()));
                }
                Err(e) => return Ok(Err(e.into())),
            };
            let child = Folder {
                rel: path::join(rel, child),
                name: path::join(name, child),
                through: folder.through.clone(),
                ..Folder::default()
            };
            let last = path::split(&child.rel).1.to_vec();
            let before = stack.len();
            match confine::stat(&fd, &last) {
                Ok(Some(stat)) => self.in_directory(source, folder, (child, stat), stack)?,
                Ok(None) => self.problem(
                    source.1,
                    &child.name,
                    Exit::SourceChanged,
                    &"vanished after listing",
                )?,
                Err(e) => self.problem(source.1, &child.name, Exit::Partial, &e)?,
            }
            let added = stack.get(before..).unwrap_or_default();
            self.stacked += added.iter().map(Folder::cost).sum::<usize>();
            if self.stacked > full && !names.is_over() {
                // What was found is listed first; the rest of this one after it.
                let rest = Folder {
                    rel: rel.clone(),
                    name: name.clone(),
                    through: folder.through.clone(),
                    after: last,
                    since: names.since(),
                };
                self.stacked += rest.cost();
                stack.push(rest);
                return Ok(Ok(()));
            }
        }
    }

    /// Lists the directory itself, or does once something in it is.
    fn begin(&mut self, source: (usize, &Source), folder: &Folder, stat: Stat) -> Result<(), Gone> {
        let Folder {
            rel, name, after, ..
        } = folder;
        let is_new = after.is_empty();
        if self.selection.filter.is_choosy() {
            let below = |a: &[u8]| name.starts_with(a) && name.get(a.len()) == Some(&b'/');
            let itself = |a: &Ancestor| !is_new && a.name == *name;
            let around = |a: &Ancestor| a.name.is_empty() || below(&a.name) || itself(a);
            let depth = self.ancestors.iter().take_while(|a| around(a)).count();
            self.ancestors.truncate(depth);
            if is_new {
                let (rel, name) = (rel.clone(), name.clone());
                self.ancestors.push(Ancestor { rel, name, stat });
            }
        } else if is_new {
            self.entry(source, rel, name, &stat)?;
        }
        Ok(())
    }

    fn excluded(&mut self, source: &Source, name: &[u8]) -> Result<(), Gone> {
        if self.selection.tell {
            self.push(Found::Excluded(source.inside(name).to_vec()))
        } else {
            self.tick()
        }
    }

    /// Sends one entry that is not a directory, if it is selected, and its parent directories.
    fn child(
        &mut self,
        source: (usize, &Source),
        rel: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Gone> {
        let size = (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
            .then(|| stat.st_size.cast_unsigned());
        if !self.selection.filter.takes(source.1.inside(name), size) {
            return self.excluded(source.1, name);
        }
        if let Some(kept) = self.leaves_out(stat, name) {
            return if kept {
                self.push(Found::Kept(name.to_vec()))
            } else {
                self.excluded(source.1, name)
            };
        }
        for around in std::mem::take(&mut self.ancestors) {
            self.entry(source, &around.rel, &around.name, &around.stat)?;
        }
        self.entry(source, rel, name, stat)
    }

    /// A plan says beforehand what a copy would find out when it reads.
    fn can_be_read(&self, source: &Source, rel: &[u8], kind: Kind) -> io::Result<()> {
        if self.selection.tell && kind == Kind::File {
            confine::open_to_read(&source.root, rel)?;
        }
        Ok(())
    }

    /// One entry, unless an earlier source has it.
    fn entry(
        &mut self,
        source: (usize, &Source),
        rel: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Gone> {
        match self.earlier.holder(name, stat, &self.selection) {
            Ok(None) => {}
            Ok(Some(Holder::Same)) => return self.tick(),
            Ok(Some(Holder::Other)) => {
                let why = format!(
                    "an earlier source is already sent as {}: skipped; copy it by itself to another name",
                    path::show(name)
                );
                return self.say(&source.1.spoken(name), Exit::Partial, &why);
            }
            Err(e) => return self.problem(source.1, name, Exit::Partial, &e),
        }
        let Some(partitioner) = &mut self.partitioner else {
            return self.hand_over(source, rel, name, (stat, None));
        };
        let is_full = partitioner.add(Pending {
            source: source.0,
            rel: rel.to_vec(),
            name: name.to_vec(),
            stat: *stat,
            cut: None,
        });
        if is_full {
            self.drain_window()
        } else {
            self.tick()
        }
    }

    /// Hands over one entry, or a stripe of it.
    fn hand_over(
        &mut self,
        source: (usize, &Source),
        rel: &[u8],
        name: &[u8],
        (stat, cut): (&Stat, Option<&Cut>),
    ) -> Result<(), Gone> {
        if let Some(why) = path::refusal(name) {
            return self.problem(source.1, name, Exit::Partial, &why);
        }
        let (kind, target) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_size == 0 && has_content(&source.1.root, rel) => {
                let why = "reports a size of 0 and is not empty, as files of /proc: skipped; copy its content to a file first";
                return self.problem(source.1, name, Exit::Partial, &why);
            }
            FileType::RegularFile
                if is_page_of_nothing(stat) && is_shorter(&source.1.root, rel, stat) =>
            {
                let why = "has fewer bytes than its size, as files of /sys: skipped; copy its content to a file first";
                return self.problem(source.1, name, Exit::Partial, &why);
            }
            FileType::Directory => (Kind::Dir, Vec::new()),
            FileType::Symlink => match link_target(source.1, rel) {
                Ok(target) => (Kind::Symlink, target),
                Err(e) => return self.problem(source.1, name, Exit::Partial, &e),
            },
            // Special files are left out before.
            _ => (Kind::File, Vec::new()),
        };
        if let Err(e) = self.can_be_read(source.1, rel, kind) {
            return self.problem(source.1, name, Exit::of_read(&e), &e);
        }
        if kind == Kind::Symlink
            && let Some(refusal) = path::link_refusal(name, &target)
            && !(refusal.leads_out && self.selection.symlinks == Symlinks::Keep)
        {
            if self.selection.keep {
                self.push(Found::Kept(name.to_vec()))?;
            }
            return self.problem(
                source.1,
                name,
                path::LinkRefusal::CODE,
                &refusal.of(&target),
            );
        }
        let mut entry = entry_of(kind, name.to_vec(), target, stat);
        if let Some((code, why)) = self.facts.add(&mut entry, &source.1.root, rel, stat) {
            self.problem(source.1, name, code, &why)?;
        }
        if let Some(cut) = cut {
            cut.apply(&mut entry);
        }
        self.push(Found::Entry(Box::new(Scanned {
            entry,
            root: Arc::clone(&source.1.root),
            rel: rel.to_vec(),
            stamp: Stamp::of(stat),
        })))
    }
}

/// The manifest entry of what `stat` describes.
pub(crate) fn entry_of(kind: Kind, path: Vec<u8>, target: Vec<u8>, stat: &Stat) -> Entry {
    let size = if kind == Kind::File {
        stat.st_size.cast_unsigned()
    } else {
        0
    };
    Entry {
        mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or_default(),
        mtime: stat.st_mtime,
        mtime_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        size,
        allocated: stat.st_blocks.cast_unsigned().saturating_mul(512).min(size),
        target,
        ..Entry::named(kind, path)
    }
}

/// Text of a link of at most [`path::PATH_MAX`] bytes.
fn link_target(source: &Source, rel: &[u8]) -> io::Result<Vec<u8>> {
    let (parent, name) = path::split(rel);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let dir = confine::open_beneath(&source.root, parent, flags)?;
    Ok(dir.readlinkat(name)?)
}

/// The directory's handle, which can be listed, and its facts.
pub(crate) fn open(root: &Dir, rel: &[u8]) -> io::Result<(File, Stat)> {
    let dir = confine::open_beneath(root, rel, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let stat = dir.stat()?;
    Ok((dir, stat))
}

#[cfg(test)]
mod tests;
