//! What is said of runs that are held against bounds?

use serde::Serialize;

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
