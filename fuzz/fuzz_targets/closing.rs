//! A session that closes gets anything.
#![no_main]

#[path = "../../crates/haul/tests/drive/mod.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive::closing(data));
