//! A blaster, which does the least that a protocol can do: unreliable datagrams at a fixed rate or
//! within a window. It has a report now and then, and a probe that asks for one. The blaster loads
//! the shard and counts what arrives; it does not move data.
//!
//! Every datagram starts with kind, session id, sequence number and object offset. Both ends may
//! send. `Delivered` means that the peer has seen, or missed, everything.

#![allow(dead_code, reason = "each user of the module takes what it needs")]

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    codec::{DecodeError, Reader, Writer},
    datagram::{Ecn, Received, Transmit, TxBuf},
    protocol::{
        Accepted, CloseReason, Descriptor, Event, Protocol, Provenance, Route, Session, Turn,
    },
    rng::Rng,
    send::Pacer,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

/// Bytes before the payload.
pub(crate) const HEADER: usize = 25;

const HELLO: u8 = 1;
const DATA: u8 = 2;
const PROBE: u8 = 3;
const REPORT: u8 = 4;
const CLOSE: u8 = 5;
/// Time without a report before asking for one.
const REPORT_TIMEOUT: Duration = Duration::from_millis(50);

/// Load of a blast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes per datagram.
    pub(crate) segment: usize,
    /// Pacing rate.
    pub(crate) rate: Rate,
    /// Bytes that leave at once when paced: one wake for each.
    pub(crate) quantum: u64,
    /// Datagrams that may be unreported.
    pub(crate) window: u64,
    /// True if the peer may start later: "port unreachable" is no answer.
    pub(crate) ignores_port_unreachable: bool,
}

/// The factory.
pub(crate) struct Blast(pub(crate) Shape);

static DESCRIPTOR: Descriptor = Descriptor {
    name: "blast",
    summary: "counts what arrives",
    provenance: Provenance::Model,
    citation: "none",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

impl Protocol for Blast {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, datagram: &[u8]) -> Route {
        match Header::read(datagram) {
            Ok(header) if header.kind == HELLO => Route::New,
            Ok(header) => Route::Known(header.id),
            Err(_) => Route::Foreign,
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        _: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let id = rng.next_u64();
        let session = BlastSession::new(self.0, id, to, Some(now));
        (id, Box::new(session))
    }

    fn accept(
        &mut self,
        _: Instant,
        _: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Accepted {
        match Header::read(datagram) {
            Ok(h) if h.kind == HELLO => {
                let session = BlastSession::new(self.0, h.id, from, None);
                Accepted::Session(h.id, Box::new(session))
            }
            Ok(h) if h.kind == PROBE => {
                let mut bytes = [0; HEADER];
                Header { kind: CLOSE, ..h }.write(&mut bytes);
                reply.extend_from_slice(&bytes);
                Accepted::Reply
            }
            _ => Accepted::Drop,
        }
    }
}

/// The factory of sessions that expect no answer: open from the start, delivered when sent.
pub(crate) struct Mute(pub(crate) Shape);

impl Protocol for Mute {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, _: &[u8]) -> Route {
        Route::Foreign
    }

    fn connect(
        &mut self,
        _: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        _: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let id = rng.next_u64();
        let mut session = BlastSession::new(self.0, id, to, None);
        session.opened();
        session.mute = true;
        (id, Box::new(session))
    }

    fn accept(
        &mut self,
        _: Instant,
        _: &mut Rng,
        _: SocketAddr,
        _: &[u8],
        _: &mut Vec<u8>,
    ) -> Accepted {
        Accepted::Drop
    }
}

#[derive(Clone, Copy)]
struct Header {
    kind: u8,
    id: u64,
    seq: u64,
    offset: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let kind = r.u8()?;
        if !(HELLO..=CLOSE).contains(&kind) {
            return Err(DecodeError::Malformed("kind"));
        }
        Ok(Self {
            kind,
            id: r.u64()?,
            seq: r.u64()?,
            offset: r.u64()?,
        })
    }

    fn write(&self, out: &mut [u8]) {
        let mut w = Writer::new(out);
        w.u8(self.kind)
            .and_then(|()| w.u64(self.id))
            .and_then(|()| w.u64(self.seq))
            .and_then(|()| w.u64(self.offset))
            .expect("a segment holds a header");
    }
}

