//! RUDP's own part of a session: three segments that open it, one that ends it, null segments in
//! silence, and between them the two halves.

// spec: rudp §3

use std::time::Duration;

use farhaul_core::{
    closing::{Cause, Closing},
    codec::{DecodeError, NoRoom, Writer},
    life::Life,
    protocol::{CloseReason, Turn},
    send::{Permit, Piece},
    session::earliest,
    shell::{self, Packet, Record, Refusal},
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
    units::Rate,
};

use super::{
    config::agree,
    recv::{Full, Receiver, TURN},
    send::{AROUND, Sender},
    wire::{Kind, Segment, Syn, low},
};

/// The opening is done in this time.
const ANSWER: Duration = Duration::from_secs(5);
/// Time in which something has to arrive.
const IDLE: Duration = Duration::from_secs(30);
/// The least time that an answer is believed to have taken.
const LEAST_RTT: Duration = Duration::from_micros(100);

type State = shell::SessionState;

/// State at a session's beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) client: bool,
    /// Number of the first segment, below 256.
    pub(super) first: u64,
    pub(super) syn: Syn,
    pub(super) max_rate: Option<Rate>,
}

/// State until the session is open.
#[derive(Debug)]
struct Opening {
    started: Instant,
    /// Time at which the SYN leaves again.
    again: Instant,
    /// Time at which the SYN left first.
    asked_at: Option<Instant>,
}

/// Reliable UDP in a session.
pub(super) struct Connection {
    syn: Syn,
    opening: Option<Opening>,
    sender: Sender,
    /// Receiving half, once the peer's first number is known.
    receiver: Option<Receiver>,
    heard: Instant,
}

