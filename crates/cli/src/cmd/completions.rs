//! `farhaul completions SHELL`: what a shell needs to complete our arguments, from their own definition.

use clap_complete::Shell;

use crate::{exit::Failure, line::Line, out};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete in
    shell: Shell,
}

/// Prints the completions.
#[expect(clippy::unnecessary_wraps, reason = "every command may fail")]
pub(crate) fn run(args: &Args, line: &Line) -> Result<(), Failure> {
    let mut definition = line.definition();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "farhaul", &mut script);
    out::bytes(&script);
    Ok(())
}
