//! Entry of PA-UDP.

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{Config, DESCRIPTOR, server};
use crate::config::mtu;
use crate::entry::{Choice, End, Entry, Made};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "rate",
        about: "bytes of data per time that the link carries: sent at where the receiver's disk is no limit",
        kind: Kind::Rate,
        default: "900Mbit",
    },
    mtu("1500"),
];

/// The only law there is.
const LAW: &str = "pa-udp";

/// The entry. No parallel sessions: its control connections belong to one socket.
pub(crate) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, false, PARAMETERS, make)
}

#[expect(clippy::unnecessary_wraps, reason = "as every entry's")]
fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let config = Config {
        link: values.rate("rate"),
        max_rate: choice.max_rate,
        mtu: values.whole("mtu"),
    };
    Ok(server(&config).boxed(end.accepts()))
}
