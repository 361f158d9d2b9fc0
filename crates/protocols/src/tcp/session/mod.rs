//! One connection: sender and receiver joined by sequence numbers, and an ordered stream. A
//! connection is TCP's part of a [`Carrier`](farhaul_core::shell::Carrier)'s session. `send` writes
//! what leaves, `recv` takes what arrives; this file holds the state, the clock and the
//! application's side.

mod recv;
mod send;

use std::{mem, time::Duration};

use farhaul_core::{
    closing::Closing,
    codec::{DecodeError, NoRoom, Writer},
    datagram::{Ecn, TxBuf},
    life::Life,
    protocol::{CloseReason, Turn},
    send::{Permit, STREAM},
    session::earliest,
    shell::{Connection, Packet, Refusal, SessionState},
    stats::{Stats, Why},
    store::ObjectId,
    stream::{Incoming, Outgoing},
    time::Instant,
};

use self::send::write;
use super::{
    Config,
    receiver::Receiver,
    sender::Sender,
    wire::{Close, Header, Hello, MAX_HEADER, MAX_TEXT, Open, Sequence, flag},
};

/// Silence that ends a connection (keep-alives: RFC 9293 §3.8.4).
const IDLE: Duration = Duration::from_mins(1);
/// Time for which a client asks before it gives up.
const SYN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a SYN is repeated (RFC 6298 §2.1); doubled each time.
const SYN_RTO: Duration = Duration::from_secs(1);

/// Sequence numbers and window shifts of both directions.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    own: Sequence,
    peer: Sequence,
    own_shift: u8,
    peer_shift: u8,
}

/// The client's part of the handshake that is not over.
#[derive(Clone, Copy, Debug)]
struct SynState {
    started: Instant,
    /// Time at which the SYN is repeated, and the pause after that.
    again: Instant,
    pause: Duration,
    tries: u32,
    /// Repeated to the server; none before it has answered.
    open: Option<Open>,
}

/// TCP's part of a session.
pub(super) struct TcpConnection {
    config: Config,
    local: u32,
    /// 0 until the peer has said.
    remote: u32,
    iss: u32,
    datagram: u32,
    syn: Option<SynState>,
    numbers: Option<Numbers>,
    sender: Sender,
    receiver: Receiver,
    out: Outgoing,
    inc: Incoming,
    /// Header of the segments of the batch that leaves.
    header: Header,
    /// True if a segment that asks the peer where it stands is to be sent.
    ask: bool,
}

impl TcpConnection {
    /// A client whose id is `local`; it starts after `iss` and sends datagrams of up to `datagram` bytes.
    pub(super) fn new(
        now: Instant,
        config: Config,
        local: u32,
        (iss, datagram): (u32, u32),
    ) -> Self {
        Self {
            local,
            remote: 0,
            iss,
            datagram,
            syn: Some(SynState {
                started: now,
                again: now,
                pause: SYN_RTO,
                tries: 0,
                open: None,
            }),
            numbers: None,
            sender: Sender::new(config.clone()),
            receiver: Receiver::new(config.receiver),
            out: Outgoing::default(),
            inc: Incoming::default(),
            header: Header::default(),
            ask: false,
            config,
        }
    }

    /// A server's end for one that proved `open`.
    pub(super) fn answering(mut self, state: &mut SessionState, open: &Open) -> Self {
        self.syn = None;
        self.establish(state, open.hello, (open.iss, open.ecn), None);
        self
    }

    /// The peer said `hello`, starts after `peer_iss` and understands marks or not.
    fn establish(
        &mut self,
        state: &mut SessionState,
        hello: Hello,
        (peer_iss, ecn): (u32, bool),
        rtt: Option<Duration>,
    ) {
        let datagram = self.datagram.min(u32::from(hello.mss));
        let sack = hello.sack && self.config.sack();
        self.datagram = datagram;
        self.remote = hello.from;
        self.receiver.start(datagram, sack);
        self.numbers = Some(Numbers {
            own: Sequence::new(self.iss),
            peer: Sequence::new(peer_iss),
            own_shift: self.receiver.window.shift(),
            peer_shift: hello.shift,
        });
        self.sender.start(state.now, datagram, sack, rtt);
        if ecn && self.config.ecn {
            state.mark = Ecn::Ect0;
        }
        state.opened(IDLE);
    }

    /// Lets go of what was acknowledged of the stream; more of it may be under way.
    #[inline]
    fn acked(&mut self) {
        if self.out.pending() > 0 {
            self.out.on_taken(self.sender.stream_acked);
            self.pump_stream();
        }
    }

    /// Gives the sender what may be under way of the stream.
    fn pump_stream(&mut self) {
        while let Some((offset, len)) = self.out.take_queueable() {
            self.sender.outbox.push(STREAM, offset, len);
        }
    }

    /// Time until which the server has to answer.
    fn unanswered_at(&self) -> Option<Instant> {
        let syn = self.syn.filter(|syn| syn.open.is_none())?;
        Some(syn.started + SYN_TIMEOUT)
    }
}

impl Connection for TcpConnection {
    fn control(&self) -> usize {
        MAX_HEADER + MAX_TEXT
    }

    fn shape(&self) -> (usize, usize) {
        let datagram = self.sender.path.datagram as usize;
        (datagram, self.header.encoded_len())
    }

