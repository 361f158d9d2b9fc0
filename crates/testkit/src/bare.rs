//! How does a congestion law fare by itself? [`Bare`] puts the engine's own skeleton, with any law,
//! behind the plainest of wire formats: nothing is sealed, nothing negotiated. What a law does here it
//! does in every protocol built on that skeleton.
//!
//! Behind the head: data is number u64, object u32, offset u64, payload; state is settled u64,
//! interval in µs u64, the number asked from u64 (all ones: none); a report is its six numbers as u64
//! and its runs as variable-length integers.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use farhaul_core::{
    arq::{Content, Permit, Receiver, Report, Sender},
    codec::{DecodeError, NoRoom, Reader, Writer},
    congestion::CongestionController,
    datagram::TxBuf,
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use crate::session::{Arrived, Engine, HELLO, PlainSession, Wrote, head, put_head, route};

const DATA: u8 = 0x44;
const STATE: u8 = 0x45;
const REPORT: u8 = 0x46;
/// Bytes of a data packet before its payload.
const HEADER: usize = 25;
/// The longest report.
const MAX_REPORT: usize = 1_400;
/// No number is asked from.
const NOTHING: u64 = u64::MAX;

/// Makes a law for a session.
pub type MakeLaw = Arc<dyn Fn() -> Box<dyn CongestionController> + Send + Sync>;

/// The skeleton with a law and next to nothing else.
#[derive(Clone)]
pub struct Bare {
    law: MakeLaw,
    datagram: u32,
}

impl Bare {
    /// Sessions governed by what `law` makes, in datagrams for a path of `mtu` bytes.
    pub fn new(
        law: impl Fn() -> Box<dyn CongestionController> + Send + Sync + 'static,
        mtu: u16,
    ) -> Self {
        Self {
            law: Arc::new(law),
            datagram: u32::from(mtu.saturating_sub(28)),
        }
    }

    fn engine(&self) -> BareEngine {
        BareEngine {
            datagram: self.datagram,
            sender: Sender::new((self.law)(), Rate::UNLIMITED),
            receiver: Receiver::default(),
        }
    }
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bare")
            .field("datagram", &self.datagram)
            .finish_non_exhaustive()
    }
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "bare",
    summary: "the engine's skeleton with any law, for studying laws",
    provenance: Provenance::Specification,
    citation: "this module",
    sealed: false,
    control_lane: false,
};

impl Protocol for Bare {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, datagram: &[u8]) -> Route {
        route(datagram)
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        _interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let id = rng.below(1 << 32);
        let session = PlainSession::new(self.engine(), now, id, to, true);
        (id, Box::new(session))
    }

    fn accept(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Accepted {
        match head(datagram) {
            Some((HELLO, id)) => {
                let session = PlainSession::new(self.engine(), now, id, from, false);
                Accepted::Session(id, Box::new(session))
            }
            _ => Accepted::Drop,
        }
    }
}

struct BareEngine {
    datagram: u32,
    sender: Sender,
    receiver: Receiver,
}

impl BareEngine {
    fn on_data(
        &mut self,
        now: Instant,
        r: &mut Reader<'_>,
        arrived: Arrived,
    ) -> Result<Option<Extent>, DecodeError> {
        let (number, object, offset) = (r.u64()?, r.u32()?, r.u64()?);
        let wire = u32::try_from(arrived.len).unwrap_or(u32::MAX);
        let new = self
            .receiver
            .on_packet(now, number, wire, true, arrived.ecn);
        Ok(new.then(|| Extent {
            object,
            offset,
            len: wire - 25,
            at: u32::try_from(arrived.at + HEADER).unwrap_or(u32::MAX),
        }))
    }

    fn on_state(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (settled, interval, want) = (r.u64()?, r.u64()?, r.u64()?);
        self.receiver
            .on_state(settled, Duration::from_micros(interval));
        if want != NOTHING {
            self.receiver.on_want(now, want);
        }
        Ok(())
    }

    fn on_report(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut report = Report {
            from: r.u64()?,
            largest: r.u64()?,
            delay_us: r.u64()?,
            arrived_us: r.u64()?,
            bytes: r.u64()?,
            ce: r.u64()?,
            runs: Vec::new(),
        };
        while !r.is_empty() {
            report.runs.push(r.varint()?);
        }
        self.sender.on_report(now, &report)
    }

    /// The receiver's report, if it is due.
    fn write_report(&mut self, now: Instant, id: u64, out: &mut TxBuf) -> Option<u64> {
        if self.receiver.feedback_due().is_none_or(|at| at > now) {
            return None;
        }
        let report = self.receiver.report(now)?;
        out.begin(MAX_REPORT);
        let len = put_report(report, id, out.next_segment()).ok()?;
        out.commit(len, len);
        Some(len as u64)
    }

