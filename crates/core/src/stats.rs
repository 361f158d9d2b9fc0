//! Counters that only go up; the owner of two snapshots derives rates.

use std::time::Duration;

use crate::{time::Instant, units::Rate};

/// Reason why a sender is not sending, or why a deadline was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The handshake is not done.
    Handshake,
    /// The congestion controller's rate: the path is full.
    Pacing,
    /// The congestion controller's window: waiting for feedback.
    Window,
    /// The peer grants no more.
    Peer,
    /// The sender has nothing to send.
    Application,
    /// Feedback is due then.
    Feedback,
    /// Loss detection or a tail probe.
    Repair,
    /// Keep-alive, idle or closing timer.
    Liveness,
    /// A congestion law's own timer.
    Law,
}

impl Why {
    /// The reasons for which a sender waits; indices of [`Held`].
    pub const HOLDS: [Self; 5] = [
        Self::Handshake,
        Self::Pacing,
        Self::Window,
        Self::Peer,
        Self::Application,
    ];

    /// The word used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Pacing => "network",
            Self::Window => "window",
            Self::Peer => "peer",
            Self::Application => "application",
            Self::Feedback => "feedback",
            Self::Repair => "repair",
            Self::Liveness => "liveness",
            Self::Law => "law",
        }
    }
}

/// Time held per reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    total: [Duration; Why::HOLDS.len()],
    since: Option<(Why, Instant)>,
}

impl Held {
    /// Notes that from `now` on the sender is held for `why` (`None`: it sends).
    pub fn set(&mut self, now: Instant, why: Option<Why>) {
        if let Some((why, since)) = self.since
            && let Some(i) = Why::HOLDS.iter().position(|w| *w == why)
        {
            self.total[i] += now.since(since);
        }
        self.since = why.map(|w| (w, now));
    }

    /// Adds what another was held, up to its last change.
    pub fn add(&mut self, other: &Self) {
        for (total, more) in self.total.iter_mut().zip(other.total) {
            *total += more;
        }
    }

    /// Time held so far, for each of [`Why::HOLDS`].
    pub fn totals(&self) -> impl Iterator<Item = (Why, Duration)> {
        Why::HOLDS.into_iter().zip(self.total)
    }
}

/// Everything a session counts. Bytes "on the wire" are whole UDP payloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// UDP payload bytes sent, all kinds.
    pub wire_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// UDP payload bytes received and accepted.
    pub wire_received: u64,
    /// Datagrams received and accepted.
    pub datagrams_received: u64,
    /// Object and stream bytes sent for the first time.
    pub data_sent: u64,
    /// Object and stream bytes sent again.
    pub repaired: u64,
    /// Object and stream bytes acknowledged by the peer.
    pub data_acked: u64,
    /// Object and stream bytes received, duplicates included.
    pub data_received: u64,
    /// UDP payload bytes of feedback sent.
    pub feedback_sent: u64,
    /// UDP payload bytes of feedback received.
    pub feedback_received: u64,
    /// Packets believed lost.
    pub packets_lost: u64,
    /// Packets believed lost that arrived after all.
    pub packets_spurious: u64,
    /// Datagrams dropped because they could not be authenticated.
    pub dropped_unauthentic: u64,
    /// Protected datagrams that arrived before there were keys (RFC 9001, section 5.7).
    pub dropped_early: u64,
    /// Datagrams dropped because they could not be decoded.
    pub dropped_malformed: u64,
    /// Datagrams dropped as duplicates or too old.
    pub dropped_duplicate: u64,
    /// Datagrams dropped because the store had no room for what they carry.
    pub dropped_full: u64,
    /// Packets that carried bytes sent before (web100 `PktsRetrans`).
    pub retransmits: u64,
    /// Acknowledgements that repeated the number of the one before, where a protocol counts them.
    /// Acknowledgements that only move the window count too, as web100's `DupAcksIn` may do (assumed).
    pub duplicate_acks: u64,
    /// Episodes of loss to which the law had to react (web100 `CongestionSignals`).
    pub episodes: u64,
    /// Timeouts without any feedback (web100 `Timeouts`).
    pub timeouts: u64,
    /// Times the congestion law asked for what cannot be and was overruled.
    pub law_faults: u64,
    /// Last invalid request of the law, in words.
    pub law_fault: Option<&'static str>,
    /// Key updates, own and peer's.
    pub key_updates: u64,
    /// Times the peer's address changed.
    pub rebinds: u64,
    /// Times in which the sender was not sending, by reason.
    pub held: Held,
    /// UDP payload bytes per full datagram.
    pub datagram_size: u32,
    /// Smallest round-trip time seen.
    pub rtt_min: Option<Duration>,
    /// Smoothed round-trip time.
    pub rtt_smoothed: Option<Duration>,
    /// Latest sample of the round-trip time, where a protocol takes them.
    pub rtt_latest: Option<Duration>,
    /// Rtt samples so far.
    pub rtt_samples: u64,
    /// Retransmission timeout in force, if the protocol has one (web100 `CurRTO`).
    pub rto: Option<Duration>,
    /// Rate of the first block's first round, from its first packet to its last, where a protocol
    /// sends blocks in blasts.
    pub first_blast: Option<Rate>,
    /// Pacing rate that the controller allows.
    pub pacing_rate: Rate,
    /// Bytes that the controller allows in flight (web100 `CurCwnd`).
    pub window: u64,
    /// Slow-start threshold in bytes, if the law has one (web100 `CurSsthresh`).
    pub ssthresh: Option<u64>,
    /// Bytes that the peer grants, if it limits at all (web100 `CurRwinRcvd`).
    pub peer_window: Option<u64>,
    /// Phase the law is in; empty if it does not say.
    pub phase: &'static str,
    /// Bytes in flight.
    pub in_flight: u64,
}

impl Stats {
    /// Adds the counts of another session of the same copy; figures of a path stay this one's.
    pub fn add(&mut self, other: &Self) {
        self.wire_sent += other.wire_sent;
        self.datagrams_sent += other.datagrams_sent;
        self.wire_received += other.wire_received;
        self.datagrams_received += other.datagrams_received;
        self.data_sent += other.data_sent;
        self.repaired += other.repaired;
        self.data_acked += other.data_acked;
        self.data_received += other.data_received;
        self.feedback_sent += other.feedback_sent;
        self.feedback_received += other.feedback_received;
        self.packets_lost += other.packets_lost;
        self.packets_spurious += other.packets_spurious;
        self.retransmits += other.retransmits;
        self.episodes += other.episodes;
        self.timeouts += other.timeouts;
        self.held.add(&other.held);
    }
}
