use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{ask::Existing, filter::Spec};
use farhaul_core::{congestion::Sharing, units::Rate};

fn a_name() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![b'a'..=b'z', 0x80u8..0xff], 1..12)
}

fn a_path() -> impl Strategy<Value = Vec<u8>> {
    vec(a_name(), 1..5).prop_map(|names| names.join(&b'/'))
}

fn an_entry() -> impl Strategy<Value = Entry> {
    let meta = (0u16..0o7777, -(1i64 << 40)..1 << 40, 0u32..1_000_000_000);
    (a_path(), meta, 0u64..1 << 60, 0..3u8, a_name()).prop_map(
        |(path, (mode, mtime, mtime_nanos), size, kind, target)| {
            let file = kind == 0;
            Entry {
                kind: [Kind::File, Kind::Dir, Kind::Symlink][usize::from(kind)],
                path,
                mode,
                mtime,
                mtime_nanos,
                size: if file { size } else { 0 },
                allocated: if file { size / 2 } else { 0 },
                target: if kind == 2 { target } else { Vec::new() },
            }
        },
    )
}

fn some_ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    vec((1u64..1 << 40, 1u64..1 << 40), 0..20).prop_map(|parts| {
        let mut at = 0;
        let make = |(gap, len): (u64, u64)| {
            let start = at + gap;
            at = start + len;
            start..at
        };
        parts.into_iter().map(make).collect()
    })
}

fn a_tally() -> impl Strategy<Value = Tally> {
    vec(0u64..1 << 61, 5).prop_map(|v| Tally {
        files_ok: v[0],
        files_skipped: v[1],
        files_failed: v[2],
        bytes: v[3],
        resumed: v[4],
    })
}

fn a_usage() -> impl Strategy<Value = Usage> {
    (0u64..1 << 60, 0u64..1 << 60).prop_map(|(cpu_micros, max_rss)| Usage {
        cpu_micros,
        max_rss,
    })
}

fn an_ask() -> impl Strategy<Value = Ask> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let choices = (0usize..3, 0usize..3, 0u64..1 << 60);
    (flags, choices, "[a-z*\\n]{0,20}", "[a-z]{0,9}", 0u64..9).prop_map(
        |((one_file, dry, checksum), (existing, sharing, rate), exclude, include, least)| Ask {
            one_file,
            dry,
            checksum,
            existing: [Existing::Replace, Existing::Keep, Existing::KeepNewer][existing],
            max_rate: (rate > 0).then(|| Rate::from_bps(rate)),
            sharing: Sharing::ALL[sharing],
            spec: Spec {
                exclude,
                include,
                least,
                ..Spec::default()
            },
        },
    )
}

fn a_request() -> impl Strategy<Value = Message> {
    (any::<u16>(), an_ask(), any::<[u8; 8]>(), a_name(), a_path()).prop_map(
        |(version, ask, tag, share, path)| {
            let direction = if ask.one_file {
                Direction::Get
            } else {
                Direction::Put
            };
            Message::Request {
                version,
                direction,
                tag,
                share,
                path,
                ask: Box::new(ask),
            }
        },
    )
}

fn a_message() -> impl Strategy<Value = Message> {
    let n = 0u64..1 << 60;
    let hashes = vec(any::<[u8; 32]>(), 0..9);
    let code = prop_oneof![Just(Code::Ok), Just(Code::NoSpace), Just(Code::Interrupted)];
    prop_oneof![
        a_request(),
        (any::<u16>(), any::<bool>())
            .prop_map(|(version, one_file)| Message::Accepted { version, one_file }),
        (code.clone(), a_path(), a_path()).prop_map(|(code, text, fix)| Message::Refused {
            code,
            text,
            fix
        }),
        (n.clone(), vec(an_entry(), 0..20))
            .prop_map(|(first, entries)| Message::Entries { first, entries }),
        n.clone().prop_map(|entries| Message::End { entries }),
        (n.clone(), some_ranges()).prop_map(|(upto, ranges)| Message::Want { upto, ranges }),
        some_ranges().prop_map(|ranges| Message::Holes { ranges }),
        hashes.clone().prop_map(|h| {
            let root = |hash: Hash| Root {
                file: u64::from(hash[0]),
                sparse: hash[1] > 99,
                hash,
            };
            Message::Roots(h.into_iter().map(root).collect())
        }),
        (n.clone(), code.clone(), any::<bool>(), a_name()).prop_map(|(file, code, again, text)| {
            Message::Failed {
                file,
                code,
                again,
                text,
            }
        }),
        (n.clone(), code, a_name()).prop_map(|(file, code, text)| Message::Trouble {
            file,
            code,
            text
        }),
        n.clone().prop_map(|file| Message::AskBlocks { file }),
        (n.clone(), n.clone(), hashes).prop_map(|(file, first, values)| Message::Blocks {
            file,
            first,
            values
        }),
        (n.clone(), some_ranges()).prop_map(|(file, ranges)| Message::Repair { file, ranges }),
        (n, a_tally()).prop_map(|(resolved, tally)| Message::Report { resolved, tally }),
        (a_tally(), a_usage()).prop_map(|(tally, usage)| Message::Finished { tally, usage }),
        a_usage().prop_map(|usage| Message::Bye { usage }),
        (0u64..1 << 60, vec(0u8..8, 0..50)).prop_map(|(first, actions)| {
            let action = |n| Action::from_number(n).unwrap();
            let actions = actions.into_iter().map(action).collect();
            Message::Verdicts { first, actions }
        }),
        vec(a_path(), 0..20).prop_map(|paths| Message::Excluded { paths }),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_at_any_cut(messages in vec(a_message(), 1..6), cut in 1usize..50) {
        let (mut scratch, mut wire) = (Vec::new(), Vec::new());
        for m in &messages {
            m.encode(&mut scratch, &mut wire);
        }
        let mut inbox = Inbox::default();
        let mut got = Vec::new();
        for part in wire.chunks(cut) {
            inbox.tail().extend_from_slice(part);
            while let Some(m) = inbox.next().unwrap() {
                got.push(m);
            }
        }
        prop_assert_eq!(got, messages);
    }

    #[test]
    fn damaged_frames_never_panic(m in a_message(), at in any::<prop::sample::Index>(), bits in 1u8..) {
        let (mut scratch, mut wire) = (Vec::new(), Vec::new());
        m.encode(&mut scratch, &mut wire);
        let i = at.index(wire.len());
        wire[i] ^= bits;
        fuzz_messages(&wire);
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        fuzz_messages(&bytes);
    }
}

fn decode(frame: &[u8]) -> Result<Option<Message>, DecodeError> {
    let mut inbox = Inbox::default();
    inbox.tail().extend_from_slice(frame);
    inbox.next()
}

#[test]
fn lies_are_refused() {
    let too_long = [0x80, 0x01, 0x00, 0x01, 4];
    assert!(decode(&too_long).is_err());
    assert!(decode(&[1, 99]).is_err(), "unknown kind");
    assert!(decode(&[2, 16, 0]).is_err(), "bytes left over");
    assert!(decode(&[0]).is_err(), "empty frame");
    // Entries { first: 0, one file "../x" }.
    let escape = [&[15, 4, 0, 1, 0, 0, 4][..], b"../x", &[0, 0, 0, 0, 0]].concat();
    assert_eq!(
        decode(&escape),
        Err(DecodeError::Malformed("'.' or '..' in path"))
    );
    // A count of 2^61 entries with nothing behind it.
    let count = [&[10, 4, 0][..], &(0xe0u64 << 56).to_be_bytes()].concat();
    assert_eq!(decode(&count), Err(DecodeError::Truncated));
}
