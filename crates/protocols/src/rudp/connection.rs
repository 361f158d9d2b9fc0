//! What is its own in a session? Three segments that open it, one that ends it, null segments in silence, and
//! between them the two halves.

// spec: rudp §3

use std::time::Duration;

use farhaul_core::{
    closing::{Cause, Closing},
    codec::{DecodeError, NoRoom, Writer},
    life::Life,
    protocol::CloseReason,
    recv::Arrival,
    send::{Permit, STREAM},
    seq::Wrap,
    session::earliest,
    shell::{self, Packet, Record, Refusal},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use super::{
    config::{Agreed, agree},
    recv::Receiver,
    send::{AROUND, Sender},
    wire::{HEAD, Kind, Numbers, Segment, Syn},
};

/// The opening is done in this time.
const ANSWER: Duration = Duration::from_secs(5);
/// Something is heard in this time.
const IDLE: Duration = Duration::from_secs(30);
/// A first number's place among numbers that do not wrap.
const TURN: u64 = 256;
/// The least time that an answer is believed to have taken.
const LEAST_RTT: Duration = Duration::from_micros(100);

/// The full numbers of segments with data.
type Full = Wrap<{ 1 << 32 }>;
type State = shell::SessionState;

/// How a session begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) client: bool,
    /// Number of the first segment, below 256.
    pub(super) first: u64,
    pub(super) syn: Syn,
    pub(super) max_rate: Option<Rate>,
}

/// Until the session is open.
#[derive(Debug)]
struct Opening {
    started: Instant,
    /// The SYN leaves again.
    again: Instant,
    /// It left so often, first then.
    asked: u32,
    asked_at: Instant,
}

/// Reliable UDP in a session.
pub(super) struct Connection {
    client: bool,
    syn: Syn,
    opening: Option<Opening>,
    agreed: Option<Agreed>,
    sender: Sender,
    /// Once the peer's first number is known.
    receiver: Option<Receiver>,
    heard: Instant,
    duplicates: u64,
}

#[expect(clippy::cast_possible_truncation, reason = "less than 256")]
fn low(number: u64) -> u8 {
    Numbers::wrap(number) as u8
}

impl Connection {
    pub(super) fn new(now: Instant, begun: Begun) -> Self {
        Self {
            client: begun.client,
            syn: begun.syn,
            opening: Some(Opening {
                started: now,
                again: now,
                asked: 0,
                asked_at: now,
            }),
            agreed: None,
            sender: Sender::new(TURN + begun.first + 1, begun.max_rate),
            receiver: None,
            heard: now,
            duplicates: 0,
        }
    }

