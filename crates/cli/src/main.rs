//! The program.

use std::process::ExitCode;

use farhaul::Extras;

/// The allocator of musl has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    farhaul::main(Extras::new())
}
