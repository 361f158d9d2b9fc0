//! Tests the Tsunami UDP protocol against itself, with nothing in between but a script.

#![expect(clippy::cast_precision_loss, reason = "ratios of counts")]

#[path = "ttp/behaviour.rs"]
mod behaviour;
#[path = "ttp/ends.rs"]
mod ends;
#[path = "ttp/hostile.rs"]
mod hostile;
#[path = "ttp/transfer.rs"]
mod transfer;
