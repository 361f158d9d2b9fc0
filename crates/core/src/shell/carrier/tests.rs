use proptest::prelude::*;

use super::*;
use crate::{
    rng::Rng,
    store::{Sink, StoreError},
};

/// UDP payload of a full datagram, and bytes before its data.
const FULL: u64 = 100;
const HEAD: u64 = 10;
const ROOM: u64 = FULL - HEAD;
const IDLE: Duration = Duration::from_secs(30);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn peer() -> SocketAddr {
    ([192, 0, 2, 1], 1).into()
}

/// The first byte of a datagram gives its meaning: data to be placed, everything acknowledged, the
/// end, an answer asked for. Anything else is malformed.
#[expect(clippy::struct_excessive_bools, reason = "switches of a fake")]
#[derive(Default)]
struct Fake {
    shape: (usize, usize),
    unsent: u64,
    acked: bool,
    /// Wire bytes that may leave, or nothing.
    allowed: Option<u64>,
    /// True if the queued data are given up when they are to leave.
    gives_up: bool,
    answers: usize,
    controls: usize,
    /// True if something is due if no data leave.
    rest: bool,
    fails: bool,
    dies: bool,
    asked: usize,
    batches: usize,
    taken: usize,
    refused: usize,
    late: usize,
    timers: usize,
}

impl Fake {
    fn new() -> Self {
        Self {
            shape: (100, 10),
            allowed: Some(1 << 20),
            ..Self::default()
        }
    }
}

impl Connection for Fake {
    fn control(&self) -> usize {
        20
    }

    fn shape(&self) -> (usize, usize) {
        self.shape
    }

    fn on_datagram(
        &mut self,
        _: &mut Turn<'_>,
        state: &mut SessionState,
        datagram: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        self.taken += 1;
        match datagram[0] {
            b'd' => {
                let fits = state.place(Extent {
                    object: 1,
                    offset: 0,
                    len: u32::try_from(datagram.len() - 1).unwrap(),
                    at: u32::try_from(at + 1).unwrap(),
                });
                self.refused += usize::from(!fits);
            }
            b'a' => self.acked = true,
            b'?' => self.answers += 1,
            b'e' => {
                let text = String::new();
                return Err(Refusal::End(CloseReason::Peer { code: 3, text }));
            }
            _ => return Err(DecodeError::Truncated.into()),
        }
        Ok(())
    }

    fn on_late(&mut self, _: Instant, _: &mut Life<Closing>, _: &[u8]) {
        self.late += 1;
    }

    fn poll_controls(&mut self, state: &mut SessionState, out: &mut TxBuf) -> bool {
        let due = self.answers > 0;
        if due {
            let fit = out.begin(4);
            for _ in 0..self.answers.min(fit) {
                out.next_segment().copy_from_slice(b"!!!!");
                out.commit(4, 4);
                self.answers -= 1;
            }
        }
        let now = state.now;
        due || batch::single(20, out, |w| self.poll_control(now, state, w))
    }

    fn poll_control(
        &mut self,
        _: Instant,
        _: &mut SessionState,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        let due = self.controls > 0;
        self.controls -= usize::from(due);
        w.put(b"control").map(|()| due)
    }

