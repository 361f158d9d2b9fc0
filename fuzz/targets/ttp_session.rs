//! A session of the Tsunami UDP protocol in mid-transfer, with datagrams and control bytes of the fuzzer's making.

use farhaul_protocols::ttp::{
    Config, server,
    wire::{Parameters, REVISION},
};
use farhaul_testkit::fuzz_lane_session;

pub(crate) fn run(data: &[u8]) {
    let ttp = server(&Config::default()).expect("a valid configuration");
    let mut greeting = REVISION.to_be_bytes().to_vec();
    Parameters { rate: 10_000_000, ..Parameters::default() }.encode(&mut greeting);
    fuzz_lane_session(Box::new(ttp), &greeting, data);
}
