//! What was reached before, and what falls short of it? Bounds are written from runs with a tolerance,
//! kept in the repository, and held against later runs of the same questions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Backend, System, Trial};
use crate::results::Cell;

/// The version of the format.
const SCHEMA: &str = "farhaul.bounds/1";

/// Why bounds cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoundsError {
    /// Not JSON of this shape.
    #[error("not bounds as `lab check --write` writes them: {0}")]
    Shape(#[from] serde_json::Error),
    /// Another version.
    #[error("these bounds are '{0}', not '{1}'")]
    Schema(String, &'static str),
}

/// Bounds of many runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    schema: String,
    bounds: Vec<Bound>,
}

/// The bound of a run. The seed is left out: a bound applies to any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bound {
    backend: Backend,
    #[serde(flatten)]
    system: System,
    #[serde(flatten)]
    cell: Cell,
    rate_bits_per_second: u64,
    asked_seconds: u64,
    goodput_at_least: f64,
    feedback_kib_per_gib_at_most: Option<f64>,
}

/// Result of comparing runs with bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Runs that have a bound.
    pub compared: usize,
    /// Runs that have none.
    pub without: usize,
    /// One line per deviation.
    pub deviations: Vec<String>,
}

impl Bounds {
    /// From the text of a file.
    pub fn parse(text: &str) -> Result<Self, BoundsError> {
        let bounds: Self = serde_json::from_str(text)?;
        if bounds.schema == SCHEMA {
            Ok(bounds)
        } else {
            Err(BoundsError::Schema(bounds.schema, SCHEMA))
        }
    }

    /// What `trials` reached, less `tolerance` (a share).
    pub fn of(trials: &[Trial], tolerance: f64) -> Self {
        let bound = |t: &Trial| Bound {
            backend: t.backend,
            system: t.system.clone(),
            cell: t.cell,
            rate_bits_per_second: t.rate_bits_per_second,
            asked_seconds: t.asked_seconds,
            goodput_at_least: (t.goodput_bits_per_second * (1.0 - tolerance)).floor(),
            feedback_kib_per_gib_at_most: t
                .feedback_kib_per_gib
                .map(|k| (k * (1.0 + tolerance) * 10.0).ceil() / 10.0),
        };
        let valid = trials.iter().filter(|t| t.invalid.is_none());
        Self {
            schema: SCHEMA.into(),
            bounds: valid.map(bound).collect(),
        }
    }

    /// Takes over those of `newer`, in place of those that are about the same runs.
    #[must_use]
    pub fn with(mut self, newer: Self) -> Self {
        self.bounds
            .retain(|b| !newer.bounds.iter().any(|n| n.same(b)));
        self.bounds.extend(newer.bounds);
        self
    }

    /// Holds `trials` against the bounds.
    pub fn check(&self, trials: &[Trial]) -> Verdict {
        let mut verdict = Verdict::default();
        for trial in trials {
            let Some(bound) = self.bounds.iter().find(|b| b.about(trial)) else {
                verdict.without += 1;
                continue;
            };
            verdict.compared += 1;
            verdict.deviations.extend(bound.deviations(trial));
        }
        verdict
    }
}

impl Bound {
    fn same(&self, other: &Self) -> bool {
        self.backend == other.backend
            && self.system == other.system
            && self.cell == other.cell
            && self.rate_bits_per_second == other.rate_bits_per_second
            && self.asked_seconds == other.asked_seconds
    }

    fn about(&self, t: &Trial) -> bool {
        self.backend == t.backend
            && self.system == t.system
            && self.cell == t.cell
            && self.rate_bits_per_second == t.rate_bits_per_second
            && self.asked_seconds == t.asked_seconds
    }

    fn deviations(&self, trial: &Trial) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(why) = &trial.invalid {
            found.push(format!("{self}: not valid: {why}"));
            return found;
        }
        let (got, owed) = (trial.goodput_bits_per_second, self.goodput_at_least);
        // A figure that is no number is a deviation too.
        if got.is_nan() || got < owed {
            let (got, owed) = (got / 1e9, owed / 1e9);
            found.push(format!(
                "{self}: {got:.3} Gbit/s, at least {owed:.3} required"
            ));
        }
        if let Some(most) = self.feedback_kib_per_gib_at_most
            && trial.feedback_kib_per_gib.is_none_or(|got| got > most)
        {
            let got = trial
                .feedback_kib_per_gib
                .map_or_else(|| "no".into(), |k| format!("{k:.1} KiB/GiB of"));
            found.push(format!("{self}: {got} feedback, at most {most:.1} allowed"));
        }
        found
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}, mtu {}, {} ms, {} %",
            self.backend.name(),
            self.system,
            self.cell.mtu,
            self.cell.rtt_ms,
            self.cell.loss_percent
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::run_store::example, *};

    #[test]
    fn results_become_bounds() {
        let before = [example(0, 9e9), example(50, 8e9)];
        let bounds = Bounds::of(&before, 0.05);
        let text = serde_json::to_string(&bounds).unwrap();
        let bounds = Bounds::parse(&text).unwrap();
        let good = bounds.check(&[example(0, 8.6e9), example(50, 9e9)]);
        assert_eq!((good.compared, good.deviations.len()), (2, 0));
        let verdict = bounds.check(&[example(0, 8.5e9), example(400, 1.0)]);
        assert_eq!((verdict.compared, verdict.without), (1, 1));
        assert!(
            verdict.deviations[0].contains("8.500 Gbit/s, at least 8.550"),
            "{verdict:?}"
        );
        let chatty = Trial {
            feedback_kib_per_gib: Some(10.7),
            ..example(0, 9e9)
        };
        let silent = Trial {
            feedback_kib_per_gib: None,
            ..example(0, 9e9)
        };
        let late = Trial {
            invalid: Some("late".into()),
            ..example(0, 9e9)
        };
        for bad in [chatty, silent, late, example(0, f64::NAN)] {
            assert_eq!(bounds.check(&[bad]).deviations.len(), 1);
        }
    }

    #[test]
    fn newer_bounds_replace_those_of_the_same_runs() {
        let old = Bounds::of(&[example(0, 9e9), example(50, 8e9)], 0.0);
        let both = old.with(Bounds::of(&[example(0, 5e9)], 0.0));
        assert_eq!(both.bounds.len(), 2);
        let verdict = both.check(&[example(0, 6e9), example(50, 7e9)]);
        assert_eq!(verdict.deviations.len(), 1, "{verdict:?}");
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(Bounds::parse("{}"), Err(BoundsError::Shape(_))));
        let other = r#"{"schema":"x/1","bounds":[]}"#;
        assert!(matches!(Bounds::parse(other), Err(BoundsError::Schema(..))));
    }
}
