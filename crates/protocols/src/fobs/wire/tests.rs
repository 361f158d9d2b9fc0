use farhaul_core::layout::Run;
use proptest::prelude::*;

use super::*;

fn there(packets: u64, missing: &[u64]) -> Bitmap {
    let mut have = Bitmap::default();
    for n in (0..packets).filter(|n| !missing.contains(n)) {
        have.insert(n);
    }
    have
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// Formats are farhaul's; that a header has six bytes is inferred from 1,466 bytes of data.
#[test]
fn golden_vectors() {
    let mut bytes = [0; HEADER];
    let header = Header {
        number: 0x0102_0304,
        round: 0x0506,
    };
    header.encode(&mut Writer::new(&mut bytes)).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6]);
    assert_eq!(Header::decode(&bytes), Ok(header));
    let mut out = Vec::new();
    feedback(9, 1, &there(140, &[70, 131]), &mut out);
    // From packet 64 to 139: 76 bits.
    let bits = [0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf7, 0x0f];
    let head = [3, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 64, 0, 0, 0, 76];
    assert_eq!(out, [&head[..], &bits].concat());
    out.clear();
    ack(9, &there(3, &[1]), 12, &mut out);
    assert_eq!(out, [4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 12, 5, 0]);
    let end = Message::EndOfSegment {
        first: 9,
        segment: 2,
        sent: 10_000,
    };
    assert_eq!(encoded(&end), [2, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0x27, 0x10]);
    assert_eq!(encoded(&Message::Completed(9)), [5, 0, 0, 0, 9]);
}

/// Derived: a bit for each of 10,000 packets is 1,250 bytes, 89 KiB for each GiB.
#[test]
fn feedback_without_loss_is_a_bit_for_each_packet_of_the_segment() {
    let mut out = Vec::new();
    let mut have = Bitmap::default();
    for n in 0..20_000 {
        have.insert(n);
    }
    // What has arrived in order is not said bit by bit.
    feedback(0, 1, &have, &mut out);
    assert_eq!(out.len(), 17 + 4);
    out.clear();
    feedback(0, 1, &there(20_000, &[10_000]), &mut out);
    assert!((1_250..1_258).contains(&(out.len() - 17)), "{}", out.len());
}

/// Else thirteen bytes would take 250 KB of memory.
#[test]
fn what_is_before_the_first_bit_is_not_written_down() {
    let head = [4, 0, 0, 0, 9];
    let bits = [1_999_936_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    let Ok(Some((Message::Ack(9, have), 13))) = Message::decode(&[&head[..], &bits].concat())
    else {
        panic!("an ACK");
    };
    assert_eq!((have.base(), have.end()), (1_999_936, 1_999_936));
    assert!(have.contains(1_999_935) && !have.contains(1_999_936));
}

#[test]
fn what_is_never_sent_is_refused() {
    let bad = |bytes: &[u8]| {
        let decoded = Message::decode(bytes);
        assert!(
            matches!(decoded, Err(DecodeError::Malformed(_))),
            "{decoded:?}"
        );
    };
    bad(&[0]);
    bad(&[8]);
    bad(&[READY, 0x80, 0, 0, 0]);
    bad(&[ACK, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1]);
    bad(&[ACK, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0]);
    bad(&[
        ACK, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xc0, 0xff, 0xff, 0xff, 0xff,
    ]);
    bad(&[END_OF_SEGMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0]);
    assert!(Header::decode(&[0x80, 0, 0, 0, 0, 0]).is_err());
    assert!(Header::decode(&[0, 0, 0, 0, 0]).is_err());
}

proptest! {
    #[test]
    fn bits_say_what_is_there(packets in 1_u64..700, seed in 0_u64..1_000, some in 0_u64..4) {
        let missing = |n: &u64| (n.wrapping_mul(seed * 2 + 1) >> 3) % 4 < some;
        let missing: Vec<_> = (0..packets).filter(missing).collect();
        let have = there(packets, &missing);
        for message in [Message::Ack(1, have.clone()), Message::Feedback(1, 2, have.clone())] {
            let bytes = encoded(&message);
            for cut in 0..bytes.len() {
                prop_assert!(Message::decode(&bytes[..cut]).unwrap().is_none());
            }
            let (again, len) = Message::decode(&bytes).unwrap().unwrap();
            prop_assert_eq!(len, bytes.len());
            let (Message::Ack(_, again) | Message::Feedback(_, _, again)) = again else {
                panic!("{again:?}");
            };
            prop_assert!((0..packets + 9).all(|n| again.contains(n) == have.contains(n)));
        }
    }

    #[test]
    fn chunks_survive_and_any_bytes_never_panic(
        (first, every) in (0..NUMBERS, proptest::option::of(1_u32..9_999)),
        runs in proptest::collection::vec((0_u32..3, 0_u64..1 << 40, 1_u64..1 << 20), 1..20),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut layout = Layout::new(1_466);
        for (object, offset, len) in runs {
            let run = Run { object, offset, len };
            prop_assert!(layout.push(run));
        }
        let encoded = encoded(&Message::Chunk(first, every, layout.clone()));
        let (again, len) = Message::decode(&encoded).unwrap().unwrap();
        prop_assert_eq!(len, encoded.len());
        let Message::Chunk(f, e, l) = again else { panic!("{again:?}") };
        prop_assert_eq!((f, e, l), (first, every, layout));
        let _no_panic = (Message::decode(&bytes), Header::decode(&bytes));
    }
}
