//! Configuration of an endpoint: the behaviour of the original or a fixed one, what the bytes mean,
//! and sizes.

use std::time::Duration;

use farhaul_core::units::Rate;

use crate::ConfigError;

/// Fidelity to libudt where libudt's behaviour hurts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// The behaviour of libudt 4.11, its collapse under loss included.
    #[default]
    Libudt,
    /// libudt's wire, with what can be fixed from one side. Losses are reported again, the first
    /// hole is sent again without waiting for the long timer, estimators start from what they first
    /// see.
    Fixed,
}

/// Meaning of the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Between two farhaul ends: every packet is a message of its own that carries its object and
    /// offset, so that its bytes are placed on arrival. On the wire: socket type 2, one record per
    /// packet.
    #[default]
    Records,
    /// Bytes in order, as libudt's stream sockets and files. Data of objects and written data form
    /// one stream in the order of the calls.
    Stream,
    /// Messages as libudt's dgram sockets. Each write is a message; the reader gets messages, each
    /// behind its length as four bytes, big-endian.
    Messages {
        /// A message is given up when a packet of it would have to be sent again after this time.
        ttl: Option<Duration>,
        /// True if messages wait for those before them.
        in_order: bool,
    },
}

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct UdtConfig {
    /// Behaviour of the original, or fixed.
    pub behaviour: Behaviour,
    /// Meaning of the payload.
    pub framing: Framing,
    /// Congestion law and its parameters.
    pub law: String,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Time in which a receiving host takes the second packet of a pair, where packets come so rarely
    /// that it sleeps between them.
    pub wake: Duration,
    /// Largest packet, bytes, IP and UDP included, 76 to 65,535. By default the interface's, at most
    /// 9,000.
    pub mss: Option<u32>,
    /// Receive window, packets, 32 to 2^24. Records need no buffer for it.
    pub window: u32,
    /// Bytes kept for a stream or for messages that arrive out of order or are not read; caps the
    /// window.
    pub buffer: u64,
    /// A client gives up if nothing answers this long; rendezvous ten times as long.
    pub answer: Duration,
    /// True for two equals that connect to each other, rather than client and listener.
    pub rendezvous: bool,
    /// Key of the cookies; made up if not given, which is wanted but where runs must repeat.
    pub cookie_key: Option<[u64; 2]>,
}

impl Default for UdtConfig {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::default(),
            framing: Framing::default(),
            law: "daimd".into(),
            max_rate: None,
            wake: Duration::from_micros(1),
            mss: None,
            window: 1 << 17,
            buffer: 256 << 20,
            answer: Duration::from_secs(3),
            rendezvous: false,
            cookie_key: None,
        }
    }
}

impl UdtConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let text = if self.mss.is_some_and(|mss| !(76..=65_535).contains(&mss)) {
            "mss is from 76 to 65,535 bytes"
        } else if !(32..=1 << 24).contains(&self.window) {
            "window is from 32 to 16,777,216 packets"
        } else if self.buffer < 1 << 20 {
            "buffer is at least 1 MiB"
        } else if self.answer < Duration::from_millis(500) {
            "answer is at least half a second"
        } else {
            return Ok(());
        };
        Err(ConfigError::Range(text))
    }
}
