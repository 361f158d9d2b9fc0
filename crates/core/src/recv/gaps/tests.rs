//! Tests that each missing packet is reported when it should be.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const PAUSE: Duration = Duration::from_millis(30);

#[test]
fn gaps_that_were_filled_unreported_are_forgotten() {
    let mut gaps = Gaps::new(0);
    for pair in 0..100_000 {
        assert!(gaps.on_packet(2 * pair + 1) && gaps.on_packet(2 * pair));
    }
    assert!(gaps.fresh.len() <= SPARE + 3, "{}", gaps.fresh.len());
    assert!(gaps.is_complete());
}

/// One gap that is reported packet by packet, and not filled: packets behind it stay cheap.
#[test]
fn a_gap_told_of_in_pieces_is_not_looked_through_again_and_again() {
    let mut gaps = Gaps::new(0);
    gaps.on_packet(50_000);
    let now = Instant::EPOCH;
    while gaps.next_report(now, Some(PAUSE), 1).is_some() {}
    let mut sweeps = 0;
    for number in 25_001..50_000 {
        let before = gaps.sweep_at;
        gaps.on_packet(2 * number);
        sweeps += u32::from(gaps.sweep_at != before);
    }
    assert!(sweeps <= 2, "{sweeps}");
}

/// Missing packets of `gap`, run by run.
fn runs(missing: &BTreeSet<u64>, gap: &[u64]) -> Vec<Vec<u64>> {
    let open: Vec<u64> = gap
        .iter()
        .copied()
        .filter(|n| missing.contains(n))
        .collect();
    let runs = open.chunk_by(|a, b| a + 1 == *b);
    runs.map(<[u64]>::to_vec).collect()
}

proptest! {
    /// A naive receiver knows what came. It reports each missing packet at once, and again after
    /// each pause for as long as the packet is missing.
    #[test]
    fn every_missing_packet_is_told_of_in_time(
        steps in proptest::collection::vec((0_u64..60, 0_u8..6), 1..300),
        most in prop_oneof![1_u64..5, Just(u64::MAX)],
    ) {
        let (mut gaps, mut came, mut end) = (Gaps::new(100), BTreeSet::new(), 100_u64);
        let mut told: Vec<(u64, Instant)> = Vec::new();
        for (i, (x, op)) in steps.into_iter().enumerate() {
            let now = Instant::from_nanos(10_000_000 * i as u64);
            let number = (end + 5).saturating_sub(x).max(100);
            match op {
                0 => {
                    gaps.give_up(number..number + 4);
                    came.extend((number..number + 4).filter(|n| *n < end));
                }
                1 => {
                    gaps.miss_below(number);
                    end = end.max(number);
                }
                _ => {
                    let window = 7;
                    let beyond = number >= gaps.prefix() + window;
                    let expected = match came.contains(&number) {
                        _ if beyond => Arrival::Beyond,
                        true => Arrival::Again,
                        false => Arrival::New,
                    };
                    prop_assert_eq!(gaps.sees(number, window), expected);
                    prop_assert_eq!(gaps.on_packet(number), came.insert(number));
                    end = end.max(number + 1);
                }
            }
            let missing: Vec<u64> = (100..end).filter(|n| !came.contains(n)).collect();
            prop_assert_eq!(gaps.prefix(), missing.first().copied().unwrap_or(end));
            prop_assert_eq!(gaps.is_complete(), missing.is_empty());
            prop_assert_eq!(gaps.next(), end);
            prop_assert_eq!(gaps.missing(), missing.len() as u64);
            let ahead = came.range(gaps.prefix()..).copied();
            prop_assert!(gaps.ahead().flatten().eq(ahead));
            gaps.forget_oldest_filled();
            let mut fresh = true;
            while let Some(part) = gaps.next_report(now, (!fresh).then_some(PAUSE), most) {
                prop_assert!(part.end - part.start <= most);
                let again = part.clone().filter(|n| told.iter().any(|(m, _)| m == n)).count();
                prop_assert!(!fresh || again == 0);
                told.extend(part.map(|n| (n, now)));
                fresh &= gaps.has_fresh();
            }
            while let Some(part) = gaps.next_report(now, Some(PAUSE), most) {
                told.extend(part.map(|n| (n, now)));
            }
            prop_assert!(!gaps.has_fresh());
            for n in missing {
                let last = told.iter().rev().find(|(m, _)| *m == n).map(|(_, at)| *at);
                prop_assert!(last.is_some_and(|at| now.since(at) < PAUSE), "{n} at {now:?}");
            }
        }
    }

    /// A naive receiver keeps its gaps, and those reported, number by number.
    #[test]
    fn a_report_is_of_one_new_gap_or_of_all_that_are_due(
        steps in proptest::collection::vec((0_u64..40, 0_u64..20), 1..120),
    ) {
        let (mut gaps, mut missing, mut end) = (Gaps::new(0), BTreeSet::new(), 0_u64);
        let mut fresh: VecDeque<Vec<u64>> = VecDeque::new();
        let mut told: VecDeque<(Instant, Vec<u64>)> = VecDeque::new();
        for (i, (x, most)) in steps.into_iter().enumerate() {
            let now = Instant::from_nanos(4_000_000 * i as u64);
            let number = (end + 12).saturating_sub(x);
            gaps.on_packet(number);
            if number < end {
                missing.remove(&number);
            } else {
                missing.extend(end..number);
                fresh.extend((number > end).then(|| (end..number).collect()));
                end = number + 1;
            }
            let mut room = usize::try_from(most).unwrap();
            if room == 0 && fresh.is_empty() {
                while let Some((_, gap)) = told.pop_front_if(|(at, _)| *at + PAUSE <= now) {
                    fresh.extend(runs(&missing, &gap));
                }
            }
            let mut said: Vec<Vec<u64>> = Vec::new();
            while room > 0 {
                let first = said.is_empty();
                let new = fresh.pop_front_if(|_| first);
                let due = |told: &mut VecDeque<(Instant, Vec<u64>)>| {
                    told.pop_front_if(|(at, _)| *at + PAUSE <= now)
                };
                let is_new = new.is_some();
                let Some(gap) = new.or_else(|| due(&mut told).map(|(_, gap)| gap)) else {
                    break;
                };
                let mut open: Vec<u64> = runs(&missing, &gap).concat();
                open.truncate(room);
                room -= open.len();
                said.extend(runs(&missing, &open));
                let behind = |n: &u64| room == 0 && open.last().is_some_and(|last| n > last);
                let rest: Vec<u64> = gap.into_iter().filter(behind).collect();
                match rest {
                    rest if rest.is_empty() => {}
                    rest if is_new => fresh.push_front(rest),
                    rest => told.push_front((now.earlier_by(PAUSE), rest)),
                }
                if is_new && !said.is_empty() {
                    break;
                }
            }
            told.extend(said.iter().map(|run| (now, run.clone())));
            let report = gaps.report(now, PAUSE, most);
            let report: Vec<Vec<u64>> = report.into_iter().map(Iterator::collect).collect();
            prop_assert_eq!(report, said);
        }
    }
}
