//! A client that reads ranges of files, with a server of the fuzzer's making.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| farhaul_transfer::fuzz_reads(data));
