//! The endpoint, before there is a session. It opens connections, routes segments by connection id,
//! and answers a SYN without remembering it. The SYN ACK carries everything of the client's, the
//! time and a cookie for both. The client repeats them until it has heard the listener.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    codec::Writer,
    cookie::Cookies,
    datagram::overhead,
    live::LiveIds,
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    shell::{Carrier, SessionState},
    time::Instant,
};

use super::{
    Config,
    clock::stamp,
    receiver::Receiver,
    session::TcpConnection,
    wire::{self, Header, Hello, LEAST_DATAGRAM, MAX_HEADER, Open, Stamps, flag},
};

/// The MTU of an interface that is not known.
const USUAL_MTU: u32 = 1_500;

/// Time for which a proof is good.
const LIFETIME: Duration = Duration::from_secs(10);

/// Choice of the listener: its connection id and its initial sequence number.
type Chosen = (u32, u32);

/// `open` with the proof that it is from `from` and was answered with `chosen`.
fn prove(cookies: &Cookies, from: SocketAddr, open: Open, chosen: Chosen) -> Open {
    let open = Open { tag: 0, ..open };
    let tag = cookies.of((from, open, chosen));
    Open { tag, ..open }
}

/// True if `open` was proven, and not too long ago.
fn is_proven(
    cookies: &Cookies,
    now: Instant,
    from: SocketAddr,
    open: Open,
    chosen: Chosen,
) -> bool {
    let age = Duration::from_millis(u64::from(millis(now).wrapping_sub(open.issued)));
    age <= LIFETIME && prove(cookies, from, open, chosen) == open
}

/// ms, modulo 2^32.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn millis(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// Descriptor of TCP.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "tcp",
    summary: "TCP over UDP as the kernel does it: SACK, RACK-TLP, PRR, delayed ACKs, any law",
    provenance: Provenance::Specification,
    citation: "RFC 9293, 2018, 5681, 6298, 6582, 6675, 7323, 8985, 9937; docs/protocols/tcp.md",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// An endpoint of TCP over datagrams.
pub struct Tcp {
    config: Config,
    /// Cookies, which only listeners have.
    cookies: Option<Cookies>,
    /// Sessions, as long as they live.
    live: LiveIds<u32>,
}

impl Tcp {
    /// An endpoint that opens connections.
    pub fn client(config: Config) -> Self {
        Self {
            config,
            cookies: None,
            live: LiveIds::default(),
        }
    }

    /// An endpoint that also accepts them.
    pub fn server(config: Config) -> Self {
        Self {
            cookies: Some(Cookies::default()),
            ..Self::client(config)
        }
    }

    fn enter(&mut self, now: Instant, local: u32, peer: SocketAddr) -> SessionState {
        SessionState::new(now, peer, self.live.enter(local, ()))
    }

    /// UDP payload of the longest packet to `peer`.
    fn datagram(&self, peer: SocketAddr, interface_mtu: Option<u32>) -> u32 {
        let mtu = interface_mtu.unwrap_or(USUAL_MTU).min(self.config.mtu);
        mtu.saturating_sub(overhead(peer)).max(LEAST_DATAGRAM)
    }

    /// A SYN ACK for the client that sent `hello`.
    fn answer(
        &self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        header: &Header,
        reply: &mut Vec<u8>,
    ) -> Option<Accepted> {
        let hello = header.hello?;
        let cookies = self.cookies.as_ref()?;
        let (id, iss) = (self.live.fresh(rng), number(rng));
        let receiver = Receiver::new(self.config.receiver);
        let ecn = self.config.ecn && header.has(flag::ECE | flag::CWR);
        let open = Open {
            hello,
            ecn,
            iss: header.seq,
            issued: millis(now),
            tag: 0,
        };
        let stamps = header.stamps.map(|s| Stamps {
            value: stamp(now),
            echo: s.value,
        });
        let ends = (id, self.longest(from, hello));
        let answer = Header {
            flags: flag::SYN | flag::ACK | if ecn { flag::ECE } else { 0 },
            to: hello.from,
            ack: header.seq.wrapping_add(1),
            open: Some(prove(cookies, from, open, (id, iss))),
            ..syn(&self.config, &receiver, ends, (iss, stamps))
        };
        let mut bytes = [0; MAX_HEADER];
        let mut w = Writer::new(&mut bytes);
        answer.encode(&mut w).ok()?;
        let len = w.len();
        reply.extend_from_slice(&bytes[..len]);
        Some(Accepted::Reply)
    }

