//! `farhaul lab report`: what was kept, as a table for people, CSV for spreadsheets or JSON for
//! programs.

use super::{Where, fairness, study};
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
        if let Some(study) = self.place.study() {
            let how = self.place.how();
            return study::report(&study, &how, self.csv, self.json);
        }
        self.place.no_study()?;
        fairness::report(&self.place, self.csv, self.json)
    }
}

/// As RFC 4180 has it.
pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_quotes_survive_a_spreadsheet() {
        assert_eq!(quoted("cubic:beta=0.8,c=0.4"), "\"cubic:beta=0.8,c=0.4\"");
        assert_eq!(quoted("said \"no\""), "\"said \"\"no\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
