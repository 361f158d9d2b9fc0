//! What arrived? Each segment is read, its acknowledgement given to the sender, its payload placed
//! where it belongs, its sequence numbers given to the receiver. One call to the store per batch.

use std::mem;

use farhaul_core::{
    closing::{Closing, reported},
    codec::DecodeError,
    datagram::{Ecn, Received},
    protocol::{CloseReason, Turn},
    send::STREAM,
    store::Extent,
    text,
    time::Instant,
};

use super::TcpSession;
use crate::tcp::{
    receiver::{Arrival, Verdict},
    sender::Acknowledgement,
    since_stamp,
    wire::{Header, Hello, Place, flag},
};

impl TcpSession {
    pub(super) fn receive(&mut self, turn: &mut Turn<'_>, batch: &Received<'_>) {
        let mut placing = mem::take(&mut self.extents);
        for (i, bytes) in batch.bytes.chunks(batch.segment).enumerate() {
            let at = i * batch.segment;
            match self.segment(turn, batch.ecn, (at, bytes), &mut placing) {
                Ok(()) => {}
                Err(_) => self.app.stats.dropped_malformed += 1,
            }
        }
        if !placing.is_empty()
            && let Err(error) = turn.store.place(&placing, batch.bytes)
        {
            self.fail(turn.now, CloseReason::Store(error.0));
        }
        placing.clear();
        self.extents = placing;
        if self.life.is_open() {
            self.receiver.batch_ends();
            self.settle();
        }
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
        let seq = numbers.peer.unwrap(header.seq, self.receiver.next);
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
        // The peer is there, and knows that this side is.
        self.syn = None;
        self.life.on_heard(now);
        self.app.received(bytes.len());
        let arrival = Self::arrival(now, &header, ecn, seq, payload.len());
        if payload.is_empty() {
            self.receiver.on_stamp(seq, arrival.stamp);
            // An old number asks where this side stands (RFC 9293 §3.8.4, §3.8.6.1).
            if old || seq < self.receiver.next || header.open.is_some() {
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
        self.app.stats.data_received += payload.len() as u64;
        match self.receiver.judge(&arrival, turn.rng) {
            Verdict::Refuse => {
                // RFC 9293 §3.10.7.4: what cannot be taken is answered all the same.
                if arrival.seq >= self.receiver.window.announced() {
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
            match self.inc.insert(place.offset, payload) {
                Some(true) => self.app.readable(),
                Some(false) => {}
                None => return false,
            }
            self.receiver.window.set_unread(self.inc.unread());
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
        let una = self.sender.board.una();
        let ack = numbers.own.unwrap(header.ack, una).ok_or(bad)?;
        let mut news = Acknowledgement {
            ack,
            edge: ack + (u64::from(header.window) << numbers.peer_shift),
            stamps: header.stamps,
            marked: header.has(flag::ECE),
            data: !pure,
            ..Acknowledgement::default()
        };
        let spans = header.sacks.iter().filter_map(|(left, right)| {
            let span = numbers.own.unwrap(left, una)?..numbers.own.unwrap(right, una)?;
            (!span.is_empty()).then_some(span)
        });
        for (slot, span) in news.sacks.iter_mut().zip(spans) {
            *slot = span;
        }
        // RFC 2883 §4: the first block tells of something received twice.
        let [first, second, ..] = &news.sacks;
        let within = second.start <= first.start && first.end <= second.end;
        news.duplicate = !first.is_empty() && (first.end <= ack || within);
        if pure {
            self.app.stats.feedback_received += header.encoded_len() as u64;
        }
        self.sender.on_ack(now, &news)
    }

    /// The server answered.
    fn on_syn_ack(&mut self, now: Instant, header: &Header) -> Result<(), DecodeError> {
        let Some(syn) = &mut self.syn else {
            // Our answer to it was lost.
            self.ask = self.life.is_open() && self.numbers.is_some();
            return Ok(());
        };
        let hello = header.hello.filter(Hello::is_sane);
        let (Some(hello), Some(open)) = (hello, header.open) else {
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
        let ecn = header.has(flag::ECE);
        self.life.on_heard(now);
        self.establish(now, hello, header.seq, ecn, rtt);
        self.sender.grant(u64::from(header.window));
        let pause = self.sender.rto();
        if let Some(syn) = &mut self.syn {
            (syn.pause, syn.again) = (pause, now);
        }
        Ok(())
    }

    fn on_fin(
        &mut self,
        now: Instant,
        header: &Header,
        seq: u64,
        words: &[u8],
    ) -> Result<(), DecodeError> {
        let close = header
            .close
            .ok_or(DecodeError::Malformed("FIN without a reason"))?;
        // Only who follows the connection can end it (RFC 5961 §3).
        if seq < self.receiver.next || seq > self.receiver.window.announced() {
            return Err(DecodeError::Malformed("FIN outside the window"));
        }
        self.syn = None;
        if self.life.is_open() {
            let reason = reported(close.cause, close.code, text::shown(words));
            self.close_with(now, Some(Closing::answer()), reason);
            self.life.answer_close(now);
        } else {
            self.life.end();
        }
        Ok(())
    }
}