    fn poll_idle(&mut self, _: Instant, out: &mut TxBuf) -> bool {
        let write = |w: &mut Writer<'_>| w.put(b"rest").map(|()| std::mem::take(&mut self.rest));
        batch::single(4, out, write)
    }

    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason) {
        life.close(now, Closing::of(reason), Duration::from_millis(10));
    }

    fn write_close(
        &mut self,
        _: Instant,
        close: &Closing,
        w: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        w.put(b"end")?;
        w.u32(close.code)
    }

    fn permit(&mut self, _: Instant) -> Permit {
        match self.allowed {
            Some(bytes) if self.unsent > 0 => Permit::Send { bytes },
            Some(_) => Permit::Hold(Why::Application),
            None => Permit::Hold(Why::Window),
        }
    }

    fn next_packet(&mut self, _: Instant, packet: &mut Packet<'_>) -> bool {
        if self.unsent == 0 || self.gives_up {
            self.controls += usize::from(std::mem::take(&mut self.gives_up));
            return false;
        }
        let head = self.shape.1;
        packet.header().put(&[b'd'; 10][..head]).unwrap();
        let len = self.unsent.min(packet.room().into());
        packet.data(1, 0, u32::try_from(len).unwrap());
        self.unsent -= len;
        true
    }

    fn batch_sent(&mut self, _: Instant, bytes: u64) {
        self.batches += 1;
        self.allowed = self.allowed.map(|allowed| allowed.saturating_sub(bytes));
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        None
    }

    fn on_timer(&mut self, _: Instant) -> Result<(), CloseReason> {
        self.timers += 1;
        if self.dies {
            return Err(CloseReason::NoAnswer);
        }
        Ok(())
    }

    fn ask(&mut self) {
        self.asked += 1;
    }

    fn failure(&self) -> Option<CloseReason> {
        self.fails.then(|| CloseReason::Internal("law".into()))
    }

    fn send(&mut self, _: Instant, _: ObjectId, _: u64, len: u64) {
        (self.unsent, self.acked) = (self.unsent + len, false);
    }

    fn unsent(&self) -> u64 {
        self.unsent
    }

    fn cancel_unsent(&mut self) {
        (self.unsent, self.acked) = (0, true);
    }

    fn write(&mut self, _: Instant, _: &[u8]) {}

    fn unwritten(&self) -> usize {
        0
    }

    fn read(&mut self, _: &mut Vec<u8>) {}

    fn is_delivered(&self) -> bool {
        self.acked
    }

    fn on_lane(&mut self, _: &mut SessionState, control: Control<'_>) -> Result<(), CloseReason> {
        match control {
            Control::Closed(why) => Err(CloseReason::Lane(why.into())),
            _ => Ok(()),
        }
    }

    fn fill_stats(&self, _: &mut Stats) {}
}

/// A store with this much room, which may fail.
#[derive(Default)]
struct Shelf {
    free: u64,
    fails: bool,
    filled: u64,
    placed: u64,
}

impl Store for Shelf {
    fn fill(&mut self, extents: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        self.filled += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        if self.fails {
            return Err(StoreError("unread".into()));
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        if self.fails {
            return Err(StoreError("full".into()));
        }
        for extent in extents {
            assert!(batch[extent.range()].iter().all(|byte| *byte == b'.'));
            self.placed += u64::from(extent.len);
            let left = self.free.checked_sub(extent.len.into());
            self.free = left.expect("room for it");
        }
        Ok(())
    }

    fn sink(&self) -> Sink {
        Sink {
            free: self.free,
            drained: 0,
        }
    }
}

/// An end with its world.
struct End {
    carrier: Carrier<Fake>,
    store: Shelf,
    out: TxBuf,
    now: Instant,
}

impl End {
    fn new() -> Self {
        let state = SessionState::new(at(0), peer(), Alive::default());
        let store = Shelf {
            free: 1 << 30,
            ..Shelf::default()
        };
        Self {
            carrier: Carrier::new(Fake::new(), state),
            store,
            out: TxBuf::default(),
            now: at(0),
        }
    }

    fn opened() -> Self {
        let mut end = Self::new();
        end.carrier.state.opened(IDLE);
        assert_eq!(
            end.carrier.poll_event(),
            Some(Event::Connected { peer_key: None })
        );
        end
    }

    fn fake(&mut self) -> &mut Fake {
        &mut self.carrier.connection
    }

    fn turn<T>(
        &mut self,
        act: impl FnOnce(&mut Carrier<Fake>, &mut Turn<'_>, &mut TxBuf) -> T,
    ) -> T {
        let mut turn = Turn {
            now: self.now,
            rng: &mut Rng::new(1),
            store: &mut self.store,
        };
        act(&mut self.carrier, &mut turn, &mut self.out)
    }

    /// One batch, of datagrams of three bytes.
    fn feed(&mut self, from: SocketAddr, kinds: &[u8]) {
        let mut bytes: Vec<u8> = kinds.iter().flat_map(|kind| [*kind, b'.', b'.']).collect();
        self.turn(|carrier, turn, _| {
            let batch = Received {
                from,
                ecn: Ecn::NotEct,
                segment: 3,
                waited: Duration::ZERO,
                bytes: &mut bytes,
                granted: None,
            };
            carrier.handle_datagrams(turn, batch);
        });
    }

    fn expire(&mut self, now: Instant) {
        self.now = now;
        self.turn(|carrier, turn, _| carrier.handle_timeout(turn));
    }

    /// The lengths of the datagrams of the next batch, and the first of them.
    fn poll(&mut self) -> Option<(Vec<u64>, Vec<u8>)> {
        self.turn(Carrier::poll_transmit)?;
        let lengths = self.out.segments().map(|(bytes, _)| bytes.len() as u64);
        let (first, _) = self.out.segments().next()?;
        Some((lengths.collect(), first.to_vec()))
    }

    fn says(&mut self, what: &[u8]) {
        assert_eq!(self.poll().map(|(_, first)| first).as_deref(), Some(what));
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.carrier.poll_event()).collect()
    }

