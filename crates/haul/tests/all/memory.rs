//! Tests that the next connection to the same peer resumes from what a connection proved of its
//! path.

use std::{sync::Arc, time::Duration};

use crate::pair::{config, ms, of};
use farhaul_core::{
    congestion::{AckEvent, Allowance, CongestionController, LossEvent, SavedPath},
    time::Instant,
    units::{Rate, Size},
};
use farhaul_haul::{Haul, HaulConfig, PathMemory};
use farhaul_testkit::{Fate, Pair};

/// A law that sends at the rate that it resumed from, or at 10 Mbit/s; proves `proves`.
struct Resumes {
    rate: Rate,
    resumed: Option<SavedPath>,
    proves: Option<SavedPath>,
    acked: bool,
}

impl CongestionController for Resumes {
    fn name(&self) -> &'static str {
        "resumes"
    }
    fn resume(&mut self, _: Instant, saved: &SavedPath) {
        self.rate = saved.capacity;
        self.resumed = Some(*saved);
    }
    fn saved(&self) -> Option<SavedPath> {
        self.proves.filter(|_| self.acked).or(self.resumed)
    }
    fn on_ack(&mut self, _: &AckEvent) {
        self.acked = true;
    }
    fn on_loss(&mut self, _: &LossEvent) {}
    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::from_bytes(1 << 30),
            rate: self.rate,
            quantum: Size::from_bytes(12_000),
        }
    }
}

fn proof(mbit: u64, min_rtt: Duration) -> SavedPath {
    SavedPath {
        capacity: Rate::mbit(mbit),
        min_rtt,
    }
}

/// One connection with that memory over a path of this delay each way, before anything is sent.
fn connected(memory: &Arc<PathMemory>, delay: Duration, proves: Option<SavedPath>) -> Pair {
    let mut pair = unopened(memory, delay, proves);
    pair.open();
    pair
}

fn unopened(memory: &Arc<PathMemory>, delay: Duration, proves: Option<SavedPath>) -> Pair {
    let client = HaulConfig {
        memory: Some(Arc::clone(memory)),
        ..config(1)
    };
    let mut client = Haul::client(client).expect("valid");
    client.set_law(move || {
        Box::new(Resumes {
            rate: Rate::mbit(10),
            resumed: None,
            proves,
            acked: false,
        })
    });
    let server = Haul::server(config(2)).expect("valid");
    of(client, server, delay, 1_500)
}

fn rate(pair: &mut Pair) -> Rate {
    pair.client.session().stats().pacing_rate
}

fn end(mut pair: Pair) -> Instant {
    let now = pair.now;
    pair.client.session().close(now, 0, "");
    now
}

#[test]
fn the_next_connection_resumes_from_what_the_last_one_proved() {
    let memory = Arc::default();
    let saved = proof(400, ms(40));
    let mut first = connected(&memory, ms(20), Some(saved));
    assert_eq!(rate(&mut first), Rate::mbit(10), "nothing is known");
    first.client.session().send(1, 0, 100_000);
    first.until(Duration::from_secs(9), |p| p.client.delivered());
    end(first);
    let mut second = connected(&memory, ms(20), None);
    assert_eq!(rate(&mut second), Rate::mbit(400));
    let mut third = connected(&memory, ms(20), None);
    assert_eq!(rate(&mut third), Rate::mbit(10), "the second one has it");
}

#[test]
fn what_was_not_confirmed_gets_no_younger() {
    let memory: Arc<PathMemory> = Arc::default();
    let mut first = connected(&memory, ms(20), Some(proof(400, ms(40))));
    first.client.session().send(1, 0, 100_000);
    first.until(Duration::from_secs(9), |p| p.client.delivered());
    let ended = end(first);
    let noted = memory.list(ended)[0].age;
    let mut second = connected(&memory, ms(20), None);
    second.pass(Duration::from_secs(7));
    let ended = end(second);
    let again = memory.list(ended)[0];
    assert_eq!(again.saved, proof(400, ms(40)));
    assert!(again.age >= noted + Duration::from_secs(7), "{again:?}");
}

#[test]
fn another_rtt_means_another_path() {
    for (delay, resumes) in [
        (ms(9), false),
        (ms(11), true),
        (ms(39), true),
        (ms(41), false),
    ] {
        let memory = Arc::default();
        let mut first = connected(&memory, ms(20), Some(proof(400, ms(40))));
        first.client.session().send(1, 0, 100_000);
        first.until(Duration::from_secs(9), |p| p.client.delivered());
        end(first);
        let mut second = connected(&memory, delay, None);
        let expected = if resumes { 400 } else { 10 };
        assert_eq!(rate(&mut second), Rate::mbit(expected), "{delay:?}");
    }
}

#[test]
fn nothing_is_noted_of_a_connection_that_proved_nothing() {
    let memory: Arc<PathMemory> = Arc::default();
    let ended = end(connected(&memory, ms(20), None));
    assert!(memory.list(ended).is_empty());
}

#[test]
fn the_datagram_of_the_last_connection_is_used_at_once_and_given_up_when_the_path_carries_less() {
    let memory: Arc<PathMemory> = Arc::default();
    let mut first = connected(&memory, ms(20), Some(proof(400, ms(40))));
    first.client.session().send(1, 0, 1_000_000);
    first.until(Duration::from_secs(9), |p| p.client.delivered());
    let ended = end(first);
    assert_eq!(memory.list(ended)[0].datagram, 1_472);
    let mut same = connected(&memory, ms(20), Some(proof(400, ms(40))));
    let size = |pair: &mut Pair| pair.client.session().stats().datagram_size;
    assert_eq!(size(&mut same), 1_472, "before anything is sent");
    same.client.session().send(1, 0, 1_000_000);
    same.until(Duration::from_secs(9), |p| p.client.delivered());
    end(same);
    let mut less = unopened(&memory, ms(20), None);
    less.set_script(|d| {
        if d.bytes.len() > 1_300 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    less.open();
    assert_eq!(size(&mut less), 1_472);
    less.client.session().send(1, 0, 1_000_000);
    let began = less.now;
    less.until(Duration::from_secs(9), |p| p.client.delivered());
    assert_eq!(size(&mut less), 1_200);
    let took = less.now.since(began);
    assert!(
        took < ms(40) * 8,
        "a few round trips, no timeouts in a row: {took:?}"
    );
    assert_eq!(less.server.store.prefix(1), 1_000_000);
}