#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
struct BlastSession {
    shape: Shape,
    id: u64,
    peer: SocketAddr,
    /// The next time to say hello, until answered; only the opener does.
    hello: Option<Instant>,
    open: bool,
    mute: bool,
    /// Object, offset and bytes still to send.
    queue: Option<(ObjectId, u64, u64)>,
    next_seq: u64,
    reported: u64,
    delivered: bool,
    pacer: Pacer,
    /// Time to ask for a report.
    report_timeout: Option<Instant>,
    probe: bool,
    highest: u64,
    since_report: u64,
    report: bool,
    closing: Option<CloseReason>,
    goodbye: bool,
    events: Vec<Event>,
    extents: Vec<Extent>,
    stats: Stats,
}

impl BlastSession {
    fn new(shape: Shape, id: u64, peer: SocketAddr, hello: Option<Instant>) -> Self {
        Self {
            shape,
            id,
            peer,
            hello,
            open: false,
            mute: false,
            queue: None,
            next_seq: 0,
            reported: 0,
            delivered: true,
            pacer: Pacer::new(),
            report_timeout: None,
            probe: false,
            highest: 0,
            since_report: 0,
            report: false,
            closing: None,
            goodbye: false,
            events: Vec::new(),
            extents: Vec::with_capacity(64),
            stats: Stats::default(),
        }
    }

    fn opened(&mut self) {
        if !self.open {
            self.open = true;
            self.hello = None;
            self.events.push(Event::Connected { peer_key: None });
        }
    }

    fn finish(&mut self, reason: CloseReason) {
        if self.closing.is_none() {
            self.events.push(Event::Closed(reason.clone()));
            self.closing = Some(reason);
        }
    }

    fn on_header(&mut self, now: Instant, header: Header) {
        match header.kind {
            HELLO => {
                self.report = true;
                self.opened();
            }
            DATA => {
                self.highest = self.highest.max(header.seq + 1);
                self.since_report += 1;
                self.report |= self.since_report * 4 >= self.shape.window.min(4_096);
            }
            PROBE => {
                self.highest = self.highest.max(header.seq);
                self.report = true;
            }
            REPORT => {
                self.opened();
                self.stats.feedback_received += HEADER as u64;
                self.reported = self.reported.max(header.seq);
                self.report_timeout = Some(now + REPORT_TIMEOUT);
                if self.reported >= self.next_seq && self.queue.is_none() {
                    self.report_timeout = None;
                    if !self.delivered {
                        self.delivered = true;
                        self.events.push(Event::Delivered);
                    }
                }
            }
            _ => self.finish(CloseReason::Peer {
                code: 0,
                text: "done".into(),
            }),
        }
    }

    fn control(&mut self, out: &mut TxBuf, kind: u8, seq: u64) -> Transmit {
        out.begin(HEADER);
        let header = Header {
            kind,
            id: self.id,
            seq,
            offset: 0,
        };
        header.write(out.next_segment());
        out.commit(HEADER, HEADER);
        self.transmit(out, Ecn::NotEct)
    }

    fn transmit(&mut self, out: &TxBuf, ecn: Ecn) -> Transmit {
        self.stats.datagrams_sent += out.count() as u64;
        self.stats.wire_sent += out.bytes().len() as u64;
        let to = self.peer;
        Transmit { to, ecn }
    }

    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let (object, mut offset, mut left) = self.queue?;
        let room = (self.reported + self.shape.window).saturating_sub(self.next_seq);
        let Shape { rate, quantum, .. } = self.shape;
        if !self.open || room == 0 || self.pacer.grant(turn.now, rate, quantum).is_none() {
            return None;
        }
        let fit = out.begin(self.shape.segment) as u64;
        self.extents.clear();
        for _ in 0..fit.min(room) {
            let len = left.min((self.shape.segment - HEADER) as u64) as usize;
            let at = out.next_at() + HEADER;
            let header = Header {
                kind: DATA,
                id: self.id,
                seq: self.next_seq,
                offset,
            };
            header.write(out.next_segment());
            out.commit(HEADER + len, HEADER);
            self.extents.push(Extent {
                object,
                offset,
                len: len as u32,
                at: at as u32,
            });
            self.next_seq += 1;
            offset += len as u64;
            left -= len as u64;
            self.stats.data_sent += len as u64;
            if left == 0 {
                break;
            }
        }
        self.queue = (left > 0).then_some((object, offset, left));
        if let Err(error) = turn.store.fill(&self.extents, out.raw()) {
            self.finish(CloseReason::Store(error.0));
            return None;
        }
        if self.queue.is_none() {
            self.probe = !self.mute;
            if self.mute {
                self.events.push(Event::Delivered);
            }
        }
        self.pacer
            .charge(turn.now, out.bytes().len() as u64, rate, Pacer::MAX_LAG);
        self.report_timeout.get_or_insert(turn.now + REPORT_TIMEOUT);
        Some(self.transmit(out, Ecn::Ect0))
    }
}

