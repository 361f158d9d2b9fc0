//! Lists published numbers that are known to be missed. `lab/reference/known.toml` has them by
//! reason, each with our figure. A miss that is not listed, or has become worse than listed, is a
//! new one.

use serde::Deserialize;

use super::{StudyError, library::built_in};
use crate::{run_store::Backend, scenario::Verdict};

/// Share by which a figure may be further out than listed: seeds and machines differ.
const SLACK: f64 = 0.2;

/// A number that is known to be missed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownMiss {
    /// The figure, as verdicts put it into words.
    pub what: String,
    /// The case, as verdicts name it.
    pub case: String,
    /// Ours.
    pub figure: f64,
}

/// Numbers of one scenario that are known to be missed for one reason.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// The scenario's name.
    scenario: String,
    /// The world.
    #[serde(default)]
    backend: Backend,
    /// True for quick runs.
    #[serde(default)]
    quick: bool,
    /// Reason of the miss.
    pub(super) reason: String,
    /// Each case.
    pub(super) misses: Vec<KnownMiss>,
}

/// Every number that is known to be missed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownMisses {
    #[serde(default)]
    known: Vec<Known>,
}

impl KnownMisses {
    /// Misses known to the program.
    pub fn built_in() -> Result<Self, StudyError> {
        Self::read("known.toml", &built_in("reference/known.toml")?)
    }

    /// Reads the misses in the text of `file`.
    pub fn read(file: &str, text: &str) -> Result<Self, StudyError> {
        let known: Self =
            toml::from_str(text).map_err(|e| StudyError::Reference(format!("{file}: {e}")))?;
        let bad = |k: &&Known| k.reason.trim().is_empty() || k.misses.is_empty();
        match known.known.iter().find(bad) {
            Some(bad) => Err(StudyError::Reference(format!(
                "{file}: an entry of {} has no reason or no misses",
                bad.scenario
            ))),
            None => Ok(known),
        }
    }

    /// Misses of a scenario's variant, each with its reason.
    pub(super) fn entries<'a>(
        &'a self,
        scenario: &'a str,
        quick: bool,
        backend: Backend,
    ) -> impl Iterator<Item = (&'a KnownMiss, &'a str)> {
        let own =
            move |k: &&Known| k.scenario == scenario && k.quick == quick && k.backend == backend;
        let known = self.known.iter().filter(own);
        known.flat_map(|k| k.misses.iter().map(|miss| (miss, k.reason.as_str())))
    }

    /// Reason why `verdict` of `scenario` is missed, if that is known and it is no worse than
    /// listed.
    pub fn reason<'a>(
        &'a self,
        scenario: &'a str,
        quick: bool,
        backend: Backend,
        verdict: &Verdict,
    ) -> Option<&'a str> {
        let mut entries = self.entries(scenario, quick, backend);
        let own = |(k, _): &(&KnownMiss, &str)| k.what == verdict.what && k.case == verdict.case;
        let (entry, reason) = entries.find(own)?;
        let ours = verdict.ours?;
        let worst = entry.figure.abs() * SLACK;
        let within = match (verdict.min, verdict.max) {
            (Some(min), _) if ours < min => ours >= entry.figure - worst,
            (_, Some(max)) if ours > max => ours <= entry.figure + worst,
            // Too few of the seeds are within the bounds.
            _ => true,
        };
        within.then_some(reason)
    }
}
