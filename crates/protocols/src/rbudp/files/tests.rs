use farhaul_core::{rng::Rng, units::Rate};
use proptest::prelude::*;

use super::{super::wire::HEADER, *};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn sender(payload: u32) -> FileSender {
    let config = Config {
        rate: Rate::UNLIMITED,
        ..Config::default()
    };
    FileSender::new(config, payload)
}

/// Both ends, with what `fate` makes of a datagram between them; the file as it arrived.
fn copy(
    file: &[u8],
    payload: u32,
    mut fate: impl FnMut(Vec<u8>, &mut Vec<Vec<u8>>),
) -> Result<Vec<u8>, DecodeError> {
    let (mut from, mut to) = (sender(payload), FileReceiver::new(b"s/f", payload));
    let mut copy = vec![0; file.len()];
    for turn in 1..2_000 {
        let mut words = Vec::new();
        to.poll_control(&mut words);
        if let Heard::Request(name) = from.on_control(&words)? {
            assert_eq!(name, b"s/f");
            assert!(from.offer(file.len() as u64));
        }
        if to.is_over() {
            assert!(!from.is_sending());
            return Ok(copy);
        }
        assert_eq!(from.on_control(&[]), Ok(Heard::Nothing), "nothing came");
        let mut datagrams = Vec::new();
        while from.permit(at(turn)) {
            let (number, offset, len) = from.next_packet().unwrap();
            let start = usize::try_from(offset).unwrap();
            let mut bytes = number.to_le_bytes().to_vec();
            bytes.extend(&file[start..start + len as usize]);
            fate(bytes, &mut datagrams);
        }
        let mut words = Vec::new();
        from.poll_control(at(9), &mut words);
        // The size comes before the data, DONE after it.
        let split = words.len().min(if to.size().is_none() { SIZE } else { 0 });
        to.on_control(at(turn), &words[..split])?;
        for bytes in datagrams {
            if let Got::New(place) = to.on_datagram(&bytes)? {
                let place = usize::try_from(place).unwrap();
                copy[place..place + bytes.len() - HEADER].copy_from_slice(&bytes[HEADER..]);
            }
        }
        to.on_control(at(turn), &words[split..])?;
    }
    panic!("it does not end");
}

#[test]
fn a_request_is_256_bytes_and_the_answer_a_size() {
    let mut to = FileReceiver::new(b"s/f", 1_460);
    let mut words = Vec::new();
    to.poll_control(&mut words);
    assert_eq!((words.len(), &words[..4]), (256, &b"s/f\0"[..]));
    let mut from = sender(1_460);
    assert_eq!(from.on_control(&words[..255]), Ok(Heard::Nothing));
    assert_eq!(
        from.on_control(&words[255..]),
        Ok(Heard::Request(b"s/f".to_vec()))
    );
    assert!(!from.offer(MAX_FILE + 1));
    assert!(from.offer(20_000));
    words.clear();
    from.poll_control(at(9), &mut words);
    assert_eq!(words, [0, 0, 0, 0, 0, 0, 0x4e, 0x20]);
    let lens: Vec<_> = std::iter::from_fn(|| from.next_packet()).collect();
    assert_eq!((lens.len(), lens[13]), (14, (13, 18_980, 1_020)));
    words.clear();
    from.poll_control(at(9), &mut words);
    assert_eq!(words, done(0));
    assert_eq!(from.on_control(&[0, 0xf6, 0xdc]), Ok(Heard::Report));
    let again: Vec<_> = std::iter::from_fn(|| from.next_packet())
        .map(|p| p.0)
        .collect();
    assert_eq!(again, [0, 3, 8, 9, 13]);
}

#[test]
fn an_empty_file_and_the_end_of_a_list() {
    assert_eq!(copy(&[], 1_000, |d, to| to.push(d)), Ok(Vec::new()));
    let mut from = sender(1_000);
    assert_eq!(from.on_control(&[0; 256]), Ok(Heard::Request(Vec::new())));
}

#[test]
fn numbers_in_the_other_byte_order_are_understood() {
    let file: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let swapped = copy(&file, 100, |mut d, to| {
        d[..4].reverse();
        to.push(d);
    });
    assert_eq!(swapped, Ok(file));
}

