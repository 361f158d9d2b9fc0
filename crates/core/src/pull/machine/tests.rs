use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    codec::Reader,
    datagram::Ecn,
    pull::{decode_ranges, encode_ranges},
};

const PAYLOAD: u32 = 10;
const DATA: u8 = <PullMachine<Plain> as Machine>::DATA;
const EACH: Duration = Duration::from_millis(20);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Asks for all of a file at its first look, and at each look for the missing units.
#[derive(Debug, Default)]
struct Plain {
    asked: bool,
    /// True if files are not over yet.
    waits: bool,
    looks: u32,
    ends: u32,
}

#[derive(Clone, Debug, PartialEq)]
struct Wants(Vec<Range<u64>>);

impl Extension for Wants {
    const KINDS: [u8; 3] = [10, 11, 12];
    const RATED: bool = true;

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let good = kind == 1;
        let good = good.then_some(()).ok_or(DecodeError::Malformed("kind"));
        good.and_then(|()| decode_ranges(r)).map(Self)
    }

    fn encode(&self, into: &mut Vec<u8>) {
        into.push(1);
        encode_ranges(&self.0, into);
    }
}

impl Style for Plain {
    type Extension = Wants;

    fn source(&self) -> Source {
        let mut source = Source::new(Rate::mbit(10), 0);
        source.command(Rate::UNLIMITED);
        source
    }

    fn open(&mut self, _rtt: Duration) {}

    fn on_offer(&mut self, now: Instant, ends: &mut Ends, most: Rate) {
        assert_eq!(most, Rate::mbit(10));
        ends.check_at = Some(now);
        self.asked = false;
    }

    fn on_extension(
        &mut self,
        _now: Instant,
        ends: &mut Ends,
        words: Wants,
    ) -> Result<(), DecodeError> {
        words.0.iter().try_for_each(|range| ends.source.ask(range))
    }

    fn on_check(&mut self, now: Instant, ends: &mut Ends) {
        self.looks += 1;
        ends.check_at = Some(now + EACH);
        let whole = ends.fetch.whole().filter(|_| !self.asked);
        let mut wants: Vec<_> = whole.into_iter().collect();
        if std::mem::replace(&mut self.asked, true) {
            wants = ends.missing(now, Rate::UNLIMITED, EACH);
        }
        if !wants.is_empty() {
            ends.send(&Wants(wants));
        }
    }

    fn is_over(&mut self, _ends: &Ends) -> bool {
        !self.waits
    }

    fn on_end(&mut self) {
        self.ends += 1;
    }
}

fn open() -> PullMachine<Plain> {
    let mut machine = PullMachine::new(Plain::default());
    machine.open(at(0), PAYLOAD + HEADS, Duration::ZERO);
    machine
}

/// Passes control messages from one end to the other, at most `room` bytes at a time.
fn pass(
    now: Instant,
    from: &mut PullMachine<Plain>,
    to: &mut PullMachine<Plain>,
    pipe: &mut Vec<u8>,
    room: usize,
) {
    let before = pipe.len();
    from.poll_control(now, room, pipe);
    assert!(pipe.len() - before <= room);
    loop {
        let used = to.on_control(now, pipe).unwrap();
        pipe.drain(..used);
        if used == 0 {
            return;
        }
    }
}

/// The next unit, if one leaves.
fn unit(now: Instant, from: &mut PullMachine<Plain>) -> Option<Vec<u8>> {
    let (mut bytes, mut extents) = ([0; NUMBER], Vec::new());
    let mut packet = Packet::new(Writer::new(&mut bytes), 0, PAYLOAD, &mut extents);
    from.next_packet(now, &mut packet).then(|| {
        let len = extents.iter().map(|e| e.len as usize).sum::<usize>();
        let mut datagram = bytes.to_vec();
        datagram.resize(NUMBER + len, 7);
        datagram
    })
}

fn come(
    machine: &mut impl Machine,
    now: Instant,
    kind: u8,
    bytes: &[u8],
    place: &mut Vec<Extent>,
) -> Result<(), DecodeError> {
    let datagram = Incoming {
        kind,
        bytes,
        at: 0,
        wire: 0,
        ecn: Ecn::NotEct,
    };
    machine.on_datagram(now, &datagram, place)
}

/// Both ends when a file of three units was offered.
fn offered() -> (PullMachine<Plain>, PullMachine<Plain>) {
    let (mut a, mut b) = (open(), open());
    a.send(1, 0, 25);
    pass(at(0), &mut a, &mut b, &mut Vec::new(), 999);
    (a, b)
}

#[test]
fn what_is_said_next_waits_until_all_that_was_said_has_left() {
    let (mut a, mut b) = offered();
    assert_eq!(b.deadline(), Some((at(0), Why::Feedback)));
    let mut pipe = Vec::new();
    pass(at(0), &mut b, &mut a, &mut pipe, 3);
    assert_eq!(b.style.looks, 1);
    assert_eq!(
        b.deadline(),
        Some((at(30_000), Why::Feedback)),
        "given up at last"
    );
    pass(at(20), &mut b, &mut a, &mut pipe, 3);
    assert_eq!(b.style.looks, 1);
    pass(at(20), &mut b, &mut a, &mut pipe, 99);
    assert_eq!(b.deadline(), Some((at(20), Why::Feedback)));
    pass(at(20), &mut b, &mut a, &mut pipe, 99);
    assert_eq!((b.style.looks, a.unsent()), (2, 25));
}

