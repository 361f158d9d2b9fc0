//! Takes what arrived: gives each segment's acknowledgement to the sender, places its payload where
//! it belongs, and gives its sequence numbers to the receiver.

use farhaul_core::{
    closing::reported,
    codec::DecodeError,
    datagram::Ecn,
    protocol::{CloseReason, Turn},
    send::STREAM,
    shell::SessionState,
    store::Extent,
    text,
    time::Instant,
};

use super::{Numbers, TcpConnection};
use crate::tcp::{
    clock::since_stamp,
    receiver::{Arrival, Verdict},
    sender::Acknowledgement,
    wire::{Header, Hello, Place, flag},
};

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

impl TcpConnection {
    /// A segment without SYN and FIN; its sequence number may be the one before the first.
    #[inline]
    pub(super) fn on_segment(
        &mut self,
        turn: &mut Turn<'_>,
        state: &mut SessionState,
        (header, seq): (&Header, Option<u64>),
        (at, payload): (usize, &[u8]),
    ) -> Result<(), DecodeError> {
        // The number before the first is that of the SYN: as old as can be.
        let (old, seq) = (seq.is_none(), seq.unwrap_or(0));
        let arrival = arrival(turn.now, header, state.ecn, seq, payload.len());
        if !payload.is_empty() {
            return self.payload(turn, state, (arrival, header.place), (at, payload));
        }
        self.receiver.on_stamp(seq, arrival.stamp);
        // An old number asks where this side stands (RFC 9293 §3.8.4, §3.8.6.1).
        if old || seq < self.receiver.next || header.open.is_some() {
            self.receiver.asked();
        }
        Ok(())
    }

    /// Puts the payload where it belongs, unless it is known or there is no room for it.
    fn payload(
        &mut self,
        turn: &mut Turn<'_>,
        state: &mut SessionState,
        (arrival, place): (Arrival, Option<Place>),
        (at, payload): (usize, &[u8]),
    ) -> Result<(), DecodeError> {
        let len = payload.len() as u64;
        let place = place
            .filter(|p| p.offset.checked_add(len).is_some())
            .ok_or(DecodeError::Malformed("data without a place"))?;
        match self.receiver.judge(&arrival) {
            Verdict::Refuse => {
                // RFC 9293 §3.10.7.4: what cannot be taken is answered all the same.
                if arrival.seq >= self.receiver.window.announced() {
                    self.receiver.asked();
                }
                return Ok(());
            }
            Verdict::Known => state.app.stats.data_received += len,
            Verdict::Take if place.object == STREAM => {
                let Some(news) = self.inc.insert(place.offset, payload) else {
                    return Ok(());
                };
                if news {
                    state.app.readable();
                }
                state.app.stats.data_received += len;
                self.receiver.window.set_unread(self.inc.unread());
            }
            Verdict::Take => {
                let fits = state.place(Extent {
                    object: place.object,
                    offset: place.offset,
                    len: arrival.len,
                    at: u32::try_from(at).unwrap_or(u32::MAX),
                });
                if !fits {
                    // One answer for what is dropped: the peer must not take a slow disk for a dead path.
                    if arrival.seq <= self.receiver.next {
                        self.receiver.asked();
                    }
                    return Ok(());
                }
            }
        }
        self.receiver.arrive(turn.now, arrival);
        Ok(())
    }

    #[inline]
    pub(super) fn on_ack(
        &mut self,
        state: &mut SessionState,
        numbers: &Numbers,
        header: &Header,
        pure: bool,
    ) -> Result<(), DecodeError> {
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
        // RFC 2883 §4: the first block reports something received twice.
        let [first, second, ..] = &news.sacks;
        let within = second.start <= first.start && first.end <= second.end;
        news.duplicate = !first.is_empty() && (first.end <= ack || within);
        if pure {
            state.app.stats.feedback_received += header.encoded_len() as u64;
        }
        self.sender.on_ack(state.now, &news)
    }

    /// The server answered.
    pub(super) fn on_syn_ack(
        &mut self,
        state: &mut SessionState,
        header: &Header,
    ) -> Result<(), DecodeError> {
        let now = state.now;
        // RFC 9293 §3.10.7.3: nothing else shows that the peer answers this connection's SYN.
        if !header.has(flag::ACK) || header.ack != self.iss.wrapping_add(1) {
            return Err(DecodeError::Malformed("SYN without an acknowledgement"));
        }
        let Some(syn) = &mut self.syn else {
            // Our answer to it was lost.
            self.ask = self.numbers.is_some();
            return Ok(());
        };
        let hello = header.hello.filter(Hello::is_sane);
        let (Some(hello), Some(open)) = (hello, header.open) else {
            return Err(DecodeError::Malformed("SYN without its options"));
        };
        if self.numbers.is_some() {
            return Ok(());
        }
        let stamps = header.stamps.filter(|s| s.echo != 0);
        let rtt = match stamps {
            Some(stamps) => Some(since_stamp(now, stamps.echo)),
            // Karn: the answer may be to an earlier SYN.
            None => (syn.tries == 1).then(|| now.since(syn.started)),
        };
        syn.open = Some(open);
        let theirs = (header.seq, header.has(flag::ECE));
        self.establish(state, hello, theirs, rtt);
        self.sender.grant(u64::from(header.window));
        let pause = self.sender.rto();
        if let Some(syn) = &mut self.syn {
            (syn.pause, syn.again) = (pause, now);
        }
        Ok(())
    }

    /// Reason why the peer ends the connection.
    pub(super) fn end(&self, header: &Header, words: &[u8]) -> Result<CloseReason, DecodeError> {
        let no_reason = DecodeError::Malformed("FIN without a reason");
        let close = header.close.ok_or(no_reason)?;
        // Only who follows the connection can end it (RFC 5961 §3).
        let taken = self.receiver.next..=self.receiver.window.announced();
        let numbers = self.numbers.as_ref();
        let seq = numbers.and_then(|n| n.peer.unwrap(header.seq, self.receiver.next));
        if !seq.is_some_and(|seq| taken.contains(&seq)) {
            return Err(DecodeError::Malformed("FIN outside the window"));
        }
        Ok(reported(close.cause, close.code, text::shown(words)))
    }
}
