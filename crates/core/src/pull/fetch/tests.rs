use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    codec::Writer, datagram::Ecn, protocol::CloseReason, pull::Source, shell::Packet, stats::Why,
    units::Rate,
};

const PAYLOAD: u32 = 10;
const PAUSE: Duration = Duration::from_millis(30);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn new_source() -> Source {
    let mut source = Source::new(Rate::UNLIMITED, 0);
    source.set_payload(PAYLOAD);
    source
}

/// The next unit's number and bytes.
fn unit(source: &mut Source) -> Option<(u64, Vec<u8>)> {
    let (mut bytes, mut extents) = ([0; NUMBER], Vec::new());
    let mut packet = Packet::new(Writer::new(&mut bytes), 0, PAYLOAD, &mut extents);
    if !source.write(at(0), &mut packet) {
        return None;
    }
    let mut datagram = bytes.to_vec();
    datagram.resize(
        usize::try_from(extents.iter().map(|e| e.len).sum::<u32>()).unwrap() + NUMBER,
        7,
    );
    Some((u64::from_be_bytes(bytes), datagram))
}

fn come(fetch: &mut Fetch, bytes: &[u8], place: &mut Vec<Extent>) -> Result<Arrival, DecodeError> {
    let datagram = Incoming {
        kind: 0,
        bytes,
        at: 0,
        wire: 0,
        ecn: Ecn::NotEct,
    };
    fetch.on_unit(at(0), &datagram, place)
}

/// Ranges requested at `ms`, none believed lost in silence.
fn missing(fetch: &mut Fetch, ms: u64) -> Vec<(u64, u64)> {
    let ranges = fetch.missing(at(ms), (PAUSE, Duration::from_hours(1)), 9);
    ranges.into_iter().map(|r| (r.start, r.end)).collect()
}

/// Both ends with a file of `len` bytes, all requested.
fn begun(len: u64) -> (Source, Fetch) {
    let (mut source, mut fetch) = (new_source(), Fetch::default());
    source.push(1, 0, len);
    fetch
        .on_offer(at(0), source.announce(at(0)).unwrap().clone())
        .unwrap();
    source.ask_all(0).unwrap();
    (source, fetch)
}

#[test]
fn an_offer_that_is_not_answered_is_given_up() {
    let mut source = new_source();
    source.push(1, 0, 100);
    assert_eq!(source.deadline(), None);
    source.announce(at(1_000)).unwrap();
    assert_eq!(source.deadline(), Some((at(61_000), Why::Liveness)));
    source.on_timer(at(60_999));
    assert_eq!(source.failure(), None);
    let mut asked = source;
    asked.ask(&(0..3)).unwrap();
    assert!(asked.deadline().is_none_or(|(_, why)| why != Why::Liveness));
    assert!(asked.ask_all(0).is_err(), "it was answered");
    asked.on_timer(at(99_000));
    assert_eq!(asked.failure(), None);
    let mut waiting = new_source();
    waiting.push(1, 0, 100);
    waiting.announce(at(1_000)).unwrap();
    waiting.on_timer(at(61_000));
    assert!(matches!(waiting.failure(), Some(CloseReason::Lane(_))));
}

#[test]
fn repairs_go_first_and_are_asked_for_again_after_a_pause() {
    let (mut source, mut fetch) = begun(65);
    let mut place = Vec::new();
    for _ in 0..4 {
        let (number, bytes) = unit(&mut source).unwrap();
        if number != 1 {
            assert_eq!(come(&mut fetch, &bytes, &mut place), Ok(Arrival::New));
        }
    }
    assert_eq!((fetch.tally().missed, fetch.file()), (1, Some((0, 35))));
    assert_eq!(missing(&mut fetch, 0), [(1, 2)]);
    assert!(missing(&mut fetch, 29).is_empty());
    assert_eq!(missing(&mut fetch, 30), [(1, 2)]);
    source.ask(&(1..2)).unwrap();
    source.ask(&(1..2)).unwrap();
    let order: Vec<_> = std::iter::from_fn(|| unit(&mut source)).collect();
    let numbers: Vec<_> = order.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 4, 5, 6], "asked for twice, sent once");
    assert_eq!(order[3].1.len(), NUMBER + 5);
    assert!(source.on_done(7).is_err() && source.on_done(0).is_ok());
    assert!(source.is_idle());
}

