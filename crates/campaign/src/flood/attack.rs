//! Traffic of attackers: datagrams from 2^16 addresses of the loopback network, at a rate. They are
//! garbage, hellos, and first flights as from addresses that are not the sender's. Others are
//! handshakes that are begun and left, and garbage that carries valid tokens.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use farhaul_core::{
    codec::Writer,
    datagram::{Ecn, Received, TxBuf},
    protocol::{Protocol as _, Session, Turn},
    rng::Rng,
    store::Hollow,
    time::Instant,
};
use farhaul_haul::{
    Haul, HaulConfig,
    crypto::{KeyPair, Side, tls::initial_keys},
    wire::{
        BASE_DATAGRAM, VERSION, VERSION_3,
        long::{self, Head, Kind},
    },
};
use farhaul_io::clock;
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SocketOptions, UdpSocket};

use crate::program::pause;

/// Time between two clock reads.
const TICK: Duration = Duration::from_millis(1);
/// Tokens kept; they live for ten seconds.
const TOKENS: usize = 4_096;
/// Handshakes that wait for a token.
const WAITING: usize = 4_096;

/// Kind of datagrams that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weapon {
    /// Bytes that mean nothing.
    Garbage,
    /// Requests for tokens.
    Hellos,
    /// First messages of clients that receive nothing.
    FirstFlights,
    /// Handshakes up to the client's first messages, then abandoned.
    HalfOpen,
    /// First messages that cannot be opened, with tokens that are valid.
    Initials,
}

/// Bytes sent and received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) bytes_sent: u64,
    /// Datagrams received, also where there was no space for them.
    pub(super) answers: u64,
    pub(super) bytes_answered: u64,
    /// Handshakes that were begun with a token.
    pub(super) begun: u64,
    pub(super) time: Duration,
}

impl Traffic {
    /// Datagrams per second.
    pub(super) fn rate(&self) -> f64 {
        per(self.sent, self.time)
    }

    pub(super) fn handshakes(&self) -> f64 {
        per(self.begun, self.time)
    }

    /// Bytes back per byte sent.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub(super) fn amplification(&self) -> f64 {
        self.bytes_answered as f64 / self.bytes_sent.max(1) as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// A token and the ids and address that it is good for.
struct Token {
    from: Ipv4Addr,
    client: u32,
    server: u32,
    bytes: Vec<u8>,
}

/// One attacker.
pub(super) struct Attacker {
    weapon: Weapon,
    /// Datagrams a second; handshakes, where they are begun.
    rate: u64,
    to: SocketAddr,
    socket: UdpSocket,
    inbox: Inbox,
    rng: Rng,
    haul: Haul,
    waiting: BTreeMap<u32, (Ipv4Addr, Box<dyn Session>)>,
    order: VecDeque<u32>,
    tokens: VecDeque<Token>,
    /// A client's first flight, opened, with where its clear part ends.
    opened: Vec<(Vec<u8>, usize)>,
    initial: KeyPair,
    traffic: Traffic,
    out: TxBuf,
}

impl Attacker {
    pub(super) fn new(weapon: Weapon, rate: u64, to: SocketAddr, seed: u64) -> io::Result<Self> {
        let mut options = SocketOptions::new((Ipv4Addr::UNSPECIFIED, 0).into());
        options.gro = false;
        let haul = Haul::client(HaulConfig::new([66; 32])).map_err(io::Error::other)?;
        let mut attacker = Self {
            weapon,
            rate,
            to,
            socket: UdpSocket::bind(&options)?,
            inbox: Inbox::new(),
            rng: Rng::new(seed),
            haul,
            waiting: BTreeMap::new(),
            order: VecDeque::new(),
            tokens: VecDeque::new(),
            opened: Vec::new(),
            initial: initial_keys(Side::Client),
            traffic: Traffic::default(),
            out: TxBuf::default(),
        };
        if weapon == Weapon::FirstFlights {
            attacker.opened = attacker.open_flight()?;
        }
        Ok(attacker)
    }

    /// The first flight of a real client, without its seal.
    fn open_flight(&mut self) -> io::Result<Vec<(Vec<u8>, usize)>> {
        let now = clock::now();
        let (_, mut session) = self.haul.connect(now, &mut self.rng, self.to, Some(1_500));
        let mut opened = Vec::new();
        for mut bytes in said(&mut *session, now, &mut self.rng, &mut self.out) {
            let (_, kind, at) = long::decode(&bytes).map_err(io::Error::other)?;
            let Kind::Initial { number, .. } = kind else {
                return Err(io::Error::other("a first flight of another kind"));
            };
            let keys = initial_keys(Side::Server);
            let end = keys.remote.open(number.into(), &mut bytes, at);
            end.ok_or_else(|| io::Error::other("a first flight under other keys"))?;
            opened.push((bytes, at));
        }
        Ok(opened)
    }

