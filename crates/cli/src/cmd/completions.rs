//! `farhaul completions SHELL`, and `farhaul _man FOLDER` for packages: what a shell needs to complete our
//! arguments, and the manual pages, from their own definition.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::{
    exit::{Exit, Failure},
    out,
};

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
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "farhaul", &mut script);
    out::bytes(&script);
    Ok(())
}

/// Arguments of `_man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Pages {
    /// A folder that exists
    folder: PathBuf,
}

/// Writes a page for each command.
pub(crate) fn pages(args: &Pages) -> Result<(), Failure> {
    clap_mangen::generate_to(crate::definition(), &args.folder).map_err(|e| {
        let text = format!("cannot write to {}: {e}", args.folder.display());
        Failure::new(Exit::DestError, text)
    })
}
