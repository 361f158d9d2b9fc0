//! The resume journal: as it is on the disk, and as records behind checks that are right.

pub(crate) fn run(bytes: &[u8]) {
    farhaul_transfer::fuzz_journal(bytes);
    farhaul_transfer::fuzz_journal_records(bytes);
}
