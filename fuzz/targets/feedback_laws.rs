//! Every congestion law, with events of the fuzzer.

#[path = "../../crates/congestion/tests/drive/mod.rs"]
mod drive;

pub(crate) fn run(data: &[u8]) {
    drive::feed(data);
}
