//! `farhaul lab report`: what was kept, as a table for people, CSV for spreadsheets or JSON for
//! programs.

use super::{Where, study};
use crate::exit::Failure;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    #[command(flatten)]
    place: Where,
    /// Comma-separated values in base units
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// One JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

impl Report {
    pub(super) fn run(&self) -> Result<(), Failure> {
        study::report(&self.place.study(), &self.place.how(), self.csv, self.json)
    }
}
