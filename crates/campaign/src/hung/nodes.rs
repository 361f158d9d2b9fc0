//! Folders and files in memory, and the answers of a file system about them.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::fuse::{
    ACCESS, CREATE, FLUSH, FSYNC, FSYNCDIR, GETATTR, INIT, LOOKUP, MKDIR, OPEN, OPENDIR, READ,
    READDIR, RELEASE, RELEASEDIR, RENAME, RENAME2, RMDIR, Request, SETATTR, STATFS, UNLINK, WRITE,
};

const ROOT: u64 = 1;
/// Bytes of a block, as they are counted.
const BLOCK: u64 = 512;

/// Content of a node.
#[derive(Debug)]
enum Content {
    Folder(BTreeMap<Vec<u8>, u64>),
    File(Vec<u8>),
}

#[derive(Debug)]
struct Node {
    content: Content,
    mode: u32,
    modified: (u64, u32),
}

impl Node {
    const fn new(content: Content, mode: u32) -> Self {
        Self {
            content,
            mode: mode & 0o7777,
            modified: (1_700_000_000, 0),
        }
    }

    const fn kind(&self) -> u32 {
        match self.content {
            Content::Folder(_) => 0o040_000,
            Content::File(_) => 0o100_000,
        }
    }
}

/// Bytes of an answer.
#[derive(Debug, Default)]
pub(super) struct Reply(pub(super) Vec<u8>);

impl Reply {
    pub(super) fn word(&mut self, word: u32) -> &mut Self {
        self.bytes(&word.to_ne_bytes())
    }

