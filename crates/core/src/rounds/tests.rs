use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    layout::{Layout, Run},
    loss::Bitmap,
    rng::Rng,
    send::Permit,
    shell::{Machine, Packet},
    stats::Why,
    time::Instant,
    units::Rate,
};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Whatever was asked.
const ANY: Option<u32> = Some(u32::MAX);

/// Both ends with nothing between them but `loss`; how many packets left.
fn exchange(
    sender: &mut RoundSender,
    receiver: &mut RoundReceiver,
    rng: &mut Rng,
    loss: f64,
) -> u64 {
    let (mut now, mut left) = (0, 0);
    while !sender.is_idle() {
        now += 1;
        assert!(now < 10_000, "it ends");
        while let Some((first, layout)) = sender.announce() {
            receiver.on_block(first, layout.clone(), None).unwrap();
            sender.on_ready(first);
        }
        while let Some(Leaving {
            number, layout, n, ..
        }) = sender.next_packet()
        {
            left += 1;
            if !rng.chance(loss) {
                receiver.on_packet(number, layout.packet_len(n)).unwrap();
            }
        }
        while let Some((first, round, sent)) = sender.ask(at(1)) {
            receiver.on_question(at(now), first, round, sent).unwrap();
        }
        while let Some(report) = receiver.report(at(now)) {
            assert_eq!(sender.asked(report.first), Some(report.packets));
            sender.on_report(report.first, ANY, report.have).unwrap();
        }
    }
    left
}

#[test]
fn without_loss_each_packet_leaves_once_and_blocks_have_the_length_asked_for() {
    let (mut sender, mut receiver) = (RoundSender::new(1_000, 1), RoundReceiver::default());
    sender.set_payload(100);
    sender.push(1, 0, 2_050);
    let left = exchange(&mut sender, &mut receiver, &mut Rng::new(1), 0.0);
    assert_eq!(
        (left, sender.counts().rounds),
        (21, 3),
        "1,000, 1,000 and 50 bytes"
    );
    assert_eq!(sender.counts().acked, 2_050);
}

#[test]
fn a_block_waits_for_the_one_before_unless_more_may_be_on_their_way() {
    let blocks = |window| {
        let mut sender = RoundSender::new(200, window);
        sender.set_payload(100);
        sender.push(1, 0, 1_000);
        let mut blocks = 0;
        while let Some((first, _)) = sender.announce() {
            sender.on_ready(first);
            while sender.next_packet().is_some() {}
            blocks += u32::from(sender.ask(at(1)).is_some());
        }
        blocks
    };
    assert_eq!((blocks(1), blocks(3)), (1, 3));
}

#[test]
fn what_nobody_asked_for_or_announced_is_refused() {
    let mut sender = RoundSender::new(1_000, 1);
    sender.push(1, 0, 10);
    sender.announce().unwrap();
    sender.on_ready(0);
    sender.on_ready(5);
    assert!(
        sender.on_report(0, ANY, Bitmap::default()).is_err(),
        "not asked"
    );
    let mut receiver = RoundReceiver::default();
    let layout = |len| {
        let mut layout = Layout::new(10);
        assert!(layout.push(Run {
            object: 1,
            offset: 0,
            len
        }));
        layout
    };
    assert!(receiver.on_block(0, layout(0), None).is_err());
    assert!(
        receiver
            .on_block(0, layout(10 * (MAX_PACKETS + 1)), None)
            .is_err()
    );
    receiver.on_block(NUMBERS - 1, layout(20), None).unwrap();
    assert!(
        receiver.on_block(0, layout(10), None).is_err(),
        "its second packet has number 0"
    );
    assert!(receiver.on_block(NUMBERS - 2, layout(20), None).is_err());
    assert!(receiver.on_question(at(1), 7, 0, 1).is_err());
    receiver.on_question(at(1), NUMBERS - 1, 0, 2).unwrap();
    assert!(
        receiver.on_question(at(1), NUMBERS - 1, 0, 2).is_err(),
        "the same round"
    );
    assert!(matches!(receiver.on_packet(1, 10), Ok(Arrived::Stale)));
    assert!(receiver.on_packet(0, 11).is_err());
    for n in 1..100 {
        let _full = receiver.on_block(10 * n, layout(10), None);
    }
    assert!(receiver.blocks_kept() <= 2 * MAX_BLOCKS);
}

