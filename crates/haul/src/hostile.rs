//! Tests what a host without a key can do that implements the protocol. The stranger is made of the
//! real handshake, whose datagrams are its own, and meets a real listener.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use farhaul_core::{
    codec::Writer,
    datagram::{Ecn, Received, TxBuf},
    protocol::{Accepted, CloseReason, Event, Protocol, Session, Turn},
    rng::Rng,
    store::Hollow,
    time::Instant,
};

use crate::{
    Haul, HaulConfig,
    crypto::{Side, Suite, tls::Tls},
    handshake::{Handshake, Ids},
    wire::{
        BASE_DATAGRAM, TAG, VERSION, VERSIONS,
        frame::{Frame, kind},
        long::{self, Head, Kind},
        params::Params,
    },
};

/// The stranger's connection id, and the one it chooses for the listener.
const ID: u32 = 77;
const SERVER: u32 = 78;

fn address() -> SocketAddr {
    "192.0.2.66:6666".parse().unwrap()
}

struct Stranger {
    handshake: Handshake,
    suite: Arc<dyn Suite>,
    now: Instant,
    listener: Haul,
    session: Option<Box<dyn Session>>,
    rng: Rng,
    events: Vec<Event>,
    answers: Vec<Vec<u8>>,
}

impl Stranger {
    /// A stranger for a listener that begins this many sessions without a token.
    fn new(max_unvalidated: usize) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let config = HaulConfig {
            law: "fixed:rate=100Mbit".into(),
            max_unvalidated,
            ..HaulConfig::new([2; 32])
        };
        let suite: Arc<dyn Suite> = Arc::new(Tls::for_tests());
        let limits = Params {
            max_datagram: 9_216,
            idle: Duration::from_secs(30),
            ids: (0, 0),
            law: None,
            app: Vec::new(),
            versions: VERSIONS.to_vec(),
            tunnel: false,
        };
        let ids = Ids {
            local: ID,
            remote: SERVER,
        };
        let mut handshake = Handshake::client(Arc::clone(&suite), ids, limits, now);
        handshake.open().unwrap();
        Self {
            handshake,
            suite,
            now,
            listener: Haul::server(config).unwrap(),
            session: None,
            rng: Rng::new(5),
            events: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Sends first messages and takes the token.
    fn greet(&mut self) {
        for mut datagram in self.flight() {
            self.say(&mut datagram);
        }
        for mut retry in std::mem::take(&mut self.answers) {
            self.handshake.on_datagram(self.now, &mut retry).unwrap();
        }
    }

    fn flight(&mut self) -> Vec<Vec<u8>> {
        let now = self.now;
        std::iter::from_fn(|| self.handshake.poll(now).map(<[u8]>::to_vec)).collect()
    }

    /// Passes `datagram` to the listener, or to its session once there is one.
    fn say(&mut self, datagram: &mut [u8]) {
        if self.session.is_none() {
            let mut reply = Vec::new();
            let heard =
                self.listener
                    .accept(self.now, &mut self.rng, address(), datagram, &mut reply);
            match heard {
                Accepted::Session(_, session) => self.session = Some(session),
                Accepted::Reply => return self.answers.push(reply),
                Accepted::Drop => return,
            }
        }
        let Some(session) = &mut self.session else {
            return;
        };
        let mut turn = Turn {
            now: self.now,
            rng: &mut self.rng,
            store: &mut Hollow,
        };
        let batch = Received {
            from: address(),
            ecn: Ecn::NotEct,
            segment: datagram.len(),
            bytes: datagram,
            waited: Duration::ZERO,
            granted: None,
        };
        session.handle_datagrams(&mut turn, batch);
        let mut out = TxBuf::default();
        while session.poll_transmit(&mut turn, &mut out).is_some() {
            self.answers
                .extend(out.segments().map(|(segment, _)| segment.to_vec()));
        }
        self.events
            .extend(std::iter::from_fn(|| session.poll_event()));
    }

    /// Sends nothing for `time`.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        let Some(session) = &mut self.session else {
            return;
        };
        let mut out = TxBuf::default();
        while let Some((at, _)) = session.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now = at;
            let mut turn = Turn {
                now: at,
                rng: &mut self.rng,
                store: &mut Hollow,
            };
            session.handle_timeout(&mut turn);
            while session.poll_transmit(&mut turn, &mut out).is_some() {
                self.answers
                    .extend(out.segments().map(|(segment, _)| segment.to_vec()));
            }
        }
        self.now = end;
    }

    /// An Initial with the stranger's own `frames`, padded.
    fn initial(&self, number: u8, frames: &[u8]) -> Vec<u8> {
        let server = self.handshake.ids().remote;
        let mut bytes = vec![kind::PADDING; BASE_DATAGRAM];
        let mut w = Writer::new(&mut bytes);
        let head = Head {
            version: VERSION,
            to: server,
            from: ID,
        };
        let token = self.handshake.token();
        long::encode(&mut w, head, &Kind::Initial { token, number }).unwrap();
        let at = w.len();
        w.put(frames).unwrap();
        let end = w.len();
        bytes[end..BASE_DATAGRAM - TAG].fill(kind::PADDING);
        let keys = self.suite.initial(Side::Client);
        keys.local.seal(number.into(), &mut bytes, at);
        bytes
    }
}

