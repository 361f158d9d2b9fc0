//! Every congestion law, told what the fuzzer likes.
#![no_main]

#[path = "../../crates/congestion/tests/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive::feed(data));
