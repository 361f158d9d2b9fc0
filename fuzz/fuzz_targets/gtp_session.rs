//! A GTP session in mid-transfer: datagrams of any type, and frames of any kind in order.
#![no_main]

use farhaul_protocols::gtp::{Config, Group, server};
use farhaul_testkit::fuzz_datagram_session;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz_datagram_session(Box::new(server(&Config::default(), &Group::default())), &[], data);
});
