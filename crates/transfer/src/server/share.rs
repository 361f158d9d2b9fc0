//! A share: its folder, and what peers may do in it.
//!
//! - Where peers may deliver but not fetch, existing files are neither disclosed nor opened to them.

use std::{
    io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, Mutex},
};

use farhaul_core::units::Rate;
use rustix::fs::{FileType, OFlags};

use super::Allow;
use crate::{
    confine::{self, Dir},
    disk::{Disk, File},
    error::TransferError,
    names::Cursor,
    quota::Quota,
    reach::Reach,
    wire::{Access, Direction, Existing, Exit, Mirror, RequestOptions, path},
};

/// A directory that peers may use.
#[derive(Clone, Debug)]
pub struct Share {
    name: String,
    /// Prefix of its paths in messages.
    called: Vec<u8>,
    root: Dir,
    access: Access,
    allow: Allow,
    /// True if holders of tickets may use the share, too.
    tickets: bool,
    max_rate: Option<Rate>,
    quota: Option<Quota>,
    /// Held while names change that a peer asks to remove, move or copy.
    names: Arc<Mutex<()>>,
}

impl Share {
    /// Opens the directory `root`; it stays open, so that it may be moved while it is served.
    pub fn open(name: &str, root: &Path, access: Access) -> io::Result<Self> {
        Ok(Self {
            name: name.to_string(),
            called: [name.as_bytes(), b"/"].concat(),
            root: confine::open_root(root)?,
            access,
            allow: Allow::None,
            tickets: false,
            max_rate: None,
            quota: None,
            names: Arc::default(),
        })
    }

