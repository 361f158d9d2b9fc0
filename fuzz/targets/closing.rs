//! A session that closes gets anything.

pub(crate) fn run(data: &[u8]) {
    crate::haul_drive::closing(data);
}
