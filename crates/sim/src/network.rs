//! How does a batch cross a link? Its segments are offered to the link one by one; the survivors
//! travel on as one parcel, released when the last of them is due, as a receiver's offload would hand
//! them over.
//!
//! Invariants: a parcel is in order, has one ECN mark, and spans at most [`COALESCE`]; what the link
//! reorders, marks differently or doubles travels in parcels of its own. Only the solid heads of
//! segments are kept. A parcel's buffers are reused, so a run settles to no allocation at all.

use std::time::Duration;

use farhaul_core::{
    datagram::{Ecn, TxBuf},
    rng::Rng,
    time::Instant,
};
use farhaul_link::{Path, Verdict};

use crate::{
    queue::{Queue, What},
    scenario::Scenario,
    trace::{Mark, Trace},
};

/// What IPv4 and UDP put in front of a payload.
pub(crate) const HEADERS: u32 = 28;
/// A receiver's offload waits no longer than this for more of the same.
const COALESCE: Duration = Duration::from_millis(1);

/// Datagrams that arrive together.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    /// The end they are for.
    pub(crate) to: u32,
    pub(crate) ecn: Ecn,
    /// Bytes from one datagram to the next.
    stride: usize,
    /// Bytes of the last datagram.
    last: usize,
    /// Length of each datagram's solid head.
    solids: Vec<u16>,
    /// The solid heads, one after the other.
    heads: Vec<u8>,
}

impl Parcel {
    pub(crate) fn count(&self) -> usize {
        self.solids.len()
    }

    /// Bytes from the first datagram's begin to the last one's end.
    pub(crate) fn len(&self) -> usize {
        (self.count() - 1) * self.stride + self.last
    }

    /// Bytes from one datagram to the next; a lone one has its own length.
    pub(crate) fn segment(&self) -> usize {
        if self.count() == 1 {
            self.last
        } else {
            self.stride
        }
    }

    /// Puts the heads in their places; what lies between them is whatever was there.
    pub(crate) fn unpack(&self, into: &mut [u8]) {
        let mut heads = &self.heads[..];
        for (i, solid) in self.solids.iter().enumerate() {
            let (head, rest) = heads.split_at(usize::from(*solid));
            let at = i * self.stride;
            into[at..at + head.len()].copy_from_slice(head);
            heads = rest;
        }
    }
}

/// A parcel still open for more segments of its batch.
#[derive(Clone, Copy, Debug)]
struct Open {
    index: u32,
    first: Instant,
    last: Instant,
    ecn: Ecn,
}

/// Where a batch goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Index of the sending end; even ends are clients.
    pub(crate) from: u32,
    /// The flow's own delay on top of the link's.
    pub(crate) extra_delay: Duration,
}

impl Way {
    /// 0 is forward, 1 is back.
    const fn link(self) -> usize {
        (self.from & 1) as usize
    }
}

/// Both links and everything on them.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: [Path; 2],
    pub(crate) queue: Queue,
    pub(crate) trace: Trace,
    /// Datagrams offered to links.
    pub(crate) packets: u64,
    parcels: Vec<Parcel>,
    free: Vec<u32>,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario, rng: &Rng) -> Self {
        Self {
            links: [
                Path::new(&scenario.forward, &rng.fork("link/forward")),
                Path::new(&scenario.back, &rng.fork("link/back")),
            ],
            queue: Queue::default(),
            trace: Trace::new(),
            packets: 0,
            parcels: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes the batch in `out` over its link.
    pub(crate) fn carry(&mut self, now: Instant, way: Way, ecn: Ecn, out: &TxBuf) {
        let stride = out.segment();
        let mut open = None;
        self.packets += out.count() as u64;
        self.note(now, Mark::Batch, way.from, out.bytes().len());
        for (bytes, solid) in out.segments() {
            let head = &bytes[..solid];
            let wire = HEADERS + u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let (at, again, ecn) = match self.links[way.link()].offer(now, wire, ecn) {
                // The receiving host's UDP checksum finds the damage.
                Verdict::Drop(_)
                | Verdict::Pass { corrupt: true, .. }
                | Verdict::Twice { corrupt: true, .. } => {
                    self.note(now, Mark::Drop, way.from, bytes.len());
                    continue;
                }
                Verdict::Pass { at, ecn, .. } => (at, None, ecn),
                Verdict::Twice { at, again, ecn, .. } => (at, Some(again), ecn),
            };
            open = Some(self.append(way, open, at, ecn, stride));
            if let Some(open) = open {
                self.parcels[open.index as usize].push(head, bytes.len());
            }
            if let Some(again) = again {
                let copy = self.append(way, None, again, ecn, stride);
                self.parcels[copy.index as usize].push(head, bytes.len());
                self.ship(way, copy);
            }
        }
        if let Some(open) = open {
            self.ship(way, open);
        }
    }

    /// The parcel in which a segment due at `at` travels: the open one if it fits.
    fn append(
        &mut self,
        way: Way,
        open: Option<Open>,
        at: Instant,
        ecn: Ecn,
        stride: usize,
    ) -> Open {
        if let Some(open) = open {
            if at >= open.last && open.ecn == ecn && at.since(open.first) <= COALESCE {
                return Open { last: at, ..open };
            }
            self.ship(way, open);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.parcels.push(Parcel::default());
            u32::try_from(self.parcels.len() - 1).expect("fewer than 2^32 batches in flight")
        });
        let parcel = &mut self.parcels[index as usize];
        parcel.to = way.from ^ 1;
        parcel.ecn = ecn;
        parcel.stride = stride;
        parcel.solids.clear();
        parcel.heads.clear();
        Open {
            index,
            first: at,
            last: at,
            ecn,
        }
    }

    fn ship(&mut self, way: Way, open: Open) {
        let at = open.last + way.extra_delay;
        self.queue
            .push_lane(way.link(), at, What::Parcel(open.index));
    }

    /// The parcel `index`, which has arrived; give it back with [`Self::recycle`].
    pub(crate) fn parcel(&self, index: u32) -> &Parcel {
        &self.parcels[index as usize]
    }

    pub(crate) fn recycle(&mut self, index: u32) {
        self.free.push(index);
    }

    pub(crate) fn note(&mut self, now: Instant, mark: Mark, target: u32, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.trace.note(now.as_nanos(), mark, target, len);
    }
}

impl Parcel {
    fn push(&mut self, head: &[u8], len: usize) {
        self.heads.extend_from_slice(head);
        self.solids
            .push(u16::try_from(head.len()).expect("a solid head is counted in 16 bits"));
        self.last = len;
    }
}

#[cfg(test)]
mod tests;
