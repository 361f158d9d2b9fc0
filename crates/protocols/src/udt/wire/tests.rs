//! Packets captured from libudt 4.11, and what must hold for all others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farhaul_core::codec::{DecodeError, Writer};
use proptest::prelude::*;

use super::*;
use crate::udt::seq;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let pairs = digits.chunks(2).map(|d| u8::try_from(d[0] * 16 + d[1]));
    pairs.collect::<Result<_, _>>().unwrap()
}

fn written(to: u32, control: &Control<'_>) -> Vec<u8> {
    let mut out = [0; 1_500];
    let mut w = Writer::new(&mut out);
    control.encode(to, &mut w).unwrap();
    let n = w.len();
    out[..n].to_vec()
}

#[track_caller]
fn golden(hex: &str, to: u32, control: Control<'_>) {
    let wire = bytes(hex);
    assert_eq!(decode(&wire), Ok(Packet::Control(to, control)));
    assert_eq!(written(to, &control), wire);
}

const CLIENT: u32 = 0x0699_da8e;
const SERVER: u32 = 0x382f_52be;

fn request() -> Handshake {
    Handshake {
        version: 4,
        socket: SocketType::STREAM,
        isn: 0x2c63_9632,
        mss: 1_500,
        window: 8_192,
        request: Request::CONNECT,
        id: CLIENT,
        cookie: 0,
        address: Handshake::address(Ipv4Addr::LOCALHOST.into()),
    }
}

#[test]
fn the_four_handshakes_of_a_connection() {
    let head = "80000000 00000000 00000000";
    let same = "00000004 00000001 2c639632 000005dc 00002000";
    let address = "0100007f 00000000 00000000 00000000";
    let ask = request();
    golden(
        &format!("{head} 00000000 {same} 00000001 0699da8e 00000000 {address}"),
        0,
        Control::Handshake(ask),
    );
    let cookie = Handshake {
        cookie: 0x2d85_c0b6,
        ..ask
    };
    golden(
        &format!("{head} 0699da8e {same} 00000001 0699da8e 2d85c0b6 {address}"),
        CLIENT,
        Control::Handshake(cookie),
    );
    let again = Handshake {
        request: Request::RESPONSE,
        ..cookie
    };
    golden(
        &format!("{head} 00000000 {same} ffffffff 0699da8e 2d85c0b6 {address}"),
        0,
        Control::Handshake(again),
    );
    golden(
        &format!("{head} 0699da8e {same} ffffffff 382f52be 2d85c0b6 {address}"),
        CLIENT,
        Control::Handshake(Handshake {
            id: SERVER,
            ..again
        }),
    );
    golden(
        &format!("{head} 0699da8e {same} 000003ea 0699da8e 2d85c0b6 {address}"),
        CLIENT,
        Control::Handshake(Handshake {
            request: Request::REJECTED,
            ..cookie
        }),
    );
}

#[test]
fn an_answer_after_the_connection_is_made_has_no_version() {
    golden(
        "80000000 00000000 00000000 0699da8e 00000000 00000000 2c639632 000005dc 00006400 ffffffff
         382f52be 00000000 00000000 00000000 00000000 00000000",
        CLIENT,
        Control::Handshake(Handshake {
            version: 0,
            socket: SocketType(0),
            window: 25_600,
            request: Request::RESPONSE,
            id: SERVER,
            address: [0; 4],
            ..request()
        }),
    );
}

