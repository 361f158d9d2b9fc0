use farhaul_core::{
    layout::{Layout, Run},
    pull::Offer,
};

use super::*;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|c| *c != b' ').collect();
    let octet = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// Written from docs/protocols/pa-udp.md §3.
#[test]
fn messages_are_as_they_are_described() {
    let mut layout = Layout::new(1_464);
    assert!(layout.push(Run {
        object: 1,
        offset: 2,
        len: 3_000
    }));
    let offer = Offer { first: 5, layout };
    let mbit = Rate::mbit(16);
    for (message, hex) in [
        (
            Message::Offer(mbit, offer),
            "01 0000000000f42400 0000000000000005 000005b8 00000001 \
             00000001 0000000000000002 0000000000000bb8",
        ),
        (
            Message::Own(Signal::Start(5, mbit, 0x1000)),
            "02 0000000000000005 0000000000f42400 0000000000001000",
        ),
        (
            Message::Own(Signal::Go(5, mbit)),
            "03 0000000000000005 0000000000f42400",
        ),
        (
            Message::Own(Signal::Rate(mbit, 9)),
            "04 0000000000f42400 0000000000000009",
        ),
        (
            Message::Own(Signal::Missing(vec![5..6, 7..9])),
            "05 0002 0000000000000005 0000000000000005 0000000000000007 0000000000000008",
        ),
        (Message::Done(5), "06 0000000000000005"),
        (Message::Cut(7), "07 0000000000000007"),
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(bytes, octets(hex));
        for cut in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..cut]), Ok(None), "{message:?}");
        }
        let len = bytes.len();
        bytes.push(9);
        assert_eq!(Message::decode(&bytes), Ok(Some((message, len))));
    }
}

#[test]
fn what_nobody_says_is_refused() {
    for bytes in [
        &[0][..],
        &[8],
        &[5, 0, 0],
        &[5, 0x10, 1],
        // A rate of 63,999 bit/s.
        &[4, 0, 0, 0, 0, 0, 0, 0xf9, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert!(Message::decode(bytes).is_err(), "{bytes:x?}");
    }
}
