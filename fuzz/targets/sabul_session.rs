//! A SABUL session in mid-transfer, with datagrams and control bytes of the fuzzer's making.

use farhaul_protocols::sabul::{Config, server, wire::Options};
use farhaul_testkit::fuzz_lane_session;

pub(crate) fn run(data: &[u8]) {
    let sabul = server(&Config::default()).expect("a valid configuration");
    let mut options = Vec::new();
    Options::new(1_472, 100).encode(&mut options);
    fuzz_lane_session(Box::new(sabul), &options, data);
}
