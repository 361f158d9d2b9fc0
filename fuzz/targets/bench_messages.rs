//! Messages of a bench: what is decoded is encoded and decoded to the same.

pub(crate) fn run(bytes: &[u8]) {
    farhaul_lab::bench::fuzz_bench_messages(bytes);
}
