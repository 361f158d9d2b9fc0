use proptest::prelude::*;

use farhaul_core::layout::Run;

use super::*;

fn report(packets: u64, missing: &[u64]) -> Vec<u8> {
    let mut have = Bitmap::default();
    for n in (0..packets).filter(|n| !missing.contains(n)) {
        have.insert(n);
    }
    let mut bytes = Vec::new();
    encode_report(&have, packets, missing.is_empty(), &mut bytes);
    bytes
}

/// Vectors of a run against the original: 20,000 bytes in packets of 1,460.
#[test]
fn golden_vectors() {
    let mut layout = Layout::new(1_460);
    assert!(layout.push(Run {
        object: 0,
        offset: 0,
        len: 20_000
    }));
    assert_eq!((layout.packets(), report_len(14)), (14, 3));
    assert_eq!(report(14, &[0, 3, 8, 9, 13]), [0x00, 0xf6, 0xdc]);
    assert_eq!(report(14, &[]), [0x01, 0xff, 0xff]);
    let lens: Vec<_> = (0..14)
        .map(|n| layout.packet_len(n) as usize + HEADER)
        .collect();
    assert!(lens[..13].iter().all(|len| *len == 1_464) && lens[13] == 1_024);
    assert_eq!(done(0), [0, 0, 0, 0, 0x45, 0x45, 0x45, 0]);
    let mut number = [0; 4];
    encode_number(&mut Writer::new(&mut number), 0x0102).unwrap();
    assert_eq!(number, [2, 1, 0, 0]);
    // A whole number of bytes is followed by one more.
    assert_eq!(report(16, &[15]), [0x00, 0xff, 0x7f, 0xff]);
}

#[test]
fn a_report_says_the_same_twice() {
    assert!(
        decode_report(&[1, 0xf6, 0xdc], 14).is_err(),
        "all, but not all"
    );
    assert!(
        decode_report(&[0, 0xff, 0xff], 14).is_err(),
        "not all, but all"
    );
    assert!(decode_report(&[2, 0xff, 0xff], 14).is_err());
    assert!(decode_report(&[], 14).is_err());
}

#[test]
fn what_is_never_sent_is_refused() {
    let bad = |bytes: &[u8]| {
        assert!(matches!(
            Message::decode(bytes),
            Err(DecodeError::Malformed(_))
        ));
    };
    bad(&[9]);
    bad(&[READY, 0x80, 0, 0, 0]);
    bad(&[
        ROUND, 0, 0, 0, 1, 0, 0, 0, 0, b'E', b'E', b'D', 0, 0, 0, 0, 1,
    ]);
    bad(&[MISSING, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    let block = |len: u64, payload: u32, count: u32, run: (u32, u64, u64)| {
        let mut bytes = vec![BLOCK, 0, 0, 0, 1];
        bytes.extend(len.to_be_bytes());
        bytes.extend(payload.to_be_bytes());
        bytes.extend(count.to_be_bytes());
        for _ in 0..count.min(2) {
            bytes.extend(run.0.to_be_bytes());
            bytes.extend(run.1.to_be_bytes());
            bytes.extend(run.2.to_be_bytes());
        }
        bytes
    };
    assert!(matches!(
        Message::decode(&block(10, 5, 1, (1, 0, 10))),
        Ok(Some(_))
    ));
    bad(&block(11, 5, 1, (1, 0, 10)));
    bad(&block(10, 0, 1, (1, 0, 10)));
    bad(&block(10, 65_536, 1, (1, 0, 10)));
    bad(&block(10, 5, u32::MAX, (1, 0, 10)));
    bad(&block(0, 5, 1, (1, 0, 0)));
    bad(&block(u64::MAX, 5, 1, (1, 5, u64::MAX)));
    bad(&block(20, 5, 2, (1, u64::MAX - 5, 10)));
    bad(&block(u64::MAX / 2, 5, 1, (1, 0, u64::MAX / 2)));
    for range in [(0, 0), (5, 10), (u32::MAX, u32::MAX)] {
        assert!(without(&[range], 14).is_err(), "{range:?}");
    }
    assert!(without(&[(3, 2), (4, 1)], 14).is_err(), "overlapping");
}

proptest! {
    #[test]
    fn reports_give_back_what_is_missing(
        packets in 1_u64..400,
        gone in proptest::collection::btree_set(0_u64..400, 0..60),
    ) {
        let gone: Vec<u64> = gone.into_iter().filter(|n| *n < packets).collect();
        let bytes = report(packets, &gone);
        prop_assert_eq!(bytes.len(), report_len(packets));
        let have = decode_report(&bytes, packets).unwrap();
        for n in 0..packets {
            prop_assert_eq!(have.contains(n), !gone.contains(&n));
        }
        if let Some(ranges) = missing_ranges(&have, packets) {
            prop_assert!(8 * ranges.len() <= report_len(packets));
            let same = without(&ranges, packets).unwrap();
            prop_assert!((0..packets).all(|n| same.contains(n) == have.contains(n)));
            let mut bytes = Vec::new();
            let message = Message::Missing(3, ranges);
            message.encode(&mut bytes);
            prop_assert_eq!(Message::decode(&bytes).unwrap(), Some((message, bytes.len())));
        }
    }

    #[test]
    fn any_bytes_decode_to_what_encodes_them(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(Some((message, len))) = Message::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(&again[..], &bytes[..len]);
        }
    }
}
