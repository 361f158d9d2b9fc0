//! farhaul with two laws more, in all its commands:
//!
//! ```sh
//! cargo run --release -p my-law -- sim --cc simple-tcp --rate 100Mbit --rtt 20ms --mtu 1500 --flows 2
//! cargo run --release -p my-law -- sim --cc grants --rate 100Mbit --rtt 20ms --mtu 1500 --flows 3
//! ```

use std::process::ExitCode;

use farhaul::Extras;
use my_law::{SIMPLE_TCP, grants::GRANTS};

fn main() -> ExitCode {
    farhaul::main(Extras::new().law(SIMPLE_TCP).law(GRANTS))
}
