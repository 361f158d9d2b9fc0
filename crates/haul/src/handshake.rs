//! Gives keys to two sides without shared state, over a path that loses, duplicates and corrupts.
//! The handshake goes in flights: each side's latest messages, sealed once and kept as datagrams. A
//! timer sends them again as they are until the other side answers with something new.
//!
//! The client begins with its first messages, and a server that is not loaded answers with its own:
//! one round trip. A loaded server answers with a token, as it always does in version 3, whose
//! client begins with a hello. Only a client that returns the token gets a session then. The first
//! answer also gives each side the rtt.

use std::{sync::Arc, time::Duration};

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    loss::Ranges,
    text,
    time::Instant,
};

use crate::{
    crypto::{Change, Crypto, KeyPair, Ratchet, Refusal, Side, Suite},
    unvalidated::Entry,
    wire::{
        BASE_DATAGRAM, TAG, VERSION,
        frame::{self, Cause, Frame},
        has_hello,
        long::{self, Head, Kind},
        params::Params,
    },
};

/// The most bytes of messages per level.
const MAX_MESSAGES: u64 = 16 << 10;
/// Most separate runs of messages that may wait to be joined.
const MAX_RUNS: usize = 64;
/// Timeout before any rtt is known.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// Between two transmissions of a flight, unless the rtt requires more.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Rtt from which on a lost flight costs more than sending each flight twice.
const LONG_PATH: Duration = Duration::from_millis(20);
/// Bytes that a server sends per byte received, until the handshake is finished.
const AMPLIFICATION: usize = 3;
/// Hellos whose time of departure is remembered.
const HELLOS: usize = 16;

/// The connection ids of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) local: u32,
    pub(crate) remote: u32,
}

impl Ids {
    /// Server, client.
    pub(crate) const fn ordered(self, side: Side) -> (u32, u32) {
        match side {
            Side::Client => (self.remote, self.local),
            Side::Server => (self.local, self.remote),
        }
    }
}

/// Server's proof that the client receives at its address (RFC 9000 §8.1).
pub(crate) enum AddressValidation {
    /// The client returned a token of this age.
    Token(Duration),
    /// No proof yet: a client that uses the handshake keys has received this side's messages.
    Pending(Entry),
}

/// Effect of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Drained.
    Drained,
    /// The datagram is not for this state, or was seen before.
    Ignored,
    /// Could not be opened.
    Unauthentic,
    /// The peer gave up.
    Closed {
        cause: Cause,
        code: u32,
        text: String,
    },
    /// No common version.
    Version(String),
}

/// Result of the handshake.
pub(crate) struct Agreed {
    pub(crate) keys: KeyPair,
    pub(crate) ratchet: Ratchet,
    pub(crate) peer_key: Option<Vec<u8>>,
    pub(crate) params: Params,
}

/// One level's messages as they arrive.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    have: Ranges,
    read: usize,
}

impl Inbox {
    fn insert(&mut self, offset: u64, data: &[u8]) -> Result<(), DecodeError> {
        let end = offset.saturating_add(data.len() as u64);
        if end > MAX_MESSAGES || self.have.len() > MAX_RUNS {
            return Err(DecodeError::Malformed("too many handshake messages"));
        }
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
        self.have.insert(offset..end);
        Ok(())
    }

    /// Takes the bytes that follow those read, without a hole.
    fn ready(&mut self) -> &[u8] {
        let end = usize::try_from(self.have.prefix()).unwrap_or_default();
        let start = std::mem::replace(&mut self.read, end);
        &self.bytes[start..end]
    }
}

/// The latest messages, as datagrams.
#[derive(Default)]
struct Flight {
    datagrams: Vec<Vec<u8>>,
    cursor: usize,
    copies: u32,
    sends: u32,
    due: Option<Instant>,
    /// Time at which its first datagram left.
    first_sent: Option<Instant>,
}

/// One level of keys and the messages under them.
struct Level {
    keys: Arc<KeyPair>,
    inbox: Inbox,
    sent: u64,
    /// Datagrams sealed; the next one's number.
    sealed: u16,
}

impl Level {
    fn new(keys: Arc<KeyPair>) -> Self {
        Self {
            keys,
            inbox: Inbox::default(),
            sent: 0,
            sealed: 0,
        }
    }
}

