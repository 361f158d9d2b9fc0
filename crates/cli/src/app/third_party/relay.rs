//! Relays datagrams where two hosts do not reach each other by UDP. Datagrams that one could not
//! send come through its ssh, and go on by UDP, or through the ssh of the other. They stay
//! encrypted, for this machine has neither key.

use std::{
    io::{self, BufReader, PipeWriter, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    thread,
};

use farhaul_core::protocol::CloseReason;
use farhaul_haul::{Haul, HaulConfig, Identity, PeerPolicy};
use farhaul_io::{
    Stop,
    tunnel::{self, Answer},
};
use farhaul_measure::visit::{VisitError, visit};

use super::Request;
use crate::{
    app::console::{Console, Level},
    connect::resolve,
    ssh::{Bridge, MOST_OF_CHUNK, sender::Sender},
};

/// Addresses that are tried, since the sending host waits.
const TRIED: usize = 2;

/// Part of the copy on this machine.
pub(super) struct Here<'a> {
    request: &'a Request,
    /// Takes the chunks, once there was one. It is dropped first: the relay holds what both ssh read, and they end when
    /// that does.
    relay: Option<PipeWriter>,
    sender: Sender,
    /// Server of the destination until it is dropped.
    bridge: Option<Bridge>,
    /// True if the relay was to begin, once.
    tried: bool,
    console: &'a dyn Console,
}

impl<'a> Here<'a> {
    pub(super) const fn new(
        request: &'a Request,
        sender: Sender,
        bridge: Option<Bridge>,
        console: &'a dyn Console,
    ) -> Self {
        Self {
            request,
            sender,
            bridge,
            relay: None,
            tried: false,
            console,
        }
    }

    /// A part of what the sending host could not send to the other by itself.
    pub(super) fn carry(&mut self, chunk: &[u8], stop: &Stop) {
        if self.relay.is_none() && !std::mem::replace(&mut self.tried, true) {
            match self.begin(stop) {
                Ok(relay) => self.relay = relay,
                // The sending host waits for no answer without an end.
                Err(e) => {
                    let text = format!("farhaul: warning: the copy cannot be relayed: {e}");
                    self.console.message(Level::Important, &text);
                }
            }
        }
        // If the other side is gone, so is the session.
        if self
            .relay
            .as_mut()
            .is_some_and(|relay| relay.write_all(chunk).is_err())
        {
            self.relay = None;
        }
    }

    /// Begins to relay; nothing if that was done before.
    fn begin(&mut self, stop: &Stop) -> io::Result<Option<PipeWriter>> {
        let Some(bridge) = self.bridge.as_ref().filter(|_| self.sender.has_input()) else {
            return Ok(None);
        };
        let (socket, answer, through) = if let Some(socket) = self.by_udp(bridge, stop) {
            (socket, Answer::Unheard, None)
        } else {
            let tunnel = bridge.tunnel()?;
            (tunnel.socket().try_clone()?, tunnel.answer(), Some(tunnel))
        };
        let Some(input) = self.sender.take_input() else {
            return Ok(None);
        };
        let (chunks, relay) = io::pipe()?;
        thread::Builder::new().name("relay".into()).spawn(move || {
            let mut chunks = BufReader::with_capacity(MOST_OF_CHUNK, chunks);
            if tunnel::is_asked_for(&mut chunks) {
                // Both ends of the session find out by themselves.
                let _ended = tunnel::carry(socket, answer, chunks, input);
            }
            drop(through);
        })?;
        Ok(Some(relay))
    }

    /// A socket to the far end, if that answers this machine by UDP.
    fn by_udp(&self, bridge: &Bridge, stop: &Stop) -> Option<UdpSocket> {
        let found = bridge
            .hosts
            .iter()
            .filter_map(|host| resolve(host, bridge.port).ok());
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found
            .flatten()
            .filter(|address| self.request.family.has(address))
        {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.truncate(TRIED);
        let answers = |to: &SocketAddr| !stop.is_set() && self.answers(*to, bridge, stop);
        let to = addresses.into_iter().find(answers)?;
        let any = match to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(to).ok()?;
        Some(socket)
    }

    /// True if the far end is found there: it refuses the key of this machine, and so is known to
    /// hear it and be heard.
    fn answers(&self, to: SocketAddr, bridge: &Bridge, stop: &Stop) -> bool {
        let Ok(stranger) = Identity::generate() else {
            return false;
        };
        let mut config = HaulConfig::new(*stranger.seed());
        config.peers = PeerPolicy::Keys(vec![bridge.key]);
        config.answer = self.request.udp_timeout;
        if config.answer.is_zero() {
            return false;
        }
        let Ok(haul) = Haul::client(config) else {
            return false;
        };
        let refused = visit(to, Box::new(haul), Some(stop.clone()));
        matches!(refused, Err(VisitError::Closed(CloseReason::Denied(_))))
    }

    /// Asks the sending host to end the copy.
    pub(super) fn hang_up(&mut self) {
        self.relay = None;
        drop(self.sender.take_input());
    }
}
