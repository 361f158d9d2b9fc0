use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    datagram::Ecn,
    layout::{Layout, Run},
    pull::Offer,
};

const ANSWER_TIMEOUT: Duration = Duration::from_millis(30);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn new(units: u64) -> Fetch {
    let mut layout = Layout::new(10);
    let len = units * 10;
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len
    }));
    let mut transit = Fetch::default();
    let offer = Offer { first: 0, layout };
    transit.on_offer(at(0), offer).unwrap();
    transit
}

fn come(
    transit: &mut Fetch,
    now: Instant,
    number: u64,
) -> Result<(Arrival, Option<Duration>), DecodeError> {
    let bytes = [&number.to_be_bytes()[..], &[7; 10]].concat();
    let datagram = Incoming {
        kind: 0,
        bytes: &bytes,
        at: 0,
        wire: 18,
        ecn: Ecn::NotEct,
    };
    transit.on_answer(now, &datagram, &mut Vec::new())
}

#[test]
fn what_is_believed_lost_leaves_the_window_and_is_asked_for_first() {
    let mut transit = new(100);
    assert_eq!(transit.ask(at(0), 4), Some(0..4));
    assert_eq!(transit.ask(at(1), 4), Some(4..8));
    let answered = Ok((Arrival::New, Some(Duration::from_millis(9))));
    assert_eq!(come(&mut transit, at(9), 0), answered);
    assert_eq!(come(&mut transit, at(9), 2), Ok((Arrival::New, None)));
    assert!(
        come(&mut transit, at(9), 8).is_err(),
        "it was not asked for"
    );
    assert_eq!((transit.in_transit(), transit.asked_at()), (6, Some(at(0))));
    assert_eq!(transit.expire(at(29), ANSWER_TIMEOUT), 0);
    assert_eq!(
        transit.expire(at(30), ANSWER_TIMEOUT),
        2,
        "two runs of one unit"
    );
    assert_eq!((transit.in_transit(), transit.asked_at()), (4, Some(at(1))));
    assert_eq!(transit.ask(at(30), 9), Some(1..2));
    assert_eq!(transit.ask(at(30), 9), Some(3..4));
    assert_eq!(transit.ask(at(30), 9), Some(8..17), "the window moves on");
    assert_eq!(come(&mut transit, at(31), 1), Ok((Arrival::New, None)));
    assert_eq!(come(&mut transit, at(31), 1), Ok((Arrival::Again, None)));
    transit.on_cut(9).unwrap();
    assert_eq!((transit.in_transit(), transit.has_more()), (6, false));
    let rest = (3..9).map(|n| come(&mut transit, at(33), n).unwrap().0);
    assert!(rest.eq([Arrival::New; 6]) && transit.is_complete());
    assert_eq!((transit.finish(), transit.finish()), (Some(0), None));
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Asked(Instant),
    Lost,
    Here,
}

proptest! {
    /// A naive receiver keeps a state for each unit that was ever asked for.
    #[test]
    fn equals_a_naive_twin(
        units in 1_u64..150,
        ops in proptest::collection::vec((0_u8..8, 0_u64..150), 1..200),
    ) {
        let mut transit = new(units);
        let mut twin: BTreeMap<u64, Unit> = BTreeMap::new();
        for (i, (op, n)) in ops.into_iter().enumerate() {
            let now = at(10 * i as u64);
            let is_lost = |twin: &BTreeMap<u64, Unit>, n| twin.get(&n) == Some(&Unit::Lost);
            match op {
                0..3 => {
                    let most = n % 9;
                    let lost = twin.iter().find(|(_, unit)| **unit == Unit::Lost);
                    let start = lost.map_or(twin.len() as u64, |(n, _)| *n);
                    let again = lost.is_some();
                    let fits = |n: &u64| *n < start + most && *n < units && (!again || is_lost(&twin, *n));
                    let end = (start..units).take_while(fits).last().map_or(start, |n| n + 1);
                    let expected = (start < end).then_some(start..end);
                    prop_assert_eq!(transit.ask(now, most), expected);
                    twin.extend((start..end).map(|n| (n, Unit::Asked(now))));
                }
                3 => {
                    let late = |unit: &Unit| {
                        matches!(unit, Unit::Asked(at) if now.since(*at) >= ANSWER_TIMEOUT)
                    };
                    let some = twin.values().any(late);
                    prop_assert_eq!(transit.expire(now, ANSWER_TIMEOUT) > 0, some);
                    twin.values_mut().filter(|unit| late(unit)).for_each(|unit| *unit = Unit::Lost);
                }
                _ => {
                    let came = come(&mut transit, now, n).map(|(arrival, _)| arrival).ok();
                    let expected = twin.get(&n).map(|unit| match unit {
                        Unit::Here => Arrival::Again,
                        _ => Arrival::New,
                    });
                    prop_assert_eq!(came, expected);
                    twin.entry(n).and_modify(|unit| *unit = Unit::Here);
                }
            }
            let asked: Vec<Instant> = twin.values().filter_map(|unit| match unit {
                Unit::Asked(at) => Some(*at),
                _ => None,
            }).collect();
            prop_assert_eq!(transit.in_transit(), asked.len() as u64);
            prop_assert_eq!(transit.asked_at(), asked.iter().min().copied());
            let lost = twin.values().any(|unit| *unit == Unit::Lost);
            prop_assert_eq!(transit.has_more(), lost || (twin.len() as u64) < units);
        }
        let here = |unit: &Unit| *unit == Unit::Here;
        let all = twin.len() as u64 == units && twin.values().all(here);
        prop_assert_eq!(transit.is_complete(), all);
    }
}
