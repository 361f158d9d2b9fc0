//! Tests RBUDP against itself, with nothing in between but a script.

#[path = "rbudp/hostile.rs"]
mod hostile;
#[path = "rbudp/kit.rs"]
mod kit;
#[path = "rbudp/transfer.rs"]
mod transfer;
