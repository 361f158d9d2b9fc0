//! Carries batches over the links of their way. The segments of a batch are offered to the first
//! link one by one. Over a way of one link the survivors travel on as one train, released when the
//! last of them is due. A receiver's offload would hand them over in that way. Over a longer way
//! each packet travels alone and meets every further link at its own time. At the end packets of
//! one batch may gather again.
//!
//! Invariants: a train is in order, of one batch, has one ECN mark, and spans at most the
//! scenario's `coalesce`. A flow whose ends measure spacing gets each packet alone. Packets that a
//! link reorders, marks differently or doubles travel in trains of their own. Only the solid heads
//! of segments are kept. A train's buffers are reused, so a run settles to no allocation at all.

mod train;

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    datagram::{CongestionHeader, Ecn, MAX_BATCH, MAX_SEGMENTS, TxBuf},
    rng::Rng,
    time::Instant,
};
use farhaul_link::{Path, Verdict};

pub(crate) use self::train::Train;

use crate::{
    cross::Cross,
    end::{address, cross_addresses},
    observe::{Observer, Packet},
    queue::{Queue, What},
    scenario::Scenario,
    trace::{Mark, Trace},
};

mod control;

/// Bytes that IPv4 and UDP put in front of a payload.
pub(crate) const HEADERS: u32 = 28;

/// A train still open for more segments of its batch.
#[derive(Clone, Copy, Debug)]
struct Open {
    index: u32,
    first: Instant,
    last: Instant,
    ecn: Ecn,
}

/// Route of the packets of an end.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Index of the first link, and of the second if there is one, in [`Network::hops`].
    first: usize,
    /// The number of links.
    hops: u32,
    /// The flow's own delay on top of the links'.
    extra_delay: Duration,
    /// Most time between packets that are handed over together.
    coalesce: Duration,
    from: SocketAddr,
    to: SocketAddr,
}

/// One packet at the entrance of a link.
#[derive(Clone, Copy)]
struct Segment<'a> {
    from: u32,
    ecn: Ecn,
    header: Option<CongestionHeader>,
    head: &'a [u8],
    len: usize,
}

/// All links and everything on them.
pub(crate) struct Network<'a> {
    pub(crate) links: Vec<Path>,
    pub(crate) queue: Queue,
    pub(crate) trace: Trace,
    /// Datagrams offered to links by sessions.
    pub(crate) packets: u64,
    pub(crate) cross: Vec<Cross>,
    pub(crate) observer: Option<&'a mut dyn Observer>,
    /// Ways by sending end, then by cross traffic.
    ways: Vec<Way>,
    hops: Vec<u32>,
    /// Packets dropped, by way.
    drops: Vec<u64>,
    /// Trains at their receivers that later segments of the same batch may join, by way.
    gathering: Vec<Option<Open>>,
    ends: usize,
    /// Index of the first way of a control lane.
    controls: usize,
    framing: u32,
    /// True if segments are carried with all their bytes, since they are captured.
    pub(crate) whole: bool,
    coalesce: Duration,
    /// Batches sent so far, modulo 2^32.
    batch: u32,
    trains: Vec<Train>,
    free: Vec<u32>,
}

