//! The program.

use std::process::ExitCode;

use farhaul::Extras;

fn main() -> ExitCode {
    farhaul::main(Extras::new())
}
