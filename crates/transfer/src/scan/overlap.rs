//! Sources that give something the same name. With several of them two files may get one name: the first one
//! given gets it, and the second is reported as left out.
//!
//! - Listed entries are not stored: the earlier sources are checked, and only those whose
//!   names begin alike.

use std::{collections::HashMap, io};

use rustix::fs::{FileType, OFlags, Stat};

use super::{Selection, Source, is_dir, is_special, links::is_link};
use crate::{
    confine,
    wire::{Symlinks, path},
};

/// The sources that have been listed, by the first component of their names.
#[derive(Default)]
pub(super) struct Earlier(HashMap<Vec<u8>, Vec<Source>>);

/// Holder of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The same file.
    Same,
    /// A different file.
    Other,
}

fn first(name: &[u8]) -> &[u8] {
    name.split(|b| *b == b'/').next().unwrap_or_default()
}

impl Earlier {
    /// Takes note of a source that has been listed.
    pub(super) fn add(&mut self, source: &Source) {
        let key = first(&source.name).to_vec();
        self.0.entry(key).or_default().push(source.clone());
    }

    /// Holder of `name` among the earlier sources, if `stat` is to have the name now. Folders share
    /// one.
    pub(super) fn holder(
        &self,
        name: &[u8],
        stat: &Stat,
        selection: &Selection,
    ) -> io::Result<Option<Holder>> {
        let alike = self.0.get(first(name)).into_iter().flatten();
        let contents = self.0.get(&b""[..]).filter(|_| !name.is_empty());
        for source in alike.chain(contents.into_iter().flatten()) {
            let Some(there) = listed(source, name, selection)? else {
                continue;
            };
            if is_dir(&there) && is_dir(stat) {
                continue;
            }
            let same = (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino);
            return Ok(Some(if same { Holder::Same } else { Holder::Other }));
        }
        Ok(None)
    }
}

/// Properties of the entry that `source` has listed under `name`.
fn listed(source: &Source, name: &[u8], selection: &Selection) -> io::Result<Option<Stat>> {
    let Some(rest) = name.strip_prefix(&source.name[..]) else {
        return Ok(None);
    };
    let rest = match rest.strip_prefix(b"/") {
        Some(rest) if !source.name.is_empty() => rest,
        None if source.name.is_empty() || rest.is_empty() => rest,
        _ => return Ok(None),
    };
    if source.is_file && !rest.is_empty() {
        return Ok(None);
    }
    let rel = path::join(&source.rel, rest);
    let (above, last) = path::split(&rel);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let found = if selection.symlinks == Symlinks::Follow {
        let rel = if rel.is_empty() { b"." } else { &rel[..] };
        confine::follow(&source.root, rel).map(|(_, stat)| Some(stat))
    } else {
        confine::open_beneath(&source.root, above, flags)
            .and_then(|dir| confine::stat(&dir, if last.is_empty() { b"." } else { last }))
    };
    let stat = match found {
        Ok(Some(stat)) => stat,
        Ok(None) => return Ok(None),
        Err(e) => {
            let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
            // Entries behind a link were not listed.
            return if gone.contains(&e.kind()) || confine::met_a_link(&e) {
                Ok(None)
            } else {
                Err(e)
            };
        }
    };
    let size = (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        .then(|| stat.st_size.cast_unsigned());
    if is_special(&stat) || is_link(&stat) && selection.symlinks == Symlinks::Skip {
        return Ok(None);
    }
    let takes = is_dir(&stat) || selection.filter.takes(source.inside(name), size);
    Ok(takes.then_some(stat))
}
