//! Tests the TCP session against itself, with nothing in between but a script.

mod kit;
mod liveness;
mod opening;
mod transfer;
