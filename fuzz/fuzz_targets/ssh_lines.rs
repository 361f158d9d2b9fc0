//! The lines that `farhaul cp` and the server it starts through ssh exchange.
#![no_main]
#![allow(dead_code, reason = "the program uses more of it")]

#[path = "../../crates/cli/src/ssh/any_line.rs"]
mod any_line;
#[path = "../../crates/cli/src/ssh/lines.rs"]
mod lines;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_line::any_line(data));
