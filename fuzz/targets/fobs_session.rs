//! A FOBS session in mid-transfer, in segments or greedy, with datagrams and control bytes of the fuzzer's making.

use farhaul_protocols::fobs::{Config, Mode, server};
use farhaul_testkit::fuzz_lane_session;

pub(crate) fn run(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    let mode = match mode % 2 {
        0 => Mode::Greedy { every: 7 },
        _ => Mode::Segments { packets: 10, tolerance: 0.01 },
    };
    let config = Config { mode, chunk: 60_000, ..Config::default() };
    fuzz_lane_session(Box::new(server(&config)), &[], data);
}
