//! What does a law owe? Bounds on figures, kept in the repository and held against runs of full
//! length. They are requirements, whether they were ever met or not.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Case, Figure, Run};
use crate::grid::{BoundsError, Verdict};

/// The version of the format.
const SCHEMA: &str = "farhaul.fairness.bounds/1";
/// The requirements of the project.
const OWED: &str = include_str!("../../../../lab/reference/fairness.json");

/// Bounds of some figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    schema: String,
    bounds: Vec<Bound>,
}

/// One figure of one case. The seed and the rate are left out: it holds for any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bound {
    law: String,
    #[serde(flatten)]
    case: Case,
    figure: Figure,
    #[serde(default)]
    at_least: Option<f64>,
    #[serde(default)]
    at_most: Option<f64>,
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

    /// Those of this program.
    ///
    /// # Panics
    /// If they are not of this shape, which their test would have found.
    pub fn owed() -> Self {
        Self::parse(OWED).expect("our own bounds are well formed")
    }

    /// Holds `runs` against the bounds.
    pub fn check(&self, runs: &[Run]) -> Verdict {
        let mut verdict = Verdict::default();
        for run in runs {
            let about: Vec<_> = self.bounds.iter().filter(|b| b.about(run)).collect();
            if about.is_empty() {
                verdict.without += 1;
                continue;
            }
            verdict.compared += 1;
            let found = about.into_iter().filter_map(|b| b.deviation(run));
            verdict.deviations.extend(found);
        }
        verdict
    }
}

impl Bound {
    fn about(&self, run: &Run) -> bool {
        let question = &run.question;
        !question.quick && question.law == self.law && question.case == self.case
    }

    fn deviation(&self, run: &Run) -> Option<String> {
        if let Some(why) = &run.invalid {
            return Some(format!("{self}: not valid: {why}"));
        }
        let Some(got) = run.figure(self.figure) else {
            return Some(format!("{self}: there is none"));
        };
        match (self.at_least, self.at_most) {
            (Some(least), _) if got < least => {
                Some(format!("{self}: {got:.3}, at least {least} required"))
            }
            (_, Some(most)) if got > most => {
                Some(format!("{self}: {got:.3}, at most {most} allowed"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}", self.law, self.case, self.figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: Case, figures: &[(Figure, f64)]) -> Run {
        Run::example("haul", case, figures)
    }

    const TWO: Case = Case::Among { flows: 2 };

    #[test]
    fn bounds_apply_from_both_sides() {
        let owed = Bounds::owed();
        let cubic = |over| {
            let case = Case::Against {
                standard: "cubic".into(),
                queue_percent: 100,
            };
            run(case, &[(Figure::OverStandard, over)])
        };
        let good = owed.check(&[run(TWO, &[(Figure::Jain, 0.95)]), cubic(0.5), cubic(2.0)]);
        assert_eq!((good.compared, good.deviations.len()), (3, 0), "{good:?}");
        let bad = owed.check(&[run(TWO, &[(Figure::Jain, 0.94)]), cubic(0.49), cubic(2.1)]);
        assert_eq!(bad.deviations.len(), 3);
        assert_eq!(
            bad.deviations[0],
            "haul, 2 flows: jain: 0.940, at least 0.95 required"
        );
    }

    #[test]
    fn nothing_measured_is_a_deviation_and_quick_runs_have_no_bounds() {
        let owed = Bounds::owed();
        let failed = Run {
            invalid: Some("it ended".into()),
            ..run(TWO, &[(Figure::Jain, 1.0)])
        };
        for bad in [run(TWO, &[]), failed] {
            assert_eq!(owed.check(&[bad]).deviations.len(), 1);
        }
        let mut quick = run(TWO, &[(Figure::Jain, 0.1)]);
        quick.question.quick = true;
        let mut other = run(TWO, &[(Figure::Jain, 0.1)]);
        other.question.law = "reno".into();
        let verdict = owed.check(&[quick, other]);
        assert_eq!((verdict.compared, verdict.without), (0, 2));
    }

    #[test]
    fn other_files_are_refused() {
        let wrong = r#"{"schema":"farhaul.bounds/1","bounds":[]}"#;
        assert!(matches!(Bounds::parse(wrong), Err(BoundsError::Schema(..))));
        assert!(matches!(Bounds::parse("{}"), Err(BoundsError::Shape(_))));
    }
}
