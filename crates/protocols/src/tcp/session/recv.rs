//! What arrived? Each segment is read, its acknowledgement told to the sender, its payload placed
//! where it belongs, its sequence numbers told to the receiver. One call to the store per batch.

use std::mem;

use farhaul_core::{
    codec::DecodeError,
    datagram::{Ecn, MAX_SEGMENTS, Received},
    protocol::{CloseReason, Event, Turn},
    send::STREAM,
    store::Extent,
    time::Instant,
};

use super::TcpSession;
use crate::tcp::{
    closing::{Closing, told},
    receiver::{Arrival, Verdict},
    sender::Acknowledgement,
    since_stamp,
    wire::{Header, MAX_SACKS, Place, flag},
};

impl TcpSession {
    pub(super) fn receive(&mut self, turn: &mut Turn<'_>, batch: &Received<'_>) {
        let mut placing = mem::take(&mut self.extents);
        for (i, bytes) in batch.bytes.chunks(batch.segment).enumerate() {
            if placing.len() == MAX_SEGMENTS {
                self.place(turn, &mut placing, batch.bytes);
            }
            let at = i * batch.segment;
            match self.segment(turn, batch.ecn, (at, bytes), &mut placing) {
                Ok(()) => {}
                Err(_) => self.stats.dropped_malformed += 1,
            }
        }
        self.place(turn, &mut placing, batch.bytes);
        self.extents = placing;
        if self.life.is_open() {
            self.receiver.batch_ends(turn.now);
            self.settle();
        }
    }

    fn place(&mut self, turn: &mut Turn<'_>, placing: &mut Vec<Extent>, bytes: &[u8]) {
        if placing.is_empty() {
            return;
        }
        if let Err(error) = turn.store.place(placing, bytes) {
            self.fail(turn.now, CloseReason::Store(error.0));
        }
        placing.clear();
    }

    fn segment(
        &mut self,
        turn: &mut Turn<'_>,
        ecn: Ecn,
        (at, bytes): (usize, &[u8]),
        placing: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let (header, len) = Header::decode(bytes)?;
        let now = turn.now;
        if header.has(flag::SYN) {
            return self.on_syn_ack(now, &header);
        }
        let Some(numbers) = self.numbers else {
            return Err(DecodeError::Malformed("data before the handshake"));
        };
        let payload = &bytes[len..];
        let seq = numbers.peer.unwrap(header.seq, self.receiver.next());
        if seq.is_none() && !(payload.is_empty() && self.life.is_open()) {
            return Err(DecodeError::Malformed("sequence number"));
        }
        // The number before the first is that of the SYN: as old as can be.
        let (old, seq) = (seq.is_none(), seq.unwrap_or(0));
        if header.has(flag::FIN) {
            return self.on_fin(now, &header, seq, payload);
        }
        if !self.life.is_open() {
            self.life.repeat(now);
            return Ok(());
        }
        self.heard(now, bytes.len());
        let arrival = Self::arrival(now, &header, ecn, seq, payload.len());
        if payload.is_empty() {
            self.receiver.on_stamp(seq, arrival.stamp);
            // An old number asks where this side stands (RFC 9293 §3.8.4, §3.8.6.1).
            if old || seq < self.receiver.next() || header.open.is_some() {
                self.receiver.asked();
            }
        } else {
            self.payload(turn, &header, arrival, (at + len, payload), placing)?;
        }
        if header.has(flag::ACK) {
            self.on_ack(now, &header, payload.is_empty())?;
        }
        Ok(())
    }

    /// The peer is there, and knows that this side is.
    fn heard(&mut self, now: Instant, len: usize) {
        self.syn = None;
        self.life.on_heard(now);
        self.stats.datagrams_received += 1;
        self.stats.wire_received += len as u64;
    }

    fn arrival(now: Instant, header: &Header, ecn: Ecn, seq: u64, len: usize) -> Arrival {
        let stamps = header.stamps;
        let echo = stamps.map(|s| s.echo).filter(|echo| *echo != 0);
        Arrival {
            seq,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            stamp: stamps.map(|s| s.value),
            rtt_us: echo
                .map(|echo| u32::try_from(since_stamp(now, echo).as_micros()).unwrap_or(u32::MAX)),
            ecn,
            reduced: header.has(flag::CWR),
        }
    }