#[test]
fn what_nobody_offered_or_sent_is_refused() {
    let (mut source, mut fetch) = begun(65);
    assert!(source.on_done(0).is_err(), "not all of it was sent");
    assert!(source.ask(&(6..8)).is_err() && source.ask_all(1).is_err());
    assert!(fetch.on_cut(7).is_err(), "nothing is cut");
    let mut place = Vec::new();
    let (_, mut bytes) = unit(&mut source).unwrap();
    assert!(
        come(&mut fetch, &bytes[..15], &mut place).is_err(),
        "length"
    );
    bytes[7] = 7;
    assert!(come(&mut fetch, &bytes, &mut place).is_err(), "number");
    assert!(come(&mut fetch, &[0; 7], &mut place).is_err());
    assert!(place.is_empty());
    let mut layout = crate::layout::Layout::new(PAYLOAD);
    assert!(layout.push(crate::layout::Run {
        object: 1,
        offset: 0,
        len: 5
    }));
    let offer = |first| Offer {
        first,
        layout: layout.clone(),
    };
    assert!(fetch.on_offer(at(0), offer(7)).is_err(), "one at a time");
    assert_eq!(fetch.finish(), Some(0));
    assert!(fetch.on_offer(at(0), offer(6)).is_err() && fetch.on_offer(at(0), offer(7)).is_ok());
    bytes[7] = 3;
    assert_eq!(
        come(&mut fetch, &bytes, &mut place),
        Ok(Arrival::Again),
        "late"
    );
    assert!(new_source().ask(&(0..1)).is_err());
}

#[test]
fn gaps_that_no_table_could_hold_are_not_made() {
    let mut layout = crate::layout::Layout::new(1);
    assert!(layout.push(crate::layout::Run {
        object: 1,
        offset: 0,
        len: 1 << 30
    }));
    let mut fetch = Fetch::default();
    fetch.on_offer(at(0), Offer { first: 0, layout }).unwrap();
    let mut place = Vec::new();
    for n in 0..200_000_u64 {
        let bytes = [&(2 * n + 1).to_be_bytes()[..], &[0]].concat();
        come(&mut fetch, &bytes, &mut place).unwrap();
    }
    assert_eq!(place.len(), MAX_GAPS);
    let first = [&0_u64.to_be_bytes()[..], &[0]].concat();
    assert_eq!(come(&mut fetch, &first, &mut place), Ok(Arrival::New));
}

fn data_sent(source: &Source) -> u64 {
    let mut stats = crate::stats::Stats::default();
    source.fill_stats(&mut stats);
    stats.data_sent
}

proptest! {
    /// A naive twin holds the bytes sent, one by one; units come late, twice or never.
    #[test]
    fn everything_that_left_arrives_once_through_any_loss(
        lens in proptest::collection::vec(1_u64..300, 1..4),
        fates in proptest::collection::vec(0_u8..8, 1..200),
        (cut, most) in (0_usize..80, 1_usize..5),
    ) {
        let (mut source, mut fetch) = (new_source(), Fetch::default());
        let (mut wanted, mut came, mut late) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let (mut now, mut sent, mut fates) = (0, 0, fates.into_iter());
        for len in lens {
            let (from, before) = (now * 1_000, data_sent(&source));
            source.push(1, from, len);
            let offer = source.announce(at(0)).unwrap().clone();
            let first = offer.first;
            fetch.on_offer(at(0), offer).unwrap();
            source.ask_all(first).unwrap();
            while !fetch.is_complete() {
                now += 31;
                prop_assert!(now < 100_000, "it ends");
                let mut place = Vec::new();
                while let Some((_, bytes)) = unit(&mut source) {
                    sent += 1;
                    match fates.next().unwrap_or(0) {
                        0..4 => _ = come(&mut fetch, &bytes, &mut place).unwrap(),
                        4 => late.push(bytes),
                        5 => for _ in 0..2 {
                            come(&mut fetch, &bytes, &mut place).unwrap();
                        },
                        _ => {}
                    }
                    if sent == cut {
                        source.cancel_unsent();
                        prop_assert_eq!(source.unsent(), 0);
                        if let Some(end) = source.take_cut() {
                            fetch.on_cut(end).unwrap();
                        }
                    }
                }
                for bytes in late.drain(..) {
                    come(&mut fetch, &bytes, &mut place).unwrap();
                }
                for extent in place {
                    for byte in extent.offset..extent.end() {
                        prop_assert!(came.insert(byte), "placed once");
                    }
                }
                for range in fetch.missing(at(now), (PAUSE, Duration::ZERO), most) {
                    source.ask(&range).unwrap();
                }
            }
            wanted.extend(from..from + data_sent(&source) - before);
            prop_assert_eq!(fetch.file(), Some((first, 0)), "nothing is left");
            prop_assert_eq!(fetch.finish(), Some(first));
            source.on_done(first).unwrap();
        }
        prop_assert!(source.is_idle());
        prop_assert_eq!(fetch.placed(), came.len() as u64);
        prop_assert_eq!(came, wanted);
    }
}