/// One side of the handshake.
pub(crate) struct Handshake {
    side: Side,
    suite: Arc<dyn Suite>,
    crypto: Option<Box<dyn Crypto>>,
    ids: Ids,
    /// Declared to the peer; has the versions of this side.
    limits: Params,
    /// Version in use.
    version: u32,
    /// True if a list of the peer's, or of someone else, led to the version.
    redirected: bool,
    initial: Level,
    /// Level of handshake keys, once there are any.
    later: Option<Level>,
    sealed: Option<(KeyPair, Ratchet)>,
    flight: Flight,
    /// The close, sealed once: repetitions are the same bytes under the same number.
    close: Option<Vec<u8>>,
    token: Vec<u8>,
    hellos: [Option<Instant>; HELLOS],
    rtt: Option<Duration>,
    started: Instant,
    answered: bool,
    /// Entry of a server's client until its address is validated.
    pending: Option<Entry>,
    /// Bytes of datagrams received, and sent.
    received: usize,
    sent: usize,
}

impl Handshake {
    /// Opens a connection. The id of the server is this side's choice, unless a token comes from another.
    pub(crate) fn client(suite: Arc<dyn Suite>, ids: Ids, limits: Params, now: Instant) -> Self {
        let version = limits.versions.first().copied().unwrap_or(VERSION);
        Self::new(Side::Client, suite, (version, ids), limits, now)
    }

    /// The first flight of a client in the version in use.
    pub(crate) fn open(&mut self) -> Result<(), Refusal> {
        if !has_hello(self.version) {
            return self.begin();
        }
        self.crypto = None;
        self.hello();
        Ok(())
    }

    /// First messages for the ids in use, from the start.
    fn begin(&mut self) -> Result<(), Refusal> {
        self.initial = Level::new(self.suite.initial(self.side));
        self.start()?;
        self.write()
    }

    /// A hello of the version in use.
    fn hello(&mut self) {
        self.ids.remote = 0;
        let mut hello = vec![0; BASE_DATAGRAM];
        self.head(&mut Writer::new(&mut hello), &Kind::Hello { attempt: 0 })
            .expect("a header fits");
        self.hellos = [None; HELLOS];
        self.flight = Flight::default();
        self.flight.datagrams.push(hello);
    }

    /// Answers a client's first messages.
    pub(crate) fn server(
        suite: Arc<dyn Suite>,
        used: (u32, Ids),
        limits: Params,
        now: Instant,
        validation: AddressValidation,
    ) -> Result<Self, Refusal> {
        let mut this = Self::new(Side::Server, suite, used, limits, now);
        match validation {
            AddressValidation::Token(rtt) => this.rtt = Some(rtt),
            AddressValidation::Pending(entry) => this.pending = Some(entry),
        }
        this.answered = true;
        this.start()?;
        Ok(this)
    }

    fn new(
        side: Side,
        suite: Arc<dyn Suite>,
        (version, ids): (u32, Ids),
        limits: Params,
        now: Instant,
    ) -> Self {
        Self {
            version,
            redirected: false,
            side,
            crypto: None,
            ids,
            limits,
            initial: Level::new(suite.initial(side)),
            suite,
            later: None,
            sealed: None,
            flight: Flight::default(),
            close: None,
            token: Vec::new(),
            hellos: [None; HELLOS],
            rtt: None,
            started: now,
            answered: false,
            pending: None,
            received: 0,
            sent: 0,
        }
    }

    fn start(&mut self) -> Result<(), Refusal> {
        let params = Params {
            ids: self.ids.ordered(self.side),
            ..self.limits.clone()
        };
        self.crypto = Some(self.suite.start(self.side, params.encode())?);
        Ok(())
    }

    pub(crate) const fn ids(&self) -> Ids {
        self.ids
    }

    /// Token that the listener handed out.
    #[cfg(test)]
    pub(crate) fn token(&self) -> &[u8] {
        &self.token
    }

