//! Model of a disk whose power failed. A file system in memory knows of every change whether a sync
//! has made it durable. States are drawn from those that its contract allows.
//!
//! The contract, as POSIX has it and the file systems of Linux document it:
//!
//! - What was done to a file's content, length, permissions and times before an `fsync` of it that
//!   succeeded is there. What was done to anything before a `syncfs` that succeeded is there.
//! - Of a write that no sync has followed, each sector of 512 bytes may be there or not, whatever
//!   became of others and of later ones. The length may have grown without the bytes; these then
//!   read as zeros.
//! - A change of a directory that no sync has followed may be there or not. One change is whole: after a
//!   rename the new name leads to the old file or the new one, never to none.
//! - File systems with a journal (ext4, xfs, btrfs) keep changes of directories, lengths,
//!   permissions and times in their order. So each state is one of a moment. POSIX promises no
//!   order. Both are drawn from.
//! - An `fsync` of a file does not promise that its name is there: the parent's change may be missing. One of a
//!   directory promises what was done to its names.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use farhaul_core::rng::Rng;

use crate::simulated::{disk::Op, pick};

const SECTOR: u64 = 512;

#[derive(Clone, Debug)]
enum Kind {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    time: Option<(i64, u64)>,
}

/// A state of a file system, by inode.
#[derive(Clone, Debug)]
pub(super) struct Model {
    root: u64,
    nodes: BTreeMap<u64, Node>,
}

/// True for a change whose order a journal keeps.
const fn is_journalled(op: &Op) -> bool {
    !matches!(op, Op::Write { .. } | Op::Punch { .. })
}

/// The file whose content or facts it changes.
const fn file(op: &Op) -> Option<u64> {
    match op {
        Op::Write { file, .. }
        | Op::Resize { file, .. }
        | Op::Punch { file, .. }
        | Op::Mode { file, .. }
        | Op::Time { file, .. } => Some(*file),
        _ => None,
    }
}

