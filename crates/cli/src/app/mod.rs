//! The tool without its command line. A caller hands over a request and a [`Console`], which gets what users see.
//! No file here parses arguments or prints.
//!
//! [`Console`]: console::Console

pub(crate) mod console;
pub(crate) mod copy;
pub(crate) mod far;
pub(crate) mod json;
pub(crate) mod probes;
pub(crate) mod third_party;
