//! The endpoint, before there is a session. It opens connections, routes datagrams by their
//! connection id, and answers strangers without remembering them.
//!
//! Nothing is answered with more than three times its size. A session is made for a client that returned a fresh token from
//! its own address, and for a few that have none yet.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use farhaul_congestion::lookup;
use farhaul_core::{
    arq::Sender,
    codec::{NoRoom, Writer},
    congestion::{CongestionController, ReceiverLaw},
    life::Life,
    live::LiveIds,
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    time::Instant,
    units::Rate,
};

use crate::{
    config::{ConfigError, HaulConfig},
    crypto::{Key, Side, Suite, plain::Plain, tls::Tls},
    handshake::{self, AddressValidation, Handshake, Ids},
    identity::{Identity, PublicKey},
    laws::{Law, Receivers},
    mtu::Mtu,
    path::Path,
    session::{HaulSession, Settings},
    unvalidated::Unvalidated,
    wire::{
        BASE_DATAGRAM, TAG, VERSIONS, has_hello,
        long::{self, Head, Kind, LONG},
        params::{MAX_APP, MAX_VERSIONS, Params},
        short::{self, Short},
        token::Token,
    },
};

static DESCRIPTOR: Descriptor = Descriptor {
    name: "haul",
    summary: "farhaul's own: encrypted, paced, range-coded feedback, one UDP socket",
    provenance: Provenance::Specification,
    citation: "docs/protocols/haul.md",
    sealed: true,
    control_lane: false,
    multiplexed: false,
};

static PLAIN: Descriptor = Descriptor {
    summary: "haul without sealing, for the simulator",
    sealed: false,
    ..DESCRIPTOR
};

/// A haul endpoint.
pub struct Haul {
    suite: Arc<dyn Suite>,
    config: HaulConfig,
    law: Law,
    tunnel_law: Option<Law>,
    receivers: Receivers,
    key: PublicKey,
    /// Seals tokens; only listeners have one.
    vault: Option<Key>,
    tokens: u64,
    /// Versions supported, the preferred one first.
    versions: &'static [u32],
    /// First packet number: 0 but in tests.
    first: u64,
    /// Sessions, and some that are gone, with the client's id where this side accepted it.
    live: LiveIds<u32, Option<u32>>,
    unvalidated: Unvalidated,
}

impl Haul {
    /// An endpoint that opens connections.
    pub fn client(config: HaulConfig) -> Result<Self, ConfigError> {
        Self::new(config, false)
    }

    /// An endpoint that also accepts them.
    pub fn server(config: HaulConfig) -> Result<Self, ConfigError> {
        Self::new(config, true)
    }

    fn new(config: HaulConfig, accepts: bool) -> Result<Self, ConfigError> {
        if !(1_200..=65_507).contains(&config.max_datagram) {
            return Err(ConfigError::Range("max_datagram is from 1,200 to 65,507"));
        }
        if config.idle < Duration::from_secs(1) {
            return Err(ConfigError::Range("idle is at least a second"));
        }
        if config.key_update_after == 0 {
            return Err(ConfigError::Range("key_update_after is at least 1"));
        }
        if config.app.len() > MAX_APP {
            return Err(ConfigError::Range("app is at most 64 bytes"));
        }
        let identity = Identity::from_seed(&config.identity)?;
        let law = registered(&config.law, config.plain)?;
        let tunnel_law = config.tunnel_law.as_deref();
        let tunnel_law = tunnel_law.map(|name| registered(name, config.plain));
        let tunnel_law = tunnel_law.transpose()?;
        let receivers = Receivers::registered(config.plain);
        let suite: Arc<dyn Suite> = if config.plain {
            Arc::new(Plain::new(identity.public(), config.peers.clone()))
        } else {
            Arc::new(Tls::new(&identity, &config.peers)?)
        };
        Ok(Self {
            vault: accepts.then(|| suite.vault()),
            unvalidated: Unvalidated::new(config.max_unvalidated, config.answer * 3),
            suite,
            config,
            law,
            tunnel_law,
            receivers,
            key: identity.public(),
            tokens: 0,
            versions: VERSIONS,
            first: 0,
            live: LiveIds::default(),
        })
    }

    /// Makes sessions send by the law that `make` makes from now on, instead of the
    /// configuration's.
    pub fn set_law(
        &mut self,
        make: impl Fn() -> Box<dyn CongestionController> + Send + Sync + 'static,
    ) {
        self.law = Law::new(make);
    }

    /// Offers the receiving half `name` to peers whose law requests it. Halves that share something
    /// share it through `make`.
    ///
    /// # Panics
    /// If this endpoint already has sessions.
    pub fn add_receiver_law(
        &mut self,
        name: &'static str,
        make: impl Fn() -> Box<dyn ReceiverLaw> + Send + Sync + 'static,
    ) {
        self.receivers.add(name, make);
    }

