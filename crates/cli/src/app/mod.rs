//! The tool without its command line: what is asked for comes as an argument, and what is to be shown goes to a [`Console`].
//! Nothing here parses arguments or prints.
//!
//! [`Console`]: console::Console

pub(crate) mod console;
pub(crate) mod copy;
pub(crate) mod json;
