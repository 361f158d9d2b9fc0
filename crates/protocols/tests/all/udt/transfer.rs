//! Tests that everything arrives, once, in order where there is one.

use std::time::Duration;

use farhaul_protocols::udt::{Behaviour, Framing};
use farhaul_testkit::{Fate, Pair, Side, assert_live, seeds};

use super::{LIMIT, MANNERS, config, ends, ms, pair};

#[test]
fn any_loss_that_ends_lets_the_transfer_end() {
    for behaviour in MANNERS {
        assert_live(|_| ends(&config(behaviour, Framing::Records)), seeds(60));
    }
}

#[test]
fn other_laws_live_too() {
    for law in ["cubic", "haul", "fixed:rate=20Mbit"] {
        for behaviour in MANNERS {
            let config = farhaul_protocols::udt::UdtConfig {
                law: law.into(),
                ..config(behaviour, Framing::Records)
            };
            assert_live(|_| ends(&config), seeds(12));
        }
    }
}

#[test]
fn a_stream_keeps_order_both_ways_over_loss_and_reordering() {
    for behaviour in MANNERS {
        let mut turn = 0_u64;
        let mut pair = pair(&config(behaviour, Framing::Stream), ms(5)).with_script(move |_| {
            turn += 1;
            match turn % 50 {
                7 if turn < 4_000 => Fate::Drop,
                13 => Fate::Late(ms(3)),
                21 => Fate::Twice(ms(2)),
                _ => Fate::Deliver,
            }
        });
        pair.connect(Some(1_500));
        pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
        let bytes = |n: u32| -> Vec<u8> { (0..n).map(|i| (i % 251) as u8).collect() };
        let (there, back) = (bytes(300_000), bytes(200_001));
        pair.client.session().write(&there);
        for chunk in back.chunks(7_000) {
            pair.server.session().write(chunk);
        }
        let done = pair.run(LIMIT, |p| {
            p.server.stream.len() >= there.len() && p.client.stream.len() >= back.len()
        });
        assert!(done, "{pair:#?}");
        assert!(pair.server.stream == there && pair.client.stream == back);
        pair.until(LIMIT, |p| p.client.delivered());
    }
}

#[test]
fn an_object_in_a_stream_is_raw_bytes_in_the_order_of_the_calls() {
    let mut pair = pair(&config(MANNERS[0], Framing::Stream), ms(1));
    pair.connect(Some(1_500));
    pair.until(LIMIT, |p| p.client.connected());
    let session = pair.client.session();
    session.write(b"name");
    session.send(9, 100, 5_000);
    session.write(b"end");
    pair.until(LIMIT, |p| p.server.stream.len() == 5_007);
    let stream = &pair.server.stream;
    assert!(stream.starts_with(b"name") && stream.ends_with(b"end"));
    let object: Vec<u8> = (100..5_100).map(|i| pair.client.store.byte(9, i)).collect();
    assert_eq!(stream[4..5_004], object);
}

/// Cuts the bytes read into messages.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let (message, rest) = rest.split_at(u32::from_be_bytes(*len) as usize);
        out.push(message.to_vec());
        bytes = rest;
    }
    out
}

#[test]
fn messages_arrive_whole_and_expired_ones_not_at_all() {
    for behaviour in MANNERS {
        let framing = Framing::Messages {
            ttl: Some(ms(30)),
            in_order: true,
        };
        // Every packet of the second message is lost as often as it is sent.
        let mut pair = pair(&config(behaviour, framing), ms(5)).with_script(|d| {
            let second = d.bytes[0] & 0x80 == 0 && d.bytes[4..8] == 0x2000_0002_u32.to_be_bytes();
            Fate::drop_if(second)
        });
        pair.connect(Some(1_500));
        pair.until(LIMIT, |p| p.client.connected());
        let session = pair.client.session();
        for (i, len) in [5_000, 6_000, 7_000, 10].into_iter().enumerate() {
            session.write(&vec![u8::try_from(i).unwrap(); len]);
        }
        let done = pair.run(LIMIT, |p| p.client.delivered());
        assert!(done, "{behaviour:?} {pair:#?}");
        let lens: Vec<usize> = messages(&pair.server.stream).iter().map(Vec::len).collect();
        assert_eq!(lens, [5_000, 7_000, 10], "{behaviour:?}");
    }
}

#[test]
fn lost_repairs_are_repaired_again_soon_by_the_fixed() {
    // One packet is lost three times; the fixed end needs a few round trips, libudt its long timer.
    let mut took = Vec::new();
    for behaviour in MANNERS {
        let mut left = 3;
        let mut victim = None;
        let mut pair = pair(&config(behaviour, Framing::Records), ms(5)).with_script(move |d| {
            let is_data = d.bytes[0] & 0x80 == 0;
            let seq = d.bytes[..4].to_vec();
            if is_data && d.index > 5 && left > 0 && victim.get_or_insert(seq.clone()) == &seq {
                left -= 1;
                return Fate::Drop;
            }
            Fate::Deliver
        });
        pair.connect(Some(1_500));
        pair.until(LIMIT, |p| p.client.connected());
        let start = pair.now;
        pair.client.session().send(1, 0, 60_000);
        pair.until(LIMIT, |p| p.client.delivered());
        took.push(pair.now - start);
    }
    assert!(
        took[1] < ms(400) && took[0] > ms(300) && took[1] < took[0],
        "{took:?}"
    );
}

/// libudt's receiver reports a hole once. Where a burst of repairs is lost, its sender must not
/// make them good one by one.
#[test]
fn a_burst_of_lost_repairs_takes_a_few_round_trips() {
    use std::collections::HashMap;
    let (_, server) = ends(&config(Behaviour::Libudt, Framing::Records));
    let (client, _) = ends(&config(Behaviour::Fixed, Framing::Records));
    let mut copies: HashMap<u32, u32> = HashMap::new();
    let mut isn = None;
    let mut pair = Pair::new(client, server, ms(5), 1).with_script(move |d| {
        let word = u32::from_be_bytes(*d.bytes.first_chunk().unwrap());
        if word >> 31 != 0 {
            return Fate::Deliver;
        }
        let number = word.wrapping_sub(*isn.get_or_insert(word));
        let copies = copies.entry(number).or_default();
        *copies += 1;
        // A run of packets, and what is sent in their place.
        Fate::drop_if((400..1_000).contains(&number) && *copies <= 2)
    });
    pair.connect(Some(1_500));
    pair.until(LIMIT, |p| p.client.connected());
    let start = pair.now;
    pair.client.session().send(1, 0, 6_000_000);
    pair.until(LIMIT, |p| p.client.delivered());
    let took = pair.now - start;
    assert!(took < ms(2_000), "{took:?}");
}

#[test]
fn a_full_store_delays_a_transfer_and_does_not_end_it() {
    for behaviour in MANNERS {
        let mut pair = pair(&config(behaviour, Framing::Records), ms(5));
        pair.connect(Some(1_500));
        pair.until(LIMIT, |p| p.client.connected() && p.server.connected());
        pair.server.store.room = Some(5_000);
        pair.client.session().send(1, 0, 50_000);
        pair.settle(Side::Client);
        pair.pass(Duration::from_mins(1));
        assert!(pair.server.session().stats().dropped_full > 0);
        pair.server.store.room = None;
        pair.until(LIMIT, |p| p.client.delivered());
        assert!(pair.server.store.has(1, 50_000));
    }
}
