//! Symbolic links that are followed: what each leads to is listed in its place.

use std::{io, sync::Arc};

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

use super::{Folder, Found, Gone, Scanner, Source, is_dir, is_state};
use crate::{
    confine,
    wire::{Exit, Symlinks, path},
};

/// Links through which one path leads at most, as in the kernel.
const FOLLOWED: u32 = 40;
/// A link that was followed.
pub(super) struct Through {
    /// The directory that it is in.
    within: Vec<u8>,
    /// The link before.
    before: Option<Arc<Self>>,
    /// Links up to this one.
    count: u32,
}

impl Scanner<'_> {
    /// Lists the entries of a directory, or puts it onto the stack.
    pub(super) fn in_directory(
        &mut self,
        source: (usize, &Source),
        around: &Folder,
        (mut child, mut stat): (Folder, Stat),
        stack: &mut Vec<Folder>,
    ) -> Result<(), Gone> {
        if self.selection.symlinks == Symlinks::Follow && is_link(&stat) {
            match followed(source.1, around, &child.rel) {
                Ok((rel, found)) => {
                    child.rel = rel;
                    let before = around.through.clone();
                    child.through = Some(Arc::new(Through {
                        within: around.rel.clone(),
                        count: before.as_ref().map_or(0, |before| before.count) + 1,
                        before,
                    }));
                    stat = found;
                }
                Err(e) => return self.unfollowed(source.1, &child.name, &e),
            }
        }
        if is_dir(&stat) {
            if let Some(why) = path::refusal(&child.name) {
                return self.problem(source.1, &child.name, Exit::Partial, &why);
            }
            if self.selection.filter.enters(source.1.inside(&child.name)) {
                stack.push(child);
                return Ok(());
            }
            return self.excluded(source.1, &child.name);
        }
        if is_state(&source.1.root, &child.rel) {
            let why = "state of a copy that is not complete: left out";
            return self.problem(source.1, &child.name, Exit::Ok, &why);
        }
        self.child(source, &child.rel, &child.name, &stat)
    }

    /// A link that is to be followed leads nowhere, or where it may not. What has its name at the destination stays.
    pub(super) fn unfollowed(
        &mut self,
        source: &Source,
        name: &[u8],
        e: &io::Error,
    ) -> Result<(), Gone> {
        if !self.selection.filter.takes(source.inside(name), None) {
            return self.excluded(source, name);
        }
        if self.selection.keep {
            self.push(Found::Kept(name.to_vec()))?;
        }
        let why = match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => "a link that leads to nothing: cannot be followed".to_owned(),
            Some(Errno::XDEV) => "a link that leads out of the share: not followed".to_owned(),
            _ => format!("a link that cannot be followed: {e}"),
        };
        self.problem(source, name, Exit::Partial, &why)
    }
}

/// Target of the link at `rel` in a directory; an error if it is around the link, or around one that led here.
pub(super) fn followed(
    source: &Source,
    around: &Folder,
    rel: &[u8],
) -> io::Result<(Vec<u8>, Stat)> {
    let (to, stat) = confine::follow(&source.root, rel)?;
    let holds = |below: &Vec<u8>| {
        let rest = below.strip_prefix(&to[..]);
        rest.is_some_and(|rest| rest.is_empty() || to.is_empty() || rest[0] == b'/')
    };
    let mut links = std::iter::successors(around.through.as_ref(), |link| link.before.as_ref());
    let too_many = around
        .through
        .as_ref()
        .is_some_and(|link| link.count >= FOLLOWED);
    if too_many || is_dir(&stat) && (holds(&around.rel) || links.any(|link| holds(&link.within))) {
        return Err(Errno::LOOP.into());
    }
    Ok((to, stat))
}

pub(super) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}
