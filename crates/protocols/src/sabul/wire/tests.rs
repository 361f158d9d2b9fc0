use proptest::prelude::*;

use super::*;

#[test]
fn packets_are_what_the_original_wrote() {
    let mut out = Vec::new();
    // An acknowledgement of everything before packet 258.
    Message::Ack(258).encode(&mut out);
    assert_eq!(out, [0, 0, 0, 1, 0, 0, 1, 2]);
    out.clear();
    // Two packets missing.
    put_losses(&mut out, [5, 99_999_999].into_iter());
    assert_eq!(
        out,
        [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 5, 5, 0xf5, 0xe0, 0xff]
    );
    out.clear();
    // 833 packets in a period.
    Message::Syn(833).encode(&mut out);
    assert_eq!(out, [0, 0, 0, 4, 0, 0, 3, 65]);
    out.clear();
    Options::new(1_472, 25_600).encode(&mut out);
    assert_eq!(out.len(), OPTIONS);
    assert_eq!(out[8..16], [0, 0, 5, 0xc0, 0, 0, 5, 0xbc]);
    assert_eq!(out[32..36], [0, 0, 100, 0]);
}

#[test]
fn what_nobody_may_say_is_refused() {
    for words in [
        &[1, MODULUS][..],
        &[2, 0],
        &[2, 367],
        &[2, 1, MODULUS],
        &[3, 0],
        &[16, 0],
    ] {
        let mut bytes = Vec::new();
        put_words(&mut bytes, words);
        assert!(Message::decode(&bytes).is_err(), "{words:?}");
    }
    for (packet, window) in [(63, 100), (65_508, 100), (1_472, 0), (1_472, 25_000_001)] {
        let mut bytes = Vec::new();
        Options::new(packet, window).encode(&mut bytes);
        let bytes: &[u8; OPTIONS] = bytes.as_slice().try_into().unwrap();
        assert!(Options::decode(bytes).is_err(), "{packet} {window}");
    }
    assert!(sequence(MODULUS).is_err() && sequence(MODULUS - 1).is_ok());
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let losses = proptest::collection::vec(0..MODULUS, 1..=MAX_LOSSES);
    let write = |message: Message<'_>| {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    };
    prop_oneof![
        (0..MODULUS).prop_map(move |n| write(Message::Ack(n))),
        losses.prop_map(|list| {
            let mut out = Vec::new();
            put_losses(&mut out, list.into_iter());
            out
        }),
        any::<u32>().prop_map(move |n| write(Message::Syn(n))),
    ]
}

proptest! {
    #[test]
    fn a_stream_cut_anywhere_gives_its_messages_back(all in proptest::collection::vec(messages(), 1..12), cut in 1_usize..40) {
        let stream = all.concat();
        let (mut kept, mut again) = (Vec::new(), Vec::new());
        for piece in stream.chunks(cut) {
            kept.extend(piece);
            let mut used = 0;
            while let Some((message, len)) = Message::decode(&kept[used..]).unwrap() {
                message.encode(&mut again);
                used += len;
            }
            kept.drain(..used);
            prop_assert!(kept.len() < MAX_MESSAGE);
        }
        prop_assert!(kept.is_empty());
        prop_assert_eq!(again, stream);
    }

    #[test]
    fn nothing_received_panics_or_waits_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        if bytes.len() >= MAX_MESSAGE {
            prop_assert!(!matches!(Message::decode(&bytes), Ok(None)));
        }
    }

    #[test]
    fn options_survive(words in proptest::array::uniform10(any::<u32>()), packet in 64_u32..65_508, window in 1..=HALF / 2) {
        let options = Options {
            data_port: words[0],
            control_port: words[1],
            payload: words[3],
            max_losses: words[4],
            blockable: words[5],
            send_buffer: words[6],
            receive_buffer: words[7],
            verbose: words[9],
            ..Options::new(packet, window)
        };
        let mut bytes = Vec::new();
        options.encode(&mut bytes);
        let bytes: &[u8; OPTIONS] = bytes.as_slice().try_into().unwrap();
        prop_assert_eq!(Options::decode(bytes).unwrap(), options);
    }
}
