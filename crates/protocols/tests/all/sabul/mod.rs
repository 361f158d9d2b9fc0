//! Tests SABUL against itself, with nothing in between but a script.

mod ends;
mod hostile;
mod transfer;