    pub(crate) const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// True if anything authentic was received.
    pub(crate) const fn answered(&self) -> bool {
        self.answered
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// True if the peer receives at its address; of a client, always.
    pub(crate) const fn is_address_validated(&self) -> bool {
        self.pending.is_none()
    }

    /// True once anything left.
    pub(crate) const fn sent_anything(&self) -> bool {
        self.flight.cursor > 0 || self.flight.sends > 0
    }

    fn head(&self, w: &mut Writer<'_>, kind: &Kind<'_>) -> Result<(), NoRoom> {
        let head = Head {
            version: self.version,
            to: self.ids.remote,
            from: self.ids.local,
        };
        long::encode(w, head, kind)
    }

    /// A long datagram arrived; `at` is where its clear part ends.
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &mut [u8],
    ) -> Result<Progress, Refusal> {
        self.received = self.received.saturating_add(datagram.len());
        let Ok((head, kind, at)) = long::decode_any(datagram, &self.limits.versions) else {
            return Ok(Progress::Unauthentic);
        };
        let is_list = matches!(kind, Kind::Versions { .. });
        if head.to != self.ids.local || !is_list && head.version != self.version {
            return Ok(Progress::Ignored);
        }
        let expected = self.crypto.is_some() && head.from == self.ids.remote;
        match kind {
            Kind::Versions { list } if self.side == Side::Client && !self.answered => {
                self.on_versions(list)
            }
            Kind::Retry { attempt, token } if self.takes_token() => {
                let token = token.to_vec();
                self.on_retry(now, datagram, (head.from, attempt, at), token)
            }
            Kind::Initial { number, .. } if expected => {
                let Some(end) = self.initial.keys.remote.open(number.into(), datagram, at) else {
                    return Ok(Progress::Unauthentic);
                };
                if self.side == Side::Client && self.later.is_none() {
                    self.sample(now);
                }
                self.on_payload(false, &datagram[at..end])
            }
            Kind::Handshake { number } if expected => {
                let Some(level) = &self.later else {
                    return Ok(Progress::Ignored);
                };
                let Some(end) = level.keys.remote.open(number.into(), datagram, at) else {
                    return Ok(Progress::Unauthentic);
                };
                if let Some(entry) = self.pending.take() {
                    entry.validated();
                    self.sample(now);
                }
                self.on_payload(true, &datagram[at..end])
            }
            _ => Ok(Progress::Ignored),
        }
    }

    /// True if a token would help: not once the server's messages have been read. One that was sent
    /// twice without an answer may have expired, or be of a server that has been restarted.
    const fn takes_token(&self) -> bool {
        let again = !has_hello(self.version) && self.flight.sends > 1;
        let helps = self.token.is_empty() || again;
        matches!(self.side, Side::Client) && self.later.is_none() && helps
    }

    /// The first answer to a flight arrived: the rtt is at most the time since that left first.
    fn sample(&mut self, now: Instant) {
        if let Some(sample) = self.flight.first_sent.map(|sent| now.since(sent)) {
            self.rtt = Some(self.rtt.map_or(sample, |rtt| rtt.min(sample)));
        }
    }

    /// The peer, or someone in its place, does not support the version in use, but those in `list`: the best of them is
    /// tried, once. Whether the list was true is checked when the peer is authenticated.
    fn on_versions(&mut self, list: &[u8]) -> Result<Progress, Refusal> {
        let mut r = Reader::new(list);
        let list: Vec<u32> = std::iter::from_fn(|| r.u32().ok()).collect();
        // Not from our peer: one that supports this version would have answered otherwise.
        if list.is_empty() || list.contains(&self.version) || self.redirected {
            return Ok(Progress::Ignored);
        }
        let Some(version) = self.best_of(&list) else {
            let shown = |list: &[u32]| {
                let shown: Vec<_> = list.iter().take(8).map(|v| format!("{v:#010x}")).collect();
                shown.join(", ")
            };
            let (ours, theirs) = (shown(&self.limits.versions), shown(&list));
            let text = format!("this side speaks {ours}, the peer {theirs}");
            return Ok(Progress::Version(text));
        };
        self.version = version;
        self.redirected = true;
        // If the list is false, a session of the other version may have this one.
        self.ids.remote = self.ids.remote.wrapping_add(1);
        self.open()?;
        Ok(Progress::Drained)
    }

    /// The version that this side prefers among those of `list`.
    fn best_of(&self, list: &[u32]) -> Option<u32> {
        let ours = self.limits.versions.iter().copied();
        ours.into_iter().find(|version| list.contains(version))
    }

    /// True if a client would have chosen the version in use of what the server declared,
    /// authenticated: else someone on the path chose (RFC 9368 §4). A side that declares nothing
    /// has the version in use only.
    fn is_true_choice(&self, theirs: &[u32]) -> bool {
        match self.side {
            _ if theirs.is_empty() => true,
            Side::Client => self.best_of(theirs) == Some(self.version),
            Side::Server => theirs.contains(&self.version),
        }
    }

