//! Messages of a transfer: a decoded message is encoded and decoded to the same.

pub(crate) fn run(bytes: &[u8]) {
    farhaul_transfer::fuzz_messages(bytes);
}
