//! Commands of the laboratory in a program that was built without it: any arguments, and what to install.

use std::{ffi::OsString, str::FromStr};

use crate::{exit::Failure, line};

/// Arguments, none of which is looked at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

/// A file for a figure, in a program that draws none.
#[derive(Clone, Debug)]
pub(crate) enum Figure {}

impl FromStr for Figure {
    type Err = &'static str;

    fn from_str(_file: &str) -> Result<Self, Self::Err> {
        Err(
            "this farhaul was built without the laboratory, which draws: install farhaul, not farhaul-slim",
        )
    }
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
