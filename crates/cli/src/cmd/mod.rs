//! Which commands are there? Each has its arguments and a `run` in a file of its own.

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
    /// Emulate a network on this machine and run programs on it
    Wan(wan::Args),
    /// Say whether this machine is fit, and what to change
    Doctor(doctor::Args),
    /// Print the completions for a shell
    Completions(completions::Args),
    /// The kernel's TCP, to compare with
    #[command(name = "_tcp", hide = true, subcommand)]
    Tcp(tcp::Args),
}

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Wan(args) => wan::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Tcp(args) => tcp::run(args),
    }
}
