//! Syncs every file system that a transfer writes to. Each has a descriptor, opened before the
//! first byte is written there and synced at the end. The kernel reports to a descriptor only
//! errors that occurred after the descriptor was opened, and each error once.
//!
//! - An error is kept: no later sync takes it back. Data that failed to be written may stay in the
//!   page cache as if it were on the disk. So nothing that was written before is trusted again
//!   ([`journal`](super::journal)).

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
};

use rustix::{fs::OFlags, io::Errno};

use crate::{
    confine::{self, Dir},
    disk::File,
    lacks,
    wire::path,
};

/// A file system.
struct Held {
    descriptor: Arc<File>,
    /// The first folder in it, within the destination.
    folder: Vec<u8>,
}

#[derive(Default)]
struct State {
    /// File systems by device.
    held: BTreeMap<u64, Held>,
    /// The first error.
    failed: Option<(io::ErrorKind, String)>,
}

/// The file systems that a transfer writes to.
pub(crate) struct Disks {
    state: Mutex<State>,
    /// The journal, which has each name before a file gets it.
    journal: File,
    /// The folder that the journal is in, if this user may read it.
    folder: Option<File>,
    /// Count of the times that names were noted there, and of those times that are on the disk.
    noted: AtomicU64,
    on_disk: Mutex<u64>,
}

impl std::fmt::Debug for Disks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.state().held.keys()).finish()
    }
}

impl Disks {
    /// Holds the file system of `file`, the journal in the folder `dir`.
    pub(crate) fn new(file: &File, dir: &File) -> io::Result<Self> {
        let device = file.stat()?.st_dev;
        let held = Held {
            descriptor: Arc::new(file.try_clone()?),
            folder: Vec::new(),
        };
        let state = State {
            held: BTreeMap::from([(device, held)]),
            failed: None,
        };
        let folder = match dir.openat(b".", OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => Some(folder),
            Err(Errno::ACCESS | Errno::PERM) => None,
            Err(e) => return Err(e.into()),
        };
        Ok(Self {
            state: Mutex::new(state),
            journal: file.try_clone()?,
            folder,
            noted: AtomicU64::new(0),
            on_disk: Mutex::default(),
        })
    }

    /// Names were written to the journal.
    pub(crate) fn names_noted(&self) {
        self.noted.fetch_add(1, AcqRel);
    }

    /// Waits until all names that were noted are on the disk. After a crash, an empty file with one
    /// of them is then known not to be whole.
    pub(crate) fn await_names(&self) -> io::Result<()> {
        let mut on_disk = self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = self.noted.load(Acquire);
        if *on_disk < noted {
            self.journal.sync_data()?;
            if *on_disk == 0 {
                // The name of the journal, too; where folders cannot be synced, the file system has its own order.
                match self.folder.as_ref().map(File::sync_data) {
                    Some(Err(e)) if !lacks::is_refusal(e) => return Err(e.into()),
                    _ => {}
                }
            }
            *on_disk = noted;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the file system of `dir`, which is `folder` in the destination; to be called before anything
    /// is written there.
    pub(crate) fn hold(&self, dir: &Dir, folder: &[u8]) -> io::Result<()> {
        let device = dir.stat()?.st_dev;
        let mut state = self.state();
        if state.held.contains_key(&device) {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let descriptor = confine::open_beneath(dir, b"", flags).map_err(|e| {
            let why = format!("its folder cannot be opened, which syncing it needs: {e}");
            io::Error::new(e.kind(), why)
        })?;
        let (descriptor, folder) = (Arc::new(descriptor), folder.to_vec());
        state.held.insert(device, Held { descriptor, folder });
        Ok(())
    }

    /// Syncs the file system of `dir`.
    pub(crate) fn sync_of(&self, dir: &Dir) -> io::Result<()> {
        let device = dir.stat()?.st_dev;
        self.sync(|held| *held == device)
    }

    /// Syncs all file systems.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.sync(|_| true)
    }

    fn sync(&self, which: impl Fn(&u64) -> bool) -> io::Result<()> {
        let copies = |state: &State| {
            let held = state.held.iter().filter(|(device, _)| which(device));
            let copy = |(_, held): (_, &Held)| (Arc::clone(&held.descriptor), held.folder.clone());
            held.map(copy).collect::<Vec<_>>()
        };
        // The system is not waited for with the lock held.
        let held = copies(&self.state());
        for (descriptor, folder) in held {
            let synced = match descriptor.sync_all() {
                // Other errors may be those of what was written.
                Err(e @ (Errno::NOSYS | Errno::OPNOTSUPP)) => {
                    let why = io::Error::from(e).to_string();
                    descriptor.lacks().note(lacks::SYNCS, why);
                    descriptor.sync_everywhere()
                }
                synced => synced,
            };
            if let Err(e) = synced {
                let e = io::Error::from(e);
                let place = if folder.is_empty() {
                    "the destination".to_string()
                } else {
                    path::show(&folder)
                };
                let why = format!("the file system of {place} did not write everything: {e}");
                self.state().failed.get_or_insert((e.kind(), why));
            }
        }
        match &self.state().failed {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::disk::{Answer, Call, Disk, Interposer};

    /// Fails once.
    struct Once(Mutex<bool>);

    impl Interposer for Once {
        fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
            let first = matches!(call, Call::SyncAll)
                && !std::mem::replace(&mut *self.0.lock().unwrap(), true);
            if first {
                Answer::Fail(Errno::IO)
            } else {
                Answer::Go
            }
        }

        fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
    }

    fn made(dir: &std::path::Path) -> File {
        File::from(std::fs::File::create(dir.join("f")).unwrap())
    }

    #[test]
    fn an_error_is_reported_again_though_the_kernel_reports_it_once() {
        let tmp = tempfile::tempdir().unwrap();
        let disk = Disk(Some(Arc::new(Once(Mutex::new(false)))));
        let disks = Disks::new(
            &made(tmp.path()).on(&disk).unwrap(),
            &confine::open_root(tmp.path()).unwrap(),
        )
        .unwrap();
        let dir = confine::open_root(tmp.path()).unwrap();
        disks.hold(&dir, b"x").unwrap();
        assert!(disks.sync_of(&dir).is_err());
        let again = disks.sync_all().unwrap_err();
        assert!(again.to_string().contains("the destination"), "{again}");
        assert!(again.to_string().contains("Input/output"), "{again}");
    }

    #[test]
    fn each_file_system_is_held_once() {
        let tmp = tempfile::tempdir().unwrap();
        let disks =
            Disks::new(&made(tmp.path()), &confine::open_root(tmp.path()).unwrap()).unwrap();
        let open = |path: &std::path::Path| confine::open_root(path).unwrap();
        disks.hold(&open(tmp.path()), b"").unwrap();
        assert_eq!(disks.state().held.len(), 1);
        let other = open(std::path::Path::new("/proc"));
        disks.hold(&other, b"proc").unwrap();
        disks.hold(&other, b"again").unwrap();
        assert_eq!(disks.state().held.len(), 2);
        assert!(disks.sync_all().is_ok());
    }
}
