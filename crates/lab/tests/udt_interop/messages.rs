//! Messages: whole, once, in order where that was asked for, and given up when their time is over.

use std::{sync::mpsc, time::Duration};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::App;
use farhaul_link::PathConfig;
use farhaul_protocols::udt::{Behaviour, Framing};

use super::{
    HOSTS, MANNERS, content,
    peer::{Peer, program},
    run::{BOTH, Listens, Setting, run, trouble, words},
    together,
};

/// Message `i`, as the peer's program makes it: its number, then bytes that belong to it.
fn message(i: u32) -> Vec<u8> {
    let mut out = i.to_be_bytes().to_vec();
    let len = 4 + u64::from(i) * 7_919 % 60_000;
    out.extend((4..len).map(|at| content(u64::from(i) * 1_009 + at)));
    out
}

/// The number of a message, if it is one of the peer's.
fn number(bytes: &[u8]) -> Option<u32> {
    let i = u32::from_be_bytes(*bytes.first_chunk()?);
    // A number made up of other bytes would ask for nothing large either.
    (message(i) == bytes).then_some(i)
}

/// Result of an exchange: the messages taken, and why it ended.
type Over = (Vec<Vec<u8>>, CloseReason);

/// Sends messages, or takes them until the peer closes.
struct Exchange {
    to_send: u32,
    /// True to close when everything is delivered. A shutdown that finds libudt's reader waiting
    /// costs it a message, so a sender that wants all to arrive lets the reader close.
    closes: bool,
    inbox: Vec<u8>,
    taken: Vec<Vec<u8>>,
    over: mpsc::Sender<Over>,
}

impl Store for Exchange {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("messages have no objects".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("messages have no objects".into()))
    }
}

impl App for Exchange {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => {
                for i in 0..self.to_send {
                    session.write(&message(i));
                }
            }
            Event::Readable => {
                session.read(&mut self.inbox);
                let mut rest = &self.inbox[..];
                while let Some((len, tail)) = rest.split_first_chunk() {
                    let (bytes, tail) = tail.split_at(u32::from_be_bytes(*len) as usize);
                    self.taken.push(bytes.to_vec());
                    rest = tail;
                }
                assert!(rest.is_empty(), "what is read is whole messages");
                self.inbox.clear();
            }
            Event::Delivered if self.closes => session.close(now, 0, "done"),
            Event::Delivered => {}
            Event::Closed(reason) => {
                // The test has ended if nobody waits.
                let _ = self.over.send((std::mem::take(&mut self.taken), reason));
            }
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

/// Result of an exchange.
#[derive(Debug)]
struct Outcome {
    /// Numbers of the messages taken, by either end; `None`: not a message of the peer's.
    numbers: Vec<Option<u32>>,
    /// Reason of our end's close, and whether the peer's program had ended by then.
    reason: CloseReason,
    alone: bool,
}

#[derive(Clone, Debug)]
struct Case {
    setting: Setting,
    we_send: bool,
    count: u32,
    ttl: Option<Duration>,
    in_order: bool,
}

impl Case {
    fn new(behaviour: Behaviour, listens: Listens, we_send: bool, in_order: bool) -> Self {
        let framing = Framing::Messages {
            ttl: None,
            in_order,
        };
        Self {
            setting: Setting::new(HOSTS[0], behaviour, framing, listens),
            we_send,
            count: 40,
            ttl: None,
            in_order,
        }
    }

    fn over_ipv6(mut self) -> Self {
        self.setting.host = HOSTS[1];
        self
    }

    fn over(mut self, path: PathConfig, ttl: Option<Duration>) -> Self {
        self.setting = self.setting.over(path);
        self.setting.config.framing = Framing::Messages {
            ttl,
            in_order: self.in_order,
        };
        self.ttl = ttl;
        self
    }

