//! The lines that `farhaul cp` and the server it starts through ssh exchange.
#![allow(dead_code, reason = "the program uses more of it")]

#[path = "../../crates/cli/src/ssh/any_line.rs"]
mod any_line;
#[path = "../../crates/cli/src/ssh/lines.rs"]
mod lines;

pub(crate) fn run(data: &[u8]) {
    any_line::any_line(data);
}