    /// The flight as of another client: its ids are in clear, and anybody can seal it.
    fn first_flight(&mut self, from: Ipv4Addr) -> io::Result<()> {
        let ids = self.rng.next_u64().to_be_bytes();
        let flight = std::mem::take(&mut self.opened);
        for (opened, at) in &flight {
            let mut bytes = opened.clone();
            bytes[5..13].copy_from_slice(&ids);
            let (_, kind, _) = long::decode(&bytes).map_err(io::Error::other)?;
            if let Kind::Initial { number, .. } = kind {
                self.initial.local.seal(number.into(), &mut bytes, *at);
            }
            self.send(from, &bytes);
        }
        self.opened = flight;
        Ok(())
    }

    /// Attacks until stopped.
    pub(super) fn run(mut self, stop: &AtomicBool) -> io::Result<Traffic> {
        let began = clock::now();
        let mut shots = 0;
        let mut last = began;
        while !stop.load(Relaxed) {
            let now = clock::now();
            let nanos = u64::try_from(now.since(last).as_nanos()).unwrap_or(u64::MAX);
            // Who was kept from sending does not catch up by more than ten ticks.
            let due = (shots + nanos.saturating_mul(self.rate)) / 1_000_000_000;
            let due = due.min(self.rate / 100);
            shots = (shots + nanos.saturating_mul(self.rate)) % 1_000_000_000;
            last = now;
            for _ in 0..due {
                self.shoot(now)?;
            }
            self.listen(now)?;
            pause(TICK);
        }
        self.traffic.time = clock::now().since(began);
        // Datagrams on their way still count.
        pause(TICK * 50);
        self.listen(clock::now())?;
        let overflowed = self.socket.counters().overflowed;
        let mean = self.traffic.bytes_answered / self.traffic.answers.max(1);
        self.traffic.answers += overflowed;
        self.traffic.bytes_answered += overflowed * mean;
        Ok(self.traffic)
    }

    /// One of 2^16 addresses.
    fn address(&mut self) -> Ipv4Addr {
        let [.., c, d] = self.rng.next_u64().to_be_bytes();
        Ipv4Addr::new(127, 66, c, d)
    }

    fn send(&mut self, from: Ipv4Addr, bytes: &[u8]) {
        let datagram = Outgoing {
            to: self.to,
            from: Some(IpAddr::V4(from)),
            ecn: Ecn::NotEct,
            segment: bytes.len().max(1),
            bytes,
        };
        // What does not leave is not counted as sent.
        let before = self.socket.counters().datagrams_sent;
        let _lost = self.socket.send(&datagram);
        if self.socket.counters().datagrams_sent > before {
            self.traffic.sent += 1;
            self.traffic.bytes_sent += bytes.len() as u64;
        }
    }

    fn shoot(&mut self, now: Instant) -> io::Result<()> {
        let from = self.address();
        match self.weapon {
            Weapon::Garbage => {
                let mut bytes = [0; 1_400];
                let len = usize::try_from(self.rng.below(1_400)).unwrap_or(0) + 1;
                self.rng.fill(&mut bytes[..len.min(64)]);
                // A quarter looks like the beginning of a session.
                if len > long::HEAD && self.rng.below(4) == 0 {
                    let kind = u8::try_from(self.rng.below(8)).unwrap_or(0);
                    bytes[0] = long::LONG | kind;
                    bytes[1..5].copy_from_slice(&VERSION.to_be_bytes());
                }
                self.send(from, &bytes[..len]);
            }
            Weapon::Hellos => self.hello(from)?,
            // Half of them in the name of the honest clients.
            Weapon::FirstFlights if self.rng.below(2) == 0 => {
                self.first_flight(Ipv4Addr::LOCALHOST)?;
            }
            Weapon::FirstFlights => self.first_flight(from)?,
            Weapon::HalfOpen => self.begin(now, from),
            // One in a hundred gets a new token.
            Weapon::Initials if self.tokens.len() < 64 || self.rng.below(100) == 0 => {
                self.hello(from)?;
            }
            Weapon::Initials => self.garbage_initial()?,
        }
        Ok(())
    }

    fn hello(&mut self, from: Ipv4Addr) -> io::Result<()> {
        let [a, b, c, d, ..] = self.rng.next_u64().to_be_bytes();
        let head = Head {
            version: VERSION_3,
            to: 0,
            from: u32::from_be_bytes([a, b, c, d]).max(1),
        };
        let mut bytes = [0; BASE_DATAGRAM];
        encode(&mut bytes, head, &Kind::Hello { attempt: 0 })?;
        self.send(from, &bytes);
        Ok(())
    }