    /// A listener does not know its interface; what the client sends it takes, and sends itself.
    fn longest(&self, from: SocketAddr, hello: Hello) -> u32 {
        self.datagram(from, Some(u32::MAX))
            .min(u32::from(hello.mss))
            .max(LEAST_DATAGRAM)
    }

    /// A session for a client that shows its proof.
    fn welcome(&mut self, now: Instant, from: SocketAddr, header: &Header) -> Option<Accepted> {
        let open = header.open?;
        let (id, iss) = (header.to, header.ack.wrapping_sub(1));
        let proven = is_proven(self.cookies.as_ref()?, now, from, open, (id, iss));
        if !proven || !open.hello.is_sane() || id == 0 || self.live.contains(&id) {
            return None;
        }
        let datagram = self.longest(from, open.hello);
        let mut state = self.enter(now, id, from);
        let connection = TcpConnection::new(now, self.config.clone(), id, (iss, datagram));
        let connection = connection.answering(&mut state, &open);
        let session = Carrier::new(connection, state);
        Some(Accepted::Session(id.into(), Box::new(session)))
    }
}

/// The SYN of an end with connection id `from` that takes `datagram` bytes.
pub(super) fn syn(
    config: &Config,
    receiver: &Receiver,
    (from, datagram): (u32, u32),
    (seq, stamps): (u32, Option<Stamps>),
) -> Header {
    Header {
        flags: flag::SYN,
        seq,
        window: u16::try_from(receiver.window.announced()).unwrap_or(u16::MAX),
        stamps,
        hello: Some(Hello {
            from,
            mss: u16::try_from(datagram).unwrap_or(u16::MAX),
            shift: receiver.window.shift(),
            sack: config.sack(),
        }),
        ..Header::default()
    }
}

fn number(rng: &mut Rng) -> u32 {
    u32::try_from(rng.next_u64() >> 32).unwrap_or(u32::MAX)
}

impl Protocol for Tcp {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, datagram: &[u8]) -> Route {
        match wire::destination(datagram) {
            None => Route::Foreign,
            Some(0) => Route::New,
            Some(id) if self.cookies.is_some() && !self.live.contains(&id) => Route::New,
            Some(id) => Route::Known(id.into()),
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let id = self.live.fresh(rng);
        let state = self.enter(now, id, to);
        let datagram = self.datagram(to, interface_mtu);
        let config = self.config.clone();
        let connection = TcpConnection::new(now, config, id, (number(rng), datagram));
        (id.into(), Box::new(Carrier::new(connection, state)))
    }

    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Accepted {
        let Ok((header, _)) = Header::decode(datagram) else {
            return Accepted::Drop;
        };
        let done = match (header.has(flag::SYN), header.has(flag::ACK)) {
            (true, false) => self.answer(now, rng, from, &header, reply),
            (true, true) => None,
            (false, _) => self.welcome(now, from, &header),
        };
        done.unwrap_or(Accepted::Drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_address_words_and_time_only() {
        let cookies = Cookies::default();
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let from: SocketAddr = "192.0.2.7:4000".parse().unwrap();
        let hello = Hello {
            from: 7,
            mss: 1_472,
            shift: 14,
            sack: true,
        };
        let open = Open {
            hello,
            ecn: false,
            iss: 5,
            issued: millis(at(100)),
            tag: 0,
        };
        let open = prove(&cookies, from, open, (9, 11));
        let good = |now, from, open, chosen| is_proven(&cookies, at(now), from, open, chosen);
        assert!(good(105, from, open, (9, 11)));
        assert!(!good(111, from, open, (9, 11)) && !good(99, from, open, (9, 11)));
        let elsewhere = "192.0.2.7:4001".parse().unwrap();
        assert!(!good(105, elsewhere, open, (9, 11)));
        assert!(!good(105, from, Open { iss: 6, ..open }, (9, 11)));
        assert!(!good(105, from, open, (8, 11)) && !good(105, from, open, (9, 12)));
        let hello = Hello {
            mss: 9_000,
            ..hello
        };
        assert!(!good(105, from, Open { hello, ..open }, (9, 11)));
        let other = Cookies::default();
        assert!(!is_proven(&other, at(105), from, open, (9, 11)));
    }
}
