//! A copy of several lanes with a peer of the fuzzer's making.

use std::sync::LazyLock;

/// One for all inputs, which leave it as it was.
static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

pub(crate) fn run(data: &[u8]) {
    farhaul_transfer::fuzz_lanes(data, DIR.path()).expect("a disk that works");
}
