//! Messages that the two ends of a bench exchange: JSON objects on the session's ordered stream,
//! each after its length in four bytes, big-endian.
//!
//! A length above [`MAX`] ends the session before anything is stored for it.

use std::{collections::BTreeMap, fmt, time::Duration};

use farhaul_core::{protocol::Session, stats::Stats, text, units::Rate};
use serde::{Deserialize, Serialize};

use crate::histogram::RttMs;

/// The version of these messages.
pub const VERSION: u32 = 3;
/// The version in which nothing is sent at a constant rate.
pub const PLAIN: u32 = 2;
/// The longest message accepted, bytes.
pub const MAX: usize = 64 << 10;

/// Limit at which the sender stops offering data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// A time, ns, counted from the client's first act.
    Nanos(u64),
    /// A number of bytes.
    Bytes(u64),
}

/// Wishes of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the client.
    pub version: u32,
    /// The client's program version.
    pub farhaul: String,
    /// True if the server sends.
    pub reverse: bool,
    /// Limit at which the sender stops.
    pub limit: Limit,
    /// Time since the client's first act when this was written, ns.
    pub since_start: u64,
    /// Time from the start that is left out of the result, ns.
    pub omit: u64,
    /// Interval of the receiver's reports, ns.
    pub interval: u64,
    /// True if a server that receives keeps its marks until everything has arrived: nobody looks
    /// meanwhile.
    #[serde(default)]
    pub marks_at_end: bool,
    /// Sessions that belong together, and which of them this is.
    pub lanes: u32,
    /// Index of this session among them.
    pub lane: u32,
    /// Highest rate of a server that sends, bit/s.
    pub max_rate: Option<u64>,
    /// Share of contended links that the sender claims.
    pub policy: String,
    /// Rate at which the sender sends whatever is lost, bit/s; absent where its congestion law decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant: Option<u64>,
}

/// Progress of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Time since the client's first act as the receiver's clock has it, ns.
    pub at: u64,
    /// Bytes that arrived so far, each counted once.
    pub bytes: u64,
    /// Datagrams so far, in a test at a constant rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
}

/// Datagrams of a test at a constant rate, as its receiver counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Datagrams that were sent: of a receiver in the middle of a test, up to the newest that arrived.
    pub sent: u64,
    /// Datagrams that arrived, each counted once.
    pub received: u64,
    /// Datagrams that arrived after a later one (RFC 4737, section 3).
    pub reordered: u64,
    /// Copies that arrived after the first.
    pub duplicates: u64,
    /// Interarrival jitter (RFC 3550, section 6.4.1), ns.
    pub jitter_ns: u64,
}

impl Datagrams {
    /// Both together, with the larger jitter.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            reordered: self.reordered.saturating_add(other.reordered),
            duplicates: self.duplicates.saturating_add(other.duplicates),
            jitter_ns: if self.jitter_ns > other.jitter_ns {
                self.jitter_ns
            } else {
                other.jitter_ns
            },
        }
    }

    /// Counts since an `earlier` moment, with the jitter of now.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(earlier.sent),
            received: self.received.saturating_sub(earlier.received),
            reordered: self.reordered.saturating_sub(earlier.reordered),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            jitter_ns: self.jitter_ns,
        }
    }

    /// Datagrams that did not arrive.
    pub const fn lost(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Share of the datagrams that did not arrive; 0 if there were none.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub fn loss_ratio(self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64
    }

    /// Jitter in milliseconds.
    pub fn jitter_ms(self) -> f64 {
        Duration::from_nanos(self.jitter_ns).as_secs_f64() * 1e3
    }
}

