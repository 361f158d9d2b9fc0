//! How do real programs do on a path that is not there? An emulated network is two hosts, "near" and "far",
//! with a router between them that delays, drops and queues.
//!
//! [`EmulatedRun`] runs one client at a time of this very program; [`run_flows`] runs several flows at once, each
//! of its own [`System`].

mod answer;
mod commands;
mod flow;
mod highest;
mod libudt;
mod process;
mod program;
mod reading;
mod relayed;
mod run;
mod single;
mod system;

use std::{io, time::Duration};

use farhaul_core::units::Rate;
use farhaul_emu::wan::{WanConfig, WanError};
use farhaul_link::{Loss, PathConfig};

pub use flow::{Amount, Flow, FlowResult, FlowsRun};
pub use highest::{Attempt, Highest, highest_rate, lower_rates};
pub use program::{PLACEHOLDERS, Program, ProgramError};
pub use reading::{Reading, ReadingError};
pub use run::run_flows;
pub use single::{Copied, EmulatedRun};
pub use system::{Sockets, System, SystemError, TcpDriver, have_iperf3};

use crate::results::Cell;

/// Why an emulated run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatedRunError {
    /// The network could not be built, or broke.
    #[error(transparent)]
    Wan(#[from] WanError),
    /// A program could not be started or read.
    #[error("{0}: {1}")]
    Start(String, io::Error),
    /// A program failed; its output.
    #[error("{command} failed: {said}")]
    Failed {
        /// Its words.
        command: String,
        /// The last lines of its output.
        said: String,
        /// Its exit code, if it had one.
        code: Option<i32>,
    },
    /// A relay carries our own protocols only.
    #[error("only our own protocols can cross a relay, and two hosts cannot be built here")]
    NoHosts,
    /// It cannot be run so.
    #[error("{0}")]
    Cannot(String),
    /// A signal ended it early; its number.
    #[error("ended by signal {0}")]
    Interrupted(i32),
    /// A program's answer was not understood.
    #[error("{0} printed something unexpected: {1}")]
    Word(String, String),
}

/// The network of `cell` at `rate`, the same in both directions.
pub fn network(cell: Cell, rate: Rate, seed: u64) -> WanConfig {
    let path = PathConfig {
        rate,
        delay: Duration::from_micros(u64::from(cell.rtt_ms) * 500),
        loss: if cell.loss_percent > 0.0 {
            Loss::Random(cell.loss_percent / 100.0)
        } else {
            Loss::None
        },
        ..PathConfig::default()
    };
    WanConfig {
        mtu: cell.mtu,
        seed,
        ..WanConfig::symmetric(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::CELLS;

    #[test]
    fn a_cell_is_a_symmetric_network() {
        let config = network(CELLS[2], Rate::gbit(10), 7);
        assert_eq!(config.near_to_far, config.far_to_near);
        assert_eq!(config.near_to_far.delay, Duration::from_millis(50));
        assert_eq!(config.near_to_far.loss, Loss::Random(0.01));
        assert_eq!((config.mtu, config.seed), (9_000, 7));
        config.validate().unwrap();
        assert_eq!(
            network(CELLS[0], Rate::gbit(1), 1).near_to_far.loss,
            Loss::None
        );
    }
}