/// The directory whose names it changes.
const fn folder(op: &Op) -> Option<u64> {
    match op {
        Op::Create { dir, .. }
        | Op::MakeDir { dir, .. }
        | Op::Link { dir, .. }
        | Op::Rename { dir, .. }
        | Op::Remove { dir, .. } => Some(*dir),
        _ => None,
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Model {
    /// Reads the tree at `root`, all of it durable.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mut model = Self {
            root: fs::metadata(root)?.ino(),
            nodes: BTreeMap::new(),
        };
        model.add(root)?;
        Ok(model)
    }

    fn add(&mut self, path: &Path) -> io::Result<u64> {
        let meta = path.symlink_metadata()?;
        let kind = if meta.is_dir() {
            let mut names = BTreeMap::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let node = self.add(&entry.path())?;
                names.insert(entry.file_name().into_vec(), node);
            }
            Kind::Dir(names)
        } else if meta.is_symlink() {
            Kind::Link(fs::read_link(path)?.into_os_string().into_vec())
        } else {
            Kind::File(fs::read(path)?)
        };
        let nanos = u64::try_from(meta.mtime_nsec()).unwrap_or_default();
        let time = Some((meta.mtime(), nanos));
        let mode = meta.mode() & 0o7777;
        self.nodes.insert(meta.ino(), Node { kind, mode, time });
        Ok(meta.ino())
    }

    /// Makes the file of a change exist, if under no name yet.
    fn prepare(&mut self, op: &Op) {
        let (file, kind, mode) = match op {
            Op::Create { file, mode, .. } => (*file, Kind::File(Vec::new()), *mode),
            Op::MakeDir { file, mode, .. } => (*file, Kind::Dir(BTreeMap::new()), *mode),
            Op::Link { file, text, .. } => (*file, Kind::Link(text.clone()), 0o777),
            _ => return,
        };
        self.nodes.insert(
            file,
            Node {
                kind,
                mode,
                time: None,
            },
        );
    }

    fn names(&mut self, dir: u64) -> Option<&mut BTreeMap<Vec<u8>, u64>> {
        match &mut self.nodes.get_mut(&dir)?.kind {
            Kind::Dir(names) => Some(names),
            _ => None,
        }
    }

    fn bytes(&mut self, file: u64) -> Option<&mut Vec<u8>> {
        match &mut self.nodes.get_mut(&file)?.kind {
            Kind::File(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn write(&mut self, file: u64, at: u64, piece: &[u8]) {
        if let Some(bytes) = self.bytes(file) {
            let (from, to) = (index(at), index(at) + piece.len());
            if bytes.len() < to {
                bytes.resize(to, 0);
            }
            bytes[from..to].copy_from_slice(piece);
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Create {
                dir, name, file, ..
            }
            | Op::MakeDir {
                dir, name, file, ..
            }
            | Op::Link {
                dir, name, file, ..
            } => {
                if let Some(names) = self.names(*dir) {
                    names.insert(name.clone(), *file);
                }
            }
            Op::Rename {
                dir,
                from,
                to,
                file,
            } => {
                if let Some(names) = self.names(*dir) {
                    if names.get(from) == Some(file) {
                        names.remove(from);
                    }
                    names.insert(to.clone(), *file);
                }
            }
            Op::Remove { dir, name } => {
                if let Some(names) = self.names(*dir) {
                    names.remove(name);
                }
            }
            Op::Write { file, at, bytes } => self.write(*file, *at, bytes),
            Op::Resize { file, len } => {
                if let Some(bytes) = self.bytes(*file) {
                    bytes.resize(index(*len), 0);
                }
            }
            Op::Punch { file, from, to } => {
                if let Some(bytes) = self.bytes(*file) {
                    let to = index(*to).min(bytes.len());
                    let from = index(*from).min(to);
                    bytes[from..to].fill(0);
                }
            }
            Op::Mode { file, mode } => {
                if let Some(node) = self.nodes.get_mut(file) {
                    node.mode = *mode;
                }
            }
            Op::Time { file, time } => {
                if let Some(node) = self.nodes.get_mut(file) {
                    node.time = Some(*time);
                }
            }
            Op::Sync { .. } | Op::SyncAll | Op::Success => {}
        }
    }

    /// A write that is not synced, so that any part of it may exist.
    fn tear(&mut self, (file, at, piece): (u64, u64, &[u8]), rng: &mut Rng) {
        let end = at + piece.len() as u64;
        let style = rng.below(5);
        let stop = at + rng.below(piece.len() as u64 + 1);
        let mut from = at;
        while from < end {
            let to = (from - from % SECTOR + SECTOR).min(end);
            let there = match style {
                0 => true,
                1 => false,
                2 => to <= stop,
                3 => from >= stop,
                _ => rng.below(2) == 0,
            };
            if there {
                self.write(file, from, &piece[index(from - at)..index(to - at)]);
            }
            from = to;
        }
        if rng.below(2) == 0
            && let Some(bytes) = self.bytes(file)
            && bytes.len() < index(end)
        {
            bytes.resize(index(end), 0);
        }
    }

    /// Makes the files at `to`, which is empty, what they are here.
    pub(super) fn put(&self, to: &Path) -> io::Result<()> {
        self.put_node(self.root, to)
    }

    fn put_node(&self, node: u64, to: &Path) -> io::Result<()> {
        let Some(Node { kind, mode, time }) = self.nodes.get(&node) else {
            return Ok(());
        };
        match kind {
            Kind::Link(text) => return symlink(OsStr::from_bytes(text), to),
            Kind::File(bytes) => fs::write(to, bytes)?,
            Kind::Dir(names) => {
                if node != self.root {
                    fs::create_dir(to)?;
                }
                for (name, node) in names {
                    self.put_node(*node, &to.join(OsStr::from_bytes(name)))?;
                }
            }
        }
        if let Some((secs, nanos)) = time {
            let secs = u64::try_from(*secs).unwrap_or_default();
            let nanos = u32::try_from(*nanos).unwrap_or_default();
            File::open(to)?.set_modified(UNIX_EPOCH + Duration::new(secs, nanos))?;
        }
        fs::set_permissions(to, Permissions::from_mode(*mode))
    }
}

/// Durable state, and the changes since.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    durable: Model,
    pending: Vec<Op>,
}

impl Disk {
    pub(super) const fn new(durable: Model) -> Self {
        Self {
            durable,
            pending: Vec::new(),
        }
    }

    /// Makes the next change.
    pub(super) fn step(&mut self, op: &Op) {
        match op {
            Op::SyncAll => {
                for op in std::mem::take(&mut self.pending) {
                    self.durable.apply(&op);
                }
            }
            Op::Sync { file: synced } => {
                let pending = std::mem::take(&mut self.pending);
                for op in pending {
                    if file(&op) == Some(*synced) || folder(&op) == Some(*synced) {
                        self.durable.apply(&op);
                    } else {
                        self.pending.push(op);
                    }
                }
            }
            Op::Success => {}
            op => {
                self.durable.prepare(op);
                self.pending.push(op.clone());
            }
        }
    }

    /// A state that the disk may hold if the power fails now: of a file system with a journal if `ordered`.
    pub(super) fn crash(&self, ordered: bool, rng: &mut Rng) -> Model {
        let mut model = self.durable.clone();
        let kept = self.pending.iter().filter(|op| is_journalled(op)).count() as u64;
        let prefix = rng.below(kept + 1);
        let chance = *pick(rng, &[0.1, 0.5, 0.9]);
        let mut seen = 0;
        for op in &self.pending {
            if is_journalled(op) {
                seen += 1;
                let there = if ordered {
                    seen <= prefix
                } else {
                    rng.chance(chance)
                };
                if there {
                    model.apply(op);
                }
                continue;
            }
            match op {
                Op::Write { file, at, bytes } => model.tear((*file, *at, bytes), rng),
                op if rng.below(2) == 0 => model.apply(op),
                _ => {}
            }
        }
        model
    }
}
