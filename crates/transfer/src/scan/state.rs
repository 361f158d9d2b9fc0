//! Recognises the files that a transfer keeps for itself among those of the user.

use std::io;

use crate::{
    confine::{self, Dir},
    receiver, state_names, stripe,
    wire::path::{self, Own},
};

/// True for the state of a transfer beside the files it receives. The name alone does not decide,
/// since a user's file may have it. A journal is known by its beginning; a part by its journal,
/// which is in a directory above it; stripes by their end. A journal that is gone or empty is one
/// of a copy that ends or begins.
pub(super) fn is_state(root: &Dir, rel: &[u8]) -> bool {
    let (parent, name) = path::split(rel);
    let open = |dir: &[u8], tag| {
        let journal = path::join(dir, &state_names::journal_name(tag));
        confine::open_to_read(root, &journal)
    };
    let is_journal = |dir: &[u8], tag| open(dir, tag).is_ok_and(|file| receiver::is_journal(&file));
    match Own::of(name) {
        None => false,
        Some(Own::Journal(tag)) => match open(parent, tag) {
            Ok(file) => {
                receiver::is_journal(&file) || file.stat().is_ok_and(|stat| stat.st_size == 0)
            }
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        },
        Some(Own::Stripes(_)) => {
            let file = confine::open_to_read(root, rel);
            file.is_ok_and(|file| stripe::is_collected(&file))
        }
        Some(Own::Part(tag)) => {
            let mut dir = parent;
            while !is_journal(dir, tag) {
                if dir.is_empty() {
                    return false;
                }
                dir = path::split(dir).0;
            }
            true
        }
    }
}
