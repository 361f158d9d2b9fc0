//! A client that delivers to a server of the fuzzer's making.

use std::sync::LazyLock;

/// One for all inputs, which leave it as it was.
static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

pub(crate) fn run(data: &[u8]) {
    farhaul_transfer::fuzz_sender(data, DIR.path()).expect("a disk that works");
}
