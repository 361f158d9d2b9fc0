//! Every congestion law, with events of the fuzzer.

#[path = "../../crates/congestion/tests/all/drive/mod.rs"]
mod drive;

pub(crate) fn run(data: &[u8]) {
    drive::feed(data);
}
