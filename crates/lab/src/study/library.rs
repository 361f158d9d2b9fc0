//! Finds studies. Those of the project are in the program; others are files, with the scenarios and
//! the table of published numbers that they name beside them.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{Study, read};
use crate::scenario::{File, Problem, Variant, unknown};
use farhaul_measure::disk;

/// Every file of `lab/scenarios` and `lab/reference`, by its name below `lab`.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/lab.rs"));

/// Reason why a study cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// There is none with that name.
    #[error("{0}")]
    Unknown(String),
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Io(PathBuf, io::Error),
    /// A mistake in a file.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// A mistake in a table of published numbers.
    #[error("{0}")]
    Reference(String),
}

/// Place of a study and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// The library in the program.
    BuiltIn,
    /// Beside a file.
    Folder(PathBuf),
}

impl Library {
    /// Names of the studies in the program.
    pub fn names() -> Vec<&'static str> {
        let of = |(file, _): &(&'static str, &str)| {
            let name = file.strip_prefix("scenarios/")?.strip_suffix(".toml")?;
            (!name.contains('/') && read::is_study(FILES, file)).then_some(name)
        };
        FILES.iter().filter_map(of).collect()
    }

    /// The study called `name`, or in the file `name` if that ends in `.toml`, and where its files are.
    pub fn find(name: &str) -> Result<(Study, Self), StudyError> {
        if Path::new(name).extension().is_some_and(|e| e == "toml") {
            let path = Path::new(name);
            let text = disk::text(path).map_err(|e| StudyError::Io(path.into(), e))?;
            let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
            let library = Self::Folder(folder);
            return Ok((read::study(name, &text, &library)?, library));
        }
        let file = format!("scenarios/{name}.toml");
        if !Self::names().contains(&name) {
            let text = unknown("study", name, Self::names().into_iter());
            return Err(StudyError::Unknown(text));
        }
        let text = built_in(&file)?;
        Ok((read::study(&file, &text, &Self::BuiltIn)?, Self::BuiltIn))
    }

    /// The text of a file that a study names: a scenario, or a table of published numbers.
    pub(super) fn text(&self, folder: &str, name: &str) -> Result<String, StudyError> {
        match self {
            Self::BuiltIn => built_in(&format!("{folder}/{name}")),
            Self::Folder(beside) => {
                // As in the repository, or all in one folder.
                let places = [beside.join(name), beside.join("..").join(folder).join(name)];
                let path = places.iter().find(|p| p.exists()).unwrap_or(&places[0]);
                disk::text(path).map_err(|e| StudyError::Io(path.clone(), e))
            }
        }
    }

    /// The scenario `name` of `study` as `variant`, which also measures what the figures show.
    pub fn scenario(
        &self,
        study: &Study,
        name: &str,
        variant: Variant,
    ) -> Result<File, StudyError> {
        let text = self.text("scenarios", name)?;
        let mut file = File::read_as(name, &text, variant, &study.reference)?;
        for id in file.experiments() {
            let of = study.experiment(id).map_err(StudyError::Unknown)?;
            if of.scenario != name {
                return Err(StudyError::Unknown(format!(
                    "{name}: an expectation is about {id}, whose scenario is {}",
                    of.scenario
                )));
            }
        }
        for figure in study.figures_of(name) {
            figure.check(&file).map_err(StudyError::Unknown)?;
        }
        for figure in study.figures_of(name) {
            let terms = figure.terms_of(&file);
            file.also(terms);
        }
        Ok(file)
    }
}

/// A file of the program.
pub(super) fn built_in(name: &str) -> Result<String, StudyError> {
    let found = FILES.iter().find(|(file, _)| *file == name);
    found.map(|(_, text)| (*text).to_string()).ok_or_else(|| {
        let text = unknown("file", name, FILES.iter().map(|(file, _)| *file));
        StudyError::Unknown(text)
    })
}