#[test]
fn a_round_is_judged_when_its_packets_are_there_or_the_grace_is_over() {
    let mut receiver = RoundReceiver::default();
    receiver.set_grace(Duration::from_millis(5));
    let mut layout = Layout::new(10);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len: 30
    }));
    receiver.on_block(0, layout, None).unwrap();
    receiver.on_packet(0, 10).unwrap();
    receiver.on_question(at(1), 0, 0, 2).unwrap();
    assert_eq!(receiver.due(), Some(at(6)));
    assert!(receiver.report(at(5)).is_none());
    receiver.on_packet(2, 10).unwrap();
    let report = receiver.report(at(5)).unwrap();
    assert_eq!((report.packets, report.count), (3, 2));
    assert!(!report.have.contains(1) && report.through == Some(0));
    assert!(receiver.due().is_none());
}

#[test]
fn what_the_question_overtakes_is_missing_in_the_first_round_alone() {
    let mut receiver = RoundReceiver::default();
    receiver.set_overtaken(2);
    let mut layout = Layout::new(10);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len: 35
    }));
    receiver.on_block(0, layout, None).unwrap();
    for (n, len) in [(0, 10), (1, 10), (2, 10), (3, 5)] {
        receiver.on_packet(n, len).unwrap();
    }
    receiver.on_question(at(1), 0, 0, 4).unwrap();
    let report = receiver.report(at(1)).unwrap();
    assert_eq!((report.packets, report.count), (4, 2));
    assert!(report.have.contains(1) && !report.have.contains(2));
    for (n, len) in [(2, 10), (3, 5)] {
        receiver.on_packet(n, len).unwrap();
    }
    receiver.on_question(at(2), 0, 1, 2).unwrap();
    assert_eq!(receiver.report(at(2)).unwrap().count, 4);
}

#[test]
fn silence_begins_when_the_receiver_is_asked_and_ends_with_what_it_has() {
    let mut sender = RoundSender::new(1_000, 1);
    sender.set_payload(100);
    sender.push(1, 0, 300);
    let (first, _) = sender.announce().unwrap();
    sender.on_ready(first);
    while sender.next_packet().is_some() {}
    assert_eq!(
        sender.silent_since(),
        None,
        "a round takes as long as it takes"
    );
    sender.ask(at(40_000)).unwrap();
    sender.on_report(first, ANY, Bitmap::default()).unwrap();
    while sender.next_packet().is_some() {}
    sender.ask(at(50_000)).unwrap();
    assert_eq!(sender.silent_since(), Some(at(40_000)));
    sender
        .on_report(first, ANY, Bitmap::from_bytes(&[2], 3))
        .unwrap();
    assert_eq!(sender.silent_since(), None);
}

#[test]
fn what_is_cancelled_within_a_block_need_not_arrive() {
    let (mut sender, mut receiver) = (RoundSender::new(1_000, 2), RoundReceiver::default());
    sender.set_payload(100);
    sender.push(1, 0, 5_000);
    let (first, layout) = sender.announce().unwrap();
    receiver.on_block(first, layout.clone(), None).unwrap();
    assert!(sender.next_packet().is_none(), "nobody waits for it");
    sender.on_ready(first);
    for _ in 0..3 {
        let number = sender.next_packet().unwrap().number;
        if number != 1 {
            receiver.on_packet(number, 100).unwrap();
        }
    }
    sender.cancel_unsent();
    assert_eq!(sender.unsent(), 0);
    exchange(&mut sender, &mut receiver, &mut Rng::new(1), 0.0);
    assert_eq!(sender.counts().acked, 300);
    assert_eq!(sender.take_cut(), Some(first));
    receiver.on_cut(first);
    assert_eq!(receiver.blocks_kept(), 0);
}

