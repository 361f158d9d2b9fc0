//! A whole protocol from a wire format and a law.

use std::{fmt, marker::PhantomData, net::SocketAddr, sync::Arc};

use super::{ArqEngine, HELLO, PlainSession, Wire, head, route};
use crate::{
    congestion::CongestionController,
    protocol::{Accepted, Descriptor, Protocol, Route, Session},
    rng::Rng,
    time::Instant,
};

/// Makes a law for a session.
pub type MakeLaw = Arc<dyn Fn() -> Box<dyn CongestionController> + Send + Sync>;

/// Bytes of IP and UDP headers before the payload.
const UNDER: u32 = 28;

/// The protocol that speaks `W`.
pub struct Plain<W> {
    descriptor: &'static Descriptor,
    law: MakeLaw,
    datagram: u32,
    wire: PhantomData<fn() -> W>,
}

impl<W: Wire> Plain<W> {
    /// Sessions governed by what `law` makes, in datagrams for a path of `mtu` bytes.
    pub fn new(
        descriptor: &'static Descriptor,
        law: impl Fn() -> Box<dyn CongestionController> + Send + Sync + 'static,
        mtu: u16,
    ) -> Self {
        Self {
            descriptor,
            law: Arc::new(law),
            datagram: u32::from(mtu).saturating_sub(UNDER).max(W::HEADER + 1),
            wire: PhantomData,
        }
    }

    fn session(&self, now: Instant, id: u64, to: SocketAddr, client: bool) -> Box<dyn Session> {
        let engine = ArqEngine::<W>::new((self.law)(), self.datagram);
        Box::new(PlainSession::new(engine, now, id, to, client))
    }
}

impl<W> Clone for Plain<W> {
    fn clone(&self) -> Self {
        Self {
            law: Arc::clone(&self.law),
            ..*self
        }
    }
}

impl<W> fmt::Debug for Plain<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.descriptor.name)
            .field("datagram", &self.datagram)
            .finish_non_exhaustive()
    }
}

impl<W: Wire> Protocol for Plain<W> {
    fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    fn route(&self, datagram: &[u8]) -> Route {
        route(datagram)
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        _interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let id = rng.below(1 << 32);
        (id, self.session(now, id, to, true))
    }

    fn accept(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Accepted {
        match head(datagram) {
            Some((HELLO, id)) => Accepted::Session(id, self.session(now, id, from, false)),
            _ => Accepted::Drop,
        }
    }
}
