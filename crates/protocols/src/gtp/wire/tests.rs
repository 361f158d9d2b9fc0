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

/// Written from docs/protocols/gtp.md §4.
#[test]
fn messages_are_as_they_are_described() {
    let mut layout = Layout::new(1_459);
    assert!(layout.push(Run {
        object: 1,
        offset: 2,
        len: 3_000
    }));
    let command = Command {
        number: 3,
        rate: Rate::mbit(16),
    };
    for (message, hex) in [
        (
            Message::Offer(Rate::UNLIMITED, Offer { first: 5, layout }),
            "01 0000000000000005 000005b3 00000001 00000001 0000000000000002 0000000000000bb8",
        ),
        (
            Message::Own(Request {
                command,
                ranges: vec![5..6, 7..9],
            }),
            "02 0000000000000003 0000000000f42400 \
             0002 0000000000000005 0000000000000005 0000000000000007 0000000000000008",
        ),
        (Message::Done(5), "03 0000000000000005"),
        (Message::Cut(7), "04 0000000000000007"),
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
    let mut bytes = [0; 16];
    command.put(&mut Writer::new(&mut bytes)).unwrap();
    assert_eq!(
        bytes,
        [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0xf4, 0x24, 0]
    );
    assert_eq!(Command::take(&mut Reader::new(&bytes)), Ok(command));
    bytes[13] = 0;
    assert!(
        Command::take(&mut Reader::new(&bytes)).is_err(),
        "9,216 bit/s"
    );
}

#[test]
fn what_nobody_says_is_refused() {
    for bytes in [
        &[0][..],
        &[5],
        &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        &[1; 13],
    ] {
        assert!(Message::decode(bytes).is_err(), "{bytes:x?}");
    }
}
