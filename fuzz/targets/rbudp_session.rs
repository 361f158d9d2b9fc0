//! An RBUDP session in mid-transfer, with datagrams and control bytes of the fuzzer's making.

use farhaul_protocols::rbudp::{Config, OVERLAP, server};
use farhaul_testkit::fuzz_lane_session;

pub(crate) fn run(data: &[u8]) {
    let config = Config { window: 3, block: 60_000, ..Config::default() };
    fuzz_lane_session(Box::new(server(&OVERLAP, &config)), &[], data);
}