#[test]
fn rounds_of_a_few_packets_go_on_and_what_a_report_misses_goes_first_in_a_later_one() {
    let mut sender = RoundSender::new(10_000, 1).with_rounds(Rounds::Reported(4));
    sender.set_payload(100);
    sender.push(1, 0, 1_000);
    let (first, _) = sender.announce().unwrap();
    sender.on_ready(first);
    let take = |sender: &mut RoundSender, most| {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(leaving) = sender.next_packet()
        {
            taken.push((leaving.round, leaving.n));
        }
        taken
    };
    assert_eq!(
        take(&mut sender, 5),
        [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4)]
    );
    assert_eq!(sender.ask(at(1)), Some((0, 0, 4)));
    assert_eq!(sender.ask(at(1)), None, "the next is under way");
    let have = |packets: &[u64]| {
        let mut have = Bitmap::default();
        for n in packets {
            have.insert(*n);
        }
        have
    };
    assert!(
        sender.on_report(first, Some(0), have(&[7])).is_err(),
        "never sent"
    );
    let judged = sender.on_report(first, Some(0), have(&[0, 3, 4])).unwrap();
    assert_eq!((judged.sent, judged.missing, judged.serial), (4, 2, 0));
    assert!(
        sender.on_report(first, Some(0), have(&[0, 3, 4])).is_err(),
        "judged"
    );
    // Packet 2 arrives after all.
    sender.on_report(first, None, have(&[0, 2, 3, 4])).unwrap();
    let rest = [(1, 5), (1, 6), (1, 7), (2, 1), (2, 8), (2, 9)];
    assert_eq!(take(&mut sender, 99), rest);
    assert_eq!(
        sender.counts().in_flight,
        700,
        "five fresh, one again, and 4"
    );
    let all: Vec<u64> = (0..10).collect();
    sender.on_report(first, None, have(&all)).unwrap();
    assert!(sender.is_idle() && sender.ask(at(1)).is_none());
    assert_eq!(sender.counts().in_flight, 0);
}

/// With a search for each it would be 10^10 steps.
#[test]
fn rounds_of_one_packet_cost_no_more_than_others() {
    const PACKETS: u32 = 100_000;
    let mut sender = RoundSender::new(1 << 20, 1).with_rounds(Rounds::Reported(1));
    sender.set_payload(1);
    sender.push(1, 0, PACKETS.into());
    let (first, _) = sender.announce().unwrap();
    sender.on_ready(first);
    for round in 0..PACKETS {
        let n = sender.next_packet().map(|leaving| leaving.n);
        assert_eq!(n, Some(round.into()));
        assert_eq!(sender.ask(at(1)), Some((first, round, 1)));
    }
    let even = Bitmap::from_bytes(&[0x55; PACKETS as usize / 8], PACKETS.into());
    let judged = sender.on_report(first, ANY, even).unwrap();
    assert_eq!((judged.sent, judged.missing), (100_000, 50_000));
    for n in 0..PACKETS / 2 {
        let leaving = sender.next_packet().unwrap();
        assert_eq!(
            (leaving.n, leaving.round),
            ((2 * n + 1).into(), PACKETS + n)
        );
        assert!(sender.ask(at(2)).is_some());
    }
    sender.on_completed(first).unwrap();
    assert!(sender.is_idle());
}

#[test]
fn what_is_cancelled_when_all_that_left_has_arrived_is_over() {
    for rounds in [Rounds::Reported(2), Rounds::Unreported] {
        let mut sender = RoundSender::new(10_000, 1).with_rounds(rounds);
        sender.set_payload(100);
        sender.push(1, 0, 1_000);
        let (first, _) = sender.announce().unwrap();
        sender.on_ready(first);
        while sender.next_packet().is_some_and(|leaving| leaving.n < 3) {}
        sender
            .on_report(first, None, Bitmap::from_bytes(&[15], 4))
            .unwrap();
        assert_eq!(sender.unsent(), 600);
        sender.cancel_unsent();
        assert!(sender.is_idle());
        assert_eq!(sender.take_cut(), Some(first));
    }
}

/// Hears that the first block is waited for, or that nothing of it arrived.
#[derive(Default)]
struct Plain {
    /// Rate of a sender that waits in a loop.
    spins_at: Option<Rate>,
}

impl Style for Plain {
    const HEADER: usize = 4;
    const LANE: bool = true;

    fn sender(&self) -> RoundSender {
        RoundSender::new(1 << 20, 1)
    }