    fn on_retry(
        &mut self,
        now: Instant,
        datagram: &mut [u8],
        (server, attempt, at): (u32, u8, usize),
        token: Vec<u8>,
    ) -> Result<Progress, Refusal> {
        if datagram.len() != at + TAG || self.initial.keys.remote.open(0, datagram, at).is_none() {
            return Ok(Progress::Unauthentic);
        }
        self.answered = true;
        if has_hello(self.version) {
            self.rtt = self.hellos[usize::from(attempt) % HELLOS].map(|at| now.since(at));
        } else {
            self.sample(now);
        }
        self.ids.remote = server;
        self.token = token;
        self.begin()?;
        Ok(Progress::Drained)
    }

    fn on_payload(&mut self, is_handshake: bool, payload: &[u8]) -> Result<Progress, Refusal> {
        self.answered = true;
        // Messages of a finished level are repeats.
        let current = is_handshake == self.later.is_some();
        let level = self.later.as_mut().unwrap_or(&mut self.initial);
        let broken = |e: DecodeError| Refusal::Protocol(e.to_string());
        let mut r = Reader::new(payload);
        while let Some(frame) = frame::next(&mut r).map_err(broken)? {
            match frame {
                Frame::Crypto { offset, data } if current => {
                    level.inbox.insert(offset, data).map_err(broken)?;
                }
                Frame::Crypto { .. } => {}
                Frame::Close { cause, code, text } => {
                    let text = text::shown(text);
                    return Ok(Progress::Closed { cause, code, text });
                }
                _ => return Err(Refusal::Protocol("frame out of place".into())),
            }
        }
        let messages = level.inbox.ready();
        let Some(crypto) = self.crypto.as_mut().filter(|_| !messages.is_empty()) else {
            return Ok(Progress::Ignored);
        };
        crypto.read(messages)?;
        self.write()?;
        Ok(Progress::Drained)
    }

    /// Turns the messages of the crypto into a new flight.
    fn write(&mut self) -> Result<(), Refusal> {
        let mut fresh = true;
        loop {
            let mut messages = Vec::new();
            let Some(crypto) = &mut self.crypto else {
                return Ok(());
            };
            let change = crypto.write(&mut messages);
            if messages.is_empty() && change.is_none() {
                return Ok(());
            }
            if !messages.is_empty() {
                if fresh {
                    self.flight = Flight {
                        copies: u32::from(self.rtt.is_some_and(|rtt| rtt >= LONG_PATH)),
                        ..Flight::default()
                    };
                    fresh = false;
                }
                self.wrap(&messages)?;
            }
            match change {
                Some(Change::Handshake(keys)) => self.later = Some(Level::new(Arc::new(keys))),
                Some(Change::Sealed(keys, ratchet)) => self.sealed = Some((keys, ratchet)),
                None => {}
            }
        }
    }

    fn wrap(&mut self, mut messages: &[u8]) -> Result<(), Refusal> {
        while !messages.is_empty() {
            let level = self.later.as_ref().unwrap_or(&self.initial);
            let offset = level.sent;
            let fields = self.head_len() + TAG + frame::crypto_overhead(offset, messages.len());
            let len = messages.len().min(BASE_DATAGRAM - fields);
            let (head, tail) = messages.split_at(len);
            let frame = Frame::Crypto { offset, data: head };
            let datagram = self.seal(&frame)?;
            self.flight.datagrams.push(datagram);
            let level = self.later.as_mut().unwrap_or(&mut self.initial);
            level.sent += len as u64;
            messages = tail;
        }
        Ok(())
    }

    fn head_len(&self) -> usize {
        let token = if self.later.is_some() {
            0
        } else {
            2 + self.token.len()
        };
        long::HEAD + token + 1
    }

    /// Seals one frame at the current level; a client's first messages are padded. A level has 256
    /// numbers; a peer that makes this side need more breaks the protocol.
    fn seal(&mut self, frame: &Frame<'_>) -> Result<Vec<u8>, Refusal> {
        let is_initial = self.later.is_none();
        let level = self.later.as_ref().unwrap_or(&self.initial);
        let number = u8::try_from(level.sealed)
            .map_err(|_| Refusal::Protocol("too many handshake datagrams".into()))?;
        let kind = if is_initial {
            let token = &self.token;
            Kind::Initial { token, number }
        } else {
            Kind::Handshake { number }
        };
        let no_room = |NoRoom| Refusal::Protocol("a handshake frame is too long".into());
        let mut datagram = vec![0; BASE_DATAGRAM];
        let mut w = Writer::new(&mut datagram);
        self.head(&mut w, &kind).map_err(no_room)?;
        let header = w.len();
        frame::encode(&mut w, frame).map_err(no_room)?;
        let len = w.len() + TAG;
        if !(is_initial && self.side == Side::Client) {
            datagram.truncate(len);
        }
        let level = self.later.as_mut().unwrap_or(&mut self.initial);
        level.keys.local.seal(number.into(), &mut datagram, header);
        level.sealed += 1;
        Ok(datagram)
    }

