//! Packets from a TUN device, through all that the emulator's router does with them.

pub(crate) fn run(bytes: &[u8]) {
    farhaul_emu::fuzz_packet(bytes);
}
