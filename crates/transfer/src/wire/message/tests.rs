use proptest::{collection::vec, prelude::*};

use farhaul_core::{congestion::Sharing, units::Rate};

use super::*;
use crate::wire::{
    Access, Delete, Existing, Facts, FilterSpec, Inbox, Kind, MOST_LANES, MOST_PLACE_BYTES,
    MOST_PLACES, Mirror, NEWEST, OLDEST, Owner, Preserve, Suffix, Symlinks,
    fields::{array, flag, text},
    fuzz_messages,
};

fn a_name() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![b'a'..=b'z', 0x80u8..0xff], 1..12)
}

fn a_path() -> impl Strategy<Value = Vec<u8>> {
    vec(a_name(), 1..5).prop_map(|names| names.join(&b'/'))
}

fn an_entry() -> impl Strategy<Value = Entry> {
    let meta = (0u16..0o7777, -(1i64 << 40)..1 << 40, 0u32..1_000_000_000);
    let facts = prop::option::of(some_facts().prop_map(Box::new));
    let stripe = prop::option::of((0u32..9_000, 0u64..1 << 20));
    let more = (facts, stripe);
    (a_path(), meta, 0u64..1 << 60, 0..4u8, a_name(), more).prop_map(
        |(path, (mode, mtime, mtime_nanos), size, kind, target, (facts, stripe))| {
            let file = kind == 0;
            let entry = Entry {
                kind: [Kind::File, Kind::Dir, Kind::Symlink, Kind::HardLink][usize::from(kind)],
                path,
                mode,
                mtime,
                mtime_nanos,
                size: if file { size } else { 0 },
                allocated: if file { size / 2 } else { 0 },
                target: if kind >= 2 { target } else { Vec::new() },
                facts,
                stripe: None,
            };
            match stripe.filter(|_| file) {
                Some((index, blocks)) => entry.striped(index, blocks),
                None => entry,
            }
        },
    )
}

fn some_facts() -> impl Strategy<Value = Facts> {
    let owner = (0u32..u32::MAX, 0u32..u32::MAX, a_name(), a_name());
    let owner = prop::option::of(owner.prop_map(|(uid, gid, user, group)| Owner {
        uid,
        gid,
        user,
        group,
    }));
    let attributes = vec((a_name(), vec(any::<u8>(), 0..9)), 0..4);
    (owner, attributes, any::<bool>()).prop_map(|(owner, attributes, linked)| Facts {
        owner,
        attributes,
        linked,
    })
}

