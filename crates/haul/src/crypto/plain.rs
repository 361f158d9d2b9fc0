//! Replaces TLS in the simulator. The flights of this twin have the same order, count and size as
//! those of [`tls`](super::tls); its keys are nothing and its tags are zero. It draws no
//! randomness, authenticates nothing, and still applies the peer policy, so that refusals can be
//! simulated.

use std::sync::Arc;

use farhaul_core::codec::{Reader, Writer};

use super::{Change, Crypto, Key, KeyPair, Ratchet, Refusal, Side, Suite};
use crate::{config::PeerPolicy, identity::PublicKey};

/// Bytes of the TLS messages besides the declared parameters: client hello, server hello, server's
/// encrypted flight, client's last flight.
const SIZES: [usize; 4] = [1_471, 1_178, 216, 165];
const OVERHEAD: usize = 4;

/// The unsealed suite.
pub struct Plain {
    key: PublicKey,
    policy: PeerPolicy,
}

impl Plain {
    pub(crate) const fn new(key: PublicKey, policy: PeerPolicy) -> Self {
        Self { key, policy }
    }
}

const NOTHING: KeyPair = KeyPair {
    local: Key::Plain,
    remote: Key::Plain,
};

impl Suite for Plain {
    fn initial(&self, _: Side) -> Arc<KeyPair> {
        Arc::new(NOTHING)
    }

    fn vault(&self) -> Key {
        Key::Plain
    }

    fn start(&self, side: Side, params: Vec<u8>) -> Result<Box<dyn Crypto>, Refusal> {
        Ok(Box::new(PlainHandshake {
            side,
            step: usize::from(side == Side::Server),
            ready: side == Side::Client,
            done: false,
            key: self.key,
            policy: self.policy.clone(),
            params,
            inbox: Vec::new(),
            peer: (None, None),
        }))
    }
}

struct PlainHandshake {
    side: Side,
    /// Index into [`SIZES`] of the message to write next.
    step: usize,
    ready: bool,
    done: bool,
    key: PublicKey,
    policy: PeerPolicy,
    params: Vec<u8>,
    inbox: Vec<u8>,
    peer: (Option<Vec<u8>>, Option<Vec<u8>>),
}

impl PlainHandshake {
    /// Hellos carry parameters, encrypted flights the key; the rest is zeros up to TLS' size.
    fn message(&self, step: usize) -> Vec<u8> {
        let content: &[u8] = if carries_params(step) {
            &self.params
        } else {
            self.key.as_bytes()
        };
        // In TLS those of the server are in its encrypted flight.
        let params = if step == 0 || step == 2 {
            self.params.len()
        } else {
            0
        };
        let mut bytes = vec![0; (SIZES[step] + params).max(OVERHEAD + content.len())];
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let mut w = Writer::new(&mut bytes);
        let written = w
            .u16(len)
            .and_then(|()| w.u8(u8::try_from(step).unwrap_or(u8::MAX)))
            .and_then(|()| w.prefixed(content));
        written.expect("the message was sized for it");
        bytes
    }

    fn take(&mut self, step: u8, content: &[u8]) -> Result<(), Refusal> {
        let step = usize::from(step);
        let theirs = match self.side {
            Side::Client => [1, 2],
            Side::Server => [0, 3],
        };
        if !theirs.contains(&step) {
            return Err(Refusal::Protocol("plain message out of order".into()));
        }
        if carries_params(step) {
            self.peer.1 = Some(content.to_vec());
        } else {
            let key =
                <[u8; 32]>::try_from(content).map_err(|_| Refusal::Protocol("plain key".into()))?;
            let key = PublicKey::from_bytes(key);
            if !self.policy.accepts(&key) {
                return Err(Refusal::Auth(key.not_accepted()));
            }
            self.peer.0 = Some(content.to_vec());
        }
        match (self.side, step) {
            (Side::Client, 2) => (self.step, self.ready) = (3, true),
            (Side::Server, 0) => self.ready = true,
            (Side::Server, 3) => self.done = true,
            _ => {}
        }
        Ok(())
    }
}

/// True for the messages that carry parameters. In TLS the client hello and the server's encrypted
/// flight carry them; the twin uses the server hello, so that each message carries one thing.
const fn carries_params(step: usize) -> bool {
    step < 2
}

impl Crypto for PlainHandshake {
    fn read(&mut self, messages: &[u8]) -> Result<(), Refusal> {
        self.inbox.extend_from_slice(messages);
        while let Ok(len) = Reader::new(&self.inbox).u16() {
            let len = usize::from(len);
            if len < OVERHEAD {
                return Err(Refusal::Protocol("plain message".into()));
            }
            if self.inbox.len() < len {
                break;
            }
            let message: Vec<u8> = self.inbox.drain(..len).collect();
            let mut r = Reader::new(&message[2..]);
            let parsed = r.u8().and_then(|step| Ok((step, r.prefixed()?)));
            let (step, content) = parsed.map_err(|e| Refusal::Protocol(e.to_string()))?;
            self.take(step, content)?;
        }
        Ok(())
    }

    fn write(&mut self, messages: &mut Vec<u8>) -> Option<Change> {
        // The client's handshake keys are derived with the server hello, before its last flight.
        if self.side == Side::Client && self.step == 0 && self.peer.1.is_some() {
            self.step = 2;
            return Some(Change::Handshake(NOTHING));
        }
        if !self.ready {
            return None;
        }
        match self.step {
            0 => {
                self.ready = false;
                messages.extend(self.message(0));
                None
            }
            1 => {
                self.step = 2;
                messages.extend(self.message(1));
                Some(Change::Handshake(NOTHING))
            }
            2 if self.side == Side::Server => {
                self.ready = false;
                messages.extend(self.message(2));
                Some(Change::Sealed(NOTHING, Ratchet::Plain))
            }
            3 => {
                self.ready = false;
                self.done = true;
                messages.extend(self.message(3));
                Some(Change::Sealed(NOTHING, Ratchet::Plain))
            }
            _ => None,
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn peer_key(&self) -> Option<Vec<u8>> {
        self.peer.0.clone()
    }

    fn peer_params(&self) -> Option<&[u8]> {
        self.peer.1.as_deref()
    }
}
