//! Entry of Reliable UDP.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{Config, DESCRIPTOR, Rudp};
use crate::config::mtu;
use crate::entry::{Choice, End, Entry, Made};

const fn parameter(
    name: &'static str,
    about: &'static str,
    (low, high): (u32, u32),
    default: &'static str,
) -> Parameter {
    Parameter {
        name,
        about,
        kind: Kind::Whole(low, high),
        default,
    }
}

const PARAMETERS: &[Parameter] = &[
    parameter(
        "window",
        "segments unacknowledged at most; above 128 only where nothing is reordered",
        (1, 255),
        "128",
    ),
    parameter(
        "retransmit-ms",
        "unacknowledged for so long, everything is sent again; the client's counts, as all that follow",
        (100, 65_535),
        "600",
    ),
    parameter(
        "retries",
        "times in a row after which the session ends; 0: that has no end",
        (0, 255),
        "0",
    ),
    parameter(
        "ack-ms",
        "an acknowledgement waits so long at most",
        (100, 65_535),
        "300",
    ),
    parameter("ack-every", "segments that one acknowledges", (1, 255), "3"),
    parameter(
        "eak-after",
        "segments out of order after which they are named",
        (1, 255),
        "3",
    ),
    parameter(
        "null-ms",
        "a client that has sent nothing for so long sends a null segment",
        (100, 10_000),
        "2000",
    ),
    mtu("9000"),
];

/// The only law there is.
const LAW: &str = "rudp";

/// The entry. No parallel sessions: they would be distinguished by ports only.
pub(crate) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, false, PARAMETERS, make)
}

#[expect(clippy::unnecessary_wraps, reason = "as every protocol is made")]
fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let byte = |name| u8::try_from(values.whole(name)).unwrap_or(u8::MAX);
    let millis = |name| Duration::from_millis(values.whole(name).into());
    let config = Config {
        window: byte("window"),
        retransmit: millis("retransmit-ms"),
        retries: byte("retries"),
        ack_delay: millis("ack-ms"),
        ack_every: byte("ack-every"),
        eak_after: byte("eak-after"),
        null: millis("null-ms"),
        max_rate: choice.max_rate,
        mtu: values.whole("mtu"),
    };
    Ok(match end {
        End::Client => Box::new(Rudp::client(&config)),
        End::Server => Box::new(Rudp::server(&config)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_eight_bits() {
        let choice = Choice::default();
        let widest = entry().with("window=255,retransmit-ms=1000").unwrap();
        assert!(widest.server(&choice).is_ok());
        assert!(entry().with("window=256").is_err());
    }
}
