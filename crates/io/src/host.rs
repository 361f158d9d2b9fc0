//! Counts what the machine did for a shard: calls, time awake and asleep, drops. They are the part
//! of "what limits it" that a session cannot see.

use std::{io, time::Duration};

use farhaul_udp::{Capabilities, SocketCounters};

/// Reason why a datagram did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The kernel refused the datagram, or reports what a router did with an earlier one, by this
    /// error number.
    Refused(i32),
    /// Longer than the link takes, or a router on the way.
    TooLong {
        /// UDP payload bytes of the datagram.
        bytes: usize,
        /// The IP MTU of the way to the peer, if this host knows it.
        mtu: Option<u32>,
    },
}

/// A shard's account of itself. Counters only go up.
#[derive(Clone, Copy, Debug)]
pub struct HostStats {
    /// The socket's counters; `overflowed` are datagrams the kernel dropped for lack of buffer.
    pub socket: SocketCounters,
    /// Capabilities that the kernel granted, as of now.
    pub capabilities: Capabilities,
    /// Batches handed to the kernel.
    pub batches_sent: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Times the thread slept.
    pub sleeps: u64,
    /// Time awake.
    pub busy: Duration,
    /// Time asleep for want of anything to do.
    pub asleep: Duration,
    /// Time asleep because the socket took no more: the host's own queue was full.
    pub blocked: Duration,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// The last reason for which a datagram did not leave, or did not come far; it was lost.
    pub unsent: Option<Unsent>,
    /// Times that a client went on from another address of this host, having lost the one before.
    pub moves: u64,
    /// Deadlines that a session or app left in the past; each was put off by a millisecond.
    pub stuck_deadlines: u64,
}

impl HostStats {
    pub(crate) const fn new(capabilities: Capabilities, socket: SocketCounters) -> Self {
        Self {
            socket,
            capabilities,
            batches_sent: 0,
            turns: 0,
            sleeps: 0,
            busy: Duration::ZERO,
            asleep: Duration::ZERO,
            blocked: Duration::ZERO,
            cpu: Duration::ZERO,
            unsent: None,
            moves: 0,
            stuck_deadlines: 0,
        }
    }

    /// Adds the account of another shard.
    pub(crate) fn add(&mut self, other: &Self) {
        self.socket.add(&other.socket);
        let capabilities = &mut self.capabilities;
        capabilities.gso &= other.capabilities.gso;
        capabilities.gso_refusal = capabilities.gso_refusal.or(other.capabilities.gso_refusal);
        self.batches_sent += other.batches_sent;
        self.turns += other.turns;
        self.sleeps += other.sleeps;
        self.busy += other.busy;
        self.asleep += other.asleep;
        self.blocked += other.blocked;
        self.cpu += other.cpu;
        self.unsent = self.unsent.or(other.unsent);
        self.moves += other.moves;
        self.stuck_deadlines += other.stuck_deadlines;
    }

    /// Capability whose refusal by the kernel makes sending dearer, for people.
    pub fn refusal(&self) -> Option<String> {
        let errno = self.capabilities.gso_refusal?;
        let error = io::Error::from_raw_os_error(errno);
        Some(format!(
            "the kernel refused segmentation offload on this path ({error}): each datagram was sent by a call of its own, which costs several times the processor time"
        ))
    }

    /// Datagrams per batch sent.
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    pub fn segments_per_batch(&self) -> f64 {
        self.socket.datagrams_sent as f64 / (self.batches_sent.max(1)) as f64
    }

    /// Share of the time that the thread was awake, 0 to 1: near 1, the CPU is the limit.
    pub fn busy_share(&self) -> f64 {
        let total = self.busy + self.asleep + self.blocked;
        self.busy.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_offload_is_reported_and_a_disabled_one_is_not() {
        let mut capabilities = Capabilities {
            gso: false,
            gso_refusal: None,
            gro: true,
            ecn: true,
            dont_fragment: true,
            receive_buffer: 1,
            send_buffer: 1,
        };
        let host = |capabilities| HostStats::new(capabilities, SocketCounters::default());
        assert_eq!(host(capabilities).refusal(), None);
        capabilities.gso_refusal = Some(5);
        let text = host(capabilities).refusal().unwrap();
        assert!(text.contains("os error 5"), "{text}");
    }
}
