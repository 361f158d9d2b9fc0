use farhaul_core::units::Rate;
use farhaul_link::{Loss, LossTrace, PathConfig, Reorder};

use super::*;

const WAY: u32 = 0;

fn network(forward: PathConfig) -> Network<'static> {
    let scenario = Scenario {
        forward,
        ..Scenario::default()
    };
    Network::new(&scenario, &Rng::new(1), None)
}

/// A batch of `count` segments of 1,000 bytes, the last of 400, with solid heads of 10.
fn batch(count: u8) -> TxBuf {
    let mut out = TxBuf::default();
    out.begin(1_000);
    for i in 1..=count {
        let segment = out.next_segment();
        segment[..10].fill(i);
        segment[10..].fill(0xff);
        out.commit(if i == count { 400 } else { 1_000 }, 10);
    }
    out
}

/// Time (ns), the stride, and of each datagram the first byte and the length.
type Arrival = (u64, usize, Vec<(u8, usize)>);

fn arrivals(network: &mut Network<'_>) -> Vec<Arrival> {
    let mut seen = Vec::new();
    while let Some((at, what)) = network.queue.pop() {
        let What::Train(index) = what else {
            panic!("{what:?}");
        };
        let train = network.train(index);
        let mut bytes = vec![0; train.len()];
        train.unpack(&mut bytes);
        let datagrams = bytes
            .chunks(train.segment())
            .map(|d| {
                assert!(d[..10].iter().all(|b| *b == d[0]));
                assert!(d[10..].iter().all(|b| *b == 0), "payload is not carried");
                (d[0], d.len())
            })
            .collect();
        seen.push((at.as_nanos(), train.segment(), datagrams));
        network.recycle(index);
    }
    seen
}

#[test]
fn a_batch_arrives_as_one_when_its_last_segment_does() {
    let mut network = network(PathConfig::default());
    network.carry(Instant::EPOCH, WAY, Ecn::NotEct, &batch(3));
    // 10 Gbit/s: 1,028 bytes in 822.4 ns.
    let expected = vec![(1, 1_000), (2, 1_000), (3, 400)];
    assert_eq!(
        arrivals(&mut network),
        [((2 * 1_028 + 428) * 4 / 5, 1_000, expected)]
    );
}

#[test]
fn survivors_close_ranks() {
    let lossy = PathConfig {
        loss: Loss::Trace(LossTrace::new([false, true, true, false, false])),
        ..PathConfig::default()
    };
    let mut network = network(lossy);
    network.carry(Instant::EPOCH, WAY, Ecn::NotEct, &batch(5));
    let seen = arrivals(&mut network);
    assert_eq!(seen[0].2, [(1, 1_000), (4, 1_000), (5, 400)]);
    assert_eq!(seen.len(), 1);
}

#[test]
fn what_is_held_back_or_doubled_travels_alone() {
    let rough = PathConfig {
        reorder: Some(Reorder {
            share: 0.3,
            by: Duration::from_micros(50),
        }),
        duplicate: 0.3,
        ..PathConfig::default()
    };
    let mut network = network(rough);
    let mut count = [0; 41];
    network.carry(Instant::EPOCH, WAY, Ecn::NotEct, &batch(40));
    let seen = arrivals(&mut network);
    for (_, segment, datagrams) in &seen {
        assert!(datagrams.is_sorted(), "{datagrams:?}");
        let (_, all_but_last) = datagrams.split_last().expect("not empty");
        assert!(all_but_last.iter().all(|(_, len)| len == segment));
        for (i, _) in datagrams {
            count[usize::from(*i)] += 1;
        }
    }
    assert!(seen.is_sorted_by_key(|(at, ..)| *at));
    assert!(count[1..].iter().all(|n| (1..=2).contains(n)), "{count:?}");
    let counters = network.links[0].counters();
    assert_eq!(count.iter().sum::<u64>(), 40 + counters.duplicated);
    assert!(counters.reordered > 0 && seen.len() > 10);
}

#[test]
fn a_slow_link_is_not_waited_for() {
    let slow = PathConfig {
        rate: Rate::mbit(16),
        ..PathConfig::default()
    };
    let mut network = network(slow);
    network.carry(Instant::EPOCH, WAY, Ecn::NotEct, &batch(6));
    // 514 us each: two in a ms.
    let sizes: Vec<usize> = arrivals(&mut network).iter().map(|a| a.2.len()).collect();
    assert_eq!(sizes, [2, 2, 2]);
}

#[test]
fn buffers_are_reused() {
    let mut network = network(PathConfig::default());
    for i in 0..100 {
        let now = Instant::from_nanos(i * 1_000_000);
        network.carry(now, WAY, Ecn::NotEct, &batch(3));
        network.carry(now, WAY, Ecn::NotEct, &batch(2));
        assert_eq!(arrivals(&mut network).len(), 2);
    }
    assert_eq!(network.trains.len(), 2);
}