    fn garbage_initial(&mut self) -> io::Result<()> {
        let which = self.rng.below(self.tokens.len() as u64);
        let token = &self.tokens[usize::try_from(which).unwrap_or(0)];
        let head = Head {
            version: VERSION_3,
            to: token.server,
            from: token.client,
        };
        let from = token.from;
        let mut bytes = [0; BASE_DATAGRAM];
        let kind = Kind::Initial {
            token: &token.bytes,
            number: 0,
        };
        let at = encode(&mut bytes, head, &kind)?;
        self.rng.fill(&mut bytes[at..at + 64]);
        self.send(from, &bytes);
        Ok(())
    }

    /// Begins a handshake: the real one's first flight.
    fn begin(&mut self, now: Instant, from: Ipv4Addr) {
        let (id, session) = self.haul.connect(now, &mut self.rng, self.to, Some(1_500));
        let id = u32::try_from(id).unwrap_or(0);
        self.waiting.insert(id, (from, session));
        self.order.push_back(id);
        if self.order.len() > WAITING
            && let Some(oldest) = self.order.pop_front()
        {
            self.waiting.remove(&oldest);
        }
        self.continue_with(now, id, None);
    }

    /// The session `id` receives an answer and sends; what it sent.
    fn continue_with(&mut self, now: Instant, id: u32, answer: Option<&mut [u8]>) {
        let Some((from, session)) = self.waiting.get_mut(&id) else {
            return;
        };
        let from = *from;
        if let Some(bytes) = answer {
            let mut turn = Turn {
                now,
                rng: &mut self.rng,
                store: &mut Hollow,
            };
            let batch = Received {
                from: self.to,
                ecn: Ecn::NotEct,
                segment: bytes.len(),
                bytes,
                waited: Duration::ZERO,
                granted: None,
            };
            session.handle_datagrams(&mut turn, batch);
        }
        for bytes in said(&mut **session, now, &mut self.rng, &mut self.out) {
            self.send(from, &bytes);
        }
    }

    /// Receives answers.
    fn listen(&mut self, now: Instant) -> io::Result<()> {
        let mut inbox = std::mem::take(&mut self.inbox);
        loop {
            match self.socket.receive(&mut inbox) {
                ReceiveOutcome::Some { more } => {
                    for message in inbox.messages() {
                        self.traffic.answers += 1;
                        self.traffic.bytes_answered += message.bytes.len() as u64;
                        self.on_reply(now, message.to, message.bytes);
                    }
                    if !more {
                        break;
                    }
                }
                ReceiveOutcome::Refused => {}
                ReceiveOutcome::Empty => break,
                ReceiveOutcome::Failed(error) => return Err(error),
            }
        }
        self.inbox = inbox;
        Ok(())
    }

    fn on_reply(&mut self, now: Instant, to: Option<IpAddr>, bytes: &mut [u8]) {
        let Ok((head, Kind::Retry { token, .. }, _)) = long::decode(bytes) else {
            return;
        };
        let (client, server) = (head.to, head.from);
        match (self.weapon, to) {
            (Weapon::HalfOpen, _) => {
                self.continue_with(now, client, Some(bytes));
                // Silence from here on.
                self.traffic.begun += u64::from(self.waiting.remove(&client).is_some());
            }
            (Weapon::Initials, Some(IpAddr::V4(from))) => {
                self.tokens.push_back(Token {
                    from,
                    client,
                    server,
                    bytes: token.to_vec(),
                });
                if self.tokens.len() > TOKENS {
                    self.tokens.pop_front();
                }
            }
            _ => {}
        }
    }
}

/// Datagrams that `session` has to send now.
fn said(session: &mut dyn Session, now: Instant, rng: &mut Rng, out: &mut TxBuf) -> Vec<Vec<u8>> {
    let mut turn = Turn {
        now,
        rng,
        store: &mut Hollow,
    };
    let mut said = Vec::new();
    while session.poll_transmit(&mut turn, out).is_some() {
        said.extend(out.segments().map(|(segment, _)| segment.to_vec()));
    }
    said
}

fn encode(bytes: &mut [u8], head: Head, kind: &Kind<'_>) -> io::Result<usize> {
    let mut w = Writer::new(bytes);
    let full = |_| io::Error::other("a header does not fit a datagram");
    long::encode(&mut w, head, kind).map_err(full)?;
    Ok(w.len())
}