#[test]
fn a_file_is_over_when_all_is_here_and_the_protocol_says_so() {
    let (mut a, mut b) = offered();
    let mut pipe = Vec::new();
    pass(at(0), &mut b, &mut a, &mut pipe, 99);
    b.style.waits = true;
    while let Some(bytes) = unit(at(1), &mut a) {
        come(&mut b, at(1), DATA, &bytes, &mut Vec::new()).unwrap();
    }
    pass(at(1), &mut b, &mut a, &mut pipe, 99);
    assert!(!a.is_delivered() && b.style.ends == 0 && b.ends.check_at.is_some());
    b.style.waits = false;
    pass(at(2), &mut b, &mut a, &mut pipe, 99);
    assert!(a.is_delivered() && b.style.ends == 1 && b.ends.check_at.is_none());
    assert_eq!(b.deadline(), None);
}

#[test]
fn a_file_of_which_nothing_comes_is_given_up_unless_the_store_is_full() {
    let (_, mut b) = offered();
    let full = Sink {
        free: PAYLOAD.into(),
        drained: 0,
    };
    b.on_sink(at(20_000), full);
    b.on_sink(at(21_000), Sink::ENDLESS);
    b.on_timer(at(49_999));
    assert_eq!(b.failure(), None);
    b.on_timer(at(50_000));
    assert!(matches!(b.failure(), Some(CloseReason::Lane(_))));
    b.ends.fail(CloseReason::TimedOut);
    assert!(
        matches!(b.failure(), Some(CloseReason::Lane(_))),
        "the first counts"
    );
    b.on_close();
    assert_eq!((b.ends.check_at, b.style.ends), (None, 1));
}

#[test]
fn datagrams_of_no_known_type_are_refused() {
    let (mut a, mut b) = offered();
    pass(at(0), &mut b, &mut a, &mut Vec::new(), 99);
    let bytes = unit(at(1), &mut a).unwrap();
    let mut place = Vec::new();
    for kind in [0, REQUEST, DATA - 1] {
        assert!(come(&mut b, at(1), kind, &bytes, &mut place).is_err());
    }
    assert!(place.is_empty());
    come(&mut b, at(1), DATA, &bytes, &mut place).unwrap();
    assert_eq!(place.len(), 1);
}

proptest! {
    /// A naive twin holds the bytes that have to arrive, one by one. Units are lost and messages
    /// leave in parts.
    #[test]
    fn everything_that_was_not_cut_arrives_once(
        lens in proptest::collection::vec(1_u64..300, 1..4),
        fates in proptest::collection::vec(any::<bool>(), 0..200),
        (room, cut, batch) in (1_usize..60, 0_u64..60, 1_usize..9),
    ) {
        let (mut a, mut b) = (open(), open());
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let (mut came, mut fates, mut ms) = (BTreeSet::new(), fates.into_iter(), 0);
        for (object, len) in lens.iter().enumerate() {
            a.send(u32::try_from(object).unwrap(), 0, *len);
        }
        while !a.is_delivered() {
            ms += 1;
            prop_assert!(ms < 100_000, "it ends");
            let now = at(ms);
            pass(now, &mut a, &mut b, &mut there, room);
            pass(now, &mut b, &mut a, &mut back, room);
            let mut place = Vec::new();
            for _ in 0..batch {
                let Some(bytes) = unit(now, &mut a) else { break };
                if fates.next().unwrap_or(true) {
                    come(&mut b, now, DATA, &bytes, &mut place).unwrap();
                }
            }
            for extent in place {
                for byte in extent.offset..extent.end() {
                    prop_assert!(came.insert((extent.object, byte)), "placed once");
                }
            }
            if ms == cut {
                a.cancel_unsent();
                prop_assert_eq!(a.unsent(), 0);
            }
            b.on_timer(now);
            prop_assert_eq!((a.failure(), b.failure()), (None, None));
        }
        let mut stats = Stats::default();
        a.fill_stats(&mut stats);
        prop_assert_eq!(came.len() as u64, stats.data_sent);
        let queued = (0..).zip(&lens).flat_map(|(object, len)| (0..*len).map(move |n| (object, n)));
        let left: BTreeSet<_> = queued.take(came.len()).collect();
        prop_assert_eq!(&came, &left);
        prop_assert!(cut > 0 || came.len() as u64 == lens.iter().sum::<u64>());
    }

    #[test]
    fn whatever_decodes_encodes_to_the_same(bytes in proptest::collection::vec(0_u8..13, 0..90)) {
        if let Ok(Some((message, len))) = Message::<Wants>::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(&again[..], &bytes[..len]);
        }
    }
}
