//! Paths that a list names: each is looked up by itself, after the directories around it.

use std::{collections::HashSet, io};

use rustix::fs::OFlags;

use super::{Gone, SPECIAL, Scanner, Source, is_dir, is_special};
use crate::{
    confine,
    wire::{Exit, Symlinks, path},
};

impl Scanner<'_> {
    /// Lists these paths below a directory, each after the directories around it.
    pub(super) fn listed(
        &mut self,
        source: (usize, &Source),
        list: &[Vec<u8>],
    ) -> Result<(), Gone> {
        let mut reported: HashSet<&[u8]> = HashSet::new();
        for path in list {
            if let Some(why) = path::refusal(path) {
                self.say(path, Exit::Partial, &why)?;
                continue;
            }
            let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/');
            let around = slashes.map(|(i, _)| &path[..i]);
            for part in std::iter::once(&path[..0]).chain(around).chain([&path[..]]) {
                if reported.insert(part) {
                    let (rel, name) = (
                        path::join(&source.1.rel, part),
                        path::join(&source.1.name, part),
                    );
                    self.one_listed(source, &rel, &name)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn one_listed(
        &mut self,
        source: (usize, &Source),
        rel: &[u8],
        name: &[u8],
    ) -> Result<(), Gone> {
        let found = if self.selection.symlinks == Symlinks::Follow {
            confine::follow(&source.1.root, if rel.is_empty() { b"." } else { rel })
        } else {
            // A link at the end is sent as it is, one on the way is not followed.
            let (above, last) = path::split(rel);
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            confine::open_beneath(&source.1.root, above, flags)
                .and_then(|dir| confine::stat(&dir, if last.is_empty() { b"." } else { last }))
                .and_then(|stat| stat.ok_or_else(|| io::ErrorKind::NotFound.into()))
                .map(|stat| (rel.to_vec(), stat))
        };
        match found {
            Ok((rel, stat)) if is_dir(&stat) => self.entry(source, &rel, name, &stat),
            Ok((_, stat)) if is_special(&stat) => {
                self.problem(source.1, name, Exit::Partial, &SPECIAL)
            }
            Ok((rel, stat)) => self.child(source, &rel, name, &stat),
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.problem(
                source.1,
                name,
                Exit::Partial,
                &"not in the source, though it is listed",
            ),
            Err(e) => self.problem(source.1, name, Exit::Partial, &e),
        }
    }
}
