//! Every case with its figures, as comma-separated values: for spreadsheets and other people's plots.

use std::{collections::BTreeSet, io};

use super::Runs;
use crate::scenario::{Outcome, Spread, label};
use farhaul_measure::disk::replace;

impl Runs {
    /// One line per scenario, world, case and figure: base units, over the seeds with a valid result.
    pub fn cells(&self) -> io::Result<String> {
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record([
            "scenario",
            "backend",
            "case",
            "figure",
            "runs",
            "median",
            "min",
            "max",
            "mean",
            "lowered_to_bits_per_second",
        ])?;
        for (part, results) in self.parts.iter().zip(self.results()?) {
            let valid: Vec<&Outcome> = results.outcomes().filter(|o| o.invalid.is_none()).collect();
            for plan in &part.file.plans {
                let own: Vec<&&Outcome> = valid.iter().filter(|o| o.case == plan.case).collect();
                let names: BTreeSet<&String> = own.iter().flat_map(|o| o.figures.keys()).collect();
                let lowered = own.iter().find_map(|o| o.lowered);
                for name in names {
                    let figures = own.iter().filter_map(|o| *o.figures.get(name)?);
                    let figures: Vec<f64> = figures.collect();
                    let spread = Spread::of(figures.iter().copied());
                    table.write_record([
                        part.file.name.clone(),
                        part.file.variant.backend.name().into(),
                        label(&plan.case),
                        name.clone(),
                        figures.len().to_string(),
                        spread.median.to_string(),
                        spread.min.to_string(),
                        spread.max.to_string(),
                        spread.mean.to_string(),
                        lowered.map_or_else(String::new, |rate| rate.to_string()),
                    ])?;
                }
            }
        }
        let bytes = table
            .into_inner()
            .map_err(|e| io::Error::other(e.to_string()))?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    /// Writes the cells beside the runs.
    pub fn write_cells(&self) -> io::Result<()> {
        replace(&self.folder().join("cells.csv"), self.cells()?.as_bytes())
    }
}
