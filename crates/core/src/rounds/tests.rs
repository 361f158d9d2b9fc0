use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    layout::{Layout, Run},
    loss::Bitmap,
    rng::Rng,
    time::Instant,
};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

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
            receiver.on_block(first, layout.clone()).unwrap();
            sender.on_ready(first);
        }
        while let Some((number, layout, n)) = sender.next_packet() {
            left += 1;
            if !rng.chance(loss) {
                receiver.on_packet(number, layout.packet_len(n)).unwrap();
            }
        }
        while let Some((first, _, sent)) = sender.ask(at(1)) {
            receiver.on_question(at(now), first, sent).unwrap();
        }
        while let Some((first, packets, _, have)) = receiver.report(at(now)) {
            assert_eq!(sender.asked(first), Some(packets));
            sender.on_report(first, have).unwrap();
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
    assert!(sender.on_report(0, Bitmap::default()).is_err(), "not asked");
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
    assert!(receiver.on_block(0, layout(0)).is_err());
    assert!(
        receiver
            .on_block(0, layout(10 * (MAX_PACKETS + 1)))
            .is_err()
    );
    receiver.on_block(NUMBERS - 1, layout(20)).unwrap();
    assert!(
        receiver.on_block(0, layout(10)).is_err(),
        "its second packet has number 0"
    );
    assert!(receiver.on_block(NUMBERS - 2, layout(20)).is_err());
    assert!(receiver.on_question(at(1), 7, 1).is_err());
    receiver.on_question(at(1), NUMBERS - 1, 2).unwrap();
    assert!(
        receiver.on_question(at(1), NUMBERS - 1, 2).is_err(),
        "not answered yet"
    );
    assert!(matches!(receiver.on_packet(1, 10), Ok(Arrived::Stale)));
    assert!(receiver.on_packet(0, 11).is_err());
    for n in 1..100 {
        let _full = receiver.on_block(10 * n, layout(10));
    }
    assert!(receiver.blocks_kept() <= 2 * MAX_BLOCKS);
}

#[test]
fn a_round_is_judged_when_its_packets_are_there_or_the_grace_is_over() {
    let mut receiver = RoundReceiver::default();
    receiver.set_grace(std::time::Duration::from_millis(5));
    let mut layout = Layout::new(10);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len: 30
    }));
    receiver.on_block(0, layout).unwrap();
    receiver.on_packet(0, 10).unwrap();
    receiver.on_question(at(1), 0, 2).unwrap();
    assert_eq!(receiver.due(), Some(at(6)));
    assert!(receiver.report(at(5)).is_none());
    receiver.on_packet(2, 10).unwrap();
    let (_, packets, count, have) = receiver.report(at(5)).unwrap();
    assert_eq!((packets, count, have.contains(1)), (3, 2, false));
    assert!(receiver.due().is_none());
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
    sender.on_report(first, Bitmap::default()).unwrap();
    while sender.next_packet().is_some() {}
    sender.ask(at(50_000)).unwrap();
    assert_eq!(sender.silent_since(), Some(at(40_000)));
    sender
        .on_report(first, Bitmap::from_bytes(&[2], 3))
        .unwrap();
    assert_eq!(sender.silent_since(), None);
}

#[test]
fn what_is_cancelled_within_a_block_need_not_arrive() {
    let (mut sender, mut receiver) = (RoundSender::new(1_000, 2), RoundReceiver::default());
    sender.set_payload(100);
    sender.push(1, 0, 5_000);
    let (first, layout) = sender.announce().unwrap();
    receiver.on_block(first, layout.clone()).unwrap();
    assert!(sender.next_packet().is_none(), "nobody waits for it");
    sender.on_ready(first);
    for _ in 0..3 {
        let (number, ..) = sender.next_packet().unwrap();
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

proptest! {
    /// A naive twin holds what has to arrive, byte by byte.
    #[test]
    fn everything_arrives_through_any_loss(
        runs in proptest::collection::vec((0_u32..3, 0_u64..2_000, 0_u64..900), 1..12),
        (block, window, payload) in (50_u64..3_000, 1_usize..4, 10_u32..200),
        (loss, seed) in (0.0..0.7, 0_u64..1_000),
    ) {
        let (mut sender, mut receiver) = (RoundSender::new(block, window), RoundReceiver::default());
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
                receiver.on_block(first, layout.clone()).unwrap();
                sender.on_ready(first);
            }
            for _ in 0..rng.below(40) {
                let Some((number, layout, n)) = sender.next_packet() else { break };
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
            while let Some((first, _, sent)) = sender.ask(at(1)) {
                receiver.on_question(at(turns), first, sent).unwrap();
            }
            while let Some((first, _, count, have)) = receiver.report(at(turns)) {
                prop_assert_eq!((0..3_000).filter(|n| have.contains(*n)).count() as u64, count);
                sender.on_report(first, have).unwrap();
            }
        }
        prop_assert_eq!(came, wanted);
        prop_assert_eq!(receiver.blocks_kept(), 0);
        prop_assert_eq!(sender.unsent(), 0);
    }
}
