//! Connects a command to a server: at one address after the other by UDP, or around UDP where that
//! is blocked. Some sessions are only a question, with the server's answer.

use std::{
    fmt::Display,
    io,
    net::{SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::{Arc, PoisonError},
    time::Duration,
};

use farhaul_haul::{Haul, HaulConfig, Identity, PeerPolicy, PublicKey};
use farhaul_io::{App, Stop, Waker, client, tunnel::Tunnel};
use farhaul_transfer::{
    Advice, Shared, TransferError,
    client::{Answer, Answered, PeerCheck, Probe, Reader, Reads},
};

use crate::{
    app::console::Console,
    exit::{Exit, Failure},
    reach::{Unreached, refused_key, unopened},
    ssh::Bridge,
};

/// Time that a server may take to accept a TCP connection, and to answer.
const TCP_ANSWER: Duration = Duration::from_secs(5);
/// Usual time that each address of a server may take to answer.
pub(crate) const UDP_TIMEOUT: Duration = Duration::from_secs(5);

/// Family of a host's addresses that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    V4,
    V6,
}

impl Family {
    /// Family for the flags `-4` and `-6`.
    pub(crate) const fn of(ipv4: bool, ipv6: bool) -> Self {
        match (ipv4, ipv6) {
            (true, _) => Self::V4,
            (false, true) => Self::V6,
            (false, false) => Self::Any,
        }
    }

    /// The flag of farhaul and of ssh.
    pub(crate) const fn flag(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::V4 => Some("-4"),
            Self::V6 => Some("-6"),
        }
    }

    pub(crate) const fn has(self, address: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }

    /// The addresses of a host that count; an error if there is none.
    pub(crate) fn resolve(self, host: &str, port: u16) -> Result<Vec<SocketAddr>, TransferError> {
        let mut found = resolve(host, port)?;
        found.retain(|address| self.has(address));
        if let (true, Some(flag)) = (found.is_empty(), self.flag()) {
            let family = flag.replace('-', "IPv");
            let text = format!("{host} has no {family} address");
            return Err(TransferError::new(Exit::NetSetup, text).fix(format!("leave {flag} out")));
        }
        Ok(found)
    }
}

/// A fault of ours.
pub(crate) fn internal(e: &dyn Display) -> TransferError {
    TransferError::new(Exit::Internal, e.to_string())
}

/// Resolves all addresses of a host.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, TransferError> {
    let failed = |e: &dyn Display| {
        TransferError::new(Exit::NetSetup, format!("{host}: {e}"))
            .fix("check the name and the resolver")
    };
    let found: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|e| failed(&e))?
        .collect();
    if found.is_empty() {
        Err(failed(&"no address"))
    } else {
        Ok(found)
    }
}

/// Ways to a server that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Time that an address may take to answer by UDP; zero if that is not to be tried.
    pub(crate) udp_timeout: Duration,
    /// True if ssh or TCP is the way where UDP is blocked.
    pub(crate) falls_back: bool,
    /// TCP port of the server; that of UDP by default.
    pub(crate) tcp_port: Option<u16>,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            udp_timeout: UDP_TIMEOUT,
            falls_back: true,
            tcp_port: None,
        }
    }
}

impl Ways {
    /// Address at which a server at `udp` takes TCP, unless that is not to be tried.
    pub(crate) fn tcp(&self, udp: SocketAddr) -> Option<SocketAddr> {
        let mut at = udp;
        at.set_port(self.tcp_port.unwrap_or(udp.port()));
        self.falls_back.then_some(at)
    }
}

/// Carrier of the datagrams of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Udp,
    Ssh,
    Tcp,
    /// The machine that ordered this copy of this one.
    Relay,
}

impl Carrier {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] = [Self::Udp, Self::Ssh, Self::Tcp, Self::Relay];

    /// Name in objects and messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Ssh => "ssh",
            Self::Tcp => "tcp",
            Self::Relay => "relayed",
        }
    }

    /// Way for people.
    pub(crate) const fn way(self) -> &'static str {
        match self {
            Self::Udp => "by UDP",
            Self::Ssh => "through ssh",
            Self::Tcp => "over TCP",
            Self::Relay => "through this machine",
        }
    }
}

