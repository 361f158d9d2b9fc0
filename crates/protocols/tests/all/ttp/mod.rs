//! Tests the Tsunami UDP protocol against itself, with nothing in between but a script.

#![expect(clippy::cast_precision_loss, reason = "ratios of counts")]

mod behaviour;
mod ends;
mod hostile;
mod transfer;
