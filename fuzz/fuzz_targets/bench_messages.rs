//! Messages of a bench: what is decoded is encoded and decoded to the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farhaul_lab::bench::fuzz_bench_messages(bytes));