    #[inline]
    fn on_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        state: &mut SessionState,
        bytes: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        let (header, len) = Header::decode(bytes)?;
        if header.has(flag::SYN) {
            return Ok(self.on_syn_ack(state, &header)?);
        }
        let Some(numbers) = self.numbers else {
            return Err(DecodeError::Malformed("data before the handshake").into());
        };
        let payload = &bytes[len..];
        if header.has(flag::FIN) {
            let reason = self.end(&header, payload)?;
            self.syn = None;
            return Err(Refusal::End(reason));
        }
        let seq = numbers.peer.unwrap(header.seq, self.receiver.next);
        if seq.is_none() && !payload.is_empty() {
            return Err(DecodeError::Malformed("sequence number").into());
        }
        // The peer is there, and knows that this side is.
        self.syn = None;
        self.on_segment(turn, state, (&header, seq), (at + len, payload))?;
        if header.has(flag::ACK) {
            self.on_ack(state, &numbers, &header, payload.is_empty())?;
        }
        Ok(())
    }

    fn on_late(&mut self, now: Instant, life: &mut Life<Closing>, bytes: &[u8]) {
        let Ok((header, len)) = Header::decode(bytes) else {
            return;
        };
        if !header.has(flag::FIN) {
            life.repeat(now);
        } else if self.end(&header, &bytes[len..]).is_ok() {
            life.end();
        }
    }

    #[inline]
    fn batch_received(&mut self, _now: Instant) {
        self.receiver.batch_ends();
        self.acked();
    }

    #[inline]
    fn poll_controls(&mut self, state: &mut SessionState, out: &mut TxBuf) -> bool {
        let now = state.now;
        if self.numbers.is_some() {
            return self.write_answers(state, out).is_some();
        }
        let due = self.syn_sent(now);
        if due {
            self.write_syn(now, out);
        }
        due
    }

    /// Writes an old sequence number and nothing else: the peer answers where it stands.
    #[inline]
    fn poll_idle(&mut self, now: Instant, out: &mut TxBuf) -> bool {
        let due = self.numbers.is_some() && self.syn_sent(now) | mem::take(&mut self.ask);
        if due {
            let answer = self.receiver.piggyback();
            let mut header = self.header(now, self.sender.board.una(), &answer);
            header.seq = header.seq.wrapping_sub(1);
            out.begin(MAX_HEADER);
            write(&header, out);
        }
        due
    }

    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason) {
        let asked = matches!(reason, CloseReason::Peer { .. } | CloseReason::Denied(_));
        let closing = if asked {
            Some(Closing::answer())
        } else {
            Closing::of(reason).filter(|_| self.numbers.is_some())
        };
        life.close(now, closing, self.sender.srtt());
        if asked {
            life.answer_close(now);
        }
        self.sender.governor.notify(now, |law| law.on_close(now));
    }

    fn write_close(
        &mut self,
        now: Instant,
        close: &Closing,
        w: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let answer = self.receiver.piggyback();
        let end = close.text.floor_char_boundary(MAX_TEXT);
        let (cause, code) = (close.cause, close.code);
        let mut header = self.header(now, self.sender.board.nxt(), &answer);
        header.flags |= flag::FIN;
        header.close = Some(Close { cause, code });
        header.encode(w)?;
        w.put(&close.text.as_bytes()[..end])
    }

    #[inline]
    fn permit(&mut self, now: Instant) -> Permit {
        if self.numbers.is_none() {
            return Permit::Hold(Why::Handshake);
        }
        let permit = self.sender.permit(now);
        if matches!(permit, Permit::Send { .. }) {
            self.begin_batch(now);
        }
        permit
    }

    #[inline]
    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        self.write_segment(now, packet).is_some()
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.batch_sent(now, bytes);
        self.syn_sent(now);
    }

    #[inline]
    fn deadline(&self) -> Option<(Instant, Why)> {
        let again = self.syn.map(|syn| syn.again);
        let syn = again.into_iter().chain(self.unanswered_at()).min();
        let syn = syn.map(|at| (at, Why::Handshake));
        if self.numbers.is_none() {
            return syn;
        }
        earliest([
            syn,
            self.sender.next_timeout(),
            self.receiver.next_timeout(),
        ])
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.unanswered_at().is_some_and(|at| at <= now) {
            return Err(CloseReason::NoAnswer);
        }
        if self.numbers.is_some() {
            self.sender.on_timeout(now);
            self.acked();
            self.receiver.on_timeout(now);
        }
        Ok(())
    }

    fn ask(&mut self) {
        self.ask = true;
    }

    fn failure(&self) -> Option<CloseReason> {
        self.sender.governor.failure().map(CloseReason::Internal)
    }

    fn send(&mut self, _now: Instant, object: ObjectId, offset: u64, len: u64) {
        self.sender.outbox.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.outbox.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.outbox.cancel_unsent();
    }

    fn write(&mut self, _now: Instant, bytes: &[u8]) {
        self.out.write(bytes);
        self.pump_stream();
    }

    fn unwritten(&self) -> usize {
        self.out.pending()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.inc.read(into);
        self.receiver.on_read(self.inc.unread());
    }

    fn is_delivered(&self) -> bool {
        self.sender.is_idle()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.fill_stats(stats);
        if self.numbers.is_none() {
            stats.datagram_size = self.datagram;
        }
        stats.dropped_duplicate = self.receiver.duplicates;
    }
}