impl Session for BlastSession {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        self.extents.clear();
        for (i, segment) in batch.bytes.chunks(batch.segment).enumerate() {
            self.stats.datagrams_received += 1;
            self.stats.wire_received += segment.len() as u64;
            match Header::read(segment) {
                Ok(header) if header.id == self.id => {
                    self.on_header(turn.now, header);
                    if header.kind == DATA {
                        let len = segment.len() - HEADER;
                        self.stats.data_received += len as u64;
                        self.extents.push(Extent {
                            object: 0,
                            offset: header.offset,
                            len: len as u32,
                            at: (i * batch.segment + HEADER) as u32,
                        });
                    }
                }
                _ => self.stats.dropped_malformed += 1,
            }
        }
        if let Err(error) = turn.store.place(&self.extents, batch.bytes) {
            self.finish(CloseReason::Store(error.0));
        }
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        if self.report_timeout.is_some_and(|at| at <= turn.now) {
            self.report_timeout = Some(turn.now + REPORT_TIMEOUT);
            self.probe = true;
            self.stats.timeouts += 1;
        }
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        if self.closing.is_some() {
            return std::mem::take(&mut self.goodbye).then(|| self.control(out, CLOSE, 0));
        }
        if self.hello.is_some_and(|at| at <= turn.now) {
            self.hello = Some(turn.now + REPORT_TIMEOUT);
            return Some(self.control(out, HELLO, 0));
        }
        if std::mem::take(&mut self.report) {
            self.since_report = 0;
            self.stats.feedback_sent += HEADER as u64;
            return Some(self.control(out, REPORT, self.highest));
        }
        if let Some(transmit) = self.data(turn, out) {
            return Some(transmit);
        }
        std::mem::take(&mut self.probe).then(|| self.control(out, PROBE, self.next_seq))
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if self.closing.is_some() {
            return None;
        }
        let room = self.reported + self.shape.window > self.next_seq;
        let Shape { rate, quantum, .. } = self.shape;
        let pace = (self.open && room && self.queue.is_some())
            .then(|| self.pacer.wake(rate, quantum))
            .flatten();
        [
            (self.hello, Why::Handshake),
            (pace, Why::Pacing),
            (self.report_timeout, Why::Repair),
        ]
        .into_iter()
        .filter_map(|(at, why)| at.map(|at| (at, why)))
        .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        (!self.events.is_empty()).then(|| self.events.remove(0))
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        assert!(self.queue.is_none(), "one run at a time");
        self.queue = (len > 0).then_some((object, offset, len));
        self.delivered = false;
    }

    fn unsent(&self) -> u64 {
        self.queue.map_or(0, |(_, _, left)| left)
    }

    fn cancel_unsent(&mut self) {
        self.queue = None;
        self.probe = true;
    }

    fn write(&mut self, _: &[u8]) {}

    fn unwritten(&self) -> usize {
        0
    }

    fn read(&mut self, _: &mut Vec<u8>) {}

    fn ignores_port_unreachable(&self) -> bool {
        self.shape.ignores_port_unreachable
    }

    fn close(&mut self, _: Instant, code: u32, text: &str) {
        self.goodbye = self.closing.is_none();
        self.finish(CloseReason::Local {
            code,
            text: text.into(),
        });
    }

    fn is_closed(&self) -> bool {
        self.closing.is_some() && !self.goodbye
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}
