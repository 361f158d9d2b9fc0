//! farhaul with two protocols more, in all its commands:
//!
//! ```sh
//! cargo run --release -p my-protocol -- sim --protocol tiny --rtt 100ms --loss 1%
//! cargo run --release -p my-protocol -- bench serve --protocol tiny
//! ```

use std::process::ExitCode;

use farhaul::Extras;

fn main() -> ExitCode {
    farhaul::main(
        Extras::new()
            .protocol(my_protocol::entry())
            .protocol(my_protocol::blast()),
    )
}
