//! A GTP session in mid-transfer: datagrams of any type, and frames of any kind in order.

use farhaul_protocols::gtp::{Config, Group, server};
use farhaul_testkit::fuzz_datagram_session;

pub(crate) fn run(data: &[u8]) {
    fuzz_datagram_session(Box::new(server(&Config::default(), &Group::default())), &[], data);
}
