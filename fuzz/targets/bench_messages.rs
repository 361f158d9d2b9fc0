//! Messages of a bench: a decoded message is encoded and decoded to the same.

pub(crate) fn run(bytes: &[u8]) {
    farhaul_measure::bench::fuzz_bench_messages(bytes);
}
