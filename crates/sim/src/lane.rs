//! Carries a control lane in virtual time. The lane is a model of a TCP connection, one stream each
//! way, for a few KB/s of small messages:
//!
//! - what a session writes at one instant is sent at once, in segments of at most 1,448 bytes, as packets
//!   of 52 bytes more (IP, TCP with timestamps) over the links of the flow: their queues, delays and
//!   losses are met like anybody else's;
//! - a segment is lost if three after it arrived before it, and is sent again when the sender has learned
//!   of them (the propagation of the way back later), once; else after twice the path's rtt, at least
//!   200 ms (opening: 1 s), doubled each time;
//! - acknowledgements are never lost and are not packets; there is no congestion window, but at most
//!   [`ROOM`](farhaul_core::control::ROOM) bytes are under way;
//! - bytes are handed over in order: what waits behind a hole, waits.
//!
//! Opening takes a round trip; the preamble follows, then the session's bytes.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::{control::ROOM, time::Instant};

/// Bytes of a segment.
const MSS: usize = 1_448;
/// Bytes by which a TCP header with timestamps exceeds a UDP header, which the network adds by
/// itself.
pub(crate) const MORE: usize = 24;
const LEAST_RTO: Duration = Duration::from_millis(200);
const OPENING_RTO: Duration = Duration::from_secs(1);
const MOST_RTO: Duration = Duration::from_mins(1);
/// Later arrivals that prove a loss.
const PROOF: u8 = 3;

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The handshake's.
    Opening,
    /// Bytes.
    Bytes,
    /// The last.
    End,
}

#[derive(Debug)]
struct Segment {
    kind: Kind,
    bytes: Vec<u8>,
    again_at: Instant,
    timeout: Duration,
    later: u8,
    arrived: bool,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Stream {
    segments: VecDeque<Segment>,
    /// Number of the first of them.
    first: u64,
    under_way: usize,
    timeout: Duration,
    /// Delay of the reverse path.
    back: Duration,
    /// Time at which its timer event is due.
    pub(crate) armed: Option<Instant>,
    /// True if the opening segment was handed over.
    pub(crate) open: bool,
    /// True if the last segment was written.
    pub(crate) ended: bool,
}

impl Stream {
    /// A stream over a path of `rtt`, `back` of it on the reverse path.
    pub(crate) fn new(rtt: Duration, back: Duration) -> Self {
        Self {
            segments: VecDeque::new(),
            first: 0,
            under_way: 0,
            timeout: LEAST_RTO.max(2 * rtt),
            back,
            armed: None,
            open: false,
            ended: false,
        }
    }

    /// Bytes that may be written.
    pub(crate) const fn room(&self) -> usize {
        if self.ended {
            0
        } else {
            ROOM.saturating_sub(self.under_way)
        }
    }

    fn push(&mut self, now: Instant, kind: Kind, bytes: &[u8]) {
        let timeout = match kind {
            Kind::Opening => self.timeout.max(OPENING_RTO),
            Kind::Bytes | Kind::End => self.timeout,
        };
        self.under_way += bytes.len();
        self.ended |= kind == Kind::End;
        self.segments.push_back(Segment {
            kind,
            bytes: bytes.to_vec(),
            // It has not left yet.
            again_at: now,
            timeout,
            later: 0,
            arrived: false,
        });
    }

    /// Opens or ends the stream.
    pub(crate) fn write_mark(&mut self, now: Instant, kind: Kind) {
        self.push(now, kind, &[]);
    }

    /// Writes `bytes`.
    pub(crate) fn write(&mut self, now: Instant, bytes: &[u8]) {
        for segment in bytes.chunks(MSS) {
            self.push(now, Kind::Bytes, segment);
        }
    }

    /// The next segment that leaves now, for the first time or again: its number and length.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(u64, usize)> {
        let due = |s: &Segment| !s.arrived && s.again_at <= now;
        let at = self.segments.iter().position(due)?;
        let segment = &mut self.segments[at];
        segment.again_at = now + segment.timeout;
        segment.timeout = (segment.timeout * 2).min(MOST_RTO);
        Some((self.first + at as u64, segment.bytes.len()))
    }

    /// Time at which a segment leaves again.
    pub(crate) fn due(&self) -> Option<Instant> {
        let open = self.segments.iter().filter(|s| !s.arrived);
        open.map(|s| s.again_at).min()
    }

    /// Segment `number` is at the receiver.
    pub(crate) fn arrived(&mut self, now: Instant, number: u64) {
        let at = number.checked_sub(self.first).map(usize::try_from);
        let Some(Ok(at)) = at else {
            return;
        };
        let Some(segment) = self.segments.get_mut(at).filter(|s| !s.arrived) else {
            return;
        };
        segment.arrived = true;
        let heard = now + self.back;
        for before in self.segments.iter_mut().take(at).filter(|s| !s.arrived) {
            before.later = before.later.saturating_add(1);
            if before.later == PROOF {
                before.again_at = before.again_at.min(heard);
            }
        }
    }

    /// Takes the next segment for the receiver, if it is there.
    pub(crate) fn take(&mut self) -> Option<(Kind, Vec<u8>)> {
        let segment = self.segments.pop_front_if(|s| s.arrived)?;
        self.first += 1;
        self.under_way -= segment.bytes.len();
        self.open |= segment.kind == Kind::Opening;
        Some((segment.kind, segment.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn stream() -> Stream {
        let mut stream = Stream::new(RTT, RTT / 2);
        stream.write(at(0), &[7; 2 * MSS + 10]);
        stream.write(at(0), b"last");
        stream
    }

    fn sent(stream: &mut Stream, now: Instant) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| stream.next(now)).collect()
    }

    #[test]
    fn bytes_come_in_order_and_a_hole_holds_them_up() {
        let mut stream = stream();
        let all = [(0, MSS), (1, MSS), (2, 10), (3, 4)];
        assert_eq!(sent(&mut stream, at(0)), all);
        for number in [1, 2] {
            stream.arrived(at(50), number);
        }
        assert!(stream.take().is_none());
        assert_eq!(stream.due(), Some(at(200)));
        stream.arrived(at(51), 3);
        assert_eq!(stream.due(), Some(at(101)), "three came after it");
        assert_eq!(sent(&mut stream, at(101)), [(0, MSS)]);
        assert_eq!(stream.due(), Some(at(501)), "then the doubled timeout");
        stream.arrived(at(151), 0);
        stream.arrived(at(152), 0);
        let lens: Vec<usize> = std::iter::from_fn(|| stream.take())
            .map(|(_, bytes)| bytes.len())
            .collect();
        assert_eq!(lens, [MSS, MSS, 10, 4]);
        assert_eq!((stream.room(), stream.due()), (ROOM, None));
    }

    #[test]
    fn no_more_is_taken_than_may_be_under_way() {
        let mut stream = Stream::new(RTT, RTT / 2);
        stream.write(at(0), &vec![0; ROOM]);
        assert_eq!(stream.room(), 0);
        stream.next(at(0));
        stream.arrived(at(1), 0);
        stream.take();
        assert_eq!(stream.room(), MSS);
        stream.write_mark(at(2), Kind::End);
        assert_eq!(stream.room(), 0, "nothing comes after the end");
    }
}