    fn run(&self) -> Outcome {
        let (over, received) = mpsc::channel();
        let (count, ordered) = (self.count.to_string(), u8::from(self.in_order).to_string());
        let ttl = self
            .ttl
            .map_or(-1, |ttl| i64::try_from(ttl.as_millis()).unwrap());
        let action = if self.we_send {
            words(["recvmsg", if self.ttl.is_some() { "0" } else { &count }])
        } else {
            words(["sendmsg", &count, &ttl.to_string(), &ordered])
        };
        let to_send = if self.we_send { self.count } else { 0 };
        let closes = self.ttl.is_some();
        let make = move || Exchange {
            to_send,
            closes,
            inbox: Vec::new(),
            taken: Vec::new(),
            over: over.clone(),
        };
        let watch = |peer: &mut Peer| {
            let over = received.recv().unwrap();
            (over, peer.child.try_wait().unwrap().is_some())
        };
        let (((taken, reason), alone), (well, said)) = run(&self.setting, &action, make, watch);
        assert!(well, "{self:?}: the peer complains");
        let numbers = if self.we_send {
            said.lines().map(|line| line.parse().ok()).collect()
        } else {
            taken.iter().map(|bytes| number(bytes)).collect()
        };
        Outcome {
            numbers,
            reason,
            alone,
        }
    }

    /// Every message arrives, once; in order if it was to.
    fn all_arrive(&self) {
        let Outcome {
            mut numbers,
            reason,
            ..
        } = self.run();
        if !self.in_order {
            numbers.sort_unstable();
        }
        let expected: Vec<_> = (0..self.count).map(Some).collect();
        assert_eq!(numbers, expected, "{self:?}: {reason:?}");
    }
}

/// Every behaviour, listener and order, sent by us or by libudt.
fn every(we_send: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for behaviour in MANNERS {
        for listens in BOTH {
            for in_order in [true, false] {
                cases.push(Case::new(behaviour, listens, we_send, in_order));
            }
        }
    }
    cases
}

/// Cases over losses, with no time to lose.
fn hurried(we_send: bool) -> Vec<Case> {
    let hurry = |case: Case| case.over(trouble(0.03), SHORT);
    every(we_send).into_iter().map(hurry).collect()
}

#[test]
fn messages_arrive_whole_and_once() {
    if program().is_none() {
        return;
    }
    let mut cases = Vec::new();
    for we_send in [true, false] {
        let plain = every(we_send);
        cases.extend(plain.iter().cloned().flat_map(|case| {
            let few = Case {
                count: 5,
                ..case.clone()
            };
            [case.over(trouble(0.01), None), few.over(trouble(0.1), None)]
        }));
        cases.extend(plain.iter().cloned().map(Case::over_ipv6));
        cases.extend(plain);
    }
    together(&cases, Case::all_arrive);
}

/// Lifetime of one millisecond: a lost packet of a message has no time for a repair.
const SHORT: Option<Duration> = Some(Duration::from_millis(1));

#[test]
fn messages_whose_time_is_over_are_left_out_and_the_others_arrive() {
    if program().is_none() {
        return;
    }
    together(&hurried(true), |case| {
        let Outcome {
            mut numbers,
            reason,
            ..
        } = case.run();
        let n = numbers.len();
        assert!((1..case.count as usize).contains(&n), "{case:?}: {n}");
        let before = numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), n, "{case:?}: {before:?} {reason:?}");
        assert!(!case.in_order || numbers == before, "{case:?}: {before:?}");
    });
}

/// libudt counts wrongly after it has given up its newest message, and may send bytes of another.
/// Its bytes then cannot be right, but the session must live until libudt ends it.
#[test]
fn what_libudt_gives_up_does_not_end_the_session() {
    if program().is_none() {
        return;
    }
    together(&hurried(false), |case| {
        let outcome = case.run();
        let right = outcome.numbers.iter().flatten().count();
        assert!(right > 0, "{case:?}: {outcome:?}");
        // libudt sends once that it closes: where that is lost, only its silence shows it.
        let ended = match outcome.reason {
            CloseReason::Peer { code: 0, .. } => true,
            CloseReason::TimedOut => outcome.alone,
            _ => false,
        };
        assert!(ended, "{case:?}: {outcome:?}");
    });
}
