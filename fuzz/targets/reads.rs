//! A client that reads ranges of files, with a server of the fuzzer's making.

pub(crate) fn run(data: &[u8]) {
    farhaul_transfer::fuzz_reads(data);
}
