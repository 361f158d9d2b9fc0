//! Every congestion law, with events of the fuzzer.
#![no_main]

#[path = "../../crates/congestion/tests/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive::feed(data));
