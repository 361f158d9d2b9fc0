//! Keeps the secrets. A [`Suite`] starts handshakes and derives keys; a [`Crypto`] is one
//! handshake; a [`Key`] seals datagrams in place. There are two suites: [`tls`] for the world,
//! [`plain`] for the simulator, whose flights have the same count and size and whose tags are zero.
//!
//! `Key` is an enum rather than a trait so that the plain twin costs nothing per datagram.

pub mod cipher;
pub mod plain;
pub mod tls;

use std::sync::Arc;

use rustls::quic::{PacketKey, Secrets};

use crate::wire::TAG;

/// End of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opened the connection.
    Client,
    /// The end that accepted the connection.
    Server,
}

/// Seals and opens datagrams in place.
pub enum Key {
    /// AEAD of the TLS cipher suite.
    Tls(Box<dyn PacketKey>),
    /// No key: tags are zero and not checked.
    Plain,
}

impl Key {
    /// Seals `datagram`, whose first `header` bytes stay in clear but authenticated and whose last
    /// [`TAG`] bytes take the tag.
    ///
    /// # Panics
    /// If the datagram is shorter than header and tag.
    pub fn seal(&self, number: u64, datagram: &mut [u8], header: usize) {
        let (header, sealed) = datagram.split_at_mut(header);
        let (payload, tag) = sealed.split_at_mut(sealed.len() - TAG);
        match self {
            Self::Tls(key) => {
                let made = key
                    .encrypt_in_place(number, header, payload)
                    .expect("a datagram is shorter than any AEAD's limit");
                tag.copy_from_slice(made.as_ref());
            }
            Self::Plain => tag.fill(0),
        }
    }

    /// Opens `datagram`; returns where the payload ends, or `None` if it is not authentic, in which
    /// case its content is spoilt.
    pub fn open(&self, number: u64, datagram: &mut [u8], header: usize) -> Option<usize> {
        let (header, sealed) = datagram.split_at_mut_checked(header)?;
        if sealed.len() < TAG {
            return None;
        }
        match self {
            Self::Tls(key) => {
                let payload = key.decrypt_in_place(number, header, sealed).ok()?;
                Some(header.len() + payload.len())
            }
            Self::Plain => Some(header.len() + sealed.len() - TAG),
        }
    }

    /// Datagrams that may be sealed with it.
    pub fn confidentiality_limit(&self) -> u64 {
        match self {
            Self::Tls(key) => key.confidentiality_limit(),
            Self::Plain => u64::MAX,
        }
    }

    /// Datagrams that may fail to open before the key must be given up.
    pub fn integrity_limit(&self) -> u64 {
        match self {
            Self::Tls(key) => key.integrity_limit(),
            Self::Plain => u64::MAX,
        }
    }
}

/// Keys of both directions.
pub struct KeyPair {
    /// Seals what leaves.
    pub local: Key,
    /// Opens what arrives.
    pub remote: Key,
}

/// Makes the keys of the next phase, and the next.
pub enum Ratchet {
    /// Keys from TLS traffic secrets.
    Tls(Box<Secrets>),
    /// No keys.
    Plain,
}

impl Ratchet {
    /// The next phase's keys.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> KeyPair {
        match self {
            Self::Tls(secrets) => {
                let keys = secrets.next_packet_keys();
                KeyPair {
                    local: Key::Tls(keys.local),
                    remote: Key::Tls(keys.remote),
                }
            }
            Self::Plain => KeyPair {
                local: Key::Plain,
                remote: Key::Plain,
            },
        }
    }
}

/// Keys that became available while handshake messages were written; the messages that follow use
/// them.
pub enum Change {
    /// Keys for the rest of the handshake.
    Handshake(KeyPair),
    /// Keys for everything after it; usable once the handshake is done.
    Sealed(KeyPair, Ratchet),
}

/// Reason why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer is not one of those wanted.
    Auth(String),
    /// The peer's messages make no sense.
    Protocol(String),
}

/// One side of one handshake.
pub trait Crypto: Send {
    /// Takes the next messages of the peer, in order, of the current level only.
    fn read(&mut self, messages: &[u8]) -> Result<(), Refusal>;

    /// Appends messages for the peer; call until it returns `None` and appends nothing. A change
    /// applies to the messages of later calls.
    fn write(&mut self, messages: &mut Vec<u8>) -> Option<Change>;

    /// True if both sides are authenticated.
    fn is_done(&self) -> bool;

    /// The peer's public key.
    fn peer_key(&self) -> Option<Vec<u8>>;

    /// Parameters that the peer declared.
    fn peer_params(&self) -> Option<&[u8]>;
}

/// A way of sealing.
pub trait Suite: Send + Sync {
    /// The public initial keys: against corruption, not against attackers. What they seal is bound to its
    /// session by the ids in its header.
    fn initial(&self, side: Side) -> Arc<KeyPair>;

    /// A new secret key.
    fn vault(&self) -> Key;

    /// Starts a handshake that declares `params`.
    fn start(&self, side: Side, params: Vec<u8>) -> Result<Box<dyn Crypto>, Refusal>;
}
