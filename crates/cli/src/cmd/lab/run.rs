//! `farhaul lab list` and `lab run`.

use std::num::NonZeroUsize;

use super::{Where, study};
use crate::{exit::Failure, names::Names, typed::whole};

/// Arguments of `lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    place: Where,
    /// Value of a variable in place of the study's own; repeatable. farhaul stores these runs
    /// beside the others
    #[arg(long, value_name = "NAME=VALUE", value_parser = study::setting)]
    vary: Vec<(String, String)>,
    /// Congestion control (law) in place of the one that the study tries, as NAME or
    /// NAME:PARAMETER=VALUE,...; repeatable. farhaul stores these runs beside the others
    #[arg(long, value_name = "LAW", value_parser = Names::laws(), hide_possible_values = true)]
    law: Vec<String>,
    /// Keep the stored runs of another build of the program, instead of making them again
    #[arg(long)]
    any_build: bool,
    /// Simulations at the same time [default: number of cores]
    #[arg(long, value_name = "N", value_parser = whole(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// One JSON object with every run, instead of a line for each
    #[arg(long, short = 'J')]
    json: bool,
}

impl Run {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut how = study::How {
            jobs: self
                .jobs
                .and_then(|n| usize::try_from(n).ok())
                .and_then(NonZeroUsize::new),
            laws: self.law.clone(),
            any_build: self.any_build,
            ..self.place.how()
        };
        for (name, value) in &self.vary {
            let values = how.vary.entry(name.clone()).or_default();
            values.push(value.clone());
        }
        study::run(&self.place.study(), &how, self.json)
    }
}