impl<'a> Network<'a> {
    pub(crate) fn new(
        scenario: &Scenario,
        rng: &Rng,
        observer: Option<&'a mut dyn Observer>,
    ) -> Self {
        let mut network = Self {
            links: links(scenario, rng),
            queue: Queue::new(scenario.link_count()),
            trace: Trace::new(),
            packets: 0,
            cross: Vec::new(),
            observer,
            ways: Vec::new(),
            hops: Vec::new(),
            drops: Vec::new(),
            gathering: Vec::new(),
            ends: 2 * scenario.flows.len(),
            controls: 2 * scenario.flows.len() + scenario.cross.len(),
            framing: HEADERS + scenario.framing,
            whole: false,
            coalesce: scenario.coalesce,
            batch: 0,
            trains: Vec::new(),
            free: Vec::new(),
        };
        for (flow, config) in scenario.flows.iter().enumerate() {
            for (side, links) in scenario.ways(config).into_iter().enumerate() {
                let from = index(2 * flow + side);
                let ends = (address(from), address(from ^ 1));
                network.add_way(links, config.extra_delay, ends);
            }
        }
        for (i, config) in scenario.cross.iter().enumerate() {
            let fork = rng.fork(&format!("cross/{i}"));
            network.cross.push(Cross::new(config, fork));
            let at = Instant::EPOCH + config.start;
            network.queue.push(at, What::Cross(index(i)));
            network.add_way(&config.links, Duration::ZERO, cross_addresses(i));
        }
        for (flow, config) in scenario.flows.iter().enumerate() {
            for (side, links) in scenario.ways(config).into_iter().enumerate() {
                let from = index(2 * flow + side);
                let ends = [address(from), address(from ^ 1)].map(beside);
                network.add_way(links, config.extra_delay, ends.into());
            }
        }
        network
    }

    fn add_way(&mut self, links: &[usize], extra_delay: Duration, ends: (SocketAddr, SocketAddr)) {
        self.ways.push(Way {
            first: self.hops.len(),
            hops: index(links.len()),
            extra_delay,
            coalesce: self.coalesce,
            from: ends.0,
            to: ends.1,
        });
        self.hops.extend(links.iter().map(|link| index(*link)));
        self.drops.push(0);
        self.gathering.push(None);
    }

    /// Hands over each packet of this sending end alone from now on.
    pub(crate) fn separate(&mut self, from: usize) {
        self.ways[from].coalesce = Duration::ZERO;
    }

    /// Packets of this sending end that were dropped.
    pub(crate) fn dropped(&self, from: usize) -> u64 {
        self.drops[from]
    }

    /// Takes the batch in `out`, sent by the end `from`, over its first link.
    pub(crate) fn carry(&mut self, now: Instant, from: u32, ecn: Ecn, out: &TxBuf) {
        let way = self.ways[from as usize];
        let link = self.hops[way.first] as usize;
        let stride = out.segment();
        let mut open = None;
        self.packets += out.count() as u64;
        self.note(now, Mark::Batch, from, out.bytes().len());
        self.batch = self.batch.wrapping_add(1);
        for (bytes, solid) in out.segments() {
            let mut segment = Segment {
                from,
                ecn,
                header: out.header,
                head: if self.whole { bytes } else { &bytes[..solid] },
                len: bytes.len(),
            };
            let Some((at, again, ecn)) = self.offer(now, link, &mut segment) else {
                continue;
            };
            if let Some(again) = again {
                let copy = self.append(from, None, again, ecn, stride);
                self.trains[copy.index as usize].push(&segment);
                self.ship(link, copy);
            }
            // Between links packets travel alone, so that they meet others at their own times.
            let with = if way.hops == 1 { open.take() } else { None };
            let joined = self.append(from, with, at, ecn, stride);
            self.trains[joined.index as usize].push(&segment);
            if way.hops == 1 {
                open = Some(joined);
            } else {
                self.ship(link, joined);
            }
        }
        if let Some(open) = open {
            self.ship(link, open);
        }
    }

    /// Offers one packet to a link, whose router may write its header. Returns when the packet
    /// comes out, when its copy does, and its mark.
    #[inline]
    fn offer(
        &mut self,
        now: Instant,
        link: usize,
        segment: &mut Segment<'_>,
    ) -> Option<(Instant, Option<Instant>, Ecn)> {
        let len = u32::try_from(segment.len).unwrap_or(u32::MAX - self.framing);
        let wire = self.framing + len;
        let header = segment.header.as_mut();
        let verdict = self.links[link].offer_with_header(now, wire, segment.ecn, header);
        if self.observer.is_some() {
            self.show(now, link, segment, &verdict);
        }
        match verdict {
            // The receiving host's UDP checksum finds the damage.
            Verdict::Drop(_)
            | Verdict::Pass { corrupt: true, .. }
            | Verdict::Twice { corrupt: true, .. } => {
                self.drops[segment.from as usize] += 1;
                self.note(now, Mark::Drop, segment.from, segment.len);
                None
            }
            Verdict::Pass { at, ecn, .. } => Some((at, None, ecn)),
            Verdict::Twice { at, again, ecn, .. } => Some((at, Some(again), ecn)),
        }
    }

