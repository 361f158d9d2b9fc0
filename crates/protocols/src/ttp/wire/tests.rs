use proptest::prelude::*;

use super::*;

/// Bytes as written by hand, from hexadecimal.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[test]
fn a_challenge_is_answered_as_by_the_original() {
    let challenge = std::array::from_fn(|i| u8::try_from(i).unwrap());
    assert_eq!(
        answer(&challenge, SECRET).to_vec(),
        hex("2ef1fa32913c8c342201761df3e1873e")
    );
    assert_eq!(answer(&challenge, b""), answer(&challenge, &[0]));
    assert_eq!(REVISION.to_be_bytes().to_vec(), hex("20061025"));
}

#[test]
fn requests_end_with_a_line_or_a_zero() {
    for (bytes, request) in [
        (&b"data/run7\n"[..], Request::File(b"data/run7")),
        (b"data/run7\0", Request::File(b"data/run7")),
        (b"*\n", Request::Names),
        (b"!#DIR??\n", Request::Directory),
    ] {
        let more = [bytes, b"next"].concat();
        assert_eq!(Request::decode(&more), Ok(Some((request, bytes.len()))));
        assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), Ok(None));
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(out[..out.len() - 1], bytes[..bytes.len() - 1]);
    }
    assert!(Request::decode(b"\n").is_err());
    assert!(Request::decode(&[b'a'; MAX_LINE]).is_err());
    assert_eq!(Request::decode(&[b'a'; MAX_LINE - 1]), Ok(None));
}

#[test]
fn parameters_and_their_answer() {
    let bytes = hex("00000400 26be3680 00001d4c 0019 0018 0005 0006");
    let parameters = Parameters::default();
    assert_eq!(Parameters::decode(&bytes), Ok(parameters));
    let mut out = Vec::new();
    parameters.encode(&mut out);
    assert_eq!(out, bytes);
    // No size, no rate, every error borne, a step that does not slow down.
    for (at, value) in [
        (3, 1),
        (4, 0),
        (8, 0xff),
        (13, 1),
        (15, 0),
        (17, 9),
        (19, 0),
    ] {
        let mut bad = bytes.clone();
        if at == 3 {
            bad[..4].fill(0);
        } else if at == 4 {
            bad[4..8].fill(0);
        } else {
            bad[at] = value;
        }
        assert!(Parameters::decode(&bad).is_err(), "{at}");
    }

    let bytes = hex("0000000000000801 00000400 00000003 00000007");
    let info = FileInfo {
        size: 2_049,
        block_size: 1_024,
        blocks: 3,
        epoch: 7,
    };
    assert_eq!(FileInfo::decode(&bytes), Ok(info));
    let mut out = Vec::new();
    info.encode(&mut out);
    assert_eq!(out, bytes);
    for (at, value) in [(0, 0xff), (7, 0), (10, 0), (15, 2)] {
        let mut bad = bytes.clone();
        bad[at] = value;
        assert!(FileInfo::decode(&bad).is_err(), "{at}");
    }
}

#[test]
fn blocks_and_feedback() {
    for (bytes, block, kind) in [
        ("00000001 004f", 1, Kind::Original),
        ("00012345 0052", 0x12345, Kind::Repair),
        ("ffffffff 0058", u32::MAX, Kind::Last),
    ] {
        let bytes = hex(bytes);
        let header = BlockHeader { block, kind };
        assert_eq!(BlockHeader::decode(&bytes), Ok(header));
        let mut out = [0; HEADER as usize];
        header.encode(&mut Writer::new(&mut out)).unwrap();
        assert_eq!(out.to_vec(), bytes);
    }
    assert!(BlockHeader::decode(&hex("00000001 0050")).is_err());
    for (bytes, kind, block, error_rate) in [
        (
            "0000 0000 00000007 00000000",
            FeedbackKind::Retransmit,
            7,
            0,
        ),
        (
            "0001 0000 00000400 00000000",
            FeedbackKind::Restart,
            1_024,
            0,
        ),
        ("0002 0000 00000000 00000000", FeedbackKind::Stop, 0, 0),
        (
            "0003 0000 00000000 00001d9f",
            FeedbackKind::ErrorRate,
            0,
            7_583,
        ),
    ] {
        let bytes = hex(bytes);
        let feedback = Feedback {
            kind,
            block,
            error_rate,
        };
        assert_eq!(Feedback::decode(&bytes), Ok(feedback));
        let mut out = Vec::new();
        feedback.encode(&mut out);
        assert_eq!((&out, out.len()), (&bytes, FEEDBACK));
    }
    assert!(Feedback::decode(&hex("0004 0000 00000000 00000000")).is_err());
}

#[test]
fn lists_of_names_and_sizes() {
    let bytes = b"12\0\0\0\0\0\0\0\x003\0\0\0\0\0\0\0\0\0";
    let count = NameCount {
        bytes: 12,
        names: 3,
    };
    assert_eq!(NameCount::decode(bytes), Ok(count));
    let mut out = Vec::new();
    count.encode(&mut out);
    assert_eq!(out, bytes);
    let names: Vec<_> = strings(b"one\0two\0three\0fou").collect();
    assert_eq!(names, [&b"one"[..], b"two", b"three"]);
    assert_eq!(strings(b"").count() + strings(b"abc").count(), 0);

    let mut out = Vec::new();
    put_directory(&mut out, &[(b"a", 5), (b"b c", 70)]);
    assert_eq!(out, b"2\0a\x005\0b c\x0070\0");
    let files = vec![(&b"a"[..], 5), (&b"b c"[..], 70)];
    assert_eq!(directory(&out), Ok(Some(files)));
    assert_eq!(directory(&out[..out.len() - 1]), Ok(None));
    assert!(directory(b"x\0").is_err() && directory(b"") == Ok(None));
    for byte in [0, 1, 2, 8, 16] {
        assert_eq!(Verdict::decode(byte).map(Verdict::encode), Ok(byte));
    }
    assert!(Verdict::decode(3).is_err());
}

proptest! {
    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(header) = BlockHeader::decode(&bytes) {
            let mut out = [0; HEADER as usize];
            header.encode(&mut Writer::new(&mut out)).unwrap();
            prop_assert_eq!(&out, &bytes[..HEADER as usize]);
        }
        let mut out = Vec::new();
        if let Ok(parameters) = Parameters::decode(&bytes) {
            parameters.encode(&mut out);
            prop_assert_eq!(&out, &bytes[..PARAMETERS]);
        }
        out.clear();
        if let Ok(info) = FileInfo::decode(&bytes) {
            info.encode(&mut out);
            prop_assert_eq!(&out, &bytes[..FILE_INFO]);
        }
        out.clear();
        if let Ok(feedback) = Feedback::decode(&bytes) {
            feedback.encode(&mut out);
            prop_assert_eq!(Feedback::decode(&out), Ok(feedback));
        }
        let _request = Request::decode(&bytes);
        let _count = NameCount::decode(&bytes);
        prop_assert!(strings(&bytes).count() <= bytes.len());
        if let Ok(files) = directory(&bytes) {
            prop_assert!(files.is_none_or(|files| files.len() <= bytes.len()));
        }
    }
}
