//! Entry of GTP, whose servers of one receiving host share a group.

use farhaul_congestion::{Kind, Parameter, Values};
use farhaul_core::protocol::Descriptor;

use super::{Config, DESCRIPTOR, Group, server};
use crate::config::mtu;
use crate::entry::{Choice, End, Entry, Made};

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "capacity",
        about: "what the receiving host can receive, counted in packets with their headers",
        kind: Kind::Rate,
        default: "1Gbit",
    },
    mtu("1500"),
];

/// The only law there is.
const LAW: &str = "gtp";

/// The entry. Lanes would compete as flows of their own.
pub(crate) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, false, PARAMETERS, make)
}

#[expect(clippy::unnecessary_wraps, reason = "as every entry's")]
fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let config = Config {
        capacity: values.rate("capacity"),
        max_rate: choice.max_rate,
        mtu: values.whole("mtu"),
    };
    let group = match end {
        End::Client => Group::default(),
        End::Server => choice.host.gtp.clone(),
    };
    Ok(server(&config, &group).boxed(end.accepts()))
}
