//! A lying peer that has been let in: a client with the real handshake and the real keys. It sends
//! and omits what it is instructed to. For tests and campaigns: feature `hostile`.

use std::sync::Arc;

use farhaul_core::{codec::Writer, time::Instant};

use crate::{
    HaulConfig,
    config::ConfigError,
    crypto::{Suite, tls::Tls},
    handshake::{Handshake, Ids},
    identity::Identity,
    seal::Seal,
    wire::{
        TAG, VERSIONS,
        long::LONG,
        params::Params,
        short::{self, Short},
    },
};

/// A client whose datagrams are its owner's.
pub struct HostilePeer {
    handshake: Handshake,
    seal: Option<Seal>,
    ids: Ids,
    /// One past the highest packet number received.
    next_number: u64,
}

impl HostilePeer {
    /// A client with the identity and limits of `config`, whose connection id is `id`.
    ///
    /// # Panics
    /// Never: the first messages are made of a valid configuration.
    pub fn new(config: &HaulConfig, id: u32, now: Instant) -> Result<Self, ConfigError> {
        let identity = Identity::from_seed(&config.identity)?;
        let suite: Arc<dyn Suite> = Arc::new(Tls::new(&identity, &config.peers)?);
        let limits = Params {
            law: None,
            app: Vec::new(),
            versions: VERSIONS.to_vec(),
            tunnel: false,
            max_datagram: config.max_datagram,
            idle: config.idle,
            ids: (0, 0),
        };
        let ids = Ids {
            local: id,
            remote: !id,
        };
        let mut handshake = Handshake::client(suite, ids, limits, now);
        let opened = handshake.open();
        opened.expect("the first messages are made of a valid configuration");
        Ok(Self {
            ids: handshake.ids(),
            handshake,
            seal: None,
            next_number: 0,
        })
    }

    /// The datagrams of the handshake that are to be sent now.
    pub fn flight(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.handshake.on_timeout(now);
        std::iter::from_fn(|| self.handshake.poll(now).map(<[u8]>::to_vec)).collect()
    }

    /// True if the handshake is finished.
    pub const fn is_open(&self) -> bool {
        self.seal.is_some()
    }

    /// Takes a datagram; number and frames of one that was sealed for this side.
    pub fn receive(&mut self, now: Instant, datagram: &mut [u8]) -> Option<(u64, Vec<u8>)> {
        if datagram.first()? & LONG != 0 {
            self.handshake.on_datagram(now, datagram).ok()?;
            self.ids = self.handshake.ids();
            if let Some(agreed) = self.handshake.agreed().ok()? {
                self.seal = Some(Seal::new(agreed.keys, agreed.ratchet, u64::MAX));
            }
            return None;
        }
        let (number, end) = self.seal.as_mut()?.open(self.next_number, datagram).ok()?;
        self.next_number = self.next_number.max(number + 1);
        Some((number, datagram[short::LEN..end].to_vec()))
    }

    /// One past the highest packet number received.
    pub const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// `frames` as packet `number`; none before the handshake is finished.
    pub fn seal(&mut self, number: u64, frames: &[u8]) -> Option<Vec<u8>> {
        let seal = self.seal.as_mut()?;
        let mut datagram = vec![0; short::LEN + frames.len() + TAG];
        let mut w = Writer::new(&mut datagram);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let header = Short {
            phase: seal.phase(),
            to: self.ids.remote,
            number: number as u32,
        };
        header.encode(&mut w).ok()?;
        w.put(frames).ok()?;
        seal.seal(number, &mut datagram);
        Some(datagram)
    }

    /// Switches to the keys of the next phase, whether or not that is allowed.
    pub fn update_keys(&mut self) {
        if let Some(seal) = &mut self.seal {
            seal.advance();
        }
    }
}
