//! An RBUDP session in mid-transfer, with datagrams and control bytes of the fuzzer's making.
#![no_main]

use farhaul_protocols::rbudp::{Config, OVERLAP, server};
use farhaul_testkit::fuzz_lane_session;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let config = Config { window: 3, block: 60_000, ..Config::default() };
    fuzz_lane_session(Box::new(server(&OVERLAP, &config)), &[], data);
});
