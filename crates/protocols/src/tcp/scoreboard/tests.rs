use proptest::prelude::*;

use super::*;

fn segment(seq: u64, len: u32) -> Segment {
    Segment {
        seq,
        len,
        object: 0,
        offset: seq,
        serial: 0,
        sent_bytes: 0,
        facts: TxSnapshot::default(),
        sends: 1,
        fate: Fate::InFlight,
        doubled: false,
    }
}

/// Sums what the invariants promise.
fn check(board: &Scoreboard, twin: &[(bool, bool)]) {
    let live = (board.base..board.end()).map(|i| board.get(i).unwrap());
    let flight: u64 = live
        .clone()
        .filter(|s| s.fate == Fate::InFlight)
        .map(|s| s.wire() * if s.doubled { 2 } else { 1 })
        .sum();
    assert_eq!(board.in_flight(), flight);
    let highest =
        (twin.iter().rposition(|(sacked, _)| !sacked)).filter(|at| *at as u64 >= board.una());
    let found = board.highest_unsacked().map(|i| board.get(i).unwrap());
    assert_eq!(found.is_some(), highest.is_some());
    if let Some((found, highest)) = found.zip(highest) {
        assert!((found.seq..found.end()).contains(&(highest as u64)));
    }
    for s in live {
        let covered = twin[usize::try_from(s.seq).unwrap()..usize::try_from(s.end()).unwrap()]
            .iter()
            .all(|(sacked, _)| *sacked);
        assert_eq!(s.fate == Fate::Sacked, covered, "{s:?}");
    }
}

proptest! {
    #[test]
    fn equals_a_naive_scoreboard(
        ops in proptest::collection::vec((0_u8..5, 0_u64..400, 1_u64..120), 1..80),
    ) {
        let mut board = Scoreboard::default();
        // Per sequence number: selectively acknowledged, seen as arrived.
        let mut twin: Vec<(bool, bool)> = Vec::new();
        for (op, at, len) in ops {
            let una = board.una();
            match op {
                0 => {
                    board.push(segment(board.nxt(), u32::try_from(len).unwrap()));
                    twin.resize(usize::try_from(board.nxt()).unwrap(), (false, false));
                }
                1 => {
                    let start = (una + at).min(board.nxt());
                    let end = (start + len).min(board.nxt());
                    twin[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()]
                        .iter_mut()
                        .for_each(|b| b.0 = true);
                    if start < end {
                        board.sack(start..end, |s| assert!(s.fate != Fate::Sacked));
                    }
                }
                2 => {
                    let ack = (una + at % 90).min(board.nxt());
                    board.acknowledge(ack, |_| {});
                    prop_assert_eq!(board.una(), ack);
                }
                3 => {
                    let index = board.base() + at % 8;
                    if board.get(index).is_some_and(|s| s.fate != Fate::Sacked) {
                        board.resent(index, 1, 1, TxSnapshot::default());
                        board.double(index);
                    }
                    if at % 3 == 0 {
                        board.settle(index);
                    }
                }
                _ => {
                    let index = board.base() + at % 8;
                    if board.lose(index).is_some() && at % 2 == 0 {
                        board.find(index);
                    }
                }
            }
            check(&board, &twin);
        }
    }

    #[test]
    fn splitting_changes_no_byte(lens in proptest::collection::vec(1_u32..300, 1..20), len in 1_u32..200) {
        let mut board = Scoreboard::default();
        for n in lens {
            board.push(segment(board.nxt(), n));
        }
        let end = board.nxt();
        board.sack(0..end / 3 + 1, |_| {});
        board.split(len);
        let mut at = 0;
        for i in board.base()..board.end() {
            let s = board.get(i).unwrap();
            prop_assert_eq!((s.seq, s.offset), (at, at));
            prop_assert!(s.len <= len);
            at = s.end();
        }
        prop_assert_eq!(at, end);
    }
}

#[test]
fn overtaken_is_by_bytes_above() {
    let mut board = Scoreboard::default();
    for i in 0..10 {
        board.push(segment(i * 100, 100));
    }
    board.sack(300..400, |_| {});
    board.sack(600..800, |_| {});
    assert_eq!(board.overtaken_by(200), Some(300));
    assert_eq!(board.overtaken_by(300), None);
    assert_eq!(board.highest_sacked(), Some(800));
    assert_eq!(board.sacked_segments(), 3);
}

#[test]
fn news_below_the_highest_block_are_searched_from_the_first_segment_on() {
    let mut board = Scoreboard::default();
    for i in 0..10 {
        board.push(segment(i * 100, 100));
    }
    let known = 300..400;
    assert_eq!(board.scanned(&[known.clone(), 0..0]), 0, "the highest");
    board.sack(known.clone(), |_| ());
    board.sack(700..800, |_| ());
    assert_eq!(board.scanned(&[known.clone(), 700..900]), 0, "it grew");
    assert_eq!(board.scanned(&[known.clone(), 700..800]), 0, "known");
    assert_eq!(board.scanned(&[300..500, 700..800]), 4);
    assert_eq!(board.scanned(&[100..200, 500..600]), 5);
    board.acknowledge(200, |_| ());
    assert_eq!(board.scanned(&[500..600, known]), 3);
}
