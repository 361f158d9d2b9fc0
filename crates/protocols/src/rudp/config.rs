//! Configuration of an endpoint: its choices, most of which it sends to its peer.

use std::time::Duration;

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    units::Rate,
};

use super::wire::{HEAD, Syn, VERSION};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "rudp",
    summary: "Reliable UDP: a window of segments with numbers of 8 bits and fixed timers, made for signalling",
    provenance: Provenance::Source,
    citation: "Bova, Krivoruchka, draft-ietf-sigtran-reliable-udp-00, 1999",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// Behaviour of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Window advertised to the peer and used for sending, segments; at least one.
    pub window: u8,
    /// Retransmission timeout. The client's value is used, as of all that follow.
    pub retransmit: Duration,
    /// Consecutive timeouts after which the session ends; 0: unlimited.
    pub retries: u8,
    /// Maximum ack delay.
    pub ack_delay: Duration,
    /// Segments per acknowledgement.
    pub ack_every: u8,
    /// Segments out of order after which an EAK is sent.
    pub eak_after: u8,
    /// Idle time after which a client sends a null segment.
    pub null: Duration,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: 128,
            retransmit: Duration::from_millis(600),
            retries: 0,
            ack_delay: Duration::from_millis(300),
            ack_every: 3,
            eak_after: 3,
            null: Duration::from_secs(2),
            max_rate: None,
            mtu: 9_000,
        }
    }
}

/// A time on the wire.
fn millis(time: Duration) -> u16 {
    u16::try_from(time.as_millis()).unwrap_or(u16::MAX)
}

impl Config {
    /// SYN of this end, with this connection's id and datagrams of this many bytes.
    pub(super) fn syn(&self, connection: u32, datagram: u16) -> Syn {
        Syn {
            version: VERSION,
            outstanding: self.window.max(1),
            options: 0,
            segment: datagram,
            retransmit: millis(self.retransmit),
            ack_delay: millis(self.ack_delay),
            null: millis(self.null),
            transfer: 1_000,
            retries: self.retries,
            ack_every: self.ack_every,
            eak_after: self.eak_after,
            resets: 0,
            connection,
        }
    }
}

/// Parameters that both ends know once they have heard each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// UDP payload of a full datagram.
    pub(super) datagram: u16,
    /// Segments that may be sent unacknowledged.
    pub(super) window: u64,
    pub(super) retransmit: Duration,
    pub(super) retries: u8,
    pub(super) ack_delay: Duration,
    pub(super) ack_every: u32,
    pub(super) eak_after: u32,
    pub(super) null: Duration,
}

/// The least segment that is agreed to.
const LEAST_SEGMENT: u16 = 64;
/// The least of the timers, as ports have it, and the longest silence of a client.
const LEAST_TIMER: u16 = 100;
const MAX_IDLE: u16 = 10_000;
const _: () = assert!(LEAST_SEGMENT as usize > HEAD + 16);

/// Agreement of the two ends' parameters; the client's timers and counters count. None, if they
/// cannot agree.
pub(super) fn agree(ours: &Syn, theirs: &Syn, client: bool) -> Option<Agreed> {
    let asked = if client { ours } else { theirs };
    let sane = theirs.version == VERSION && theirs.outstanding > 0;
    let time = |ms: u16| Duration::from_millis(ms.max(LEAST_TIMER).into());
    (sane && theirs.segment >= LEAST_SEGMENT).then(|| Agreed {
        datagram: ours.segment.min(theirs.segment),
        window: ours.outstanding.min(theirs.outstanding).into(),
        retransmit: time(asked.retransmit),
        retries: asked.retries,
        ack_delay: time(asked.ack_delay),
        ack_every: asked.ack_every.max(1).into(),
        eak_after: asked.eak_after.max(1).into(),
        null: time(asked.null.min(MAX_IDLE)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_sizes_and_the_clients_timers_count() {
        let (client, server) = (
            Config::default(),
            Config {
                window: 20,
                retransmit: Duration::from_secs(9),
                ..Config::default()
            },
        );
        let (ours, theirs) = (client.syn(1, 1_472), server.syn(2, 8_972));
        let agreed = agree(&ours, &theirs, true).unwrap();
        assert_eq!(Some(agreed), agree(&theirs, &ours, false));
        assert_eq!((agreed.datagram, agreed.window), (1_472, 20));
        assert_eq!(agreed.retransmit, Duration::from_millis(600));
        let least = Syn {
            retransmit: 0,
            ack_delay: 0,
            ack_every: 0,
            null: 0,
            ..ours
        };
        let agreed = agree(&theirs, &least, false).unwrap();
        assert_eq!(agreed.retransmit, Duration::from_millis(100));
        assert_eq!((agreed.ack_every, agreed.null.as_millis()), (1, 100));
        for bad in [
            Syn { version: 2, ..ours },
            Syn {
                outstanding: 0,
                ..ours
            },
            Syn {
                segment: 63,
                ..ours
            },
        ] {
            assert_eq!(agree(&theirs, &bad, false), None);
        }
    }
}
