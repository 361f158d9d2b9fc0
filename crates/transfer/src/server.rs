//! What may a peer read and write here? Named shares, nothing else; a [`Server`] answers one session.
//!
//! - Default deny: a peer must be allowed, the share must exist and permit the direction. Whoever is
//!   refused learns only that, in the same words whichever it was.

use std::{io, path::Path, sync::Arc};

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::App;

use crate::{
    confine::{self, Dir},
    error::{Code, TransferError},
    half::{Half, Side},
    ledger::{Outbox, short},
    message::{Direction, Message, VERSION},
    path::{self, Tag},
    pool::Wake,
    receiver::{Base, Receiver, Rules},
    scan::Source,
    sender::Sender,
    summary::Handle,
};

/// What peers may do in a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Fetch.
    Read,
    /// Deliver.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// From `ro`, `wo` or `rw`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ro" => Some(Self::Read),
            "wo" => Some(Self::Write),
            "rw" => Some(Self::ReadWrite),
            _ => None,
        }
    }

    const fn permits(self, direction: Direction) -> bool {
        match self {
            Self::Read => matches!(direction, Direction::Get),
            Self::Write => matches!(direction, Direction::Put),
            Self::ReadWrite => true,
        }
    }
}

/// A directory that peers may use.
#[derive(Clone, Debug)]
pub struct Share {
    name: String,
    root: Dir,
    access: Access,
}

impl Share {
    /// Opens the directory `root`; it stays open, so that it may be moved while it is served.
    pub fn open(name: &str, root: &Path, access: Access) -> io::Result<Self> {
        Ok(Self {
            name: name.to_string(),
            root: confine::open_root(root)?,
            access,
        })
    }

    /// The name by which peers ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Who may ask at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allow {
    /// Nobody.
    #[default]
    None,
    /// Everybody, spelled out by whoever serves.
    Any,
    /// Peers with one of these public keys.
    Keys(Vec<Vec<u8>>),
}

impl Allow {
    fn permits(&self, key: Option<&[u8]>) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Keys(keys) => key.is_some_and(|key| keys.iter().any(|k| k == key)),
        }
    }
}

/// What is served, shared by all sessions.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The shares.
    pub shares: Vec<Share>,
    /// The peers.
    pub allow: Allow,
    /// Received files need not reach the disk before they count.
    pub no_sync: bool,
}

/// Answers one session.
pub struct Server {
    policy: Arc<Policy>,
    side: Side,
    wake: Option<Wake>,
    out: Outbox,
    allowed: bool,
    peer: Vec<u8>,
    answered: bool,
}

impl Server {
    /// A session under `policy`; `wake` is called by worker threads when it should be polled.
    pub fn new(policy: Arc<Policy>, wake: Option<Arc<dyn Fn() + Send + Sync>>) -> Self {
        Self {
            policy,
            side: Side::new(true),
            wake,
            out: Outbox::default(),
            allowed: false,
            peer: Vec::new(),
            answered: false,
        }
    }

    /// For other threads.
    pub fn handle(&self) -> Handle {
        self.side.handle.clone()
    }

    fn messages(&mut self, session: &mut dyn Session) -> Result<(), TransferError> {
        self.side.read(session);
        while let Some(message) = self.side.next()? {
            match message {
                Message::Request {
                    version,
                    direction,
                    one_file,
                    tag,
                    share,
                    path,
                } if !self.answered => {
                    self.answered = true;
                    self.side.set_put(direction == Direction::Put);
                    let made = if version == VERSION {
                        self.admit(direction, &share)
                            .and_then(|root| self.begin(&root, direction, one_file, tag, &path))
                    } else {
                        let text = format!(
                            "the server speaks version {VERSION} of the transfer protocol, you {version}"
                        );
                        Err(TransferError::new(Code::Version, text)
                            .fix("install the same version on both sides"))
                    };
                    match made {
                        Ok(one_file) => self.out.push(&Message::Accepted {
                            version: VERSION,
                            one_file,
                        }),
                        Err(e) => self.out.push(&Message::Refused {
                            code: e.code,
                            text: short(&e.text),
                            fix: short(&e.fix),
                        }),
                    }
                }
                // A client lists its files before it knows that it was refused.
                _ if self.answered && self.side.half.is_none() => {}
                other => self.side.handle(other)?,
            }
        }
        Ok(())
    }

    /// The root of a share that this peer may use so.
    fn admit(&self, direction: Direction, name: &[u8]) -> Result<Dir, TransferError> {
        let share = self
            .policy
            .shares
            .iter()
            .find(|s| s.name.as_bytes() == name);
        if let Some(share) = share.filter(|s| self.allowed && s.access.permits(direction)) {
            Ok(Arc::clone(&share.root))
        } else {
            let text = format!("share '{}' is unknown or not allowed", path::show(name));
            let fix = "check the name, the direction and your key with whoever runs the server";
            Err(TransferError::new(Code::Auth, text).fix(fix))
        }
    }

    /// Takes up a role; says whether a single file is sent.
    fn begin(
        &mut self,
        root: &Dir,
        direction: Direction,
        one_file: bool,
        tag: Tag,
        rel: &[u8],
    ) -> Result<bool, TransferError> {
        let progress = Arc::clone(self.side.handle.progress());
        if direction == Direction::Put {
            let base = Base::beneath(root, rel, one_file)?;
            let rules = Rules {
                sync: !self.policy.no_sync,
            };
            let tag = self.own_tag(tag, rel);
            let receiver = Receiver::new(base, tag, rules, progress, self.wake.as_ref())?;
            self.side.half = Some(Half::Receives(Box::new(receiver)));
            return Ok(one_file);
        }
        if let Some(why) = path::refusal(rel.strip_suffix(b"/").unwrap_or(rel)) {
            let text = format!("'{}' is not a path in a share: {why}", path::show(rel));
            return Err(
                TransferError::new(Code::SourceMissing, text).fix("use a plain relative path")
            );
        }
        let source = Source::beneath(Arc::clone(root), rel).map_err(|e| {
            let text = format!("source '{}': {e}", path::show(rel));
            TransferError::new(Code::SourceMissing, text)
                .fix("check the path; links are not followed in a share")
        })?;
        let one_file = source.is_file;
        let sender = Sender::new(vec![source], progress, self.wake.as_ref());
        let sender = sender.map_err(|e| {
            TransferError::new(Code::Busy, format!("the server cannot start a thread: {e}"))
        })?;
        self.side.half = Some(Half::Sends(Box::new(sender)));
        Ok(one_file)
    }

    /// A peer cannot name another peer's transfer.
    fn own_tag(&self, tag: Tag, rel: &[u8]) -> Tag {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&tag);
        hasher.update(&(self.peer.len() as u64).to_be_bytes());
        hasher.update(&self.peer);
        hasher.update(rel);
        let mut own = Tag::default();
        own.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        own
    }
}

impl Store for Server {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.side.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.side.place(extents, batch)
    }
}

impl App for Server {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.side.at(now);
        match event {
            Event::Connected { peer_key } => {
                self.allowed = self.policy.allow.permits(peer_key.as_deref());
                self.peer = peer_key.unwrap_or_default();
            }
            Event::Readable => {
                if let Err(e) = self.messages(session) {
                    self.side.fail(e, session);
                }
            }
            Event::Delivered => {}
            Event::Closed(reason) => {
                self.side.closed(&reason);
                // Lets go of the journal at once: the peer may be back before this is dropped.
                self.side.half = None;
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.side.at(now);
        if session.is_closed() {
            return;
        }
        self.out.flush(session);
        self.side.poll(session);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.side.next_wake()
    }
}
