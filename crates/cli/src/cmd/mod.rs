//! Which commands are there? Each has its arguments and a `run` in a file of its own, which answers
//! with the exit code.

mod completions;
mod doctor;
mod path;
mod tcp;
mod wan;

use clap::Subcommand;

use crate::exit::Failure;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Wan(wan::Wan),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    #[command(name = "_tcp", hide = true, subcommand)]
    Tcp(tcp::Tcp),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<u8, Failure> {
        match self {
            Self::Wan(wan) => wan.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Completions(completions) => completions.run(),
            Self::Tcp(tcp) => tcp.run(),
        }
    }
}
