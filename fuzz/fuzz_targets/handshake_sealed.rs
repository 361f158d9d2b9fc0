//! A handshake with real keys over a path of the fuzzer's making.
#![no_main]

#[path = "../../crates/haul/tests/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive::handshake(data));