    /// What the receiver should know, if it should.
    fn write_state(&mut self, id: u64, out: &mut TxBuf) -> Result<bool, NoRoom> {
        if !self.sender.state_due() && !self.sender.want_due() {
            return Ok(false);
        }
        self.sender.state_sent();
        let want = self.sender.take_want().unwrap_or(NOTHING);
        let interval = self.sender.interval().as_micros();
        out.begin(29);
        let mut w = Writer::new(out.next_segment());
        put_head(&mut w, STATE, id)?;
        w.u64(self.sender.settled())?;
        w.u64(u64::try_from(interval).unwrap_or(u64::MAX))?;
        w.u64(want)?;
        out.commit(29, 29);
        Ok(true)
    }

    /// One packet; its wire length.
    fn write_packet(
        &mut self,
        now: Instant,
        id: u64,
        out: &mut TxBuf,
        extents: &mut Vec<Extent>,
    ) -> Option<u32> {
        let piece = self.sender.next_piece(self.datagram - 25)?;
        let at = out.next_at() + HEADER;
        let number = self.sender.next_number();
        let mut w = Writer::new(out.next_segment());
        let header = put_head(&mut w, DATA, id)
            .and_then(|()| w.u64(number))
            .and_then(|()| w.u32(piece.object))
            .and_then(|()| w.u64(piece.offset));
        header.expect("a segment holds its header");
        let wire = piece.len + 25;
        self.sender.log(now, Content::Piece(piece), wire);
        out.commit(wire as usize, HEADER);
        extents.push(Extent {
            object: piece.object,
            offset: piece.offset,
            len: piece.len,
            at: u32::try_from(at).unwrap_or(u32::MAX),
        });
        Some(wire)
    }

    fn write_data(
        &mut self,
        now: Instant,
        id: u64,
        out: &mut TxBuf,
        extents: &mut Vec<Extent>,
    ) -> bool {
        let Permit::Send { bytes } = self.sender.permit(now) else {
            return false;
        };
        let room = out.begin(self.datagram as usize) as u64;
        let most = room.min((bytes / u64::from(self.datagram)).max(1));
        let mut sent = 0;
        for _ in 0..most {
            let Some(wire) = self.write_packet(now, id, out, extents) else {
                break;
            };
            sent += u64::from(wire);
            if wire < self.datagram {
                break;
            }
        }
        if sent > 0 {
            self.sender.batch_sent(now, sent);
        }
        sent > 0
    }
}

fn put_report(report: &Report, id: u64, into: &mut [u8]) -> Result<usize, NoRoom> {
    let mut w = Writer::new(into);
    put_head(&mut w, REPORT, id)?;
    w.u64(report.from)?;
    w.u64(report.largest)?;
    w.u64(report.delay_us)?;
    w.u64(report.arrived_us)?;
    w.u64(report.bytes)?;
    w.u64(report.ce)?;
    for run in &report.runs {
        w.varint(*run)?;
    }
    Ok(w.len())
}

impl Engine for BareEngine {
    fn open(&mut self, now: Instant, rtt: Duration) {
        self.sender.start(now, self.datagram, rtt);
    }

    fn hear(
        &mut self,
        now: Instant,
        kind: u8,
        r: &mut Reader<'_>,
        arrived: Arrived,
        extents: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        match kind {
            DATA => extents.extend(self.on_data(now, r, arrived)?),
            STATE => self.on_state(now, r)?,
            REPORT => self.on_report(now, r)?,
            _ => return Err(DecodeError::Malformed("type")),
        }
        Ok(())
    }

    fn write(
        &mut self,
        now: Instant,
        id: u64,
        out: &mut TxBuf,
        extents: &mut Vec<Extent>,
    ) -> Wrote {
        if let Some(feedback) = self.write_report(now, id, out) {
            return Wrote::Control { feedback };
        }
        match self.write_state(id, out) {
            Ok(true) => Wrote::Control { feedback: 0 },
            _ if self.write_data(now, id, out, extents) => Wrote::Data,
            _ => Wrote::Nothing,
        }
    }

    fn on_timer(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let feedback = self.receiver.feedback_due().map(|at| (at, Why::Feedback));
        match (self.sender.next_timeout(), feedback) {
            (Some(a), Some(b)) if b.0 < a.0 => Some(b),
            (a, b) => a.or(b),
        }
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.sender.send(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn is_idle(&self) -> bool {
        self.sender.delivered_all()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.fill_stats(stats);
    }
}
