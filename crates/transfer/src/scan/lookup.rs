//! Lookup of the sources that were typed.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{Problem, Source};
use crate::{
    confine,
    error::TransferError,
    host::Host,
    wire::{Exit, Symlinks, path},
};

/// Number of typed sources up to which each may keep a folder open; of more, none does.
pub(super) const HELD: usize = 64;

/// Looks up sources before anything is connected. Some may be missing as long as one exists.
pub(crate) fn resolve(
    paths: &[PathBuf],
    symlinks: Symlinks,
    host: &Host,
) -> Result<(Vec<Source>, Vec<Problem>), TransferError> {
    // What links lead to is anywhere.
    let from_top = paths.len() > HELD || symlinks == Symlinks::Follow;
    let top = from_top.then(|| confine::open_root(Path::new("/")));
    let top = top
        .transpose()
        .map_err(|e| TransferError::new(Exit::SourceMissing, format!("/ cannot be opened: {e}")))?;
    let look_up = |path: &PathBuf| {
        let source = Source::local(path, top.as_ref())?;
        let root = host.own(source.root)?;
        Ok(Source { root, ..source })
    };
    some(paths.iter().map(|path| {
        look_up(path).map_err(|e: io::Error| Problem {
            code: missing(&e),
            text: format!("{}: {e}", path::show(path.as_os_str().as_bytes())),
        })
    }))
}

/// Exit of a source that cannot be looked up, among others that can.
pub(crate) fn missing(e: &io::Error) -> Exit {
    if e.kind() == io::ErrorKind::NotFound {
        Exit::SourceMissing
    } else {
        Exit::Partial
    }
}

/// Sources that were looked up: the existing ones, if any, and the errors of the others.
pub(crate) fn some(
    looked_up: impl Iterator<Item = Result<Source, Problem>>,
) -> Result<(Vec<Source>, Vec<Problem>), TransferError> {
    let mut sources = Vec::new();
    let mut problems = Vec::new();
    for source in looked_up {
        match source {
            Ok(source) => sources.push(source),
            Err(problem) => problems.push(problem),
        }
    }
    if !sources.is_empty() {
        return Ok((sources, problems));
    }
    let names: Vec<_> = problems.iter().take(10).map(|p| p.text.as_str()).collect();
    let more = problems.len().saturating_sub(10);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    let text = format!("no source can be read: {}{more}", names.join("; "));
    Err(TransferError::new(Exit::SourceMissing, text).fix("check the spelling and the permissions"))
}