impl Connection {
    pub(super) fn new(now: Instant, begun: Begun) -> Self {
        Self {
            syn: begun.syn,
            opening: Some(Opening {
                started: now,
                again: now,
                asked_at: None,
            }),
            sender: Sender::new(TURN + begun.first + 1, &begun),
            receiver: None,
            heard: now,
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
        if self.sender.client != segment.acked.is_some() {
            return Err(TURN_OF.into());
        }
        if self.receiver.is_some() {
            // What answered it was lost.
            return match &mut self.opening {
                Some(opening) => {
                    opening.again = now;
                    Ok(())
                }
                None if self.sender.client => Ok(()),
                None => Err(TURN_OF.into()),
            };
        }
        let own = low(self.sender.next() - 1);
        if segment.acked.is_some_and(|acked| acked != own) {
            return Err(TURN_OF.into());
        }
        let agreed = agree(&self.syn, theirs, self.sender.client);
        let agreed = agreed.ok_or(DecodeError::Malformed("SYN"))?;
        let (first, window) = (segment.number, self.syn.outstanding);
        let first = TURN + u64::from(first) + 1;
        self.receiver = Some(Receiver::new(first, window.into(), &agreed));
        self.sender.agreed = Some(agreed);
        // A server answers with the counters and timers that count.
        if !self.sender.client {
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

    /// The acknowledgement in a segment; that of the own first segment opens the session.
    fn on_acked(&mut self, now: Instant, state: &mut State, acked: u8) -> Result<(), Refusal> {
        if let Some(opening) = &self.opening {
            if acked != low(self.sender.next() - 1) {
                return Err(DecodeError::Malformed("an acknowledgement of nothing").into());
            }
            // Asked more than once: the answer may be to any.
            let asked = opening.asked_at.unwrap_or(opening.started);
            self.sender.open(now, now.since(asked).max(LEAST_RTT));
            self.opening = None;
            state.app.connected(None);
        }
        self.sender.on_ack(now, acked);
        Ok(())
    }

    /// Writes the SYN, if it is due.
    fn poll_syn(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        let answers = self.sender.client || self.receiver.is_some();
        let due = self.opening.as_mut().filter(|o| answers && o.again <= now);
        let Some(opening) = due else {
            return Ok(false);
        };
        // The named asker may not have asked: once more, and then only for each SYN.
        opening.again = if self.sender.client || opening.asked_at.is_none() {
            now + Duration::from_millis(self.syn.retransmit.max(100).into())
        } else {
            opening.started + ANSWER
        };
        opening.asked_at.get_or_insert(now);
        let number = self.sender.next() - 1;
        self.header(Kind::Syn(self.syn), number).encode(w)?;
        Ok(true)
    }

    /// Writes a segment with a number.
    fn encode(&self, number: u64, piece: Piece, packet: &mut Packet<'_>) -> Result<(), NoRoom> {
        if piece.len == 0 {
            return self.header(Kind::Nul, number).encode(packet.header());
        }
        self.header(Kind::Data, number).encode(packet.header())?;
        let record = Record {
            number: Full::wrap(number),
            object: piece.object,
            offset: piece.offset,
        };
        record.encode(packet.header())?;
        self.sender.line.fill(piece, packet)
    }
}

impl shell::Connection for Connection {
    fn control(&self) -> usize {
        255
    }

    fn shape(&self) -> (usize, usize) {
        let agreed = self.sender.agreed;
        let datagram = agreed.map_or(self.syn.segment, |a| a.datagram);
        (datagram.into(), AROUND)
    }

    fn on_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        state: &mut State,
        datagram: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        const FIRST: DecodeError = DecodeError::Malformed("a segment before the first");
        let now = turn.now;
        let segment = Segment::decode(datagram)?;
        if datagram.len() > usize::from(self.syn.segment) {
            return Err(DecodeError::Malformed("a segment longer than was said").into());
        }
        if let Kind::Syn(theirs) = &segment.kind {
            self.on_syn(now, &segment, theirs)?;
        }
        // A client's SYN acknowledges nothing; the end may come from one who has heard nothing.
        if let Some(acked) = segment.acked.filter(|_| self.receiver.is_some()) {
            self.on_acked(now, state, acked)?;
        }
        let receiver = self.receiver.as_mut().ok_or(FIRST)?;
        match segment.kind {
            Kind::Syn(_) if self.sender.client => receiver.ack_by(now),
            Kind::Syn(_) | Kind::Ack => {}
            Kind::Eak(named) => self.sender.on_named(now, named),
            Kind::Nul => receiver.on_null(now, segment.number),
            Kind::Data => receiver.on_data(now, state, (segment.number, datagram), at)?,
            Kind::Rst => {
                if segment.number.wrapping_sub(low(receiver.next())) > self.syn.outstanding {
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
        let open = self.opening.is_none();
        let Some(receiver) = self.receiver.as_mut().filter(|_| open) else {
            return Ok(false);
        };
        let (number, acked) = (low(self.sender.next()), Some(receiver.acked()));
        let Some(kind) = receiver.take_ack(now) else {
            return Ok(false);
        };
        let ack = Segment {
            number,
            acked,
            kind,
        };
        ack.encode(w)?;
        state.app.stats.feedback_sent += w.len() as u64;
        Ok(true)
    }

    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason) {
        let closing = Closing::of(reason).filter(|_| self.opening.is_none());
        life.close(now, closing, self.sender.rtt());
    }

    fn write_close(
        &mut self,
        _: Instant,
        close: &Closing,
        w: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
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
        let Some((number, piece)) = self.sender.next_segment(packet.room()) else {
            return false;
        };
        self.encode(number, piece, packet)
            .expect("a packet holds its segment");
        self.sender.sent(now, number, piece, packet.wire());
        if let Some(receiver) = &mut self.receiver {
            receiver.on_ack_sent();
        }
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.line.batch_sent(now, bytes);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        if let Some(opening) = &self.opening {
            let answers = self.sender.client || self.receiver.is_some();
            let again = answers.then_some((opening.again, Why::Handshake));
            return earliest([again, Some((opening.started + ANSWER, Why::Liveness))]);
        }
        let ack = self.receiver.as_ref().and_then(Receiver::deadline);
        earliest([
            self.sender.deadline(),
            ack.map(|at| (at, Why::Feedback)),
            Some((self.heard + IDLE, Why::Liveness)),
        ])
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Some(opening) = &self.opening {
            return match opening.started + ANSWER <= now {
                true if self.sender.client && self.receiver.is_none() => Err(CloseReason::NoAnswer),
                true => Err(CloseReason::Unfinished),
                false => Ok(()),
            };
        }
        if self.heard + IDLE <= now || !self.sender.on_timer(now) {
            return Err(CloseReason::TimedOut);
        }
        Ok(())
    }

    fn failure(&self) -> Option<CloseReason> {
        None
    }

    fn send(&mut self, _now: Instant, object: ObjectId, offset: u64, len: u64) {
        self.sender.line.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.line.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.line.cancel_unsent();
    }

    fn write(&mut self, _now: Instant, bytes: &[u8]) {
        self.sender.line.write(bytes);
    }

    fn unwritten(&self) -> usize {
        self.sender.line.unwritten()
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
    }
}