    fn number(bytes: &[u8]) -> Result<u32, DecodeError> {
        Reader::new(bytes).u32()
    }

    fn head(leaving: &Leaving<'_>, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(leaving.number)
    }

    fn rate(&self, _payload: u32) -> Rate {
        self.spins_at.unwrap_or(Rate::UNLIMITED)
    }

    fn spins(&self) -> bool {
        self.spins_at.is_some()
    }

    fn encode(&self, _message: RoundMessage<'_>, _into: &mut Vec<u8>) {}

    fn on_control(
        &mut self,
        _: Instant,
        ends: &mut Ends,
        bytes: &[u8],
    ) -> Result<usize, DecodeError> {
        if bytes == b"ready" {
            ends.sender.on_ready(0);
        } else {
            ends.sender.on_report(0, ANY, Bitmap::default())?;
        }
        Ok(bytes.len())
    }
}

/// A machine with `bytes` to send in packets of 10 bytes.
fn sending(style: Plain, now: Instant, bytes: u64) -> RoundMachine<Plain> {
    let mut machine = RoundMachine::new(style);
    machine.open(now, 14, Duration::ZERO);
    machine.send(1, 0, bytes);
    machine.poll_control(now, 99, &mut Vec::new());
    machine.on_control(now, b"ready").unwrap();
    machine
}

fn leaves(machine: &mut RoundMachine<Plain>, now: Instant) -> bool {
    let (mut bytes, mut extents) = ([0; 4], Vec::new());
    let mut packet = Packet::new(Writer::new(&mut bytes), 0, 10, &mut extents);
    machine.next_packet(now, &mut packet)
}

#[test]
fn a_sender_that_spins_looks_again_at_once_until_the_packet_is_due() {
    // 10 bytes each 10 us.
    let style = Plain {
        spins_at: Some(Rate::mbit(8)),
    };
    let start = at(1_000);
    let mut machine = sending(style, start, 20);
    assert!(matches!(machine.permit(start), Permit::Send { .. }));
    assert!(leaves(&mut machine, start));
    for us in [0, 3, 9] {
        let now = start + Duration::from_micros(us);
        assert_eq!(machine.permit(now), Permit::Hold(Why::Pacing));
        let at_once = now + Duration::from_nanos(1);
        assert_eq!(machine.deadline(), Some((at_once, Why::Pacing)));
    }
    let due = start + Duration::from_micros(10);
    assert!(matches!(machine.permit(due), Permit::Send { .. }));
    assert!(leaves(&mut machine, due));
    // A report is waited for without a loop.
    assert_eq!(machine.permit(due), Permit::Hold(Why::Peer));
    assert_eq!(machine.deadline(), None);
}

#[test]
fn after_rounds_of_which_nothing_arrives_it_rests_ever_longer() {
    let (mut now, mut messages) = (at(1_000), Vec::new());
    let mut machine = sending(Plain::default(), now, 2_000);
    for pause in [0, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
        if pause > 0 {
            assert_eq!(machine.permit(now), Permit::Hold(Why::Pacing));
            let until = now + Duration::from_millis(pause);
            assert_eq!(machine.deadline(), Some((until, Why::Pacing)));
            now = until;
        }
        assert!(matches!(machine.permit(now), Permit::Send { .. }));
        for _ in 0..200 {
            assert!(leaves(&mut machine, now));
        }
        assert_eq!(machine.permit(now), Permit::Hold(Why::Peer));
        machine.poll_control(now, 99, &mut messages);
        machine.on_control(now, b"nothing").unwrap();
    }
}

proptest! {
    /// Packets are lost and reports are late; a naive twin counts how often each packet left.
    #[test]
    fn no_packet_leaves_again_before_all_that_have_not_arrived_have(
        (packets, every) in (1_u64..200, 1_u64..50),
        (loss, late, seed) in (0.0..0.7, 0_usize..4, 0_u64..1_000),
    ) {
        let mut sender = RoundSender::new(1 << 20, 1).with_rounds(Rounds::Unreported);
        let mut receiver = RoundReceiver::default();
        sender.set_payload(10);
        sender.push(1, 0, 10 * packets);
        let (first, layout) = sender.announce().unwrap();
        receiver.on_block(first, layout.clone(), Some(every)).unwrap();
        sender.on_ready(first);
        let (mut rng, mut reports) = (Rng::new(seed), VecDeque::new());
        let mut times = vec![0_u64; usize::try_from(packets).unwrap()];
        let mut acked = Bitmap::default();
        let mut turns = 0;
        while !sender.is_idle() {
            turns += 1;
            prop_assert!(turns < 100_000);
            let leaving = sender.next_packet().unwrap();
            let (n, number) = (usize::try_from(leaving.n).unwrap(), leaving.number);
            let least = times.iter().enumerate().filter(|(i, _)| !acked.contains(*i as u64));
            let least = least.map(|(_, times)| *times).min().unwrap();
            prop_assert!(!acked.contains(leaving.n) && times[n] <= least);
            prop_assert_eq!(times[n], u64::from(leaving.round));
            times[n] += 1;
            if !rng.chance(loss) {
                receiver.on_packet(number, 10).unwrap();
            }
            reports.extend(receiver.report(at(turns)));
            if reports.len() > late || sender.has_packets() && receiver.blocks_kept() == 0 {
                let report = reports.pop_front().unwrap();
                prop_assert_eq!(report.through, None);
                acked = report.have.clone();
                sender.on_report(first, None, report.have).unwrap();
            }
        }
    }

    /// A naive twin holds the bytes that have to arrive, one by one.
    #[test]
    fn everything_arrives_through_any_loss(
        runs in proptest::collection::vec((0_u32..3, 0_u64..2_000, 0_u64..900), 1..12),
        (block, window, payload) in (50_u64..3_000, 1_usize..4, 10_u32..200),
        (loss, seed) in (0.0..0.7, 0_u64..1_000),
        (rounds, every) in prop_oneof![
            Just((Rounds::Reported(u64::MAX), None)),
            (1_u64..30, prop_oneof![Just(None), Just(Some(u64::MAX))])
                .prop_map(|(most, every)| (Rounds::Reported(most), every)),
            (1_u64..30).prop_map(|every| (Rounds::Unreported, Some(every))),
        ],
    ) {
        let mut sender = RoundSender::new(block, window).with_rounds(rounds);
        let mut receiver = RoundReceiver::default();
        sender.set_payload(payload);
        // Some cross the end of the numbers.
        sender.number_from(NUMBERS - 1 - u32::try_from(seed % 60).unwrap());
        let (mut wanted, mut came) = (BTreeSet::new(), BTreeSet::new());
        for (object, offset, len) in runs {
            sender.push(object, offset, len);
            wanted.extend((offset..offset + len).map(|at| (object, at)));
        }
        let mut rng = Rng::new(seed);
        let mut turns = 0;
        while !sender.is_idle() {
            turns += 1;
            prop_assert!(turns < 5_000);
            while let Some((first, layout)) = sender.announce() {
                receiver.on_block(first, layout.clone(), every).unwrap();
                sender.on_ready(first);
            }
            for _ in 0..rng.below(40) {
                let Some(Leaving { number, layout, n, .. }) = sender.next_packet() else { break };
                let len = layout.packet_len(n);
                if rng.chance(loss) {
                    continue;
                }
                if let Arrived::New(layout, n) = receiver.on_packet(number, len).unwrap() {
                    for piece in layout.pieces(n) {
                        let end = piece.offset + u64::from(piece.len);
                        came.extend((piece.offset..end).map(|at| (piece.object, at)));
                    }
                }
            }
            while let Some((first, round, sent)) = sender.ask(at(1)) {
                if every.is_none() || receiver.awaits(first) {
                    receiver.on_question(at(turns), first, round, sent).unwrap();
                }
            }
            while let Some(report) = receiver.report(at(turns)) {
                let have = report.have;
                prop_assert_eq!((0..3_000).filter(|n| have.contains(*n)).count() as u64, report.count);
                sender.on_report(report.first, report.through, have).unwrap();
            }
        }
        prop_assert_eq!(came, wanted);
        prop_assert_eq!(receiver.blocks_kept(), 0);
        prop_assert_eq!(sender.unsent(), 0);
    }
}