impl fmt::Display for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "jitter {:.3} ms, lost {} of {} ({:.2} %)",
            self.jitter_ms(),
            self.lost(),
            self.sent,
            self.loss_ratio() * 100.0
        )?;
        for (count, what) in [
            (self.reordered, "reordered"),
            (self.duplicates, "duplicates"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Figures that one end has to report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Program version.
    pub farhaul: String,
    /// Processor time of the process during the run, s.
    pub cpu_seconds: f64,
    /// The most memory the process has held.
    pub max_rss_bytes: Option<u64>,
    /// UDP payload bytes sent, all kinds.
    pub wire_sent: u64,
    /// Object and stream bytes sent again.
    pub repaired: u64,
    /// Datagrams sent, all kinds; 0 of a version that does not say.
    #[serde(default)]
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets declared lost spuriously.
    pub packets_spurious: u64,
    /// UDP payload bytes of a full datagram.
    pub datagram_size: u32,
    /// Round-trip times.
    pub rtt: RttMs,
    /// Seconds held, per reason.
    pub held: BTreeMap<String, f64>,
    /// Bytes that arrived at a receiver, each counted once.
    pub received: u64,
    /// Bytes of these that arrived at a receiver in the omitted time.
    pub omitted: u64,
    /// Bytes that arrived at a receiver again.
    pub repeated: u64,
    /// Time at a receiver from the hello's arrival to that of the last byte not seen before, ns.
    pub last_after_hello: u64,
    /// True at a receiver if everything that was offered has arrived.
    pub complete: bool,
    /// Datagrams at the receiver of a test at a constant rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
    /// Rate of a sender's first blast, bit/s, if its protocol sends in blasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_blast: Option<u64>,
}

impl Side {
    /// Takes over what the session counted.
    #[must_use]
    pub fn with(mut self, stats: &Stats) -> Self {
        self.farhaul = env!("CARGO_PKG_VERSION").into();
        self.wire_sent = stats.wire_sent;
        self.repaired = stats.repaired;
        self.packets_sent = stats.datagrams_sent;
        self.packets_lost = stats.packets_lost;
        self.packets_spurious = stats.packets_spurious;
        self.datagram_size = stats.datagram_size;
        self.first_blast = stats.first_blast.map(Rate::bps);
        let held = stats.held.totals();
        self.held = held
            .map(|(why, d)| (why.name().to_string(), d.as_secs_f64()))
            .collect();
        self
    }
}

/// All messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Client to server, first.
    Hello(Hello),
    /// Server to a client that is to send at a constant rate: the receiver counts from now on.
    Ready,
    /// Receiver to sender, every interval, or all of them before the outcome.
    Mark(Mark),
    /// Sender to receiver: nothing new follows after this many bytes.
    Done {
        /// Bytes offered.
        bytes: u64,
        /// Datagrams sent, in a test at a constant rate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datagrams: Option<u64>,
    },
    /// Order of the client to a server that sends: offer nothing more, and report how much that was. A
    /// server of an earlier version ends the session.
    Stop,
    /// Sent by the receiver when it has everything; from a server then also back.
    Outcome(Box<Side>),
}

impl Message {
    /// True if no text in it would steer a terminal.
    fn can_be_shown(&self) -> bool {
        let plain = |words: &String| !words.contains(text::steers);
        match self {
            Self::Hello(hello) => plain(&hello.farhaul) && plain(&hello.policy),
            Self::Outcome(side) => plain(&side.farhaul) && side.held.keys().all(plain),
            Self::Ready | Self::Mark(_) | Self::Done { .. } | Self::Stop => true,
        }
    }
}

/// A message that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadMessage {
    /// Longer than [`MAX`].
    #[error("a message of {0} bytes")]
    TooLong(u32),
    /// A message that is none of ours.
    #[error("a message that is not understood: {0}")]
    Malformed(String),
}

/// Writes `message` to the session's stream.
pub(super) fn send(session: &mut dyn Session, message: &Message) {
    session.write(&framed(message));
}

/// `message` as it is on the stream.
fn framed(message: &Message) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("messages are plain data");
    let len = u32::try_from(body.len()).expect("messages are short");
    let mut framed = len.to_be_bytes().to_vec();
    framed.extend_from_slice(&body);
    framed
}

/// Collects the stream and cuts it into messages.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    /// Takes what the session has.
    pub(super) fn receive(&mut self, session: &mut dyn Session) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        session.read(&mut self.bytes);
    }

    /// The next whole message.
    pub(super) fn take(&mut self) -> Result<Option<Message>, BadMessage> {
        let Some((len, rest)) = self.bytes[self.taken..].split_first_chunk() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*len);
        let n = usize::try_from(len).unwrap_or(usize::MAX);
        if n > MAX {
            return Err(BadMessage::TooLong(len));
        }
        let Some(body) = rest.get(..n) else {
            return Ok(None);
        };
        let message: Message = serde_json::from_slice(body)
            // What is unknown is quoted there.
            .map_err(|e| BadMessage::Malformed(text::plain(&e.to_string())))?;
        if !message.can_be_shown() {
            return Err(BadMessage::Malformed("control or format characters".into()));
        }
        self.taken += 4 + n;
        Ok(Some(message))
    }
}

/// Feeds arbitrary bytes to the decoder, as a hostile peer would; what decodes must encode to what
/// decodes to the same. For fuzzing.
#[doc(hidden)]
pub fn fuzz_bench_messages(bytes: &[u8]) {
    let mut inbox = Inbox {
        bytes: bytes.to_vec(),
        taken: 0,
    };
    while let Ok(Some(message)) = inbox.take() {
        let again = framed(&message);
        // `1e9` is written as `1000000000.0`: what was just short enough may not be any more.
        if again.len() > 4 + MAX {
            continue;
        }
        let mut twin = Inbox {
            bytes: again,
            taken: 0,
        };
        let back = twin.take().expect("our own").expect("whole");
        // The last bit of a number that is not whole may differ.
        let is_outcome = |m: &Message| matches!(m, Message::Outcome(_));
        assert!(back == message || is_outcome(&back) && is_outcome(&message));
        assert_eq!(twin.taken, twin.bytes.len());
    }
    assert!(inbox.taken <= bytes.len());
}

#[cfg(test)]
mod tests;
