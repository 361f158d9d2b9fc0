use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(20);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn group() -> Group {
    let group = Group::default();
    group.set_capacity(Rate::mbit(1_000));
    group
}

fn given(member: &Member, ms: u64) -> u64 {
    member.visit(at(ms), None).0.bps() / 1_000_000
}

#[test]
fn who_wants_little_gets_it_and_the_rest_is_shared() {
    let mbit = |rates: &[u64]| rates.iter().copied().map(Rate::mbit).collect::<Vec<_>>();
    let shared = |demands: &[u64]| shares(Rate::mbit(900), &mbit(demands));
    assert_eq!(shared(&[900, 900, 900]), mbit(&[300, 300, 300]));
    assert_eq!(shared(&[100, 900, 900]), mbit(&[100, 400, 400]));
    assert_eq!(shared(&[900, 350, 100]), mbit(&[450, 350, 100]));
    assert_eq!(
        shared(&[100, 200]),
        mbit(&[100, 200]),
        "nobody wants the rest"
    );
    assert_eq!(shared(&[]), mbit(&[]));
}

#[test]
fn a_newcomer_gets_what_others_were_told_to_leave_when_they_have() {
    let group = group();
    let first = group.join(RTT);
    assert_eq!(given(&first, 0), 1_000);
    let second = group.join(RTT);
    assert_eq!(given(&second, 10), 0, "the first has not been told");
    assert_eq!(given(&first, 40), 500);
    assert_eq!(given(&second, 59), 0, "what it sent before is on its way");
    assert_eq!(given(&second, 60), 500);
    drop(first);
    assert_eq!(given(&second, 61), 1_000, "at once");
}

#[test]
fn what_a_flow_cannot_use_goes_to_the_others() {
    let group = group();
    let (first, second) = (group.join(RTT), group.join(RTT));
    given(&first, 0);
    given(&first, 40);
    assert_eq!(given(&second, 60), 500);
    assert_eq!(
        second.visit(at(80), Some(Rate::mbit(100))).0,
        Rate::mbit(100)
    );
    assert_eq!(given(&first, 90), 500, "not yet");
    assert_eq!(given(&first, 100), 900);
    let little = second.visit(at(110), Some(Rate::mbit(104))).0;
    assert_eq!(little, Rate::mbit(100), "less than 5 % are no news");
}

#[test]
fn nobody_wants_less_than_the_least_or_more_than_there_is() {
    let group = group();
    let first = group.join(RTT);
    assert_eq!(first.visit(at(0), Some(Rate::ZERO)).0, LEAST_RATE);
    let all = first.visit(at(100), Some(Rate::UNLIMITED)).0;
    assert_eq!(all, Rate::mbit(1_000));
}

proptest! {
    /// Tests conservation, and the share that each flow can count on; and that nobody has more than
    /// another that wanted more.
    #[test]
    fn shares_are_max_min_fair(
        capacity in 1_u64..10_000_000_000,
        demands in proptest::collection::vec(0_u64..20_000_000_000, 1..40),
    ) {
        let rates: Vec<_> = demands.iter().copied().map(Rate::from_bps).collect();
        let shares: Vec<_> = shares(Rate::from_bps(capacity), &rates).iter().map(|s| s.bps()).collect();
        let n = demands.len() as u64;
        prop_assert!(shares.iter().sum::<u64>() <= capacity);
        for (share, demand) in shares.iter().zip(&demands) {
            prop_assert!(*share <= *demand);
            prop_assert!(*share >= capacity.div_euclid(n).min(*demand));
        }
        let most = shares.iter().max().copied().unwrap_or(0);
        let left = capacity - shares.iter().sum::<u64>();
        for (share, demand) in shares.iter().zip(&demands) {
            prop_assert!(share == demand || most - share < n, "who is not content has as much as anybody");
            prop_assert!(share == demand || left < n, "and nothing is left");
        }
    }

    /// Whenever flows join and however often each visits, each has its share a few visits of the slowest later.
    #[test]
    fn nobody_is_left_out(
        flows in proptest::collection::vec((0_u64..400, 1_u64..100), 2..6),
    ) {
        let group = group();
        let slowest = flows.iter().map(|(_, rtt)| *rtt).max().unwrap_or(1);
        let mut members: Vec<Option<Member>> = flows.iter().map(|_| None).collect();
        let mut last = vec![Rate::ZERO; flows.len()];
        for now in 0..400 + 12 * slowest {
            for (i, (start, rtt)) in flows.iter().enumerate() {
                if now >= *start && (now - start) % (2 * rtt) == 0 {
                    let rtt = Duration::from_millis(*rtt);
                    let member = members[i].get_or_insert_with(|| group.join(rtt));
                    last[i] = member.visit(at(now), None).0;
                }
            }
        }
        let equal = 1_000_000_000 / flows.len() as u64;
        for rate in &last {
            prop_assert!(rate.bps() >= equal * 99 / 100, "{last:?} {flows:?}");
        }
    }

    /// Flows come, visit and go in any order: the grants are never more than the capacity.
    #[test]
    fn nothing_is_given_twice(
        steps in proptest::collection::vec((0_u8..12, 0_usize..8, 0_u64..1_200), 1..200),
    ) {
        let (group, mut now) = (group(), 0);
        let mut members: Vec<(Member, Vec<(u64, u64)>)> = Vec::new();
        for (op, i, mbit) in steps {
            now += mbit % 30;
            match op {
                0..2 if members.len() < 8 => members.push((group.join(RTT), Vec::new())),
                2 if i < members.len() => _ = members.remove(i),
                _ if i < members.len() => {
                    let (member, sent) = &mut members[i];
                    let demand = (op < 6).then(|| Rate::mbit(mbit));
                    sent.push((now, member.visit(at(now), demand).0.bps()));
                }
                _ => {}
            }
            // A flow arrives at most at the highest rate that it was given in the last rtt and
            // before.
            let arriving: u64 = members.iter().map(|(_, sent)| {
                let recent = sent.iter().rposition(|(at, _)| *at + 20 <= now).unwrap_or(0);
                sent[recent.min(sent.len())..].iter().map(|(_, rate)| *rate).max().unwrap_or(0)
            }).sum();
            prop_assert!(arriving <= 1_000_000_000, "{arriving}");
        }
    }
}
