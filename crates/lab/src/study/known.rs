//! Which published numbers are known to be missed? `lab/reference/known.toml` lists each with our figure and
//! the reason. A miss that is not listed, or has become worse than what is listed, is a new one.

use std::fmt;

use serde::Deserialize;

use super::{StudyError, library::built_in};
use crate::{run_store::Backend, scenario::Verdict};

/// By how much a figure may be further out than listed: seeds and machines differ.
const SLACK: f64 = 0.2;

/// A number that is known to be missed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownMiss {
    /// The scenario's name.
    pub scenario: String,
    /// The figure, as verdicts put it into words.
    pub what: String,
    /// The case, as verdicts name it.
    pub case: String,
    /// The world.
    #[serde(default)]
    pub backend: Backend,
    /// Of a quick run.
    #[serde(default)]
    pub quick: bool,
    /// Ours.
    pub figure: f64,
    /// Why.
    pub reason: String,
}

impl fmt::Display for KnownMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quick = if self.quick { ", quick" } else { "" };
        let backend = self.backend.name();
        let Self {
            scenario,
            what,
            case,
            ..
        } = self;
        write!(f, "{what} [{case}] of {scenario} ({backend}{quick})")
    }
}

/// Every number that is known to be missed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownMisses {
    #[serde(default)]
    known: Vec<KnownMiss>,
}

impl KnownMisses {
    /// Those of the program.
    pub fn built_in() -> Result<Self, StudyError> {
        Self::read("known.toml", &built_in("reference/known.toml")?)
    }

    /// From the text of `file`.
    pub fn read(file: &str, text: &str) -> Result<Self, StudyError> {
        let known: Self =
            toml::from_str(text).map_err(|e| StudyError::Reference(format!("{file}: {e}")))?;
        let bad = known.known.iter().find(|k| k.reason.trim().is_empty());
        match bad {
            Some(bad) => Err(StudyError::Reference(format!(
                "{file}: '{}' of {} has no reason",
                bad.what, bad.scenario
            ))),
            None => Ok(known),
        }
    }

    /// Those of a scenario's variant.
    pub(super) fn entries(
        &self,
        scenario: &str,
        quick: bool,
        backend: Backend,
    ) -> impl Iterator<Item = &KnownMiss> {
        let own = move |k: &&KnownMiss| {
            k.scenario == scenario && k.quick == quick && k.backend == backend
        };
        self.known.iter().filter(own)
    }

    /// The entry for a miss of `scenario`, if there is one that is as bad.
    pub fn of(
        &self,
        scenario: &str,
        quick: bool,
        backend: Backend,
        verdict: &Verdict,
    ) -> Option<&KnownMiss> {
        let mut entries = self.entries(scenario, quick, backend);
        let entry = entries.find(|k| k.what == verdict.what && k.case == verdict.case)?;
        let ours = verdict.ours?;
        let worst = entry.figure.abs() * SLACK;
        let within = match (verdict.min, verdict.max) {
            (Some(min), _) if ours < min => ours >= entry.figure - worst,
            (_, Some(max)) if ours > max => ours <= entry.figure + worst,
            // Too few of the seeds are within the bounds.
            _ => true,
        };
        within.then_some(entry)
    }
}
