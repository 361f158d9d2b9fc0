//! A handshake with real keys over a path of the fuzzer's making.

pub(crate) fn run(data: &[u8]) {
    crate::haul_drive::handshake(data);
}