    fn header<'a>(&self, kind: Kind<'a>, number: u64) -> Segment<'a> {
        Segment {
            number: low(number),
            acked: self.receiver.as_ref().map(Receiver::acked),
            kind,
        }
    }

    /// The peer's first segment.
    fn on_syn(&mut self, now: Instant, segment: &Segment<'_>, theirs: &Syn) -> Result<(), Refusal> {
        const TURN_OF: DecodeError = DecodeError::Malformed("SYN, out of turn");
        if self.client != segment.acked.is_some() {
            return Err(TURN_OF.into());
        }
        let first = TURN + u64::from(segment.number) + 1;
        if let Some(receiver) = &mut self.receiver {
            // What answered it was lost.
            if self.client {
                receiver.ack_now(now);
            } else if let Some(opening) = &mut self.opening {
                opening.again = now;
            } else {
                return Err(TURN_OF.into());
            }
            return Ok(());
        }
        let own = self.sender.next() - 1;
        if segment.acked.is_some_and(|acked| acked != low(own)) {
            return Err(TURN_OF.into());
        }
        let agreed = agree(&self.syn, theirs, self.client);
        let agreed = agreed.ok_or(DecodeError::Malformed("SYN"))?;
        let window = self.syn.outstanding.into();
        self.agreed = Some(agreed);
        self.receiver = Some(Receiver::new(first, window, &agreed));
        // A server answers with the counters and timers that count.
        if !self.client {
            self.syn = Syn {
                retransmit: theirs.retransmit,
                ack_delay: theirs.ack_delay,
                null: theirs.null,
                retries: theirs.retries,
                ack_every: theirs.ack_every,
                eak_after: theirs.eak_after,
                ..self.syn
            };
        }
        Ok(())
    }

    /// The peer has acknowledged the own first segment.
    fn opened(&mut self, now: Instant, state: &mut State) {
        let (Some(opening), Some(agreed)) = (self.opening.take(), self.agreed) else {
            return;
        };
        // Asked more than once: the answer may be to any.
        let took = now.since(opening.asked_at).max(LEAST_RTT);
        self.sender.open(now, agreed, took);
        state.app.connected(None);
    }

    /// The acknowledgement in a segment, which may open the session.
    fn on_acked(&mut self, now: Instant, state: &mut State, acked: u8) -> Result<(), Refusal> {
        if self.opening.is_some() {
            if acked != low(self.sender.next() - 1) {
                return Err(DecodeError::Malformed("an acknowledgement of nothing").into());
            }
            self.opened(now, state);
        }
        self.sender.on_ack(now, acked);
        Ok(())
    }

    /// A segment with data.
    fn on_data(
        &mut self,
        now: Instant,
        state: &mut State,
        (segment, datagram): (&Segment<'_>, &[u8]),
        at: usize,
    ) -> Result<(), Refusal> {
        let receiver = self.receiver.as_mut().ok_or(Refusal::Drop)?;
        let record = Record::decode(&datagram[HEAD..])?;
        let data = datagram.get(AROUND..).filter(|data| !data.is_empty());
        let data = data.ok_or(DecodeError::Malformed("data"))?;
        let number = Full::expand(record.number, receiver.reached());
        if low(number) != segment.number {
            return Err(DecodeError::Malformed("number of a segment").into());
        }
        match receiver.sees(number) {
            Arrival::Beyond => return Err(Refusal::Drop),
            Arrival::Again if receiver.is_null(number) => {
                let text = "data with the number of a null segment".into();
                return Err(Refusal::End(CloseReason::Protocol(text)));
            }
            Arrival::Again => self.duplicates += 1,
            Arrival::New if record.object == STREAM => {
                match receiver.stream.insert(record.offset, data) {
                    Some(true) => state.app.readable(),
                    Some(false) => {}
                    None => {
                        state.app.stats.dropped_full += 1;
                        receiver.ack_later(now);
                        return Ok(());
                    }
                }
            }
            Arrival::New => {
                let extent = Extent {
                    object: record.object,
                    offset: record.offset,
                    len: u32::try_from(data.len()).map_err(|_| Refusal::Drop)?,
                    at: u32::try_from(at + AROUND).map_err(|_| Refusal::Drop)?,
                };
                let end = extent.offset.checked_add(extent.len.into());
                end.ok_or(DecodeError::Malformed("offset"))?;
                if !state.place(extent) {
                    receiver.ack_later(now);
                    return Ok(());
                }
            }
        }
        receiver.on_segment(now, number);
        Ok(())
    }

    /// A segment without data that has a number: nothing but the expected one is taken.
    fn on_null(&mut self, now: Instant, number: u8) {
        if let Some(receiver) = &mut self.receiver {
            let next = receiver.next();
            if number == low(next) {
                receiver.on_null(now, next);
            }
            receiver.ack_now(now);
        }
    }

    /// Writes the SYN, if it is due.
    fn poll_syn(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        let answers = self.client || self.receiver.is_some();
        let due = self.opening.as_mut().filter(|o| answers && o.again <= now);
        let Some(opening) = due else {
            return Ok(false);
        };
        let timeout = Duration::from_millis(self.syn.retransmit.max(100).into());
        // Whoever it says has asked may not have: once more, and then only for each SYN.
        opening.again = if self.client || opening.asked == 0 {
            now + timeout
        } else {
            opening.started + ANSWER
        };
        if opening.asked == 0 {
            opening.asked_at = now;
        }
        opening.asked += 1;
        let number = self.sender.next() - 1;
        self.header(Kind::Syn(self.syn), number).encode(w)?;
        Ok(true)
    }
}

impl shell::Connection for Connection {
    const CONTROL: usize = 255;

    fn shape(&self) -> (usize, usize) {
        let datagram = self.agreed.map_or(self.syn.segment, |a| a.datagram);
        (datagram.into(), AROUND)
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        state: &mut State,
        datagram: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        let segment = Segment::decode(datagram)?;
        if datagram.len() > usize::from(self.syn.segment) {
            return Err(DecodeError::Malformed("a segment longer than was said").into());
        }
        if let Kind::Syn(theirs) = &segment.kind {
            self.on_syn(now, &segment, theirs)?;
        } else if self.receiver.is_none() {
            return Err(DecodeError::Malformed("a segment before the first").into());
        }
        // A client's SYN acknowledges nothing; the end may come from one who has heard nothing.
        if let Some(acked) = segment.acked {
            self.on_acked(now, state, acked)?;
        }
        match segment.kind {
            Kind::Syn(_) => {
                if let (true, Some(receiver)) = (self.client, &mut self.receiver) {
                    receiver.ack_now(now);
                }
            }
            Kind::Ack => {}
            Kind::Eak(named) => self.sender.on_named(now, named),
            Kind::Nul => self.on_null(now, segment.number),
            Kind::Data => self.on_data(now, state, (&segment, datagram), at)?,
            Kind::Rst => {
                let next = self.receiver.as_ref().map_or(0, Receiver::next);
                if segment.number.wrapping_sub(low(next)) > self.syn.outstanding {
                    return Err(DecodeError::Malformed("a reset of another session").into());
                }
                let text = "the peer reset the connection".into();
                return Err(Refusal::End(CloseReason::Peer { code: 0, text }));
            }
        }
        self.heard = now;
        Ok(())
    }