#[test]
fn lies_are_refused_and_bounded() {
    let bad = |r: Result<_, _>| assert!(matches!(r, Err(DecodeError::Malformed(_))));
    bad(sender(100).on_control(&[7; 256]));
    bad(sender(100).on_control(&[0; 257]));
    let mut from = sender(100);
    assert!(from.offer(1_000));
    bad(from.on_control(&[0]));
    let mut to = FileReceiver::new(b"f", 100);
    assert!(to.on_control(at(1), &[0xff; 8]).is_err());
    let mut to = FileReceiver::new(b"f", 100);
    assert_eq!(to.on_datagram(&[0; 104]), Ok(Got::Stale), "before the size");
    to.on_control(at(1), &1_000_u64.to_be_bytes()).unwrap();
    assert!(
        to.on_datagram(&[0; 105]).is_err(),
        "longer than packets are"
    );
    assert!(to.on_datagram(&[3, 0, 0, 0]).is_err());
    assert!(to.on_control(at(1), &[0; 9]).is_err());
    // A receiver that has nothing, again and again.
    let mut from = sender(100);
    assert!(from.offer(1_000));
    let mut rounds = 0;
    let refused = loop {
        while from.next_packet().is_some() {}
        from.poll_control(at(9), &mut Vec::new());
        rounds += 1;
        if let Err(error) = from.on_control(&[0, 0, 0xfc]) {
            break error;
        }
    };
    assert_eq!(
        (rounds, refused),
        (10, DecodeError::Malformed("reports: nothing arrives"))
    );
}

/// A late packet 65,536 of a larger file is not packet 256 of this one, whichever way it is read.
#[test]
fn a_byte_order_that_is_known_is_not_guessed_again() {
    let mut to = FileReceiver::new(b"f", 100);
    to.on_control(at(1), &30_000_u64.to_be_bytes()).unwrap();
    let packet = |number: u32| [&number.to_le_bytes()[..], &[7; 100]].concat();
    assert_eq!(to.on_datagram(&packet(1)), Ok(Got::New(100)));
    assert_eq!(to.on_datagram(&packet(65_536)), Ok(Got::Stale));
    assert_eq!(to.on_datagram(&packet(256)), Ok(Got::New(25_600)));
}

#[test]
fn a_crumb_a_round_and_questions_without_packets_are_given_up() {
    let mut from = sender(1);
    assert!(from.offer(1_000));
    let mut have = [0; 127];
    have[126] = 0xff;
    let refused = (0..100).find_map(|n: usize| {
        while from.next_packet().is_some() {}
        from.poll_control(at(9), &mut Vec::new());
        have[1 + n / 8] |= 1 << (n % 8);
        from.on_control(&have).err().map(|error| (n, error))
    });
    assert_eq!(refused.map(|(n, _)| n), Some(9), "a thousandth at a time");
    let mut to = FileReceiver::new(b"f", 100);
    to.on_control(at(1), &300_u64.to_be_bytes()).unwrap();
    let asked = (0..100).find(|_| to.on_control(at(1), &done(0)).is_err());
    assert_eq!(asked, Some(9));
}

proptest! {
    #[test]
    fn files_arrive_through_loss_reordering_and_duplication(
        (len, payload, seed) in (0_usize..9_000, 20_u32..400, 0_u64..500),
        // With more a packet is lost ten times in a row, which is given up.
        loss in 0.0..0.3,
    ) {
        let file: Vec<u8> = (0..len).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
        let mut rng = Rng::new(seed);
        let arrived = copy(&file, payload, |d, to| {
            if rng.chance(loss) {
                return;
            }
            if rng.chance(0.1) {
                to.push(d.clone());
            }
            let place = to.len() - usize::try_from(rng.below(to.len().min(5) as u64 + 1)).unwrap();
            to.insert(place, d);
        });
        prop_assert_eq!(arrived, Ok(file));
    }

    #[test]
    fn any_words_and_datagrams_never_panic(
        words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..12),
        size in 0_u64..5_000,
    ) {
        let (mut from, mut to) = (sender(50), FileReceiver::new(b"f", 50));
        let _refused = from.offer(size);
        let _refused = to.on_control(at(1), &size.to_be_bytes());
        for bytes in words {
            let mut out = Vec::new();
            let _refused = from.on_control(&bytes);
            let _refused = to.on_control(at(2), &bytes);
            let _refused = to.on_datagram(&bytes);
            while from.next_packet().is_some() {}
            from.poll_control(at(9), &mut out);
            to.poll_control(&mut out);
        }
    }
}