fn a_mirror() -> impl Strategy<Value = Mirror> {
    let delete = (prop::option::of(0u64..1 << 40), any::<bool>());
    let delete = prop::option::of(delete.prop_map(|(most, excluded)| Delete { most, excluded }));
    let suffix = prop::option::of("[a-z~.]{1,9}".prop_map(|s| Suffix::new(s.as_bytes()).unwrap()));
    let symlinks = prop::sample::select(&Symlinks::ALL[..]);
    (0u8..32, delete, suffix, any::<bool>(), symlinks).prop_map(
        |(bits, delete, backup, whole_file, symlinks)| Mirror {
            preserve: Preserve::from_bits(bits).unwrap(),
            delete,
            backup,
            whole_file,
            symlinks,
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
    vec(0u64..1 << 61, 6).prop_map(|v| Tally {
        files_ok: v[0],
        files_skipped: v[1],
        files_failed: v[2],
        bytes: v[3],
        resumed: v[4],
        deleted: v[5],
    })
}

fn a_sending() -> impl Strategy<Value = Sending> {
    let held = prop::array::uniform5(0u64..1 << 60);
    let counts = prop::array::uniform4(0u64..1 << 60);
    (held, counts).prop_map(|(held_micros, [data, repaired, datagrams, lost])| Sending {
        held_micros,
        data,
        repaired,
        datagrams,
        lost,
    })
}

fn a_usage() -> impl Strategy<Value = Usage> {
    (0u64..1 << 60, 0u64..1 << 60).prop_map(|(cpu_micros, max_rss)| Usage {
        cpu_micros,
        max_rss,
    })
}

fn an_ask() -> impl Strategy<Value = RequestOptions> {
    let flag = any::<bool>;
    let flags = (flag(), flag(), flag(), flag(), flag());
    let choices = (0usize..3, 0usize..3, 0u64..1 << 60);
    let patterns = ("[a-z*\\n]{0,20}", "[a-z]{0,9}", 0u64..9);
    (flags, choices, patterns, a_mirror()).prop_map(
        |(
            (one_file, dry, checksum, verify_disk, pipe),
            (existing, sharing, rate),
            (exclude, include, least),
            mirror,
        )| RequestOptions {
            one_file,
            dry,
            checksum,
            verify_disk,
            existing: [Existing::Replace, Existing::Keep, Existing::KeepNewer][existing],
            max_rate: (rate > 0).then(|| Rate::from_bps(rate)),
            sharing: Sharing::ALL[sharing],
            spec: FilterSpec {
                exclude,
                include,
                least,
                ..FilterSpec::default()
            },
            mirror,
            pipe,
        },
    )
}

fn a_request() -> impl Strategy<Value = Message> {
    let places = (a_place(), vec(a_place(), 0..9));
    (an_ask(), any::<[u8; 8]>(), places).prop_map(|(options, tag, (first, more))| {
        let direction = if options.one_file || !more.is_empty() {
            Direction::Get
        } else {
            Direction::Put
        };
        let mut places = vec![first];
        places.extend(more);
        Message::Request {
            version: OLDEST,
            direction,
            tag,
            places,
            options: Box::new(options),
        }
    })
}

fn a_place() -> impl Strategy<Value = Place> {
    let path = prop_oneof![a_path(), Just(Vec::new())];
    (a_name(), path).prop_map(|(share, path)| Place { share, path })
}

fn a_message() -> impl Strategy<Value = Message> {
    let n = 0u64..1 << 60;
    let hashes = vec(any::<[u8; 32]>(), 0..9);
    let code = prop_oneof![Just(Exit::Ok), Just(Exit::NoSpace), Just(Exit::INTERRUPTED)];
    prop_oneof![
        a_request(),
        any::<u16>()
            .prop_filter("a stranger's", |version| !(OLDEST..=NEWEST)
                .contains(version))
            .prop_map(|version| Message::Stranger { version }),
        (any::<u16>(), any::<bool>())
            .prop_map(|(version, one_file)| Message::Accepted { version, one_file }),
        (Just(Exit::NoSpace), a_path(), a_path()).prop_map(|(code, text, fix)| Message::Refused {
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
        (
            n.clone(),
            Just(Exit::SourceChanged),
            any::<bool>(),
            a_name()
        )
            .prop_map(|(file, code, again, text)| {
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
        (n.clone(), a_tally()).prop_map(|(resolved, tally)| Message::Report { resolved, tally }),
        (a_tally(), a_usage()).prop_map(|(tally, usage)| Message::Finished { tally, usage }),
        (a_usage(), a_sending()).prop_map(|(usage, sending)| Message::Bye { usage, sending }),
        (0u64..1 << 60, vec(0u8..8, 0..50)).prop_map(|(first, actions)| {
            let action = |n| Action::from_number(n).unwrap();
            let actions = actions.into_iter().map(action).collect();
            Message::Verdicts { first, actions }
        }),
        vec(a_path(), 0..20).prop_map(|paths| Message::Excluded { paths }),
        vec(a_path(), 0..20).prop_map(|paths| Message::Kept { paths }),
        vec(a_path(), 0..20).prop_map(|paths| Message::Deletions { paths }),
        prop_oneof![of_files(), of_lanes(), of_probes(), of_reads()],
    ]
}

/// Strategy for messages that features add for one file.
fn of_files() -> impl Strategy<Value = Message> {
    let n = 0u64..1 << 60;
    prop_oneof![
        (n.clone(), n.clone()).prop_map(|(file, size)| Message::Grown { file, size }),
        (n.clone(), n.clone()).prop_map(|(file, upto)| Message::Taken { file, upto }),
        (n, any::<[u8; 8]>(), any::<bool>()).prop_map(|(file, generation, whole)| {
            Message::Collected {
                file,
                generation,
                whole,
            }
        }),
    ]
}

fn a_change() -> impl Strategy<Value = Change> {
    let flag = any::<bool>();
    let to = || (a_name(), any::<bool>());
    prop_oneof![
        Just(Change::Remove),
        Just(Change::RemoveFolder),
        flag.prop_map(|parents| Change::MakeFolder { parents }),
        to().prop_map(|(to, replace)| Change::Move { to, replace }),
        to().prop_map(|(to, replace)| Change::Copy { to, replace }),
    ]
}

fn of_reads() -> impl Strategy<Value = Message> {
    let (id, n) = (1..=LAST_ID, 0u64..1 << 60);
    prop_oneof![
        Just(Message::WantReads),
        Just(Message::Reads),
        (id.clone(), a_place(), a_change()).prop_map(|(id, place, change)| Message::Change {
            id,
            place,
            change
        }),
        (id.clone(), any::<bool>()).prop_map(|(id, more)| Message::Changed { id, more }),
        (id.clone(), a_place()).prop_map(|(id, place)| Message::List { id, place }),
        (id.clone(), a_place()).prop_map(|(id, place)| Message::Stat { id, place }),
        (id.clone(), a_place(), n.clone(), n.clone()).prop_map(|(id, place, offset, len)| {
            Message::Read {
                id,
                place,
                offset,
                len,
            }
        }),
        id.clone().prop_map(|id| Message::Release { id }),
        (id.clone(), any::<bool>(), vec(an_entry(), 0..9))
            .prop_map(|(id, more, entries)| Message::Found { id, more, entries }),
        (id.clone(), n, any::<[u8; 32]>(), any::<[u8; 8]>()).prop_map(
            |(id, len, hash, version)| Message::ReadEnd {
                id,
                len,
                hash,
                version,
            }
        ),
        (id, a_name()).prop_map(|(id, text)| Message::Unanswered {
            id,
            code: Exit::Partial,
            text,
        }),
    ]
}

fn of_probes() -> impl Strategy<Value = Message> {
    let n = 0u64..1 << 60;
    prop_oneof![
        (n.clone(), any::<bool>()).prop_map(|(millis, fetch)| Message::WantProbe { millis, fetch }),
        (n.clone(), n.clone()).prop_map(|(millis, bps)| Message::Probe { millis, bps }),
        a_name().prop_map(|share| Message::WantDisk { share }),
        (n.clone(), n.clone(), n).prop_map(|(bytes, write_bps, read_bps)| Message::Disk {
            bytes,
            write_bps,
            read_bps,
        }),
        Just(Message::WantShares),
        vec((a_name(), 0usize..4), 0..50).prop_map(|shares| {
            let all = ["ro", "wo", "create", "rw"].map(|word| Access::parse(word).unwrap());
            let share = |(name, i): (Vec<u8>, usize)| Shared {
                name,
                access: all[i],
            };
            Message::Shares(shares.into_iter().map(share).collect())
        }),
    ]
}

fn of_lanes() -> impl Strategy<Value = Message> {
    let token = prop::array::uniform16(any::<u8>());
    let lanes = 1..=MOST_LANES;
    prop_oneof![
        (lanes.clone(), any::<bool>())
            .prop_map(|(lanes, chosen)| Message::WantLanes { lanes, chosen }),
        (token, lanes).prop_map(|(token, lanes)| Message::Lanes { token, lanes }),
        token.prop_map(|token| Message::Join { token }),
        Just(Message::Joined),
        some_ranges().prop_map(|ranges| Message::Got { ranges }),
    ]
}

#[test]
fn a_copy_has_from_one_lane_to_the_most() {
    for lanes in [0, MOST_LANES + 1, u32::MAX] {
        let (mut scratch, mut wire) = (Vec::new(), Vec::new());
        let message = Message::WantLanes {
            lanes,
            chosen: true,
        };
        message.encode(&mut scratch, &mut wire);
        assert!(Message::decode(&scratch).is_err(), "{lanes}");
    }
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
    fn any_list_of_places_never_panics(list in vec(prop_oneof![0u8..5, any::<u8>()], 0..99)) {
        let head = [&[1, 3, 1][..], b"01234567"].concat();
        let (mut body, mut wire) = (head, Vec::new());
        Out(&mut body).prefixed(&list);
        Out(&mut body).prefixed(b"");
        RequestOptions::default().encode(&mut Out(&mut body));
        Out(&mut wire).prefixed(&body);
        let places = Place::decode(&mut Reader::new(&body[11..]));
        prop_assert!(places.is_err() || decode(&wire).unwrap().is_some());
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
    assert!(decode(&[4, 3, 15, 0, 0]).is_ok());
    assert!(decode(&[5, 9, 0, 15, 0, 0]).is_ok());
    for frame in [&[4, 3, 0, 0, 0][..], &[5, 9, 0, 0, 0, 0]] {
        assert_eq!(
            decode(frame),
            Err(DecodeError::Malformed("failure without a reason"))
        );
    }
    let mut warning = vec![12, 9];
    warning.extend_from_slice(&[0xff; 8]);
    warning.extend_from_slice(&[0, 0, 0]);
    assert!(decode(&warning).is_ok(), "of what was never listed");
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

/// The frame of a request.
fn frame(direction: Direction, places: &[(&str, &str)]) -> Vec<u8> {
    let place = |(share, path): &(&str, &str)| Place {
        share: share.as_bytes().to_vec(),
        path: path.as_bytes().to_vec(),
    };
    let request = Message::Request {
        version: OLDEST,
        direction,
        tag: *b"01234567",
        places: places.iter().map(place).collect(),
        options: Box::default(),
    };
    let mut wire = Vec::new();
    request.encode(&mut Vec::new(), &mut wire);
    wire
}

#[test]
fn a_request_is_encoded_like_this() {
    let golden = [
        &[43][..],           // length
        &[1, 6, 1],          // request, version, get
        b"01234567",         // tag
        &[12],               // bytes of the list
        &[1, b'a', 1, b'x'], // place: share, path
        &[2, b'b', b'b', 4], // place: share, length of the path
        b"d/e/",             //
        &[0],                // once a path
        &[0, 0, 1, 0, 0, 0], // wishes: flags, rate, policy, exclude, include, least
        &[0xff; 8],          // most: 2^62 - 1
        &[0; 4],             // preserved, deleted, how many, suffix
    ]
    .concat();
    assert_eq!(frame(Direction::Get, &[("a", "x"), ("bb", "d/e/")]), golden);
}

#[test]
fn versions_before_3_read_enough_to_refuse() {
    let wire = frame(Direction::Get, &[("a", "x"), ("b", "")]);
    let mut r = Reader::new(&wire[2..]);
    let version = r.varint().unwrap();
    let (_get, _tag) = (flag(&mut r).unwrap(), array::<8>(&mut r).unwrap());
    let (_share, path) = (text(&mut r).unwrap(), text(&mut r).unwrap());
    RequestOptions::decode(&mut r).unwrap();
    assert_eq!(
        (version, path.len(), r.rest().len()),
        (u64::from(OLDEST), 0, 0)
    );
    // What they ask for is not looked at.
    let theirs = [1, 2, 7, 7, 7];
    assert_eq!(
        Message::decode(&theirs),
        Ok(Message::Stranger { version: 2 })
    );
}

#[test]
fn lists_of_places_are_bounded() {
    let many = |n: usize, path| vec![("s", path); n];
    let decoded = |places: &[(&str, &str)]| {
        let direction = if places.len() == 1 {
            Direction::Put
        } else {
            Direction::Get
        };
        decode(&frame(direction, places)).map(|_| ())
    };
    let long = "x".repeat(MOST_PLACE_BYTES / 2);
    assert_eq!(decoded(&many(MOST_PLACES, "p")), Ok(()));
    for (lie, places) in [
        ("number of places", many(MOST_PLACES + 1, "p")),
        ("list of places", many(2, &long)),
        ("list of places", Vec::new()),
    ] {
        assert_eq!(decoded(&places), Err(DecodeError::Malformed(lie)));
        let place = |_| Place {
            share: b"s".to_vec(),
            path: places[0].1.into(),
        };
        let excess = Place::excess(&(0..places.len()).map(place).collect::<Vec<_>>());
        assert_eq!(excess.is_some(), !places.is_empty(), "{excess:?}");
    }
    assert_eq!(
        decode(&frame(Direction::Put, &[("s", "a"), ("s", "b")])),
        Err(DecodeError::Malformed("places of a delivery"))
    );
    // A share that would go on behind the list, and a path where there is none any more.
    for (at, lie) in [
        (13, DecodeError::Truncated),
        (17, DecodeError::Malformed("list of places")),
    ] {
        let mut wire = frame(Direction::Put, &[("s", "p")]);
        wire[at] += 1;
        assert_eq!(decode(&wire), Err(lie), "{at}");
    }
}