/// Attempt at the far end.
pub(crate) enum Attempt<'a> {
    /// Attempt by UDP.
    At(SocketAddr),
    Through(&'a Tunnel),
}

impl Attempt<'_> {
    pub(crate) const fn to(&self) -> SocketAddr {
        match self {
            Self::At(to) => *to,
            Self::Through(tunnel) => tunnel.to(),
        }
    }

    /// One that exists already.
    pub(crate) fn socket(&self) -> io::Result<Option<Arc<UdpSocket>>> {
        match self {
            Self::At(_) => Ok(None),
            Self::Through(tunnel) => tunnel.socket().try_clone().map(|s| Some(Arc::new(s))),
        }
    }
}

/// A way around UDP: through the ssh that started the far end, or over TCP to the first address that takes it.
pub(crate) fn tunnel(
    bridge: Option<&Bridge>,
    addresses: &[SocketAddr],
    ways: &Ways,
) -> Result<(Tunnel, Carrier), (Carrier, io::Error)> {
    if let Some(bridge) = bridge.filter(|_| ways.falls_back) {
        let tunnel = bridge.tunnel();
        return tunnel
            .map(|tunnel| (tunnel, Carrier::Ssh))
            .map_err(|e| (Carrier::Ssh, e));
    }
    let mut last = io::Error::other("there is no address");
    for at in addresses.iter().filter_map(|udp| ways.tcp(*udp)) {
        match Tunnel::through_tcp(at, TCP_ANSWER) {
            Ok(tunnel) => return Ok((tunnel, Carrier::Tcp)),
            Err(e) => last = io::Error::new(e.kind(), format!("{at}/tcp: {e}")),
        }
    }
    Err((Carrier::Tcp, last))
}

/// Error for a tunnel that is not there, and UDP was not tried.
pub(crate) fn no_tunnel(carrier: Carrier, e: &io::Error) -> TransferError {
    let text = format!("cannot go through {}: {e}", carrier.name());
    TransferError::new(Exit::UdpBlocked, text)
        .fix("leave --udp-timeout out, or have the server there started with --tcp")
}

/// Result of an attempt by UDP at the first address where it gets through. If it does at none, the
/// result of one through a tunnel, and the tunnel.
pub(crate) fn udp_or_tunnel<T>(
    addresses: &[SocketAddr],
    bridge: Option<&Bridge>,
    ways: &Ways,
    attempt: impl Fn(&Attempt<'_>) -> Result<T, Failure>,
) -> Result<(T, Option<(Tunnel, Carrier)>), Failure> {
    let by_udp = if ways.udp_timeout.is_zero() {
        &[]
    } else {
        addresses
    };
    let mut failed = None;
    for to in by_udp {
        match attempt(&Attempt::At(*to)) {
            Ok(found) => return Ok((found, None)),
            Err(e) if matches!(e.exit, Exit::UdpBlocked | Exit::NetSetup) => failed = Some(e),
            Err(e) => return Err(e),
        }
    }
    match tunnel(bridge, addresses, ways) {
        Ok((tunnel, carrier)) => {
            let found = attempt(&Attempt::Through(&tunnel))?;
            Ok((found, Some((tunnel, carrier))))
        }
        // Most servers take no TCP: that is no news where UDP was tried.
        Err((carrier, e)) => Err(failed.unwrap_or_else(|| Failure::from(&no_tunnel(carrier, &e)))),
    }
}

/// Visitor of a server.
pub(crate) struct Visitor<'a> {
    /// The server as people know it.
    pub(crate) server: &'a str,
    pub(crate) identity: &'a Identity,
    /// Policy for the key that the server may have.
    pub(crate) peers: PeerPolicy,
    /// Time that the server may take to answer by UDP.
    pub(crate) udp_timeout: Duration,
    pub(crate) console: &'a dyn Console,
}