    fn payload(
        &mut self,
        turn: &mut Turn<'_>,
        header: &Header,
        arrival: Arrival,
        (at, payload): (usize, &[u8]),
        placing: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let place = header
            .place
            .filter(|p| p.offset.checked_add(payload.len() as u64).is_some())
            .ok_or(DecodeError::Malformed("data without a place"))?;
        self.stats.data_received += payload.len() as u64;
        match self.receiver.judge(&arrival, turn.rng) {
            Verdict::Refuse => {
                // RFC 9293 §3.10.7.4: what cannot be taken is answered all the same.
                if arrival.seq >= self.receiver.announced() {
                    self.receiver.asked();
                }
                return Ok(());
            }
            Verdict::Known => {}
            Verdict::Take => {
                if !self.take(place, (at, payload), placing) {
                    return Ok(());
                }
            }
        }
        self.receiver.arrive(turn.now, arrival);
        Ok(())
    }

    /// Puts the payload where it belongs; false if there is no room for it.
    fn take(
        &mut self,
        place: Place,
        (at, payload): (usize, &[u8]),
        placing: &mut Vec<Extent>,
    ) -> bool {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if place.object == STREAM {
            if !self.inc.takes(place.offset, len) {
                return false;
            }
            if self.inc.insert(place.offset, payload) {
                self.events.push_back(Event::Readable);
            }
            self.receiver.set_unread(self.inc.unread());
        } else {
            placing.push(Extent {
                object: place.object,
                offset: place.offset,
                len,
                at: u32::try_from(at).unwrap_or(u32::MAX),
            });
        }
        true
    }

    fn on_ack(&mut self, now: Instant, header: &Header, pure: bool) -> Result<(), DecodeError> {
        let Some(numbers) = self.numbers else {
            return Ok(());
        };
        let bad = DecodeError::Malformed("acknowledgement number");
        let una = self.sender.una();
        let ack = numbers.own.unwrap(header.ack, una).ok_or(bad)?;
        let mut told = Acknowledgement {
            ack,
            edge: ack + (u64::from(header.window) << numbers.peer_shift),
            stamps: header.stamps,
            marked: header.has(flag::ECE),
            data: !pure,
            ..Acknowledgement::default()
        };
        let mut count = 0;
        for (left, right) in header.sacks.iter().take(MAX_SACKS) {
            let spans = numbers
                .own
                .unwrap(left, una)
                .zip(numbers.own.unwrap(right, una));
            if let Some((left, right)) = spans.filter(|(l, r)| l < r) {
                told.sacks[count] = left..right;
                count += 1;
            }
        }
        // RFC 2883 §4: the first block tells of something received twice.
        let [first, second, ..] = &told.sacks;
        let within = second.start <= first.start && first.end <= second.end && count > 1;
        told.duplicate = count > 0 && (first.end <= ack || within);
        if pure {
            self.stats.feedback_received += header.encoded_len() as u64;
        }
        self.sender.on_ack(now, &told)
    }

    /// The server answered.
    fn on_syn_ack(&mut self, now: Instant, header: &Header) -> Result<(), DecodeError> {
        let Some(syn) = &mut self.syn else {
            // It did not hear that we are through.
            self.ask = self.life.is_open() && self.numbers.is_some();
            return Ok(());
        };
        let (Some(hello), Some(open)) = (header.hello, header.open) else {
            return Err(DecodeError::Malformed("SYN without its options"));
        };
        let ours = header.has(flag::ACK) && header.ack == self.iss.wrapping_add(1);
        if !ours || self.numbers.is_some() {
            return Ok(());
        }
        let stamps = header.stamps.filter(|s| s.echo != 0);
        let rtt = match stamps {
            Some(stamps) => Some(since_stamp(now, stamps.echo)),
            // Karn: the answer may be to an earlier SYN.
            None => (syn.tries == 1).then(|| now.since(syn.started)),
        };
        syn.open = Some(open);
        syn.due = true;
        let ecn = header.has(flag::ECE);
        self.life.on_heard(now);
        self.establish(now, hello, header.seq, ecn, rtt);
        self.sender.grant(u64::from(header.window));
        let pause = self.sender.rto();
        if let Some(syn) = &mut self.syn {
            syn.pause = pause;
            syn.again = now + pause;
        }
        Ok(())
    }

    fn on_fin(
        &mut self,
        now: Instant,
        header: &Header,
        seq: u64,
        text: &[u8],
    ) -> Result<(), DecodeError> {
        let close = header
            .close
            .ok_or(DecodeError::Malformed("FIN without a reason"))?;
        // Only who follows the connection can end it (RFC 5961 §3).
        if seq < self.receiver.next() || seq > self.receiver.announced() {
            return Err(DecodeError::Malformed("FIN outside the window"));
        }
        self.syn = None;
        if self.life.is_open() {
            let reason = told(close.cause, close.code, text);
            self.events.push_back(Event::Closed(reason));
            self.stats.held.set(now, None);
            self.sender.close(now);
            self.life.close(now, Closing::answer(), self.sender.srtt());
            self.life.answer_close(now);
        } else {
            self.life.end();
        }
        Ok(())
    }
}
