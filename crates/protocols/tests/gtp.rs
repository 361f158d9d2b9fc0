//! Tests GTP against itself, with nothing in between but a script.

#[path = "gtp/hostile.rs"]
mod hostile;
#[path = "gtp/kit.rs"]
mod kit;
#[path = "gtp/transfer.rs"]
mod transfer;