    fn poll_control(
        &mut self,
        now: Instant,
        state: &mut State,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        if self.poll_syn(now, w)? {
            return Ok(true);
        }
        // A server's SYN is its acknowledgement.
        if self.opening.is_some() {
            return Ok(false);
        }
        let number = low(self.sender.next());
        let Some(receiver) = &mut self.receiver else {
            return Ok(false);
        };
        let acked = Some(receiver.acked());
        let Some(kind) = receiver.take_ack(now) else {
            return Ok(false);
        };
        let before = w.len();
        Segment {
            number,
            acked,
            kind,
        }
        .encode(w)?;
        state.app.stats.feedback_sent += (w.len() - before) as u64;
        Ok(true)
    }

    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason) {
        let closing = Closing::of(reason).filter(|_| self.opening.is_none());
        life.close(now, closing, self.sender.rtt());
    }

    fn write_close(&mut self, close: &Closing, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let mut reset = self.header(Kind::Rst, self.sender.next());
        // What a peer's fault ends is not acknowledged.
        reset.acked = reset
            .acked
            .filter(|_| matches!(close.cause, Cause::Application));
        reset.encode(w)
    }

    fn permit(&mut self, now: Instant) -> Permit {
        if self.opening.is_some() {
            return Permit::Hold(Why::Handshake);
        }
        self.sender.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        const FITS: &str = "a packet holds its header";
        let Some((number, piece)) = self.sender.next_segment(packet.room()) else {
            return false;
        };
        let kind = if piece.len == 0 {
            Kind::Nul
        } else {
            Kind::Data
        };
        let segment = self.header(kind, number);
        segment.encode(packet.header()).expect(FITS);
        if piece.len > 0 {
            let record = Record {
                number: Full::wrap(number),
                object: piece.object,
                offset: piece.offset,
            };
            record.encode(packet.header()).expect(FITS);
        }
        if piece.object == STREAM {
            let into = packet.header().reserve(piece.len as usize);
            self.sender.copy(piece.offset, into.expect(FITS));
        } else {
            packet.data(piece.object, piece.offset, piece.len);
        }
        self.sender.sent(now, number, piece, packet.wire());
        if let Some(receiver) = &mut self.receiver {
            receiver.told();
        }
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.batch_sent(now, bytes);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        if let Some(opening) = &self.opening {
            let answers = self.client || self.receiver.is_some();
            let again = answers.then_some((opening.again, Why::Handshake));
            return earliest([again, Some((opening.started + ANSWER, Why::Liveness))]);
        }
        let ack = self.receiver.as_ref().and_then(Receiver::deadline);
        earliest([
            self.sender.deadline(self.client),
            ack.map(|at| (at, Why::Feedback)),
            Some((self.heard + IDLE, Why::Liveness)),
        ])
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Some(opening) = &self.opening {
            return match opening.started + ANSWER <= now {
                true if self.client && self.receiver.is_none() => Err(CloseReason::NoAnswer),
                true => Err(CloseReason::Unfinished),
                false => Ok(()),
            };
        }
        if self.heard + IDLE <= now || !self.sender.on_timer(now, self.client) {
            return Err(CloseReason::TimedOut);
        }
        Ok(())
    }

    fn failure(&self) -> Option<CloseReason> {
        None
    }

    fn send(&mut self, _now: Instant, object: ObjectId, offset: u64, len: u64) {
        self.sender.send(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn write(&mut self, _now: Instant, bytes: &[u8]) {
        self.sender.write(bytes);
    }

    fn unwritten(&self) -> usize {
        self.sender.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        if let Some(receiver) = &mut self.receiver {
            receiver.stream.read(into);
        }
    }

    fn is_delivered(&self) -> bool {
        self.sender.is_idle()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.fill_stats(stats);
        stats.datagram_size = self.shape().0.try_into().unwrap_or(u32::MAX);
        stats.dropped_duplicate = self.duplicates;
    }
}