    fn held(&self, why: Why) -> Duration {
        let stats = self.carrier.stats();
        let mut totals = stats.held.totals();
        totals.find(|(w, _)| *w == why).expect("it holds").1
    }
}

/// Next batch of the naive twin, which cuts packets one by one until the batch or the allowance is
/// full.
fn naive(unsent: &mut u64, allowed: &mut u64, most: u64) -> Vec<u64> {
    let mut batch: Vec<u64> = Vec::new();
    while batch.len() as u64 != most
        && *unsent > 0
        && batch.iter().sum::<u64>() < *allowed
        && batch.last().is_none_or(|last| *last == FULL)
    {
        let data = (*unsent).min(ROOM);
        *unsent -= data;
        batch.push(HEAD + data);
    }
    *allowed = allowed.saturating_sub(batch.iter().sum());
    batch
}

proptest! {
    /// Batches are those of a naive twin, with what is due before them, and the counters agree.
    #[test]
    fn batches_keep_to_what_is_allowed(
        unsent in 1_u64..20_000,
        mut allowed in 0_u64..30_000,
        segments in 1_usize..80,
        controls in 0_usize..3,
        answers in 0_usize..5,
    ) {
        let mut end = End::opened();
        end.out = TxBuf::new(segments);
        end.carrier.send(1, 0, unsent);
        end.fake().allowed = Some(allowed);
        (end.fake().controls, end.fake().answers) = (controls, answers);
        let most = segments.min(crate::datagram::MAX_SEGMENTS) as u64;
        let (mut left, mut wire, mut count) = (unsent, 0, 0);
        for n in (0..answers).step_by(segments) {
            let (lengths, _) = end.poll().unwrap();
            prop_assert_eq!(lengths.len(), (answers - n).min(segments));
            (wire, count) = (wire + lengths.iter().sum::<u64>(), count + lengths.len());
        }
        for _ in 0..controls {
            end.says(b"control");
            (wire, count) = (wire + 7, count + 1);
        }
        loop {
            let expected = naive(&mut left, &mut allowed, most);
            let Some((lengths, _)) = end.poll() else {
                prop_assert!(expected.is_empty());
                break;
            };
            prop_assert_eq!(&lengths, &expected);
            (wire, count) = (wire + lengths.iter().sum::<u64>(), count + lengths.len());
        }
        let stats = end.carrier.stats();
        prop_assert_eq!((stats.wire_sent, stats.datagrams_sent), (wire, count as u64));
        prop_assert_eq!(end.store.filled, unsent - left);
        prop_assert_eq!(end.carrier.unsent(), left);
    }

    /// Tests that after the end nothing is taken, timed or sent but the close to the peer, whatever
    /// happens in whatever order. There is one last event; data without room in the store are
    /// counted and not placed.
    #[test]
    fn nothing_follows_the_end(
        acts in proptest::collection::vec((0_u8..9, any::<u8>()), 1..60),
        free in 0_u64..60,
    ) {
        let mut end = End::opened();
        end.store.free = free;
        let (mut events, mut ended, mut data, mut open_taken) = (Vec::new(), false, 0_u64, 0);
        let (mut taken, mut timers) = (0, 0);
        for (act, n) in acts {
            end.now += Duration::from_millis(n.into());
            match act {
                0..=3 => {
                    let kinds = [&b"dd"[..], b"da", b"xd", b"d?", b"de", b"ded"][usize::from(n % 6)];
                    let before = end.store.placed;
                    end.feed(peer(), kinds);
                    if ended {
                        prop_assert_eq!(end.store.placed, before);
                    } else {
                        let used = kinds.iter().position(|k| *k == b'e').map_or(kinds.len(), |i| i + 1);
                        open_taken += used;
                        let units = kinds[..used].split(|k| *k == b'd').count() - 1;
                        data += 2 * units as u64;
                    }
                }
                4 => end.carrier.send(1, 0, u64::from(n)),
                5 if n < 40 => end.carrier.close(end.now, 7, "enough"),
                6 => end.fake().fails |= n < 20,
                7 => end.fake().dies |= n < 20,
                _ => {}
            }
            end.expire(end.now);
            let was = end.carrier.state.life.is_open();
            while let Some((_, first)) = end.poll() {
                prop_assert!(end.carrier.state.life.is_open() || first.starts_with(b"end"));
                if !was {
                    prop_assert!(first.starts_with(b"end"));
                }
            }
            events.extend(end.events());
            if ended {
                prop_assert_eq!((end.fake().taken, end.fake().timers), (taken, timers));
            }
            ended = !end.carrier.state.life.is_open();
            (taken, timers) = (end.fake().taken, end.fake().timers);
        }
        prop_assert_eq!(taken, open_taken);
        let last = events.iter().position(|event| matches!(event, Event::Closed(_)));
        prop_assert_eq!(last, ended.then(|| events.len() - 1));
        let stats = end.carrier.stats();
        prop_assert_eq!(end.store.placed, data.min(free / 2 * 2));
        prop_assert_eq!(stats.data_received, end.store.placed);
        prop_assert_eq!(stats.dropped_full * 2, data - end.store.placed);
        prop_assert_eq!(end.fake().refused as u64, stats.dropped_full);
        if ended {
            end.expire(end.now + Duration::from_mins(1));
            prop_assert!(end.carrier.is_closed() && end.carrier.poll_timeout().is_none());
        }
    }
}

#[test]
fn control_leaves_before_data_and_the_rest_if_no_data_leave() {
    let mut end = End::opened();
    end.carrier.send(1, 0, 50);
    (end.fake().controls, end.fake().rest) = (1, true);
    end.says(b"control");
    assert_eq!(end.poll().unwrap().0, [60]);
    end.says(b"rest");
    assert_eq!(end.poll(), None);
    end.carrier.send(1, 0, 50);
    (end.fake().allowed, end.fake().rest) = (None, true);
    end.now = at(5);
    end.says(b"rest");
    end.now = at(8);
    end.carrier.close(end.now, 0, "");
    assert_eq!(end.held(Why::Application), Duration::from_millis(5));
    assert_eq!(end.held(Why::Window), Duration::from_millis(3));
    end.fake().rest = true;
    end.says(b"end\0\0\0\0");
    assert_eq!(end.poll(), None);
}

#[test]
fn what_is_said_of_data_given_up_comes_at_once() {
    let mut end = End::opened();
    end.carrier.send(1, 0, 500);
    end.fake().gives_up = true;
    end.says(b"control");
    assert_eq!(end.fake().batches, 0);
    assert_eq!(end.poll().unwrap().0, [100, 100, 100, 100, 100, 60]);
    assert_eq!(end.fake().batches, 1);
}

#[test]
fn a_close_leaves_although_data_wait() {
    let mut end = End::opened();
    end.carrier.send(1, 0, 5_000);
    end.fake().controls = 1;
    end.carrier.close(end.now, 7, "enough");
    end.carrier.close(end.now, 8, "again");
    end.says(b"end\0\0\0\x07");
    assert_eq!(end.poll(), None);
    end.carrier.send(1, 0, 1);
    assert_eq!((end.carrier.unsent(), end.store.filled), (5_000, 0));
    let (code, text) = (7, "enough".to_owned());
    let closed = Event::Closed(CloseReason::Local { code, text });
    assert_eq!(end.events(), [closed]);
    end.feed(peer(), b"da");
    assert_eq!((end.fake().taken, end.fake().late), (0, 2));
    end.expire(at(60_000));
    assert!(end.carrier.is_closed());
    assert_eq!(end.poll(), None);
}

#[test]
fn a_law_that_fails_ends_the_session_before_anything_leaves() {
    let mut end = End::opened();
    end.carrier.send(1, 0, 5_000);
    (end.fake().controls, end.fake().fails) = (1, true);
    end.says(b"end\0\0\0\x01");
    assert_eq!(end.poll(), None);
    assert_eq!(
        end.events(),
        [Event::Closed(CloseReason::Internal("law".into()))]
    );
}

#[test]
fn a_store_that_fails_ends_the_session() {
    let store = |text: &str| Event::Closed(CloseReason::Store(text.into()));
    let mut reader = End::opened();
    reader.carrier.send(1, 0, 5_000);
    reader.store.fails = true;
    reader.says(b"end\0\0\0\0");
    assert_eq!(
        (reader.events(), reader.fake().batches),
        (vec![store("unread")], 0)
    );
    assert_eq!(reader.carrier.stats().datagrams_sent, 1);
    let mut writer = End::opened();
    writer.store.fails = true;
    writer.feed(peer(), b"?x");
    assert!(writer.events().is_empty(), "nothing was to be placed");
    writer.feed(peer(), b"d");
    assert_eq!(writer.events(), [store("full")]);
}

#[test]
fn a_store_without_room_costs_datagrams_and_not_the_session() {
    let mut end = End::opened();
    end.store.free = 5;
    end.feed(peer(), b"dddd");
    end.feed(peer(), b"d");
    let stats = end.carrier.stats();
    assert_eq!((stats.dropped_full, stats.data_received), (3, 4));
    assert_eq!((end.store.placed, end.fake().refused), (4, 3));
    assert_eq!(stats.datagrams_received, 5);
    end.store.free = 2;
    end.feed(peer(), b"d");
    assert_eq!(end.store.placed, 6);
    assert!(end.events().is_empty());
}

#[test]
fn what_came_before_the_end_counts_and_nothing_after_it() {
    let mut end = End::opened();
    end.carrier.send(1, 0, 10);
    end.feed(peer(), b"dxaed?");
    let peer_closed = CloseReason::Peer {
        code: 3,
        text: String::new(),
    };
    assert_eq!(end.events(), [Event::Delivered, Event::Closed(peer_closed)]);
    assert_eq!((end.store.placed, end.fake().taken), (2, 4));
    let stats = end.carrier.stats();
    assert_eq!((stats.datagrams_received, stats.dropped_malformed), (3, 1));
    assert!(end.carrier.is_closed());
    assert_eq!(end.poll(), None);
    assert_eq!(end.carrier.poll_timeout(), None);
}

#[test]
fn who_is_elsewhere_is_not_heard() {
    let mut end = End::opened();
    end.feed(([192, 0, 2, 9], 1).into(), b"dae");
    assert_eq!((end.fake().taken, end.store.placed), (0, 0));
    assert_eq!(end.carrier.stats().dropped_malformed, 3);
    end.carrier.close(end.now, 0, "");
    end.feed(([192, 0, 2, 9], 1).into(), b"d");
    assert_eq!(end.fake().late, 0);
}

#[test]
fn silence_is_asked_about_and_ends_an_open_session_only() {
    let mut end = End::new();
    assert_eq!(end.carrier.poll_timeout(), None);
    end.expire(at(3_600_000));
    assert_eq!((end.fake().asked, end.fake().timers), (0, 1));
    let mut end = End::opened();
    let next = |end: &End| end.carrier.poll_timeout().map(|(at, _)| at);
    assert_eq!(next(&end), Some(at(10_000)));
    end.expire(at(10_000));
    assert_eq!(end.fake().asked, 1);
    end.feed(peer(), b"x");
    assert!(next(&end) < Some(at(20_000)), "nothing was heard");
    end.feed(peer(), b"?");
    assert_eq!(next(&end), Some(at(20_000)));
    end.expire(at(40_000));
    assert_eq!(end.events(), [Event::Closed(CloseReason::TimedOut)]);
    assert_eq!(end.fake().timers, 1);
}

#[test]
fn a_lane_that_is_lost_ends_the_session() {
    let mut end = End::opened();
    let mut tell = |control: Control<'_>| {
        end.turn(|carrier, turn, _| carrier.handle_control(turn, control));
        end.events()
    };
    assert!(tell(Control::Opened).is_empty());
    let closed = Event::Closed(CloseReason::Lane("reset".into()));
    assert_eq!(tell(Control::Closed("reset")), [closed]);
    assert!(tell(Control::Closed("reset")).is_empty());
}
