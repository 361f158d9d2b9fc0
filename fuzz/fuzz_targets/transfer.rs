//! Messages of a transfer: what is decoded is encoded and decoded to the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farhaul_transfer::fuzz_messages(bytes));
