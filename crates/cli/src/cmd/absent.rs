//! Commands of the laboratory in a program that was built without it: any arguments, and what to install.

use std::ffi::OsString;

use crate::{exit::Failure, line};

/// Arguments, none of which is looked at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

/// Says what the command needs.
pub(crate) fn run<T>(_args: T) -> Result<(), Failure> {
    let name = line::words().into_iter().nth(1).unwrap_or_default();
    let text = format!(
        "this farhaul was built without the laboratory, which has `farhaul {}`",
        name.display()
    );
    Err(Failure::usage(text)
        .fix("install farhaul, not farhaul-slim, or build it with the feature lab"))
}
