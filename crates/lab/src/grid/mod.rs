//! Which paths belong together? Grids of cells with a name: what `farhaul lab` runs, keeps, shows and
//! checks.
//!
//! - [`Grid`]: the cells, by name
//! - [`Trial`], [`RunStore`]: one run as it is kept, and the folder that keeps it
//! - [`Plan`]: runs a grid in one of two worlds
//! - [`Bounds`]: what was reached before, and what falls short of it

mod bounds;
mod plan;
mod run_store;

use farhaul_core::units::Rate;

pub use bounds::{Bounds, BoundsError, Verdict};
pub use plan::{Plan, PlanError};
pub use run_store::{Backend, Kept, RunStore, System, Trial};

use crate::{
    nearest,
    results::{AGREEMENT, CELLS, Cell},
};

/// Cells that are run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// The bottleneck of every cell.
    pub rate: Rate,
    /// The paths.
    pub cells: Vec<Cell>,
    /// Default duration of each run, s.
    pub seconds: u64,
}

/// Five of the paper's six round-trip times, ms.
const RTTS: [u32; 5] = [0, 50, 100, 200, 400];
/// Four of its seven losses in each direction, per cent.
const LOSSES: [f64; 4] = [0.0, 0.1, 1.0, 2.0];

/// Every pair of these.
fn papers(mtu: u32) -> Vec<Cell> {
    let pairs = RTTS.iter().flat_map(|rtt| LOSSES.map(|loss| (*rtt, loss)));
    let cells = pairs.map(|(rtt_ms, loss_percent)| Cell {
        mtu,
        rtt_ms,
        loss_percent,
    });
    cells.collect()
}

/// Every grid, in the order of their listing.
pub fn grids() -> Vec<Grid> {
    let grid = |name, about, rate, cells, seconds| Grid {
        name,
        about,
        rate,
        cells,
        seconds,
    };
    let full = Rate::gbit(10);
    vec![
        grid(
            "cells",
            "the fixed table of the README",
            full,
            CELLS.to_vec(),
            30,
        ),
        grid(
            "papers",
            "20 of the 42 cells of Kachan and Siemens: 0 to 400 ms, 0 to 2 % loss, MTU 9000",
            full,
            papers(9_000),
            30,
        ),
        grid(
            "papers-1500",
            "the same 20 cells at MTU 1500",
            full,
            papers(1_500),
            30,
        ),
        grid(
            "papers-1g",
            "the same 20 cells at a tenth of the rate, quick to simulate",
            Rate::gbit(1),
            papers(9_000),
            30,
        ),
        grid(
            "agreement",
            "where simulator and emulator are compared",
            full,
            AGREEMENT.to_vec(),
            30,
        ),
    ]
}

/// The grid called `name`; the text of the error names those that exist.
pub fn grid(name: &str) -> Result<Grid, String> {
    let all = grids();
    if let Some(grid) = all.iter().find(|g| g.name == name) {
        return Ok(grid.clone());
    }
    // Other names accepted by `farhaul lab run`.
    let names = all.iter().map(|g| g.name).chain([crate::fairness::NAME]);
    let names: Vec<_> = names.collect();
    let meant = nearest(name, names.iter().copied());
    let meant = meant.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"));
    Err(format!(
        "no grid '{name}'{meant}; there are: {}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_names_and_cells() {
        let papers = grid("papers").unwrap();
        assert_eq!(papers.cells.len(), 20);
        assert!(papers.cells.contains(&Cell {
            mtu: 9_000,
            rtt_ms: 400,
            loss_percent: 2.0
        }));
        assert_eq!(grid("cells").unwrap().cells, CELLS);
        let error = grid("paper").unwrap_err();
        assert!(error.contains("did you mean 'papers'"), "{error}");
        assert!(grid("moon").unwrap_err().contains("there are: cells"));
    }
}
