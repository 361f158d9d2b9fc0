//! Tests SABUL against itself, with nothing in between but a script.

#[path = "sabul/ends.rs"]
mod ends;
#[path = "sabul/hostile.rs"]
mod hostile;
#[path = "sabul/transfer.rs"]
mod transfer;
