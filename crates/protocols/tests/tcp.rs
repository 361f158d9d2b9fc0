//! Tests the TCP session against itself, with nothing in between but a script.

#[path = "tcp/kit.rs"]
mod kit;
#[path = "tcp/liveness.rs"]
mod liveness;
#[path = "tcp/opening.rs"]
mod opening;
#[path = "tcp/transfer.rs"]
mod transfer;