    pub(super) fn names(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.names)
    }

    /// Puts the share on this disk; of tests.
    #[doc(hidden)]
    pub fn on(mut self, disk: &Disk) -> io::Result<Self> {
        self.root = Arc::new(self.root.on(disk)?);
        Ok(self)
    }

    /// Makes messages show paths in the share as if they were in `folder`, not by its name.
    #[must_use]
    pub fn called(mut self, folder: &Path) -> Self {
        self.called = folder.as_os_str().as_bytes().to_vec();
        if !self.called.ends_with(b"/") {
            self.called.push(b'/');
        }
        self
    }

    /// Path of its folder with a slash, if it is called by that.
    pub(super) fn folder(&self) -> Option<&[u8]> {
        // No name of a share begins so.
        self.called.starts_with(b"/").then_some(&self.called[..])
    }

    /// Adds these peers.
    #[must_use]
    pub fn for_peers(mut self, allow: Allow) -> Self {
        self.allow = allow;
        self
    }

    /// Limits the rate: its files are neither sent nor received faster, with each peer.
    #[must_use]
    pub const fn never_above(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// Sets a quota: deliveries are refused when the share would hold more bytes than this, from
    /// any peer. Counts the existing content.
    pub fn within(mut self, quota: u64) -> io::Result<Self> {
        self.quota = Some(Quota::new(Arc::clone(&self.root), quota)?);
        Ok(self)
    }

    pub(super) const fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// Folders that do not count towards its quota, since they could not be read.
    pub fn uncounted(&self) -> u64 {
        self.quota.as_ref().map_or(0, Quota::closed)
    }

    /// Takes over the deliveries under way in the first of these that is the same folder with a
    /// quota, whatever its name.
    pub(super) fn succeed<'a>(&mut self, mut earlier: impl Iterator<Item = &'a Self>) {
        if let Some(quota) = &mut self.quota {
            earlier.any(|share| share.quota.as_ref().is_some_and(|q| quota.succeed(q)));
        }
    }

    /// Sets whether holders of tickets may use the share, too.
    #[must_use]
    pub const fn for_tickets(mut self, tickets: bool) -> Self {
        self.tickets = tickets;
        self
    }

    /// True if holders of tickets may use the share.
    pub const fn takes_tickets(&self) -> bool {
        self.tickets
    }

    /// Access that peers have to the share.
    pub const fn mode(&self) -> Access {
        self.access
    }

    /// The share as the holder of a ticket may use it.
    pub(super) fn narrowed(&self, access: Access, max_rate: Option<Rate>) -> Option<Self> {
        Some(Self {
            access: self.access.and(access)?,
            max_rate: self.max_rate.into_iter().chain(max_rate).min(),
            ..self.clone()
        })
    }

    pub(super) const fn allow(&self) -> &Allow {
        &self.allow
    }

    pub(super) const fn max_rate(&self) -> Option<Rate> {
        self.max_rate
    }

    /// The name by which peers ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn granted(&self) -> Access {
        self.access
    }

    /// True if peers may deliver to it.
    pub const fn is_writable(&self) -> bool {
        !matches!(self.access, Access::Read)
    }

    /// True if peers may delete and move what is there.
    pub(super) const fn permits_deletion(&self) -> bool {
        matches!(self.access, Access::Delete)
    }

    /// Permissions of peers in it, as text.
    pub const fn access(&self) -> &'static str {
        match self.access {
            Access::Read => "fetch (ro)",
            Access::Write => "deliver (wo)",
            Access::Create => "deliver new files (create)",
            Access::ReadWrite => "fetch and deliver (rw)",
            Access::Delete => "fetch, deliver, delete and move (rw,delete)",
        }
    }

    /// Act that peers may do in its folder and this process may not, and the reason.
    pub fn denied(&self) -> Option<(&'static str, io::Error)> {
        let if_permitted = |direction, may: fn(&File) -> rustix::io::Result<()>| {
            if self.permits(direction) {
                may(&self.root)
            } else {
                Ok(())
            }
        };
        let listed = if_permitted(Direction::Get, File::may_be_listed);
        let written = if_permitted(Direction::Put, File::may_be_written);
        let denied = |verb, e: rustix::io::Errno| Some((verb, e.into()));
        match (self.root.may_be_entered(), listed, written) {
            (Err(e), ..) => denied("enter", e),
            (_, Err(e), _) => denied("read", e),
            (.., Err(e)) => denied("write to", e),
            _ => None,
        }
    }

    /// Fails if its folder was deleted, or this process may not even enter it, whatever a peer wants there.
    pub(super) fn enter(&self, direction: Direction) -> Result<(), TransferError> {
        let entered = self.root.may_be_entered();
        let there = self.root.stat().is_ok_and(|stat| stat.st_nlink > 0);
        let code = match direction {
            Direction::Get => Exit::SourceMissing,
            Direction::Put => Exit::DestError,
        };
        if !there {
            let text = format!("the folder of share '{}' was deleted", self.name);
            let fix = "have it made again there, and the server restarted";
            return Err(TransferError::new(code, text).fix(fix));
        }
        let Err(e) = entered else {
            return Ok(());
        };
        let text = format!(
            "the server's user may not enter share '{}': {}",
            self.name,
            io::Error::from(e)
        );
        Err(TransferError::new(code, text).fix("tell the server's administrator"))
    }

    /// True if peers may fetch from it.
    pub const fn may_be_fetched(&self) -> bool {
        self.permits(Direction::Get)
    }

    /// Opens the file of this path to be read, if it may be fetched.
    pub fn open_file(&self, at: &[u8]) -> io::Result<std::fs::File> {
        if !self.may_be_fetched() || at.is_empty() || path::refusal(at).is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(confine::open_to_read(&self.root, at)?.into())
    }

    /// Calls `take` with the name of each file that lies directly in its folder.
    pub fn each_file(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let folder = self.root.openat(b".", OFlags::DIRECTORY)?;
        let mut names = Cursor::within(&folder, 0)?;
        while let Some(name) = names.next(&folder)? {
            // Pipes and devices are not even opened.
            let stat = folder.statat(name);
            if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
                take(name)?;
            }
        }
        Ok(())
    }

    pub(crate) const fn permits(&self, direction: Direction) -> bool {
        self.access.permits(direction)
    }

    pub(crate) const fn root(&self) -> &Dir {
        &self.root
    }

    /// Name that people call `path` in the share.
    pub(super) fn spoken(&self, path: &[u8]) -> Vec<u8> {
        [&self.called[..], path].concat()
    }

    /// Reach of a delivery: what it may change.
    pub(super) const fn reach(&self) -> Reach {
        match self.access {
            Access::Write => Reach::Content,
            Access::Create => Reach::New,
            Access::Read | Access::ReadWrite | Access::Delete => Reach::All,
        }
    }

    /// Error if `ask` changes what may only be added to. Also if the answer would disclose how long
    /// or how old an existing file is to a peer that may not fetch.
    pub(super) fn may_answer(&self, options: &RequestOptions) -> Result<(), TransferError> {
        let changes = match &options.mirror {
            Mirror {
                delete: Some(_), ..
            } => Some("--delete"),
            Mirror {
                backup: Some(_), ..
            } => Some("--backup"),
            _ => None,
        };
        if let Some(what) = changes.filter(|_| self.reach() != Reach::All) {
            let text =
                format!("{what} changes files that are there, which this share does not permit");
            return Err(
                TransferError::new(Exit::Auth, text).fix("omit it, or request the share as rw")
            );
        }
        let what = match options {
            _ if self.reach() == Reach::All => return Ok(()),
            RequestOptions { dry: true, .. } => "a dry run (-n)",
            // Else every guess of a content would be answered; without it the time has to be known, too.
            RequestOptions { checksum: true, .. } => "--checksum",
            RequestOptions {
                existing: Existing::KeepNewer,
                ..
            } => "--update",
            // In a `:create` share every existing name is disclosed anyway.
            RequestOptions {
                existing: Existing::Keep,
                ..
            } if self.reach() == Reach::Content => "--ignore-existing",
            _ => return Ok(()),
        };
        let text = format!("{what} would disclose files that may not be fetched from this share");
        Err(TransferError::new(Exit::Auth, text).fix("omit it, or request the share as rw"))
    }
}
