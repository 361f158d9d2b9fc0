use proptest::prelude::*;

use super::*;

fn written(header: &Header) -> Vec<u8> {
    let mut bytes = [0xaa; MAX_HEADER];
    let mut w = Writer::new(&mut bytes);
    header.encode(&mut w).unwrap();
    let len = w.len();
    assert_eq!(len, header.encoded_len());
    bytes[..len].to_vec()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .lines()
        .map(|line| line.split(';').next().unwrap())
        .flat_map(str::bytes)
        .filter(u8::is_ascii_hexdigit)
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The annotated segments of `docs/protocols/tcp.md` §8.
fn headers() -> [Header; 5] {
    let stamps = |value, echo| Some(Stamps { value, echo });
    let hello = |from| Hello {
        from,
        mss: 8_972,
        shift: 14,
        sack: true,
    };
    let open = Open {
        hello: hello(0x0a0b_0c0d),
        ecn: false,
        iss: 0xffff_fff0,
        issued: 5_000,
        tag: 0x1122_3344_5566_7788,
    };
    let syn = Header {
        flags: flag::SYN,
        seq: 0xffff_fff0,
        window: 0xffff,
        stamps: stamps(1_000, 0),
        hello: Some(hello(0x0a0b_0c0d)),
        ..Header::default()
    };
    let syn_ack = Header {
        flags: flag::SYN | flag::ACK,
        to: 0x0a0b_0c0d,
        seq: 7,
        ack: 0xffff_fff1,
        hello: Some(hello(0x0102_0304)),
        stamps: stamps(9_000, 1_000),
        open: Some(open),
        ..syn
    };
    let data = Header {
        flags: flag::ACK,
        to: 0x0102_0304,
        seq: 0xffff_fff1,
        ack: 8,
        window: 4,
        stamps: stamps(2_000, 9_000),
        place: Some(Place {
            object: 1,
            offset: 0x10_0000,
        }),
        ..Header::default()
    };
    let mut sacks = Sacks::default();
    sacks.push(0x2000, 0x4000);
    let ack = Header {
        to: 0x0a0b_0c0d,
        seq: 8,
        ack: 0x1000,
        window: 0x100,
        stamps: stamps(9_500, 2_000),
        place: None,
        sacks,
        ..data
    };
    let fin = Header {
        flags: flag::ACK | flag::FIN,
        sacks: Sacks::default(),
        close: Some(Close {
            cause: Cause::Application,
            code: 3,
        }),
        ..ack
    };
    [syn, syn_ack, data, ack, fin]
}

const TEXTS: [&str; 5] = [
    "d1 02 0b 00 00000000 fffffff0 00000000 ffff ; SYN, 11 words, to nobody yet
             08 0a 000003e8 00000000                     ; timestamps
             f1 06 0a0b0c0d                              ; from
             02 04 230c  03 03 0e  04 02                 ; MSS 8972, shift 14, SACK
             00",
    "d1 12 12 00 0a0b0c0d 00000007 fffffff1 ffff ; SYN ACK, 18 words
             08 0a 00002328 000003e8
             f1 06 01020304
             02 04 230c  03 03 0e  04 02
             f2 1c 0a0b0c0d 230c 0e 01 fffffff0          ; open: the client's own words,
                   00001388 1122334455667788 0000        ; when they were heard, proof
             00",
    "d1 10 0b 00 01020304 fffffff1 00000008 0004
             08 0a 000007d0 00002328
             f3 0e 00000001 0000000000100000             ; object 1 from 1 MiB
             0000",
    "d1 10 0a 00 0a0b0c0d 00000008 00001000 0100
             08 0a 0000251c 000007d0
             05 0a 00002000 00004000                     ; one SACK block
             0000",
    "d1 11 09 00 0a0b0c0d 00000008 00001000 0100
             08 0a 0000251c 000007d0
             f4 07 00 00000003                           ; closed by the application, code 3
             00",
];

fn vectors() -> Vec<(Header, &'static str)> {
    headers().into_iter().zip(TEXTS).collect()
}

#[test]
fn segments_are_as_annotated() {
    for (header, text) in vectors() {
        let bytes = hex(text);
        assert_eq!(written(&header), bytes, "{header:?}");
        assert_eq!(Header::decode(&bytes), Ok((header, bytes.len())));
        assert_eq!(destination(&bytes), Some(header.to));
    }
}

#[test]
fn lengths_are_as_declared() {
    let vectors = vectors();
    assert_eq!(vectors[2].0.encoded_len(), DATA_HEADER);
    let plain = Header {
        sacks: Sacks::default(),
        ..vectors[3].0
    };
    assert_eq!(plain.encoded_len(), ACK_HEADER);
    let full = Header {
        sacks: Sacks {
            count: 3,
            ..Sacks::default()
        },
        place: vectors[2].0.place,
        open: vectors[1].0.open,
        ..plain
    };
    assert!(full.encoded_len() <= MAX_HEADER);
}

#[test]
fn what_is_never_sent_is_refused() {
    let good = written(&vectors()[2].0);
    for (at, value) in [
        (0, 0xd2),
        (1, 0x20),
        (2, 40),
        (2, 4),
        (3, 1),
        (19, 1),
        (19, 80),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(Header::decode(&bad).is_err(), "byte {at} = {value}");
    }
    assert_eq!(destination(&good[..FIXED - 1]), None);
    let mut unknown = good;
    unknown[18] = 0xee;
    assert_eq!(Header::decode(&unknown).unwrap().0.stamps, None);
}

#[test]
fn numbers_wrap_on_the_wire_only() {
    let s = Sequence::new(u32::MAX - 1);
    assert_eq!((s.wrap(0), s.wrap(1)), (u32::MAX, 0));
    assert_eq!(s.unwrap(u32::MAX, 0), Some(0));
    assert_eq!(s.unwrap(u32::MAX - 1, 0), None, "the SYN itself");
    let far = (7 << 32) + 5;
    assert_eq!(
        s.unwrap(s.wrap(far + (1 << 30)), far),
        Some(far + (1 << 30))
    );
    assert_eq!(
        s.unwrap(s.wrap(far - (1 << 30)), far),
        Some(far - (1 << 30))
    );
}

prop_compose! {
    fn some_hello()(from in 1_u32.., mss: u16, shift in 0_u8..=MAX_SHIFT, sack: bool) -> Hello {
        Hello { from, mss, shift, sack }
    }
}

prop_compose! {
    fn some_header()(
        flags in any::<u8>().prop_map(|f| f & flag::KNOWN),
        (to, seq, ack, window) in any::<(u32, u32, u32, u16)>(),
        stamps in proptest::option::of(any::<(u32, u32)>()),
        place in proptest::option::of(any::<(u32, u64)>()),
        blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..=3),
        hello in proptest::option::of(some_hello()),
        open in proptest::option::of((some_hello(), any::<(bool, u32, u32, u64)>())),
        close in proptest::option::of((0_usize..3, any::<u32>())),
    ) -> Header {
        let mut sacks = Sacks::default();
        for (left, right) in blocks {
            sacks.push(left, right);
        }
        let causes = [Cause::Application, Cause::Protocol, Cause::Store];
        Header {
            flags, to, seq, ack, window, hello, sacks,
            stamps: stamps.map(|(value, echo)| Stamps { value, echo }),
            place: place.map(|(object, offset)| Place { object, offset }),
            open: open.map(|(hello, (ecn, iss, issued, tag))| Open { hello, ecn, iss, issued, tag }),
            close: close.map(|(cause, code)| Close { cause: causes[cause], code }),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(header in some_header(), payload in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = written(&header);
        let len = bytes.len();
        bytes.extend(payload);
        prop_assert_eq!(Header::decode(&bytes), Ok((header, len)));
        prop_assert_eq!(len % 4, 0);
    }

    #[test]
    fn any_bytes_are_read_without_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut data = data;
        if let Some(first) = data.first_mut() {
            *first = MARK;
        }
        let _ = destination(&data);
        if let Ok((header, len)) = Header::decode(&data) {
            prop_assert!(len <= data.len());
            prop_assert_eq!(Header::decode(&written(&header)).map(|(h, _)| h), Ok(header));
        }
    }

    #[test]
    fn sequence_numbers_survive(iss: u32, near in 0_u64..1 << 40, off in -(1_i64 << 30)..1 << 30) {
        let s = Sequence::new(iss);
        if let Some(number) = near.checked_add_signed(off) {
            prop_assert_eq!(s.unwrap(s.wrap(number), near), Some(number));
        }
    }
}
