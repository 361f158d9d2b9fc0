//! What does an endpoint do before there is a session? It opens connections, routes segments by
//! connection id, and answers a SYN without remembering it (see `cookie`).

use std::net::SocketAddr;

use farhaul_core::{
    codec::Writer,
    datagram::overhead,
    live::LiveIds,
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    time::Instant,
};

use super::{
    Config,
    cookie::{Chosen, Cookies},
    receiver::Receiver,
    session::{Ends, TcpSession},
    stamp,
    wire::{self, Header, Hello, MAX_HEADER, Stamps, flag},
};

/// The MTU of an interface that does not say.
const USUAL_MTU: u32 = 1_500;
/// No datagram is shorter than a path must carry (RFC 9293 §3.7.1).
const LEAST_DATAGRAM: u32 = 548;

/// What TCP says of itself.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "tcp",
    summary: "TCP over UDP as the kernel does it: SACK, RACK-TLP, PRR, delayed ACKs, any law",
    provenance: Provenance::Specification,
    citation: "RFC 9293, 2018, 5681, 6298, 6582, 6675, 7323, 8985, 9937; docs/protocols/tcp.md",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// An endpoint that speaks TCP over datagrams.
pub struct Tcp {
    config: Config,
    /// Only listeners have them.
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
            config,
            cookies: Some(Cookies::default()),
            live: LiveIds::default(),
        }
    }

    fn enter(&mut self, local: u32, remote: u32, peer: SocketAddr) -> Ends {
        let alive = self.live.enter(local, ());
        Ends {
            local,
            remote,
            peer,
            alive,
        }
    }

    /// UDP payload of the longest packet to `peer`.
    fn datagram(&self, peer: SocketAddr, interface_mtu: Option<u32>) -> u32 {
        let mtu = interface_mtu.unwrap_or(USUAL_MTU).min(self.config.mtu);
        mtu.saturating_sub(overhead(peer)).max(LEAST_DATAGRAM)
    }

    /// A SYN ACK for whoever said `hello`.
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
        let chosen = Chosen {
            id: self.live.fresh(rng),
            iss: number(rng),
        };
        let receiver = Receiver::new(self.config.receiver);
        let ecn = self.config.ecn && header.has(flag::ECE | flag::CWR);
        let open = cookies.issue(now, from, (hello, ecn, header.seq), chosen);
        let answer = Header {
            flags: flag::SYN | flag::ACK | if ecn { flag::ECE } else { 0 },
            to: hello.from,
            seq: chosen.iss,
            ack: header.seq.wrapping_add(1),
            window: u16::try_from(receiver.announced()).unwrap_or(u16::MAX),
            stamps: header.stamps.map(|s| Stamps {
                value: stamp(now),
                echo: s.value,
            }),
            hello: Some(Hello {
                from: chosen.id,
                mss: u16::try_from(self.longest(from, hello)).unwrap_or(u16::MAX),
                shift: receiver.shift(),
                sack: self.config.sack(),
            }),
            open: Some(open),
            ..Header::default()
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
        let chosen = Chosen {
            id: header.to,
            iss: header.ack.wrapping_sub(1),
        };
        self.cookies.as_ref()?.check(now, from, &open, chosen)?;
        let sane = open.hello.from != 0 && u32::from(open.hello.mss) >= LEAST_DATAGRAM;
        if !sane || chosen.id == 0 || self.live.contains(&chosen.id) {
            return None;
        }
        let datagram = self.longest(from, open.hello);
        let ends = self.enter(chosen.id, open.hello.from, from);
        let config = self.config.clone();
        let session = TcpSession::server(now, config, ends, chosen.iss, datagram, &open);
        Some(Accepted::Session(chosen.id.into(), Box::new(session)))
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
        let ends = self.enter(id, 0, to);
        let datagram = self.datagram(to, interface_mtu);
        let config = self.config.clone();
        let session = TcpSession::client(now, config, ends, number(rng), datagram);
        (id.into(), Box::new(session))
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