impl Visitor<'_> {
    /// Configuration of a session.
    pub(crate) fn config(&self, by: &Attempt<'_>) -> HaulConfig {
        let mut config = HaulConfig::new(*self.identity.seed());
        config.app = farhaul_transfer::offer();
        config.peers = self.peers.clone();
        if matches!(by, Attempt::At(_)) {
            config.answer = self.udp_timeout;
        }
        config
    }

    /// Asks for one thing, in a session that carries nothing else.
    pub(crate) fn ask(
        &self,
        by: &Attempt<'_>,
        probe: impl FnOnce(&Answer, Stop) -> Probe,
    ) -> Result<Answered, TransferError> {
        let answer = Answer::default();
        self.visit(by, |stop, _| probe(&answer, stop))?;
        taken(&answer)?.ok_or_else(|| internal(&"the session ended without an answer"))
    }

    /// The key of the server, and the shares that it has for this side.
    pub(crate) fn shares(
        &self,
        by: &Attempt<'_>,
    ) -> Result<(Option<PublicKey>, Vec<Shared>), TransferError> {
        match self.ask(by, |answer, stop| Probe::shares(answer, Some(stop)))? {
            Answered::Shares { server_key, shares } => {
                let key = server_key.as_deref().and_then(|key| key.try_into().ok());
                Ok((key.map(PublicKey::from_bytes), shares))
            }
            _ => Err(internal(&"an answer to another question")),
        }
    }

    /// Runs the session of `reads`, until it ends; an error if it never was open.
    pub(crate) fn read(
        &self,
        by: &Attempt<'_>,
        reads: &Reads,
        check: PeerCheck,
    ) -> Result<(), TransferError> {
        let reader = self.visit(by, |stop, waker| {
            let waker = waker.clone();
            reads.wake_by(Arc::new(move || waker.wake()));
            Reader::new(reads, Some(check), Some(stop))
        })?;
        reader.failure().map_or(Ok(()), Err)
    }

    /// Runs a session to its end; an error if there was none.
    fn visit<A: App>(
        &self,
        by: &Attempt<'_>,
        make: impl FnOnce(Stop, &Waker) -> A,
    ) -> Result<A, TransferError> {
        let haul = Haul::client(self.config(by)).map_err(|e| internal(&e))?;
        let stop = self.console.stop()?;
        let waker = Waker::new().map_err(|e| internal(&e))?;
        let mut options = client::Options::new(by.to());
        options.socket = by.socket().map_err(|e| internal(&e))?;
        options.stop = Some(stop.clone());
        let app = make(stop.clone(), &waker);
        let ended = client::run(&options, Box::new(haul), app, &waker).map_err(|e| unopened(&e))?;
        let unreached = Unreached::of(&ended.reason, ended.refused, ended.host.unsent);
        if let Some(unreached) = unreached {
            return Err(self.unreached(by, unreached));
        }
        let own = self.identity.public();
        if let Some((text, fix)) = refused_key(&ended.reason, self.server, own) {
            return Err(TransferError::new(Exit::Auth, text).fix(fix));
        }
        Ok(ended.app)
    }

    fn unreached(&self, by: &Attempt<'_>, unreached: Unreached) -> TransferError {
        let server = self.server;
        match by {
            Attempt::At(to) => TransferError::new(unreached.code(), unreached.text(server, *to))
                .fix(unreached.fix("`farhaul serve`", *to)),
            Attempt::Through(_) => {
                let text = format!(
                    "{server} takes what does not get through by UDP, but the farhaul there did not answer through it"
                );
                TransferError::new(Exit::ConnectionLost, text).fix(Advice::again(
                    "run the same command again; the server's log may say more",
                ))
            }
        }
    }
}

/// Takes the answer, if there is one.
pub(crate) fn taken(answer: &Answer) -> Result<Option<Answered>, TransferError> {
    let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    answer.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_that_of_its_flag() {
        let v4 = SocketAddr::from(([127, 0, 0, 1], 1));
        let v6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1));
        for (family, flag, has) in [
            (Family::of(false, false), None, (true, true)),
            (Family::of(true, false), Some("-4"), (true, false)),
            (Family::of(false, true), Some("-6"), (false, true)),
        ] {
            assert_eq!((family.has(&v4), family.has(&v6)), has, "{family:?}");
            assert_eq!(family.flag(), flag);
        }
        assert_eq!(Family::V4.resolve("127.0.0.1", 1).unwrap(), [v4]);
        let e = Family::V6.resolve("127.0.0.1", 1).unwrap_err();
        assert_eq!(e.text, "127.0.0.1 has no IPv6 address");
        assert_eq!((e.code, &*e.fix), (Exit::NetSetup, "leave -6 out"));
    }
}
