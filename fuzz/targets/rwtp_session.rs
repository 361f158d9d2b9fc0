//! A session of the model of RWTP in mid-transfer, with datagrams and frames of the fuzzer's making; its formats.

use farhaul_core::{codec::Writer, shell::Record};
use farhaul_protocols::rwtp::{
    Config, server,
    wire::{HEADER, Status, decode_loss},
};
use farhaul_testkit::fuzz_datagram_session;

pub(crate) fn run(data: &[u8]) {
    let _no_panic = (decode_loss(data), Status::decode(data));
    if let Ok(header) = Record::decode(data) {
        let mut out = [0; HEADER];
        header.encode(&mut Writer::new(&mut out)).expect("it fits");
        assert_eq!(out, data[..HEADER]);
    }
    let config = Config { buffer: 60_000, mtu: 1_500, ..Config::default() };
    fuzz_datagram_session(Box::new(server(&config)), &60_000_u64.to_be_bytes(), data);
}
