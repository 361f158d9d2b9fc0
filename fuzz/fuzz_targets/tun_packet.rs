//! Packets from a TUN device, through all that the emulator's router does with them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farhaul_emu::fuzz_packet(bytes));
