//! A client and a listener whose path does what the bytes say: it loses, repeats, reorders, cuts, damages
//! and invents, and time passes as it will. Whatever that is, nothing panics, answers are bounded, and both
//! ends end. For the fuzz targets `handshake_sealed` and `closing` and for the tests on stable.
#![allow(unreachable_pub, reason = "a module of several programs")]
#![allow(dead_code, reason = "each program uses a part")]

use std::{collections::VecDeque, time::Duration};

use farhaul_core::{
    codec::Writer,
    datagram::TxBuf,
    protocol::{Event, Route},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{
    Haul, HaulConfig, Identity,
    crypto::{Side, tls::initial_keys},
    wire::{
        BASE_DATAGRAM, TAG, VERSION, VERSION_3,
        long::{self, Head, Kind},
        short::{LEN, Short},
    },
};
use farhaul_testkit::Driver;

/// The client's place in pairs.
const CLIENT: usize = 0;
const SERVER: usize = 1;
/// Datagrams that wait to arrive; a path has no more room.
const ROOM: usize = 64;
/// Most steps that an input may take.
const STEPS: usize = 300;
/// Most datagrams of a session that closes. They are the rest of a flight without which the peer
/// could not read the close frame, the close frame, again in silence, and in answer to what
/// arrives.
const CLOSE_FRAMES: usize = 8 + 1 + 3 + 8;

/// Any path under a sealed handshake, and whatever follows.
pub fn handshake(data: &[u8]) {
    // The server asks for tokens, or not.
    let max_unvalidated = data.first().map_or(0, |first| usize::from(first % 2) * 4);
    let mut world = World::new(false, max_unvalidated);
    world.run(&mut Bytes(data));
    world.finish();
}

/// Two ends that are open; one closes or both do, and then anything arrives. Plain, so that each frame is
/// reached.
pub fn closing(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut world = World::new(true, 64);
    let first = bytes.u8();
    for _ in 0..first % 8 {
        world.pass(Duration::from_millis(6));
        world.exchange();
    }
    for side in [CLIENT, SERVER] {
        if first & (16 << side) != 0 {
            world.send(side);
        }
        if first & (64 << side) != 0 || side == CLIENT {
            world.close(side);
        }
    }
    world.run(&mut bytes);
    world.finish();
}

/// Rest of the input; zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn take(&mut self) -> &[u8] {
        let len = usize::from(self.u8()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
}

struct End {
    at: Driver<Hollow>,
    /// Datagrams on their way to this end.
    coming: VecDeque<Vec<u8>>,
    heard: usize,
    said: usize,
    bytes_heard: usize,
    bytes_said: usize,
    ended: usize,
    /// Datagrams sent when the end began to close.
    closing: Option<usize>,
    /// Key that the end must meet; where nothing is sealed, keys can be forged.
    key: Option<Vec<u8>>,
}

impl End {
    fn new(side: usize, plain: bool, max_unvalidated: usize) -> Self {
        let seed = [7, 8][side];
        let config = HaulConfig {
            plain,
            max_unvalidated,
            law: "cubic".into(),
            ..HaulConfig::new([seed; 32])
        };
        let make = [Haul::client, Haul::server][side];
        let peer = Identity::from_seed(&[15 - seed; 32]).expect("32 bytes");
        let haul = Box::new(make(config).expect("a valid configuration"));
        let address = (std::net::Ipv4Addr::new(192, 0, 2, seed), 5_000).into();
        Self {
            at: Driver::new(haul, address, Hollow, Rng::new(seed.into())),
            coming: VecDeque::new(),
            heard: 0,
            said: 0,
            bytes_heard: 0,
            bytes_said: 0,
            ended: 0,
            closing: None,
            key: (!plain).then(|| peer.public().as_bytes().to_vec()),
        }
    }

    fn id(&self) -> u32 {
        u32::try_from(self.at.id().unwrap_or(0)).expect("ids have four bytes")
    }

    fn is_over(&self) -> bool {
        self.at.session.is_none() || self.at.is_closed()
    }
}

struct World {
    ends: [End; 2],
    now: Instant,
    out: TxBuf,
    turns: usize,
    /// Numbers of invented packets.
    number: u32,
}

impl World {
    fn new(plain: bool, max_unvalidated: usize) -> Self {
        let mut world = Self {
            ends: [CLIENT, SERVER].map(|side| End::new(side, plain, max_unvalidated)),
            now: Instant::from_nanos(1 << 40),
            out: TxBuf::default(),
            turns: 0,
            number: 0,
        };
        let to = world.ends[SERVER].at.address;
        world.ends[CLIENT].at.connect(world.now, to, Some(1_500));
        world.settle(CLIENT);
        world
    }

    fn run(&mut self, bytes: &mut Bytes<'_>) {
        for _ in 0..STEPS {
            if bytes.0.is_empty() {
                return;
            }
            self.step(bytes);
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let op = bytes.u8();
        let side = usize::from(op >> 7);
        let coming = &mut self.ends[side].coming;
        match op % 16 {
            0 => self.exchange(),
            1 => self.deliver_next(side),
            2 => {
                if let Some(newest) = coming.pop_back() {
                    self.deliver(side, newest);
                }
            }
            3 => drop(coming.pop_front()),
            4 => {
                let again = coming.front().cloned();
                coming.extend(again);
            }
            5 => {
                let len = usize::from(bytes.u8()) * 8;
                if let Some(next) = coming.front_mut() {
                    next.truncate(len);
                }
            }
            6 => {
                let (at, with) = (usize::from(bytes.u8()) * 7, bytes.u8());
                let len = coming.front().map_or(1, |next| next.len().max(1));
                if let Some(byte) = coming.front_mut().and_then(|next| next.get_mut(at % len)) {
                    *byte ^= with;
                }
            }
            7 => {
                let others = &self.ends[1 - side].coming;
                let reflected = others.front().cloned();
                self.ends[side].coming.extend(reflected);
            }
            8 => self.invent_long(side, bytes),
            9 => self.invent_short(side, bytes),
            10 => {
                let raw = bytes.take().to_vec();
                self.deliver(side, raw);
            }
            11 => self.pass(Duration::from_millis(bytes.u8().into())),
            12 => self.pass(Duration::from_millis(u64::from(bytes.u8()) * 150)),
            13 => {
                self.pass_to_deadline();
            }
            14 => self.send(side),
            _ => self.close(side),
        }
    }

    fn deliver_next(&mut self, to: usize) {
        if let Some(next) = self.ends[to].coming.pop_front() {
            self.deliver(to, next);
        }
    }

    /// All that is under way arrives.
    fn exchange(&mut self) {
        for to in [SERVER, CLIENT] {
            for _ in 0..self.ends[to].coming.len() {
                self.deliver_next(to);
            }
        }
    }

    fn deliver(&mut self, to: usize, mut bytes: Vec<u8>) {
        let from = self.ends[1 - to].at.address;
        let end = &mut self.ends[to];
        if bytes.is_empty() || end.at.protocol.route(&bytes) == Route::Foreign {
            return;
        }
        end.heard += 1;
        end.bytes_heard += bytes.len();
        match end.at.on_datagram(self.now, from, &mut bytes) {
            Some(reply) => self.launch(1 - to, reply),
            None => self.settle(to),
        }
    }

    fn launch(&mut self, to: usize, bytes: Vec<u8>) {
        let coming = &mut self.ends[to].coming;
        if coming.len() < ROOM {
            coming.push_back(bytes);
        }
    }

    /// Lets `side` send what it has to.
    fn settle(&mut self, side: usize) {
        let end = &mut self.ends[side];
        let said = end.at.drain(self.now, &mut self.out);
        end.said += said.len();
        end.bytes_said += said.iter().map(|sent| sent.bytes.len()).sum::<usize>();
        if let Some((_, session)) = &end.at.session {
            assert!(
                session.is_address_validated() || end.bytes_said <= 3 * end.bytes_heard,
                "amplification"
            );
        }
        end.at.listen(self.now);
        for event in end.at.events.drain(..) {
            match event {
                Event::Connected { peer_key } => {
                    assert!(
                        end.key.is_none() || end.key == peer_key,
                        "a stranger is let in"
                    );
                }
                Event::Closed(_) => {
                    end.ended += 1;
                    end.closing.get_or_insert(end.said);
                }
                Event::Readable | Event::Delivered => {}
            }
        }
        end.at.stream.clear();
        assert!(end.ended <= 1, "it ends once");
        if let Some(before) = end.closing {
            assert!(
                end.said - before <= CLOSE_FRAMES,
                "a close frame is answered for ever"
            );
        }
        for datagram in said {
            self.launch(1 - side, datagram.bytes);
        }
    }

    fn pass(&mut self, by: Duration) {
        self.now += by;
        for side in [CLIENT, SERVER] {
            if self.ends[side].at.expire(self.now) {
                self.turns += 1;
                self.settle(side);
            }
        }
    }

    /// False if nobody waits for anything.
    fn pass_to_deadline(&mut self) -> bool {
        let next = self.ends.iter().filter_map(|end| end.at.deadline()).min();
        let Some(next) = next else { return false };
        self.pass(next.since(self.now));
        true
    }

    fn send(&mut self, side: usize) {
        if let Some((_, session)) = &mut self.ends[side].at.session {
            session.send(1, 0, 20_000);
            session.write(b"some words");
        }
        self.settle(side);
    }

    fn close(&mut self, side: usize) {
        if let Some((_, session)) = &mut self.ends[side].at.session {
            session.close(self.now, 3, "enough");
        }
        self.settle(side);
    }

    /// A datagram of the handshake for `to`. Parts without secrets are sealed as they should be:
    /// keys of the first datagrams follow from the ids.
    fn invent_long(&mut self, to: usize, bytes: &mut Bytes<'_>) {
        let (what, number) = (bytes.u8(), bytes.u8());
        let version = match (what & 128, number % 2) {
            (0, _) => VERSION,
            (_, 0) => VERSION_3,
            _ => number.into(),
        };
        let ids = [CLIENT, SERVER].map(|side| self.ends[side].id());
        let known = if what & 64 == 0 { ids[SERVER] } else { 0 };
        let head = if to == CLIENT {
            Head {
                version,
                to: ids[CLIENT],
                from: known,
            }
        } else {
            Head {
                version,
                to: known,
                from: ids[CLIENT],
            }
        };
        let body = bytes.take().to_vec();
        let (token, content) = body.split_at(body.len().min(usize::from(what >> 4)));
        let kind = match what % 5 {
            0 => Kind::Hello { attempt: number },
            1 => Kind::Retry {
                attempt: number,
                token,
            },
            2 => Kind::Initial { token, number },
            3 => Kind::Handshake { number },
            _ => Kind::Versions { list: content },
        };
        let is_retry = matches!(kind, Kind::Retry { .. });
        let mut datagram = vec![0; BASE_DATAGRAM];
        let mut w = Writer::new(&mut datagram);
        long::encode(&mut w, head, &kind).expect("room enough");
        let at = w.len();
        let content = if is_retry { &[][..] } else { content };
        datagram[at..at + content.len()].copy_from_slice(content);
        if what & 32 != 0 || is_retry {
            datagram.truncate(at + content.len() + TAG);
        }
        let from = [Side::Server, Side::Client][to];
        let number = if is_retry { 0 } else { number };
        initial_keys(from)
            .local
            .seal(number.into(), &mut datagram, at);
        self.deliver(to, datagram);
    }

    /// A datagram with frames of the input; opened where nothing is sealed.
    fn invent_short(&mut self, to: usize, bytes: &mut Bytes<'_>) {
        let phase = bytes.u8();
        self.number += 1 + u32::from(phase >> 4);
        let header = Short {
            phase: phase & 1 != 0,
            to: self.ends[to].id(),
            number: 1_000 + self.number,
        };
        let content = bytes.take();
        let mut datagram = vec![0; LEN + content.len() + TAG];
        header
            .encode(&mut Writer::new(&mut datagram))
            .expect("room enough");
        datagram[LEN..LEN + content.len()].copy_from_slice(content);
        self.deliver(to, datagram);
    }

    /// Ends the input: nothing arrives any more, and both ends end by themselves.
    fn finish(mut self) {
        for _ in 0..10_000 {
            if self.ends.iter().all(End::is_over) || !self.pass_to_deadline() {
                break;
            }
            self.ends.iter_mut().for_each(|end| end.coming.clear());
        }
        for (side, end) in self.ends.iter().enumerate() {
            assert!(end.is_over(), "end {side} never ends");
            assert_eq!(
                end.ended,
                usize::from(end.at.session.is_some()),
                "its owner is notified"
            );
            let most = 100 + 40 * (end.heard + self.turns);
            assert!(
                end.said <= most,
                "{} said after {} heard",
                end.said,
                end.heard
            );
        }
    }
}
