//! `farhaul lab check`: compares results with published numbers and targets.

use std::path::PathBuf;

use super::{Where, study};
use crate::exit::Failure;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    place: Where,
    /// Fail only for misses that the list of known misses lacks
    #[arg(long)]
    new: bool,
    /// The list of known misses [default: that of this program]
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

impl Check {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let list = (self.known.as_deref(), self.new);
        study::check(&self.place.study(), &self.place.how(), list, self.json)
    }
}
