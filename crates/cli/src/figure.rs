//! Place where a figure goes. The place is checked before a run, which may be long.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    str::FromStr,
};

use farhaul_lab::plot::series::{self, Format, Track};

use crate::exit::{Exit, Failure};

/// A file for a figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    path: PathBuf,
    format: Format,
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        let format = Format::of(&path)?;
        let format = format.ok_or_else(|| format!("name a file, as {text}.svg or {text}.png"))?;
        Ok(Self { path, format })
    }
}

impl Figure {
    /// Error unless the figure can be written.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        file_can_be_written(&self.path)
    }

    /// Draws the figure.
    pub(crate) fn save(&self, name: &str, tracks: &[Track]) -> Result<(), Failure> {
        series::save(&self.path, self.format, name, tracks).map_err(|e| unwritten(&self.path, &e))
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let text = format!("cannot write {}: {error}", path.display());
    Failure::new(Exit::DestError, text)
}

/// Error unless a file can be written, or be made; nothing is left behind.
pub(crate) fn file_can_be_written(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        let text = format!("{} is a folder", path.display());
        return Err(Failure::new(Exit::DestError, text).fix("name a file in it"));
    }
    if path.exists() {
        let opened = OpenOptions::new().write(true).open(path);
        return opened.map(drop).map_err(|e| unwritten(path, &e));
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        let text = format!(
            "cannot write {}: no folder {}",
            path.display(),
            parent.display()
        );
        return Err(Failure::new(Exit::DestError, text).fix("make it, or name another"));
    }
    tempfile::tempfile_in(parent)
        .map(drop)
        .map_err(|e| unwritten(path, &e))
}

/// Makes a folder, and finds out whether files can be made in it.
pub(crate) fn folder_can_be_written(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path)
        .and_then(|()| tempfile::tempfile_in(path))
        .map(drop)
        .map_err(|e| unwritten(path, &e))
}
