//! Names of protocols and laws. A value is anything here, since it may carry parameters and is
//! checked where it is used. Its names are known to completions and manual pages.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use farhaul_congestion::laws;
use farhaul_measure::registry::protocols;

/// Any text; some values are known.
#[derive(Clone)]
pub(crate) struct Names(fn() -> Vec<&'static str>);

impl Names {
    /// `--protocol`.
    pub(crate) fn protocols() -> Self {
        Self(|| protocols().iter().map(|e| e.descriptor.name).collect())
    }

    /// `--cc`.
    pub(crate) fn laws() -> Self {
        Self(|| laws().iter().map(|law| law.name).collect())
    }
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}