    pub(super) fn long(&mut self, long: u64) -> &mut Self {
        self.bytes(&long.to_ne_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Nodes of the file system; those that were removed stay, since they may be open.
#[derive(Debug)]
pub(super) struct Nodes {
    all: BTreeMap<u64, Node>,
    last: u64,
}

type Answer = Result<Vec<u8>, Errno>;

impl Nodes {
    pub(super) fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let mut nodes = Self {
            all: BTreeMap::from([(ROOT, Node::new(Content::Folder(BTreeMap::new()), 0o777))]),
            last: ROOT,
        };
        for (name, bytes) in files {
            let node = Node::new(Content::File(bytes.clone()), 0o644);
            // Its folder is there.
            let _made = nodes.make(ROOT, name.as_bytes(), node);
        }
        nodes
    }

    pub(super) fn answer(&mut self, request: &Request<'_>) -> Answer {
        let node = request.node();
        let name = |at: usize| request.names(at).next().unwrap_or_default();
        match request.call() {
            INIT => Ok(init()),
            LOOKUP => self.lookup(node, name(0)),
            GETATTR => self.attributes(node),
            SETATTR => self.set(node, request),
            MKDIR => {
                let folder = Node::new(Content::Folder(BTreeMap::new()), request.short(0));
                let made = self.make(node, name(8), folder)?;
                self.entry(made)
            }
            CREATE => {
                let file = Node::new(Content::File(Vec::new()), request.short(4));
                let made = self.make(node, name(16), file)?;
                Ok([self.entry(made)?, opened()].concat())
            }
            OPEN | OPENDIR => Ok(opened()),
            READ => self.read(node, request),
            WRITE => self.write(node, request),
            READDIR => self.list(node, request),
            UNLINK | RMDIR => {
                let removed = self.folder(node)?.remove(name(0));
                removed.map(|_| Vec::new()).ok_or(Errno::NOENT)
            }
            RENAME => self.rename(node, request, 8),
            RENAME2 => self.rename(node, request, 16),
            STATFS => Ok(room()),
            RELEASE | RELEASEDIR | FLUSH | FSYNC | FSYNCDIR | ACCESS => Ok(Vec::new()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn node(&mut self, id: u64) -> Result<&mut Node, Errno> {
        self.all.get_mut(&id).ok_or(Errno::STALE)
    }

    fn folder(&mut self, id: u64) -> Result<&mut BTreeMap<Vec<u8>, u64>, Errno> {
        match &mut self.node(id)?.content {
            Content::Folder(names) => Ok(names),
            Content::File(_) => Err(Errno::NOTDIR),
        }
    }

    fn file(&mut self, id: u64) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.node(id)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Folder(_) => Err(Errno::ISDIR),
        }
    }

    fn make(&mut self, folder: u64, name: &[u8], node: Node) -> Result<u64, Errno> {
        let id = self.last + 1;
        let names = self.folder(folder)?;
        if names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        names.insert(name.to_vec(), id);
        self.all.insert(id, node);
        self.last = id;
        Ok(id)
    }

    fn lookup(&mut self, folder: u64, name: &[u8]) -> Answer {
        let id = self.folder(folder)?.get(name).copied();
        self.entry(id.ok_or(Errno::NOENT)?)
    }

    /// An entry that is asked for again each time.
    fn entry(&mut self, id: u64) -> Answer {
        let mut reply = Reply::default();
        reply.long(id).long(0).long(0).long(0).word(0).word(0);
        self.describe(id, &mut reply)?;
        Ok(reply.0)
    }

    fn attributes(&mut self, id: u64) -> Answer {
        let mut reply = Reply::default();
        reply.long(0).word(0).word(0);
        self.describe(id, &mut reply)?;
        Ok(reply.0)
    }

    fn describe(&mut self, id: u64, reply: &mut Reply) -> Result<(), Errno> {
        let node = self.node(id)?;
        let size = match &node.content {
            Content::Folder(_) => 0,
            Content::File(bytes) => bytes.len() as u64,
        };
        let (seconds, nanos) = node.modified;
        reply.long(id).long(size).long(size.div_ceil(BLOCK));
        reply.long(seconds).long(seconds).long(seconds);
        reply.word(nanos).word(nanos).word(nanos);
        reply.word(node.kind() | node.mode).word(1).word(0).word(0);
        reply.word(0).word(4_096).word(0);
        Ok(())
    }

    fn set(&mut self, id: u64, request: &Request<'_>) -> Answer {
        let valid = request.short(0);
        if valid & 8 != 0 {
            let size = usize::try_from(request.argument(16)).map_err(|_| Errno::FBIG)?;
            self.file(id)?.resize(size, 0);
        }
        let node = self.node(id)?;
        if valid & 1 != 0 {
            node.mode = request.short(68) & 0o7777;
        }
        if valid & 32 != 0 {
            node.modified = (request.argument(40), request.short(60));
        }
        self.attributes(id)
    }

    fn read(&mut self, id: u64, request: &Request<'_>) -> Answer {
        let from = usize::try_from(request.argument(8)).map_err(|_| Errno::INVAL)?;
        let len = request.short(16) as usize;
        let rest = self.file(id)?.get(from..).unwrap_or_default();
        Ok(rest[..len.min(rest.len())].to_vec())
    }

    fn write(&mut self, id: u64, request: &Request<'_>) -> Answer {
        let from = usize::try_from(request.argument(8)).map_err(|_| Errno::INVAL)?;
        let bytes = request.rest(40);
        let file = self.file(id)?;
        let end = from + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[from..end].copy_from_slice(bytes);
        let mut reply = Reply::default();
        reply.word(request.short(16)).word(0);
        Ok(reply.0)
    }

    fn list(&mut self, id: u64, request: &Request<'_>) -> Answer {
        let from = usize::try_from(request.argument(8)).map_err(|_| Errno::INVAL)?;
        let most = request.short(16) as usize;
        let mut names = vec![(b".".to_vec(), id), (b"..".to_vec(), id)];
        names.extend(
            self.folder(id)?
                .iter()
                .map(|(name, id)| (name.clone(), *id)),
        );
        let mut reply = Reply::default();
        for (at, (name, id)) in names.iter().enumerate().skip(from) {
            let kind = self.node(*id)?.kind() >> 12;
            let mut entry = Reply::default();
            let len = u32::try_from(name.len()).unwrap_or_default();
            entry.long(*id).long(at as u64 + 1).word(len).word(kind);
            entry.bytes(name);
            entry.0.resize(entry.0.len().next_multiple_of(8), 0);
            if reply.0.len() + entry.0.len() > most {
                break;
            }
            reply.bytes(&entry.0);
        }
        Ok(reply.0)
    }

    fn rename(&mut self, from: u64, request: &Request<'_>, names: usize) -> Answer {
        let to = request.argument(0);
        let flags = if names == 16 { request.short(8) } else { 0 };
        let mut both = request.names(names);
        let (old, new) = (
            both.next().unwrap_or_default(),
            both.next().unwrap_or_default(),
        );
        let id = self.folder(from)?.get(old).copied().ok_or(Errno::NOENT)?;
        match flags {
            // Without replacing.
            1 if self.folder(to)?.contains_key(new) => return Err(Errno::EXIST),
            0 | 1 => {}
            _ => return Err(Errno::INVAL),
        }
        self.folder(from)?.remove(old);
        self.folder(to)?.insert(new.to_vec(), id);
        Ok(Vec::new())
    }
}

/// Version 7.31 of the protocol, and no options.
fn init() -> Vec<u8> {
    let mut reply = Reply::default();
    reply.word(7).word(31).word(128 << 10).word(0);
    // As many requests in the background as the kernel likes, then the longest write.
    reply.word(0).word(128 << 10);
    reply.word(1).word(32);
    reply.bytes(&[0; 32]);
    reply.0
}

/// Open, without a cache.
fn opened() -> Vec<u8> {
    let mut reply = Reply::default();
    reply.long(0).word(1).word(0);
    reply.0
}

/// Room enough.
fn room() -> Vec<u8> {
    let mut reply = Reply::default();
    let blocks = 1 << 30;
    reply.long(blocks).long(blocks).long(blocks);
    reply.long(blocks).long(blocks);
    reply.word(4_096).word(255).word(4_096).word(0);
    reply.bytes(&[0; 24]);
    reply.0
}
