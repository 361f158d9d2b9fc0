//! A copy of several lanes with a peer of the fuzzer's making.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

/// One for all inputs, which leave it as it was.
static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(
    |data: &[u8]| farhaul_transfer::fuzz_lanes(data, DIR.path()).expect("a disk that works")
);
