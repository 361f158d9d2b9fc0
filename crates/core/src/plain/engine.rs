//! The [`arq`](crate::arq) skeleton behind any wire format.

use std::{marker::PhantomData, time::Duration};

use super::{Arrived, Engine, Wrote, put_head};
use crate::{
    arq::{Content, Permit, Receiver, Report, Sender},
    codec::{DecodeError, NoRoom, Reader, Writer},
    congestion::CongestionController,
    datagram::TxBuf,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

const DATA: u8 = 0x44;
const STATE: u8 = 0x45;
const REPORT: u8 = 0x46;
/// The longest report; one that does not fit is cut by the receiver's skeleton before.
const MAX_REPORT: usize = 1_400;
/// The longest books.
const MAX_BOOKS: usize = 64;

/// What precedes the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// Packet number.
    pub number: u64,
    /// Which object.
    pub object: ObjectId,
    /// Place of the payload's first byte.
    pub offset: u64,
}

/// What a receiver should know of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// Packets below are decided.
    pub settled: u64,
    /// Wished time between reports.
    pub interval: Duration,
    /// Nothing is known of the packets from here on.
    pub want: Option<u64>,
}

/// A wire format: three bodies, each behind the session's head. Decoders take what anybody may have
/// written.
pub trait Wire: Send + 'static {
    /// Bytes of head and data head.
    const HEADER: u32;

    /// Writes exactly [`Self::HEADER`] less [`HEAD`](super::HEAD) bytes.
    fn put_data(w: &mut Writer<'_>, data: &DataHead) -> Result<(), NoRoom>;
    /// Reads them.
    fn take_data(r: &mut Reader<'_>) -> Result<DataHead, DecodeError>;
    /// Writes a report.
    fn put_report(w: &mut Writer<'_>, report: &Report) -> Result<(), NoRoom>;
    /// Reads it; `into` keeps its allocation.
    fn take_report(r: &mut Reader<'_>, into: &mut Report) -> Result<(), DecodeError>;
    /// Writes the sender's books.
    fn put_books(w: &mut Writer<'_>, books: &Books) -> Result<(), NoRoom>;
    /// Reads them.
    fn take_books(r: &mut Reader<'_>) -> Result<Books, DecodeError>;
}

/// Both halves of the skeleton, speaking `W`.
pub struct ArqEngine<W> {
    datagram: u32,
    sender: Sender,
    receiver: Receiver,
    report: Report,
    wire: PhantomData<fn() -> W>,
}

impl<W: Wire> ArqEngine<W> {
    /// Governed by `law`, in datagrams of `datagram` bytes.
    pub fn new(law: Box<dyn CongestionController>, datagram: u32) -> Self {
        Self {
            datagram,
            sender: Sender::new(law, Rate::UNLIMITED),
            receiver: Receiver::default(),
            report: Report::default(),
            wire: PhantomData,
        }
    }

    fn on_data(
        &mut self,
        now: Instant,
        r: &mut Reader<'_>,
        arrived: Arrived,
    ) -> Result<Option<Extent>, DecodeError> {
        let head = W::take_data(r)?;
        let wire = u32::try_from(arrived.len).unwrap_or(u32::MAX);
        let len = wire
            .checked_sub(W::HEADER)
            .ok_or(DecodeError::Malformed("data"))?;
        let new = self
            .receiver
            .on_packet(now, head.number, wire, true, arrived.ecn);
        Ok(new.then(|| Extent {
            object: head.object,
            offset: head.offset,
            len,
            at: u32::try_from(arrived.at).unwrap_or(u32::MAX) + W::HEADER,
        }))
    }

    fn on_books(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let books = W::take_books(r)?;
        self.receiver.on_state(books.settled, books.interval);
        if let Some(from) = books.want {
            self.receiver.on_want(now, from);
        }
        Ok(())
    }

    fn on_report(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.report.runs.clear();
        W::take_report(r, &mut self.report)?;
        self.sender.on_report(now, &self.report)
    }

    /// The receiver's report, if it is due.
    fn write_report(&mut self, now: Instant, id: u64, out: &mut TxBuf) -> Option<u64> {
        if self.receiver.feedback_due().is_none_or(|at| at > now) {
            return None;
        }
        let report = self.receiver.report(now)?;
        out.begin(MAX_REPORT);
        let mut w = Writer::new(out.next_segment());
        put_head(&mut w, REPORT, id).ok()?;
        W::put_report(&mut w, report).ok()?;
        let len = w.len();
        out.commit(len, len);
        self.receiver.feedback_sent(now, len);
        Some(len as u64)
    }

    /// What the receiver should know, if it should.
    fn write_books(&mut self, id: u64, out: &mut TxBuf) -> Result<bool, NoRoom> {
        if !self.sender.state_due() && !self.sender.want_due() {
            return Ok(false);
        }
        self.sender.state_sent();
        let books = Books {
            settled: self.sender.settled(),
            interval: self.sender.interval(),
            want: self.sender.take_want(),
        };
        out.begin(MAX_BOOKS);
        let mut w = Writer::new(out.next_segment());
        put_head(&mut w, STATE, id)?;
        W::put_books(&mut w, &books)?;
        let len = w.len();
        out.commit(len, len);
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
        let piece = self.sender.next_piece(self.datagram - W::HEADER)?;
        let at = u32::try_from(out.next_at()).unwrap_or(u32::MAX) + W::HEADER;
        let head = DataHead {
            number: self.sender.next_number(),
            object: piece.object,
            offset: piece.offset,
        };
        let mut w = Writer::new(out.next_segment());
        put_head(&mut w, DATA, id)
            .and_then(|()| W::put_data(&mut w, &head))
            .expect("a segment holds its header");
        let wire = piece.len + W::HEADER;
        self.sender.log(now, Content::Piece(piece), wire);
        out.commit(wire as usize, W::HEADER as usize);
        extents.push(Extent {
            object: piece.object,
            offset: piece.offset,
            len: piece.len,
            at,
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

impl<W: Wire> Engine for ArqEngine<W> {
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
            STATE => self.on_books(now, r)?,
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
        match self.write_books(id, out) {
            Ok(true) => Wrote::Control { feedback: 0 },
            _ if self.write_data(now, id, out, extents) => Wrote::Data,
            _ => Wrote::Nothing,
        }
    }

    fn on_timer(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn failure(&self) -> Option<String> {
        self.sender.failure()
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