    /// A datagram with the reason why this side gives up, if one can be sent.
    pub(crate) fn close(&mut self, cause: Cause, code: u32, text: &str) -> Option<&[u8]> {
        self.crypto.as_ref()?;
        if self.close.is_none() {
            let text = frame::close_text(text);
            self.close = self.seal(&Frame::Close { cause, code, text }).ok();
        }
        // Unlike a flight it is limited only until the address is validated: it is one datagram, after which the client does
        // not repeat itself any more.
        let sent = self.sent + self.close.as_ref().map_or(0, Vec::len);
        if self.pending.is_some() && sent > AMPLIFICATION * self.received {
            return None;
        }
        self.sent = sent;
        self.close.as_deref()
    }

    /// The agreement, once, when both sides are authenticated.
    pub(crate) fn agreed(&mut self) -> Result<Option<Agreed>, Refusal> {
        let Some(crypto) = self.crypto.as_ref().filter(|c| c.is_done()) else {
            return Ok(None);
        };
        let Some((keys, ratchet)) = self.sealed.take() else {
            return Ok(None);
        };
        let params = crypto.peer_params().unwrap_or_default();
        let params = Params::decode(params).map_err(|e| Refusal::Protocol(e.to_string()))?;
        if params.ids != self.ids.ordered(self.side) {
            return Err(Refusal::Protocol(
                "connection ids were tampered with".into(),
            ));
        }
        if !self.is_true_choice(&params.versions) {
            return Err(Refusal::Protocol(
                "the choice of the version was tampered with".into(),
            ));
        }
        if self.side == Side::Server {
            self.flight = Flight::default();
        }
        Ok(Some(Agreed {
            keys,
            ratchet,
            peer_key: crypto.peer_key(),
            params,
        }))
    }

    /// The next datagram of the flight, if one should leave.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<&[u8]> {
        let flight = &mut self.flight;
        let datagram = flight.datagrams.get_mut(flight.cursor)?;
        // A client that is there repeats itself, padded, until it is answered, and so pays for more.
        let sent = self.sent.saturating_add(datagram.len());
        if self.side == Side::Server && sent > AMPLIFICATION * self.received {
            return None;
        }
        self.sent = sent;
        flight.first_sent.get_or_insert(now);
        if self.crypto.is_none() {
            // A hello: with its attempt, so that the answer to it gives an rtt.
            let attempt = flight.sends;
            datagram[long::HEAD] = u8::try_from(attempt).unwrap_or(u8::MAX);
            self.hellos[attempt as usize % HELLOS] = Some(now);
        }
        let sent = flight.cursor;
        flight.cursor += 1;
        if flight.cursor == flight.datagrams.len() {
            if flight.copies > 0 {
                flight.copies -= 1;
                flight.cursor = 0;
            } else {
                let first = self
                    .rtt
                    .map_or(FIRST_TIMEOUT, |rtt| rtt * 3 / 2 + Duration::from_millis(10));
                let pause = first.saturating_mul(1 << flight.sends.min(6));
                flight.due = Some(now + pause.min(first.max(LONGEST_PAUSE)));
                flight.sends += 1;
            }
        }
        Some(&flight.datagrams[sent])
    }

    /// Time at which the flight is to be sent again.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.flight.due
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.flight.due.is_some_and(|due| due <= now) {
            self.flight.due = None;
            self.flight.cursor = 0;
        }
    }
}

/// True if a client's `datagram` is authentic and brings the beginning of its messages, so that it
/// is worth a session.
pub(crate) fn begins(suite: &dyn Suite, versions: &[u32], datagram: &[u8]) -> bool {
    let Ok((_, Kind::Initial { number, .. }, at)) = long::decode_any(datagram, versions) else {
        return false;
    };
    let keys = suite.initial(Side::Server);
    let mut opened = datagram.to_vec();
    let Some(end) = keys.remote.open(number.into(), &mut opened, at) else {
        return false;
    };
    let mut r = Reader::new(&opened[at..end]);
    let mut begins = false;
    while let Ok(Some(frame)) = frame::next(&mut r) {
        match frame {
            Frame::Crypto { offset, data } => begins |= offset == 0 && !data.is_empty(),
            _ => return false,
        }
    }
    begins
}

#[cfg(test)]
pub(crate) mod tests;
