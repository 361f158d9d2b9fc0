//! `farhaul completions SHELL`: what a shell needs to complete our arguments, from their own
//! definition.

use std::io;

use clap_complete::Shell;

use crate::exit::Failure;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete in
    shell: Shell,
}

/// Prints the completions.
#[expect(clippy::unnecessary_wraps, reason = "every command may fail")]
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut definition = crate::definition();
    clap_complete::generate(args.shell, &mut definition, "farhaul", &mut io::stdout());
    Ok(())
}
