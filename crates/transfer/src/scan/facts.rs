//! Reads what entries carry besides content, permissions and time, when they are listed and if the
//! request asks for it.

use std::{collections::HashMap, fmt::Display};

use rustix::fs::{FileType, OFlags, Stat};

use super::Selection;
use crate::{
    bounds::{LINKED, LINKED_BYTES},
    confine::{self, Dir},
    facts::{self, People},
    wire::{Entry, Exit, Facts, Kind, Preserve},
};

/// Reads facts.
#[derive(Default)]
pub(super) struct Collector {
    preserve: Preserve,
    guarded: bool,
    people: People,
    /// Files with names that were not listed yet: device and number, the path listed first, and how many.
    several: HashMap<(u64, u64), (Vec<u8>, usize)>,
    /// Bytes of the paths.
    bytes: usize,
    /// True if it was reported that there are too many of them.
    full: bool,
    /// True if it was reported that some attributes are not sent.
    unsent: bool,
}

/// Warning for the first file with attributes that a server does not send.
const UNSENT: &str = "its attributes of security.* or trusted.* are not preserved, nor those of other files: a share does not send them";

/// Fact that is not preserved.
type Left = (Exit, String);

impl Collector {
    pub(super) fn new(selection: &Selection) -> Self {
        Self {
            preserve: selection.preserve,
            guarded: selection.guarded,
            ..Self::default()
        }
    }

    /// Adds to `entry` its facts; returns those that are left out, if any.
    pub(super) fn add(
        &mut self,
        entry: &mut Entry,
        root: &Dir,
        rel: &[u8],
        stat: &Stat,
    ) -> Option<Left> {
        if !self.preserve.any() {
            return None;
        }
        let mut facts = Facts::default();
        let mut left = None;
        if self.preserve.links && entry.kind == Kind::File && stat.st_nlink > 1 {
            left = self.find_name(entry, &mut facts, stat);
            if entry.kind == Kind::HardLink {
                return None;
            }
        }
        if self.preserve.ownership {
            facts.owner = Some(self.people.owner(stat, self.preserve.numeric_ids));
        }
        if self.preserve.attributes() && entry.kind != Kind::Symlink {
            left = self.read_attributes(&mut facts, root, rel, stat).or(left);
        }
        entry.facts = Some(Box::new(facts));
        left
    }

    /// Makes the entry a link if the file was listed by another name.
    fn find_name(&mut self, entry: &mut Entry, facts: &mut Facts, stat: &Stat) -> Option<Left> {
        let file = (stat.st_dev, stat.st_ino);
        if let Some((first, names)) = self.several.get_mut(&file) {
            (entry.kind, entry.size, entry.allocated) = (Kind::HardLink, 0, 0);
            entry.target.clone_from(first);
            *names -= 1;
            if *names == 0 {
                self.bytes -= first.len();
                self.several.remove(&file);
            }
            return None;
        }
        if self.several.len() == LINKED || self.bytes + entry.path.len() > LINKED_BYTES {
            let why = "more files have several names than can be remembered: copied as files of their own";
            let first = !std::mem::replace(&mut self.full, true);
            return first.then(|| (Exit::Ok, why.to_owned()));
        }
        self.bytes += entry.path.len();
        // Of 32 bits on some processors.
        let names = usize::try_from(stat.st_nlink - 1).unwrap_or(usize::MAX);
        self.several.insert(file, (entry.path.clone(), names));
        facts.linked = true;
        None
    }

    fn read_attributes(
        &mut self,
        facts: &mut Facts,
        root: &Dir,
        rel: &[u8],
        stat: &Stat,
    ) -> Option<Left> {
        let opened = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            confine::open_beneath(root, rel, OFlags::RDONLY | OFlags::DIRECTORY)
        } else {
            confine::open_to_read(root, rel)
        };
        // That it cannot be opened is reported when its content is read.
        let file = opened.ok()?;
        let failed = |why: &dyn Display| {
            (
                Exit::Partial,
                format!("its attributes cannot be read: {why}"),
            )
        };
        match facts::attributes(&file, self.preserve, self.guarded) {
            Ok(found) => {
                facts.attributes = found.all;
                let long = found.long;
                if long > 0 {
                    let text =
                        format!("{long} of its attributes are too long to be copied: left out");
                    return Some((Exit::Partial, text));
                }
                let first = found.guarded && !std::mem::replace(&mut self.unsent, true);
                first.then(|| (Exit::Ok, UNSENT.to_owned()))
            }
            Err(e) => Some(failed(&e)),
        }
    }
}
