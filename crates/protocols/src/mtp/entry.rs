//! Entries of the model of MTP, by two readings of what was measured.

use std::time::Duration;

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{Config, FIRST, SECOND, server};
use crate::config::mtu;
use crate::entry::{Choice, End, Entry, Made};

/// The parameters, with these defaults of the window and of a host's costs.
const fn parameters(
    window: &'static str,
    unit_us: &'static str,
    request_us: &'static str,
) -> [Parameter; 5] {
    [
        Parameter {
            name: "window",
            about: "units in transit at most",
            kind: Kind::Whole(4, 65_535),
            default: window,
        },
        Parameter {
            name: "n",
            about: "loss of up to one packet in so many is no sign of congestion",
            kind: Kind::Number(2.0, 5_000.0),
            default: "133",
        },
        Parameter {
            name: "unit-us",
            about: "processing time of the receiving host for each unit, as measured in 2014; 0: none",
            kind: Kind::Number(0.0, 10_000.0),
            default: unit_us,
        },
        Parameter {
            name: "request-us",
            about: "and for each request",
            kind: Kind::Number(0.0, 10_000.0),
            default: request_us,
        },
        mtu("8233"),
    ]
}

static FIRSTS: [Parameter; 5] = parameters("1024", "8.2", "4.2");
static SECONDS: [Parameter; 5] = parameters("540", "7", "16");

/// The only law there is.
const LAW: &str = "mtp";

/// The entries. No parallel sessions: the window is a receiver's.
pub(crate) fn entries() -> [Entry; 2] {
    [
        Entry::new(&FIRST, LAW, false, &FIRSTS, make),
        Entry::new(&SECOND, LAW, false, &SECONDS, make),
    ]
}

#[expect(clippy::unnecessary_wraps, reason = "as every protocol is made")]
fn make(descriptor: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let micros = |name| Duration::from_secs_f64(values.number(name) / 1e6);
    let config = Config {
        window: values.whole("window").into(),
        tolerated: 1.0 / values.number("n"),
        unit_cost: micros("unit-us"),
        request_cost: micros("request-us"),
        max_rate: choice.max_rate,
        mtu: values.whole("mtu"),
    };
    Ok(server(descriptor, &config).boxed(end.accepts()))
}

#[cfg(test)]
mod tests {
    use farhaul_core::protocol::Provenance;

    use super::*;

    #[test]
    fn both_readings_are_models() {
        let choice = Choice::default();
        let [first, second] = entries();
        for made in [
            first.with("n=25,window=1220"),
            second.with("unit-us=0,request-us=0"),
        ] {
            let entry = made.unwrap();
            assert_eq!(entry.descriptor.provenance, Provenance::Model);
            assert!(entry.server(&choice).is_ok());
        }
        assert!(first.with("window=3").is_err());
    }
}