#[test]
fn a_token_alone_makes_no_session() {
    let mut stranger = Stranger::new(0);
    stranger.greet();
    let mut forged = stranger.initial(0, &[kind::PING]);
    stranger.say(&mut forged);
    assert!(stranger.session.is_none(), "nothing of a handshake in it");
    let mut crypto = [0; 40];
    let mut w = Writer::new(&mut crypto);
    let data = &[1; 20][..];
    crate::wire::frame::encode(&mut w, &Frame::Crypto { offset: 5, data }).unwrap();
    let len = w.len();
    let mut forged = stranger.initial(0, &crypto[..len]);
    stranger.say(&mut forged);
    assert!(stranger.session.is_none(), "not the beginning");
    let mut flight = stranger.flight();
    let last = flight[0].len() - 1;
    flight[0][last] ^= 1;
    stranger.say(&mut flight[0].clone());
    assert!(stranger.session.is_none(), "not authentic");
    flight[0][last] ^= 1;
    stranger.say(&mut flight[0]);
    assert!(stranger.session.is_some());
}

#[test]
fn what_arrives_after_a_close_neither_panics_nor_is_answered_without_bound() {
    let mut stranger = Stranger::new(0);
    stranger.greet();
    // As the rtt of such a token is long, the close lingers.
    stranger.now += Duration::from_secs(2);
    for mut datagram in stranger.flight() {
        stranger.say(&mut datagram);
    }
    assert!(stranger.session.is_some());
    let mut datagram = stranger.initial(7, &[kind::PING]);
    stranger.say(&mut datagram);
    assert!(
        matches!(
            stranger.events[..],
            [Event::Closed(CloseReason::Protocol(_))]
        ),
        "{:?}",
        stranger.events
    );
    stranger.answers.clear();
    for i in 0..=1_000_u32 {
        stranger.now += Duration::from_millis(2);
        let mut datagram = stranger.initial(u8::try_from(i % 200).unwrap(), &[]);
        stranger.say(&mut datagram);
    }
    assert!(stranger.answers.len() <= 8, "{}", stranger.answers.len());
    assert!(stranger.answers.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn an_abandoned_handshake_is_sent_three_times_the_bytes_received() {
    let mut stranger = Stranger::new(0);
    stranger.greet();
    // As the rtt of such a token is long, each flight is sent twice.
    stranger.now += Duration::from_millis(100);
    let mut said = 0;
    for mut datagram in stranger.flight() {
        said += datagram.len();
        stranger.say(&mut datagram);
    }
    stranger.wait(Duration::from_mins(1));
    let answered: usize = stranger.answers.iter().map(Vec::len).sum();
    assert!(stranger.answers.len() >= 4, "its loss is made good");
    assert!(answered <= 3 * said, "{answered} bytes for {said}");
}

/// Bytes of all that was answered.
fn answered(stranger: &Stranger) -> usize {
    stranger.answers.iter().map(Vec::len).sum()
}

#[test]
fn an_address_is_validated_by_the_keys_that_the_answer_led_to_only() {
    let mut stranger = Stranger::new(64);
    let mut said = 0;
    for mut datagram in stranger.flight() {
        said += datagram.len();
        stranger.say(&mut datagram);
    }
    assert!(!stranger.answers.is_empty(), "answered without a token");
    // Without the answer nobody has these keys: not by the initial ones, and not by chance.
    for number in 0..40 {
        let mut forged = stranger.initial(0, &[kind::PADDING]);
        forged[0] = long::LONG | 3;
        said += forged.len();
        stranger.say(&mut forged);
        let mut repeated = stranger.initial(number + 100, &[kind::PADDING]);
        said += repeated.len();
        stranger.say(&mut repeated);
        assert!(answered(&stranger) <= 3 * said);
        let session = stranger.session.as_ref().unwrap();
        assert!(!session.is_address_validated());
    }
    assert_eq!(stranger.events, []);
    for mut answer in std::mem::take(&mut stranger.answers) {
        stranger
            .handshake
            .on_datagram(stranger.now, &mut answer)
            .unwrap();
    }
    for mut datagram in stranger.flight() {
        stranger.say(&mut datagram);
    }
    assert!(stranger.session.as_ref().unwrap().is_address_validated());
    assert!(matches!(stranger.events[..], [Event::Connected { .. }]));
}

#[test]
fn who_is_not_validated_is_told_of_a_close_within_three_times_its_bytes_too() {
    let mut stranger = Stranger::new(64);
    let mut said = 0;
    for mut datagram in stranger.flight() {
        said += datagram.len();
        stranger.say(&mut datagram);
    }
    stranger.wait(Duration::from_secs(5));
    let before = answered(&stranger);
    assert!(before > 2 * said, "repeated as long as it may be");
    for number in 0..100 {
        let mut bad = stranger.initial(number, &[kind::PING]);
        said += bad.len();
        stranger.say(&mut bad);
        assert!(answered(&stranger) <= 3 * said);
    }
    stranger.wait(Duration::from_mins(1));
    assert!(answered(&stranger) <= 3 * said);
    assert!(stranger.session.as_ref().unwrap().is_closed());
}

#[test]
fn first_messages_that_are_not_authentic_or_not_the_first_begin_nothing() {
    let mut stranger = Stranger::new(64);
    let mut flight = stranger.flight();
    assert_eq!(flight.len(), 2);
    stranger.say(&mut flight[1].clone());
    flight[0][700] ^= 1;
    stranger.say(&mut flight[0].clone());
    let mut short = flight[0][..1_199].to_vec();
    stranger.say(&mut short);
    assert!(stranger.session.is_none() && stranger.answers.is_empty());
    flight[0][700] ^= 1;
    stranger.say(&mut flight[0]);
    assert!(stranger.session.is_some());
}

#[test]
fn handshake_messages_with_holes_are_bounded() {
    let mut stranger = Stranger::new(0);
    stranger.greet();
    let mut frames = vec![0; 1_000];
    for round in 0..20_u8 {
        let mut w = Writer::new(&mut frames);
        for i in 0..100 {
            let (offset, data) = (2 * (100 * u64::from(round) + i), &[1][..]);
            crate::wire::frame::encode(&mut w, &Frame::Crypto { offset, data }).unwrap();
        }
        let len = w.len();
        let mut datagram = stranger.initial(round, &frames[..len]);
        stranger.say(&mut datagram);
    }
    assert!(
        matches!(
            stranger.events[..],
            [Event::Closed(CloseReason::Protocol(_))]
        ),
        "{:?}",
        stranger.events
    );
}
