//! Tests FOBS against itself, with nothing in between but a script.

#[path = "fobs/hostile.rs"]
mod hostile;
#[path = "fobs/kit.rs"]
mod kit;
#[path = "fobs/transfer.rs"]
mod transfer;
