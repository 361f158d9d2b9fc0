//! Makes an ARQ protocol of a wire format. A [`Wire`] is all that a protocol of this kind
//! implements.

use std::{marker::PhantomData, time::Duration};

use super::{Content, Permit, Receiver, Report, Sender};
use crate::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    congestion::CongestionController,
    protocol::{CloseReason, Descriptor},
    session::earliest,
    shell::{Endpoint, Incoming, Machine, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

const STATE: u8 = 0x45;
const REPORT: u8 = 0x46;

/// Header of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// Packet number.
    pub number: u64,
    /// The object that the data belong to.
    pub object: ObjectId,
    /// Place of the payload's first byte.
    pub offset: u64,
}

/// Sender state that is sent to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderState {
    /// All packets below are acknowledged or declared lost.
    pub settled: u64,
    /// Requested interval between reports.
    pub interval: Duration,
    /// Requests a report on the packets from this number on.
    pub want: Option<u64>,
}

/// A wire format: three bodies, each after the shell's header. Decoders have to accept any
/// input.
pub trait Wire: Send + 'static {
    /// Bytes of a data head.
    const DATA_HEAD: usize;

    /// Writes exactly [`Self::DATA_HEAD`] bytes.
    fn put_data(w: &mut Writer<'_>, data: &DataHead) -> Result<(), NoRoom>;
    /// Reads what [`Self::put_data`] writes.
    fn take_data(r: &mut Reader<'_>) -> Result<DataHead, DecodeError>;
    /// Writes a report.
    fn put_report(w: &mut Writer<'_>, report: &Report) -> Result<(), NoRoom>;
    /// Reads a report; `into` keeps its allocation.
    fn take_report(r: &mut Reader<'_>, into: &mut Report) -> Result<(), DecodeError>;
    /// Writes the sender's state.
    fn put_state(w: &mut Writer<'_>, state: &SenderState) -> Result<(), NoRoom>;
    /// Reads the sender's state.
    fn take_state(r: &mut Reader<'_>) -> Result<SenderState, DecodeError>;
}

/// Sender and receiver of the ARQ in wire format `W`.
pub struct ArqMachine<W> {
    sender: Sender,
    receiver: Receiver,
    report: Report,
    wire: PhantomData<fn() -> W>,
}

/// The protocol with wire format `W`: sessions with laws made by `law`, in packets of up to `mtu` bytes.
pub fn endpoint<W: Wire>(
    descriptor: &'static Descriptor,
    law: impl Fn() -> Box<dyn CongestionController> + Send + Sync + 'static,
    mtu: u16,
) -> Endpoint<ArqMachine<W>> {
    Endpoint::new(descriptor, mtu.into(), move || ArqMachine::new(law()))
}

impl<W: Wire> ArqMachine<W> {
    /// Governed by `law`.
    pub fn new(law: Box<dyn CongestionController>) -> Self {
        Self {
            sender: Sender::new(law, Rate::UNLIMITED),
            receiver: Receiver::default(),
            report: Report::default(),
            wire: PhantomData,
        }
    }

    fn on_data(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
    ) -> Result<Option<Extent>, DecodeError> {
        let head = W::take_data(&mut Reader::new(datagram.bytes))?;
        let extent = datagram.extent(W::DATA_HEAD, head.object, head.offset)?;
        let new = self
            .receiver
            .on_packet(now, head.number, datagram.wire, true, datagram.ecn);
        Ok(new.then_some(extent))
    }

    fn on_state(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let state = W::take_state(r)?;
        self.receiver.on_state(state.settled, state.interval);
        if let Some(from) = state.want {
            self.receiver.on_want(now, from);
        }
        Ok(())
    }

    fn on_report(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.report.runs.clear();
        W::take_report(r, &mut self.report)?;
        self.sender.on_report(now, &self.report)
    }
}

impl<W: Wire> Machine for ArqMachine<W> {
    const HEADER: usize = W::DATA_HEAD;

    fn open(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        let guess = Duration::from_millis(100);
        let rtt = if rtt.is_zero() { guess } else { rtt };
        self.sender.start(now, datagram, rtt);
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let r = &mut Reader::new(datagram.bytes);
        match datagram.kind {
            Self::DATA => place.extend(self.on_data(now, datagram)?),
            STATE => self.on_state(now, r)?,
            REPORT => self.on_report(now, r)?,
            _ => return Err(DecodeError::Malformed("type")),
        }
        Ok(())
    }

    fn poll_datagram(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        if self.receiver.feedback_due().is_some_and(|at| at <= now)
            && let Some(report) = self.receiver.report(now)
        {
            // Also charged for if it does not fit, so that the next one is not due at once.
            let written = W::put_report(w, report);
            self.receiver.feedback_sent(now, w.len());
            return written.map(|()| Some(REPORT));
        }
        if !self.sender.state_due() && !self.sender.want_due() {
            return Ok(None);
        }
        let state = SenderState {
            settled: self.sender.settled(),
            interval: self.sender.take_state(),
            want: self.sender.take_want(),
        };
        W::put_state(w, &state)?;
        Ok(Some(STATE))
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.sender.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some(piece) = self.sender.next_piece(packet.room()) else {
            return false;
        };
        let head = DataHead {
            number: self.sender.next_number(),
            object: piece.object,
            offset: piece.offset,
        };
        W::put_data(packet.header(), &head).expect("a packet holds its header");
        packet.data(piece.object, piece.offset, piece.len);
        self.sender.log(now, Content::Piece(piece), packet.wire());
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.batch_sent(now, bytes);
    }

    fn on_timer(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn failure(&self) -> Option<CloseReason> {
        self.sender.failure().map(CloseReason::Internal)
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let feedback = self.receiver.feedback_due().map(|at| (at, Why::Feedback));
        earliest([self.sender.next_timeout(), feedback])
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

    fn is_delivered(&self) -> bool {
        self.sender.delivered_all()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.fill_stats(stats);
    }
}
