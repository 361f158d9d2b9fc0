//! Stores a page: `report.html`, `report.md` and `figures/ID.svg` and `.png` in one folder. All are
//! written under temporary names first and then renamed. So a reader never sees half of one, and a
//! full disk leaves the old ones.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempPath;

use super::{Figure, Page, WIDE, html, markdown};
use crate::plot;
use farhaul_measure::disk;

/// Stores the page and its figures in `folder`, which is created; the files, the page last. Others in the folder are
/// left alone.
pub fn write(page: &Page, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let figures = folder.join("figures");
    let all: Vec<_> = page.sections.iter().flat_map(|s| &s.figures).collect();
    names(&all)?;
    fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
    own(&figures).map_err(|e| at(&figures, &e))?;
    let mut ready = Vec::new();
    for Figure { id, chart, .. } in all {
        let undrawn = |e| io::Error::other(format!("figure '{id}': {e}"));
        let svg = plot::svg(chart, WIDE).map_err(undrawn)?;
        ready.push(prepare(&figures, &format!("{id}.svg"), svg.as_bytes())?);
        let png = plot::png(chart, WIDE).map_err(undrawn)?;
        ready.push(prepare(&figures, &format!("{id}.png"), &png)?);
    }
    ready.push(prepare(folder, "report.md", markdown(page).as_bytes())?);
    ready.push(prepare(folder, "report.html", html(page).as_bytes())?);
    let mut files = Vec::with_capacity(ready.len());
    for (file, path) in ready {
        file.persist(&path).map_err(|e| at(&path, &e.error))?;
        files.push(path);
    }
    Ok(files)
}

/// Creates the folder of the figures. A link in its place would lead to files of somebody else.
fn own(figures: &Path) -> io::Result<()> {
    match fs::create_dir(figures) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        made => return made,
    }
    if fs::symlink_metadata(figures)?.is_dir() {
        return Ok(());
    }
    let text = "it is a link, or not a folder: remove it";
    Err(io::Error::new(ErrorKind::InvalidData, text))
}

/// An id names files, and only its own.
fn names(figures: &[&Figure]) -> io::Result<()> {
    let mut used = BTreeSet::new();
    for Figure { id, .. } in figures {
        let plain = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let text = if id.is_empty() || !plain {
            format!("figure '{id}': an id has letters, digits and '-' only")
        } else if !used.insert(id) {
            format!("two figures are called '{id}'")
        } else {
            continue;
        };
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Everything but the name; removed again if it does not get it.
fn prepare(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<(TempPath, PathBuf)> {
    let path = folder.join(name);
    let file = disk::prepare(&path, bytes).map_err(|e| at(&path, &e))?;
    Ok((file, path))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A text that is another when one of these files is: for [`Source`](super::Source), from their sizes and times.
/// A file that does not exist is one of the states.
pub fn version<'a>(files: impl IntoIterator<Item = &'a Path>) -> io::Result<String> {
    let mut states = Vec::new();
    for path in files {
        states.push(match fs::metadata(path) {
            Ok(is) => {
                let [inode, size] = [is.ino(), is.size()];
                let [s, ns] = [is.mtime(), is.mtime_nsec()];
                format!("{inode:x}-{size:x}-{s:x}-{ns:x}")
            }
            Err(e) if e.kind() == ErrorKind::NotFound => "none".into(),
            Err(e) => return Err(at(path, &e)),
        });
    }
    Ok(states.join("."))
}