#[test]
fn addresses_are_reversed_in_groups_of_four_bytes() {
    let v6 = Handshake::address(IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(v6, [0, 0, 0, 0x0100_0000]);
    assert_eq!(
        Handshake::address(Ipv4Addr::LOCALHOST.into())[0],
        0x0100_007f
    );
}

#[test]
fn acknowledgements_long_short_and_light() {
    golden(
        "80020000 00000001 00000000 0699da8e 2c639633 000186a0 0000c350 00001ffe 00000001 000003e8",
        CLIENT,
        Control::Ack {
            number: 1,
            next: 0x2c63_9633,
            state: Some(AckState {
                rtt_us: 100_000,
                var_us: 50_000,
                window: 8_190,
                speed: Some(AckSpeed {
                    arrival: 1,
                    capacity: 1_000,
                }),
            }),
        },
    );
    golden(
        "80020000 00000007 00000000 0699da8e 583aa185 00009b02 0000e2b3 00001ff0",
        CLIENT,
        Control::Ack {
            number: 7,
            next: 0x583a_a185,
            state: Some(AckState {
                rtt_us: 0x9b02,
                var_us: 0xe2b3,
                window: 0x1ff0,
                speed: None,
            }),
        },
    );
    golden(
        "80020000 00000000 00000000 1300cb71 227b8b08",
        0x1300_cb71,
        Control::Ack {
            number: 0,
            next: 0x227b_8b08,
            state: None,
        },
    );
}

#[test]
fn what_says_little_has_one_word_of_zero() {
    golden(
        "80060000 00000002 00000000 382f52be 00000000",
        SERVER,
        Control::Ack2 { number: 2 },
    );
    golden(
        "80010000 00000000 00000000 382f52be 00000000",
        SERVER,
        Control::KeepAlive,
    );
    golden(
        "80050000 00000000 00000000 382f52be 00000000",
        SERVER,
        Control::Shutdown(&[0; 4]),
    );
    golden(
        "80080000 00000fa0 00000000 00003333 00000000",
        0x3333,
        Control::PeerError { code: 4_000 },
    );
    let no_body = bytes("80050000 00000000 00000000 382f52be");
    assert_eq!(
        decode(&no_body),
        Ok(Packet::Control(SERVER, Control::Shutdown(&[]))),
        "sixteen bytes are accepted too"
    );
}

#[test]
fn losses_are_single_or_runs_and_runs_wrap() {
    let cases: [(&str, &[(u32, u32)]); 6] = [
        ("583aa086", &[(0x583a_a086, 0x583a_a086)]),
        ("d83aa090 583aa091", &[(0x583a_a090, 0x583a_a091)]),
        ("d83aa0a4 583aa0a7", &[(0x583a_a0a4, 0x583a_a0a7)]),
        (
            "00000002 80000006 0000000b 0000000e",
            &[(2, 2), (6, 11), (14, 14)],
        ),
        ("fffffffe 00000001", &[(0x7fff_fffe, 1)]),
        ("ffffffff 00000000", &[(0x7fff_ffff, 0)]),
    ];
    for (hex, runs) in cases {
        let body = bytes(hex);
        let wire = [bytes("80030000 00000000 00000000 00002222"), body.clone()].concat();
        let list = LossList::new(&body).unwrap();
        assert_eq!(
            decode(&wire),
            Ok(Packet::Control(0x2222, Control::Nak(list)))
        );
        assert_eq!(written(0x2222, &Control::Nak(list)), wire);
        assert_eq!(list.runs().collect::<Vec<_>>(), runs);
        let mut out = [0; 64];
        let mut w = Writer::new(&mut out);
        for (first, last) in runs {
            put_run(&mut w, *first, *last).unwrap();
        }
        let n = w.len();
        assert_eq!(out[..n], body);
    }
}

#[test]
fn loss_lists_that_are_never_sent_are_refused() {
    for hex in [
        "",
        "80000006",
        "80000006 8000000b",
        "8000000b 00000006",
        "000000",
    ] {
        let body = bytes(hex);
        assert!(LossList::new(&body).is_err(), "{hex}");
    }
}

#[test]
fn a_message_drop_names_a_range() {
    golden(
        "80070000 00000002 00000000 22155d74 3c8aa5ba 3c8aa5bb",
        0x2215_5d74,
        Control::Drop {
            message: 2,
            first: 0x3c8a_a5ba,
            last: 0x3c8a_a5bb,
        },
    );
    let reversed = bytes("80070000 00000002 00000000 22155d74 3c8aa5bb 3c8aa5ba");
    assert_eq!(decode(&reversed), Err(DecodeError::Malformed("drop range")));
}

#[test]
fn user_packets_and_warnings_are_known_and_mean_nothing() {
    let user = bytes("ffff0123 00000000 00000000 3317c56b 11223344 55667788");
    let expected = Packet::Control(0x3317_c56b, Control::Ignored(0x7fff));
    assert_eq!(decode(&user), Ok(expected));
    golden(
        "80040000 00000000 00000000 3317c56b 00000000",
        0x3317_c56b,
        Control::Ignored(4),
    );
}

fn header(hex: &str) -> DataHeader {
    let mut wire = bytes(hex);
    wire.extend(b"payload");
    let Ok(Packet::Data(header, b"payload")) = decode(&wire) else {
        panic!("{hex}");
    };
    let mut out = [0; HEADER];
    header.encode(&mut Writer::new(&mut out)).unwrap();
    assert_eq!(out, wire[..HEADER]);
    header
}

#[test]
fn data_packets_of_a_send_and_of_a_file() {
    let only = DataHeader {
        seq: 0x2c63_9632,
        first: true,
        last: true,
        in_order: false,
        message: 1,
        timestamp: 0x7c8,
        to: SERVER,
    };
    assert_eq!(header("2c639632 c0000001 000007c8 382f52be"), only);
    // A file of 9,000 bytes in blocks of 4,000: three packets, three packets, one.
    let words = [
        ("a0000001", (true, false), 1),
        ("20000001", (false, false), 1),
        ("60000001", (false, true), 1),
        ("a0000002", (true, false), 2),
        ("e0000003", (true, true), 3),
    ];
    for (word, ends, message) in words {
        let header = header(&format!("00000000 {word} 00000000 382f52be"));
        assert_eq!(
            ((header.first, header.last), header.message),
            (ends, message)
        );
        assert!(header.in_order);
    }
}

#[test]
fn runts_and_odd_bodies_are_refused() {
    for hex in [
        "",
        "80010000 00000000 00000000 382f52",
        "80090000 00000000 00000000 382f52be 00000000",
        "80020000 00000001 00000000 0699da8e 2c639633 000186a0",
        "80020000 00000001 00000000 0699da8e ac639633",
        "80020000 00000001 00000000 0699da8e",
        "80000000 00000000 00000000 00000000 00000004",
    ] {
        assert!(decode(&bytes(hex)).is_err(), "{hex}");
    }
    for len in [44, 47, 49, 52, 60] {
        let wire = [bytes("80000000 00000000 00000000 00000000"), vec![0; len]].concat();
        assert!(decode(&wire).is_err(), "a body of {len} bytes");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic_and_what_decodes_is_written_the_same(
        mut data in proptest::collection::vec(any::<u8>(), 0..120),
        kind in 0_u8..10,
        is_control: bool,
    ) {
        if let [first, second, ..] = &mut data[..] && is_control {
            (*first, *second) = (0x80, kind);
        }
        if let Ok(Packet::Control(to, control)) = decode(&data) {
            let wire = written(to, &control);
            prop_assert_eq!(decode(&wire).map(|p| format!("{p:?}")), match control {
                // An empty body is written as a zero word.
                Control::Shutdown([]) => Ok(format!("{:?}", Packet::Control(to, Control::Shutdown(&[0; 4])))),
                control => Ok(format!("{:?}", Packet::Control(to, control))),
            });
        }
    }

    #[test]
    fn runs_survive_the_wire(runs in proptest::collection::vec((any::<u32>(), 0_u32..0x1000_0000), 1..100)) {
        let runs: Vec<(u32, u32)> = runs
            .into_iter()
            .map(|(a, n)| (a & seq::MAX, a.wrapping_add(n) & seq::MAX))
            .collect();
        let mut out = [0; 800];
        let mut w = Writer::new(&mut out);
        for (first, last) in &runs {
            put_run(&mut w, *first, *last).unwrap();
        }
        let n = w.len();
        let list = LossList::new(&out[..n]).unwrap();
        prop_assert_eq!(list.runs().collect::<Vec<_>>(), runs);
    }
}
