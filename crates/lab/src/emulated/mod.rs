//! Runs real programs on emulated paths. An emulated network is two hosts, "near" and "far", with a
//! router between them that delays, drops and queues.
//!
//! [`EmulatedRun`] runs one client at a time of this very program; [`run_flows`] runs several flows at once, each
//! of its own [`System`].

mod answer;
mod commands;
mod flow;
mod highest;
mod libudt;
mod process;
pub(crate) mod profile;
mod program;
mod quota;
mod reading;
mod relayed;
mod run;
mod sampled;
mod single;
mod system;

use std::io;

use farhaul_emu::wan::WanError;

pub use flow::{Amount, FIRST_BLAST, Flow, FlowResult, FlowsRun};
pub use highest::{Attempt, Highest, highest_rate, lower_rates};
pub use profile::{Group, Profile};
pub use program::{PLACEHOLDERS, Program, ProgramError};
pub use reading::{Reading, ReadingError};
pub(crate) use run::cannot_bound;
pub use run::run_flows;
pub use single::{Copied, EmulatedRun};
pub use system::{Sockets, System, SystemError, TcpDriver, have_iperf3};

/// Reason why an emulated run has no result.
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
        /// Words of the command.
        command: String,
        /// The last lines of its output.
        said: String,
        /// Exit code of the command, if it had one.
        code: Option<i32>,
    },
    /// A relay carries our own protocols only.
    #[error("only our own protocols can cross a relay, and two hosts cannot be built here")]
    NoHosts,
    /// The run is not possible in this form.
    #[error("{0}")]
    Cannot(String),
    /// A signal ended the run early; its number.
    #[error("ended by signal {0}")]
    Interrupted(i32),
    /// A program's answer was not understood.
    #[error("{0} printed something unexpected: {1}")]
    Word(String, String),
}
