//! Gives a complete file its name, with its permissions and on its disk. A file that several
//! senders deliver gets its name once all of it is there.

use std::{collections::BTreeSet, io};

use super::{
    disks::Disks,
    reread::{self, Reread},
    target::Target,
};
use crate::{
    confine,
    digest::BlockTree,
    disk::File,
    pages::Pages,
    pool::Stop,
    state_names,
    wire::{Generation, Stripe, path},
};

/// Names that are tried for content that stayed wrong.
const BAD_NAMES: u32 = 100;

/// Blocks that a large file should hold, and those that the disk does not give back.
pub(crate) type Lost = (Box<BlockTree>, Vec<u64>);

/// Ending of a file.
#[derive(Debug)]
pub(crate) enum Ending {
    InPlace,
    /// A stripe is complete; if all are, the file is in place.
    Collected {
        generation: Generation,
        whole: bool,
    },
    /// Content is not what the sender has.
    Mismatch,
    Failed(io::Error),
    /// The disk gives back something else than was written.
    Lost(Option<Lost>),
    /// The file was written, but did not reach the disk.
    NotOnDisk(io::Error),
}

/// Gives a complete part its permissions and time, and waits until it is on the disk. A small one is
/// waited for only if it replaces something.
pub(super) fn ready(
    file: &File,
    target: &Target,
    disks: Option<&Disks>,
    small: bool,
    stop: &Stop,
) -> Result<(), Ending> {
    if target.stripe.is_none() {
        target.meta.apply(file).map_err(Ending::Failed)?;
    }
    let synced = match disks {
        Some(_) if small => sync_before_names(std::iter::once(target), disks, stop),
        Some(_) => stop.sync(|| file.sync()).map_err(Into::into),
        None => Ok(()),
    };
    synced.map_err(Ending::NotOnDisk)
}

/// Fails if the disk returns something else, if that is verified.
pub(super) fn lost_blocks(
    target: &Target,
    reread: Option<(Reread, Box<BlockTree>)>,
    with: (&mut Pages, &Stop),
) -> Result<(), Ending> {
    let Some((options, tree)) = reread else {
        return Ok(());
    };
    match reread::wrong_blocks(target, &tree, &options, with) {
        Ok(wrong) if wrong.is_empty() => Ok(()),
        Ok(wrong) => Err(Ending::Lost(Some((tree, wrong)))),
        Err(e) => Err(Ending::NotOnDisk(e)),
    }
}

pub(super) fn give_name(file: &File, target: &Target, bad: bool) -> Ending {
    match rename(file, target, bad) {
        Ok(()) if bad => Ending::Mismatch,
        Ok(()) => Ending::InPlace,
        Err(e) => Ending::Failed(e),
    }
}

/// Takes note that a stripe is complete and on the disk, and gives the file its name if all of its stripes are.
pub(super) fn put_together(
    file: &File,
    target: &Target,
    stripe: Stripe,
    (disks, stop): (Option<&Disks>, &Stop),
) -> Ending {
    let has = |name: &[u8]| confine::is_called(file, &target.dir, name);
    let name = || {
        if !has(&target.part)? && has(&target.name)? {
            // The receiver that completed another stripe was faster.
            return Ok(());
        }
        // The new owner then cannot be the one to open it again.
        let granted = target.meta.granted.is_some();
        if !granted {
            target.meta.apply(file)?;
        }
        confine::inside(&target.dir, target.closed, || {
            if target.replaces {
                target.back_up()?;
            }
            let (dir, replaces) = (&target.dir, target.replaces);
            confine::give_name(file, dir, &target.part, &target.name, replaces)
        })?;
        if granted {
            target.meta.apply(file)
        } else {
            Ok(())
        }
    };
    let part = (&target.dir, &target.part[..]);
    let (generation, whole) = match stop.sync(|| stripe.complete(file, part, name)) {
        Ok(done) => done,
        Err(e) => return Ending::Failed(e),
    };
    match disks.filter(|_| whole).map(|_| stop.sync(|| file.sync())) {
        Some(Err(e)) => Ending::NotOnDisk(e.into()),
        Some(Ok(())) | None => Ending::Collected { generation, whole },
    }
}

pub(super) fn rename(file: &File, target: &Target, bad: bool) -> io::Result<()> {
    let named = confine::inside(&target.dir, target.closed, || {
        if bad {
            return set_aside(file, target);
        }
        if target.waits {
            return Ok(());
        }
        if target.replaces {
            target.back_up()?;
        }
        confine::give_name(
            file,
            &target.dir,
            &target.part,
            &target.name,
            target.replaces,
        )
    });
    // It cannot have its name: nothing to continue later.
    named.map_err(|e| without_part(file, target, e))
}

/// Keeps content that stayed wrong beside its target, under a name that nothing has, if the sender may create one.
fn set_aside(file: &File, target: &Target) -> io::Result<()> {
    if !target.set_aside {
        return confine::remove_part(file, &target.dir, &target.part);
    }
    for n in 0..BAD_NAMES {
        let name = state_names::bad_name(&target.name, n);
        match confine::give_name(file, &target.dir, &target.part, &name, false) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    let text = "content differs from the source after a repair, and all names to save it under exist: remove those that end in .bad and a number";
    Err(io::Error::other(text))
}

/// Removes a part for which `e` is the end; the error includes that it could not be removed.
pub(super) fn without_part(file: &File, target: &Target, e: io::Error) -> io::Error {
    match confine::remove_part(file, &target.dir, &target.part) {
        Ok(()) => e,
        Err(why) => {
            let part = path::show(&target.part);
            io::Error::new(e.kind(), format!("{e}; {part} is left beside it: {why}"))
        }
    }
}

/// Waits until the names that are to be given are noted on the disk, and the content of those that replace something.
pub(super) fn sync_before_names<'a>(
    targets: impl Iterator<Item = &'a Target>,
    disks: Option<&Disks>,
    stop: &Stop,
) -> io::Result<()> {
    let Some(disks) = disks else { return Ok(()) };
    stop.sync(|| disks.await_names())?;
    let mut synced = BTreeSet::new();
    for Target { dir, .. } in targets.filter(|target| target.replaces) {
        if synced.insert(dir.stat()?.st_dev) {
            stop.sync(|| disks.sync_of(dir))?;
        }
    }
    Ok(())
}
