//! The resume journal: as it is on the disk, and as records behind checks that are right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    farhaul_transfer::fuzz_journal(bytes);
    farhaul_transfer::fuzz_journal_records(bytes);
});
