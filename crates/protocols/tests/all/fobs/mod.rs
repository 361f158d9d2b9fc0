//! Tests FOBS against itself, with nothing in between but a script.

mod hostile;
mod kit;
mod transfer;