    /// Lets the packet numbers of sessions begin at `first` from now on, as they must at the other
    /// end, too.
    #[cfg(feature = "hostile")]
    pub const fn number_from(&mut self, first: u64) {
        self.first = first;
    }

    /// Makes this endpoint take itself to support `versions` from now on, the preferred one first;
    /// all mean what this crate's does. Of tests of the choice between them.
    ///
    /// # Panics
    /// If there are none, or too many.
    #[doc(hidden)]
    pub const fn pretend(&mut self, versions: &'static [u32]) {
        assert!(!versions.is_empty() && versions.len() <= MAX_VERSIONS);
        self.versions = versions;
    }

    /// Public key of this endpoint.
    pub const fn public_key(&self) -> PublicKey {
        self.key
    }

    fn limits(&self, law: &dyn CongestionController) -> Params {
        Params {
            law: law.receiver().map(Into::into),
            max_datagram: self.config.max_datagram,
            idle: self.config.idle,
            ids: (0, 0),
            app: self.config.app.clone(),
            versions: self.versions.to_vec(),
            tunnel: self.vault.is_none() && self.tunnel_law.is_some(),
        }
    }

    fn session(
        &mut self,
        now: Instant,
        side: Side,
        (handshake, law): (Handshake, Box<dyn CongestionController>),
        peer: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> HaulSession {
        let Ids { local, remote } = handshake.ids();
        let client = (side == Side::Server).then_some(remote);
        let alive = self.live.enter(local, client);
        let settings = Settings {
            side,
            update_after: self.config.key_update_after,
            answer: self.config.answer,
            tunnel_law: self.tunnel_law.clone(),
            receivers: self.receivers.clone(),
            memory: self.config.memory.clone(),
            first: self.first,
            alive,
        };
        let max_rate = self.config.max_rate.unwrap_or(Rate::UNLIMITED);
        HaulSession::new(
            settings,
            handshake,
            Sender::new(law, max_rate),
            Mtu::new(interface_mtu, peer.is_ipv4(), self.config.max_datagram),
            Path::new(peer),
            Life::new(now, self.config.idle),
        )
    }

    /// A token in answer to a hello or an initial without one.
    fn retry(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        (head, attempt): (Head, u8),
        reply: &mut Vec<u8>,
    ) -> Accepted {
        let Head {
            version,
            from: client,
            ..
        } = head;
        let server = self.live.fresh(rng);
        let Some(vault) = &self.vault else {
            return Accepted::Drop;
        };
        let token = Token {
            address: from,
            issued: now,
            client,
            server,
        }
        .seal(vault, self.tokens);
        self.tokens += 1;
        let head = Head {
            version,
            to: client,
            from: server,
        };
        let kind = Kind::Retry {
            attempt,
            token: &token,
        };
        let mut bytes = [0; BASE_DATAGRAM];
        let mut w = Writer::new(&mut bytes);
        if long::encode(&mut w, head, &kind).is_err() {
            return Accepted::Drop;
        }
        let at = w.len();
        let keys = self.suite.initial(Side::Server);
        keys.local.seal(0, &mut bytes[..at + TAG], at);
        reply.extend_from_slice(&bytes[..at + TAG]);
        Accepted::Reply
    }

    /// A client's first messages: a session if they come with a token, or if few came without one lately; else a token.
    fn initial(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Option<Accepted> {
        let (head, Kind::Initial { token, number }, _) =
            long::decode_any(datagram, self.versions).ok()?
        else {
            return None;
        };
        let is_free = head.to != 0 && !self.live.contains(&head.to);
        let token = Token::open(token, self.vault.as_ref()?, now, from, head.to);
        let token = token.filter(|token| is_free && token.client == head.from);
        if token.is_none() {
            // Of a flight the first datagram is answered, as it alone begins anything.
            if has_hello(head.version) || number != 0 {
                return None;
            }
            if !is_free || !self.unvalidated.has_room(now, from.ip()) {
                return Some(self.retry(now, rng, from, (head, number), reply));
            }
        }
        let age = token.map(|token| now.since(token.issued));
        self.accept_initial(now, from, head, datagram, age)
    }

    /// A session for a client whose first datagram is authentic: the session made here lives for
    /// seconds. `age` is that of its token, if it came with one.
    fn accept_initial(
        &mut self,
        now: Instant,
        from: SocketAddr,
        head: Head,
        datagram: &[u8],
        age: Option<Duration>,
    ) -> Option<Accepted> {
        if !handshake::begins(&*self.suite, self.versions, datagram) {
            return None;
        }
        let validation = match age {
            Some(age) => AddressValidation::Token(age),
            None => AddressValidation::Pending(self.unvalidated.enter(now, from.ip())),
        };
        let ids = Ids {
            local: head.to,
            remote: head.from,
        };
        let suite = Arc::clone(&self.suite);
        let law = self.law.make();
        let limits = self.limits(&*law);
        let used = (head.version, ids);
        let handshake = Handshake::server(suite, used, limits, now, validation).ok()?;
        let session = self.session(now, Side::Server, (handshake, law), from, None);
        Some(Accepted::Session(ids.local.into(), Box::new(session)))
    }
}

/// A law by its name and parameters.
fn registered(name: &str, plain: bool) -> Result<Law, ConfigError> {
    let law = lookup(name)?;
    if law.needs_routers() && !plain {
        return Err(ConfigError::NeedsRouters(law.law().name));
    }
    Ok(Law::new(move || law.make()))
}

/// The versions this side supports, for a client that uses another.
fn versions(supported: &[u32], head: Head, reply: &mut Vec<u8>) -> Result<(), NoRoom> {
    let mut bytes = [0; long::HEAD + 4 * MAX_VERSIONS];
    let answer = Head {
        version: 0,
        to: head.from,
        from: head.to,
    };
    let list: Vec<u8> = supported.iter().flat_map(|v| v.to_be_bytes()).collect();
    let kind = Kind::Versions { list: &list };
    let mut w = Writer::new(&mut bytes);
    long::encode(&mut w, answer, &kind)?;
    let n = w.len();
    reply.extend_from_slice(&bytes[..n]);
    Ok(())
}

impl Protocol for Haul {
    fn descriptor(&self) -> &'static Descriptor {
        if self.config.plain {
            &PLAIN
        } else {
            &DESCRIPTOR
        }
    }

    fn route(&self, datagram: &[u8]) -> Route {
        let Some(first) = datagram.first() else {
            return Route::Foreign;
        };
        if Short::is(*first) {
            return match Short::decode(datagram) {
                Ok(header) if datagram.len() > short::LEN + TAG => Route::Known(header.to.into()),
                _ => Route::Foreign,
            };
        }
        let Some(to) = long::destination(datagram).filter(|_| first & LONG != 0) else {
            return Route::Foreign;
        };
        // A client's first messages find no session, or that of a client that chose the same id; later ones, and a server's, do.
        let opens = match (
            long::decode_any(datagram, self.versions),
            self.live.get(&to),
        ) {
            (Ok((_, Kind::Hello { .. } | Kind::Unknown, _)), known) => known.is_none(),
            (Ok((head, Kind::Initial { .. }, _)), Some(client)) => {
                client.is_some_and(|client| client != head.from)
            }
            (Ok((_, Kind::Initial { .. }, _)), None) => true,
            _ => false,
        };
        if opens && self.vault.is_some() {
            Route::New
        } else {
            Route::Known(to.into())
        }
    }

    fn destination(&self) -> fn(&[u8]) -> Option<u64> {
        |datagram| {
            let id = match datagram.first() {
                Some(first) if Short::is(*first) => Short::decode(datagram).ok()?.to,
                _ => long::destination(datagram)?,
            };
            Some(id.into())
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let ids = Ids {
            local: self.live.fresh(rng),
            remote: self.live.fresh(rng),
        };
        let suite = Arc::clone(&self.suite);
        let law = self.tunnel_law.as_ref().unwrap_or(&self.law).make();
        let mut handshake = Handshake::client(suite, ids, self.limits(&*law), now);
        let opened = handshake.open();
        let mut session = self.session(now, Side::Client, (handshake, law), to, interface_mtu);
        if let Err(refusal) = opened {
            session.fail(now, refusal.into());
        }
        (ids.local.into(), Box::new(session))
    }

    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Accepted {
        if self.vault.is_none() {
            return Accepted::Drop;
        }
        match long::decode_any(datagram, self.versions) {
            Ok((head, Kind::Unknown, _)) if datagram.len() >= BASE_DATAGRAM => {
                match versions(self.versions, head, reply) {
                    Ok(()) => Accepted::Reply,
                    Err(NoRoom) => Accepted::Drop,
                }
            }
            Ok((head, Kind::Hello { attempt }, _))
                if datagram.len() >= BASE_DATAGRAM && has_hello(head.version) =>
            {
                self.retry(now, rng, from, (head, attempt), reply)
            }
            Ok((_, Kind::Initial { .. }, _)) if datagram.len() >= BASE_DATAGRAM => {
                let accepted = self.initial(now, rng, from, datagram, reply);
                accepted.unwrap_or(Accepted::Drop)
            }
            _ => Accepted::Drop,
        }
    }
}
