//! Counts how much still fits: the free space of the destination and the quota of the share, less
//! what was requested and has not arrived.

use std::io;

use farhaul_core::units::Size;
use rustix::fs::OFlags;

use crate::{
    confine,
    disk::File,
    error::{Advice, TransferError},
    quota::Claim,
    wire::Exit,
};

/// Space at the destination.
pub(crate) struct Space {
    /// Free bytes when last queried.
    free: u64,
    /// Bytes wanted that will need space.
    reserved: u64,
    /// Part of the share's quota that this copy takes, if there is one.
    quota: Option<Claim>,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            free: u64::MAX,
            reserved: 0,
            quota: None,
        }
    }
}

/// Free bytes of the file system of `dir`. Where it cannot be queried, writing will fail.
fn free_in(dir: &File) -> u64 {
    let found = dir.statvfs();
    found.map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

impl Space {
    /// Free space of the file system of `dir`, of which nothing was wanted yet.
    pub(crate) fn of(dir: &File) -> Self {
        Self {
            free: free_in(dir),
            ..Self::default()
        }
    }

    /// Limits it to `room` bytes.
    pub(crate) fn limit(&mut self, room: u64) {
        self.free = self.free.min(room);
    }

    /// Sets `need` more bytes aside, or says why they do not fit.
    pub(crate) fn reserve(&mut self, need: u64) -> Result<(), String> {
        let free = self.free.saturating_sub(self.reserved);
        if need > free {
            let (need, free) = (Size::from_bytes(need), Size::from_bytes(free));
            return Err(format!("needs {need}, {free} are free"));
        }
        if let Some(quota) = &mut self.quota {
            quota.hold(need)?;
        }
        self.reserved += need;
        Ok(())
    }

    /// Makes a folder or a link, if there is room for one more. `make` says whether it was not there.
    pub(super) fn for_inode(
        &mut self,
        make: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let Some(quota) = &mut self.quota else {
            return make();
        };
        let held = quota.hold_inode();
        held.map_err(|why| io::Error::new(io::ErrorKind::QuotaExceeded, why))?;
        let made = make();
        quota.settle_inode(matches!(made, Ok(true)));
        made
    }

    /// Releases bytes that have arrived, or are not requested any more.
    pub(super) const fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Limits the space to a quota.
    pub(super) fn set_quota(&mut self, quota: Option<Claim>) {
        self.quota = quota;
    }

    /// Queries how much the destination can take.
    pub(super) fn query(&mut self, root: &File) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = confine::open_beneath(root, b"", flags);
        self.free = dir.map_or(u64::MAX, |dir| free_in(&dir));
    }

    /// Counts bytes of content that are here; an error, which ends the transfer, if the quota is used up.
    pub(super) fn arrive(&mut self, bytes: u64) -> Result<(), TransferError> {
        let Some(Err(why)) = self.quota.as_mut().map(|quota| quota.arrive(bytes)) else {
            return Ok(());
        };
        let fix =
            Advice::again("remove what is no longer needed there, then run the same command again");
        Err(TransferError::new(Exit::NoSpace, why).fix(fix))
    }
}
