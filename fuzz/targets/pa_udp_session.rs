//! A PA-UDP session in mid-transfer, with datagrams and control bytes of the fuzzer's making.

use farhaul_protocols::pa_udp::{Config, server};
use farhaul_testkit::fuzz_lane_session;

pub(crate) fn run(data: &[u8]) {
    fuzz_lane_session(Box::new(server(&Config::default())), &[], data);
}
