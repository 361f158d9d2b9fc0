//! A session of the model of MTP in mid-transfer, with datagrams and frames of the fuzzer's making.

use farhaul_protocols::mtp::{Config, FIRST, server};
use farhaul_testkit::fuzz_datagram_session;

pub(crate) fn run(data: &[u8]) {
    let config = Config { mtu: 1_500, ..Config::default() };
    fuzz_datagram_session(Box::new(server(&FIRST, &config)), &[], data);
}