    #[cold]
    fn show(&mut self, at: Instant, link: usize, segment: &Segment<'_>, verdict: &Verdict) {
        let way = self.ways[segment.from as usize];
        let dropped = match verdict {
            Verdict::Drop(cause) => Some(*cause),
            Verdict::Pass { .. } | Verdict::Twice { .. } => None,
        };
        let end = self.end_of(segment.from);
        if let Some(observer) = &mut self.observer {
            observer.on_packet(&Packet {
                at,
                link,
                flow: end.map(|end| end / 2),
                from: way.from,
                to: way.to,
                ecn: segment.ecn,
                head: segment.head,
                len: segment.len,
                dropped,
            });
        }
    }

    /// The train in which a segment due at `at` travels: the open one if it fits.
    fn append(
        &mut self,
        from: u32,
        open: Option<Open>,
        at: Instant,
        ecn: Ecn,
        stride: usize,
    ) -> Open {
        if let Some(open) = open {
            if at >= open.last
                && open.ecn == ecn
                && at.since(open.first) <= self.ways[from as usize].coalesce
            {
                return Open { last: at, ..open };
            }
            self.ship(self.last_link(from), open);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.trains.push(Train::default());
            index(self.trains.len() - 1)
        });
        let train = &mut self.trains[index as usize];
        train.renew(from, self.batch, ecn, stride);
        Open {
            index,
            first: at,
            last: at,
            ecn,
        }
    }

    fn last_link(&self, from: u32) -> usize {
        let way = self.ways[from as usize];
        self.hops[way.first + way.hops as usize - 1] as usize
    }

    fn ship(&mut self, link: usize, open: Open) {
        let train = &mut self.trains[open.index as usize];
        let way = self.ways[train.from as usize];
        let extra = if train.hop == way.hops {
            way.extra_delay
        } else {
            Duration::ZERO
        };
        train.due = open.last + extra;
        self.queue
            .push_lane(link, train.due, What::Train(open.index));
    }

    /// Moves on the train `index`, which is due somewhere; true if that is where its receiver is.
    #[inline]
    pub(crate) fn arrives(&mut self, now: Instant, index: u32) -> bool {
        let train = &self.trains[index as usize];
        let way = self.ways[train.from as usize];
        if train.hop < way.hops {
            self.forward(now, index);
            return false;
        }
        if train.due > now {
            // More segments of its batch have joined it since.
            let (due, link) = (train.due, self.last_link(train.from));
            self.queue.push_lane(link, due, What::Train(index));
            return false;
        }
        if way.hops > 1 {
            let gathering = &mut self.gathering[train.from as usize];
            if gathering.is_some_and(|open| open.index == index) {
                *gathering = None;
            }
        }
        if (self.ends..self.controls).contains(&(train.from as usize)) {
            let source = train.from as usize - self.ends;
            self.cross[source].arrived += train.count() as u64;
            self.recycle(index);
            return false;
        }
        true
    }

    /// Takes the lone packet in the train `index` over its next link.
    fn forward(&mut self, now: Instant, index: u32) {
        let train = &mut self.trains[index as usize];
        let (from, hop, len, ecn) = (train.from, train.hop, train.last(), train.ecn);
        let (stride, batch, header) = (train.stride(), train.batch, train.header());
        let way = self.ways[from as usize];
        let link = self.hops[way.first + hop as usize] as usize;
        let head = train.take_head();
        let mut routed = None;
        self.note(now, Mark::Hop, from, len);
        let mut segment = Segment {
            from,
            ecn,
            header,
            head: head.bytes(),
            len,
        };
        if let Some((at, again, ecn)) = self.offer(now, link, &mut segment) {
            let last = hop + 1 == way.hops;
            if let Some(again) = again {
                let copy = self.append(from, None, again, ecn, stride);
                let train = &mut self.trains[copy.index as usize];
                (train.hop, train.batch) = (hop + 1, batch);
                train.push(&segment);
                self.ship(link, copy);
            }
            let arrived = Segment { ecn, ..segment };
            if last && self.join(at, batch, &arrived) {
                self.recycle(index);
            } else {
                let train = &mut self.trains[index as usize];
                train.hop = hop + 1;
                train.ecn = ecn;
                routed = Some(segment.header);
                let open = Open {
                    index,
                    first: at,
                    last: at,
                    ecn,
                };
                if last && !way.coalesce.is_zero() {
                    self.gathering[from as usize] = Some(open);
                }
                self.ship(link, open);
            }
        } else {
            self.lost(from);
            self.recycle(index);
        }
        let train = &mut self.trains[index as usize];
        train.give_head(head);
        if let Some(header) = routed {
            train.set_header(header);
        }
    }

    /// Puts a packet at the end of its way into the train that waits there, if it fits.
    fn join(&mut self, at: Instant, batch: u32, segment: &Segment<'_>) -> bool {
        let way = self.ways[segment.from as usize];
        let Some(open) = self.gathering[segment.from as usize].as_mut() else {
            return false;
        };
        let train = &mut self.trains[open.index as usize];
        if train.batch != batch
            || at < open.last
            || open.ecn != segment.ecn
            || at.since(open.first) > way.coalesce
            || train.last() != train.stride()
            || train.len() + segment.len > MAX_BATCH
            || train.count() == MAX_SEGMENTS
        {
            return false;
        }
        open.last = at;
        train.due = at + way.extra_delay;
        train.push(segment);
        true
    }

    /// A packet of cross traffic is due.
    pub(crate) fn cross(&mut self, now: Instant, source: u32) {
        let from = index(self.ends) + source;
        let cross = &mut self.cross[source as usize];
        let len = (cross.packet - HEADERS) as usize;
        if let Some(next) = cross.next(now) {
            self.queue.push(next, What::Cross(source));
        }
        cross.sent += 1;
        self.note(now, Mark::Cross, from, len);
        let way = self.ways[from as usize];
        let link = self.hops[way.first] as usize;
        let mut segment = Segment {
            from,
            ecn: Ecn::NotEct,
            header: None,
            head: &[],
            len,
        };
        match self.offer(now, link, &mut segment) {
            Some((at, ..)) => {
                let open = self.append(from, None, at, Ecn::NotEct, len.max(1));
                self.trains[open.index as usize].push(&segment);
                self.ship(link, open);
            }
            None => self.lost(from),
        }
    }

    fn lost(&mut self, from: u32) {
        let source = (from as usize).checked_sub(self.ends);
        if let Some(cross) = source.and_then(|source| self.cross.get_mut(source)) {
            cross.dropped += 1;
        }
    }

    /// The train `index`, which has arrived; give it back with [`Self::recycle`].
    pub(crate) fn train(&self, index: u32) -> &Train {
        &self.trains[index as usize]
    }

    pub(crate) fn recycle(&mut self, index: u32) {
        self.free.push(index);
    }

    pub(crate) fn note(&mut self, now: Instant, mark: Mark, target: u32, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.trace.note(now.as_nanos(), mark, target, len);
    }
}

/// Every link in the order of its number. The first two keep the names by which they were seeded
/// when they were the only ones.
fn links(scenario: &Scenario, rng: &Rng) -> Vec<Path> {
    let named = |number: usize| match number {
        0 => "link/forward".to_string(),
        1 => "link/back".to_string(),
        _ => format!("link/{number}"),
    };
    (0..scenario.link_count())
        .filter_map(|number| {
            let mut config = scenario.link(number)?.clone();
            config.mtu = config.mtu.map(|mtu| mtu + scenario.framing);
            Some(Path::new(&config, &rng.fork(&named(number))))
        })
        .collect()
}

/// Address of a control lane in captures: the next port.
const fn beside(mut at: SocketAddr) -> SocketAddr {
    at.set_port(at.port() + 1);
    at
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 links, ends and trains")
}

#[cfg(test)]
mod tests;
