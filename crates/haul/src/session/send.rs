//! Writes what leaves, in order, into the batch. Close frames and handshake flights go first, then
//! challenges, small frames and probes one datagram at a time, then data. Data take one permit, one
//! call to the store and one seal per segment for a whole batch.

use farhaul_core::{
    arq::{Content, Permit, Piece, STREAM},
    closing::Closing,
    codec::{NoRoom, Writer},
    congestion::MAX_MESSAGE,
    datagram::{Ecn, Transmit, TxBuf},
    protocol::{CloseReason, Turn},
    rng::Rng,
    stats::Why,
    store::Extent,
    time::{Instant, nanos},
};

use super::{HaulSession, Marks};
use crate::wire::{
    BASE_DATAGRAM, TAG,
    feedback::{self},
    frame::{self, Frame, PieceHead, kind},
    short::{self, Short},
};

/// A piece shorter than its space by no more is padded, so that the batch goes on.
const PADDABLE: usize = 256;

/// Packet numbers among which one is left out, however little is in flight.
const FEW: u64 = 256;

impl HaulSession {
    pub(super) fn transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        if self.seal.as_ref().is_some_and(crate::seal::Seal::is_spent) {
            let text = "the keys have been used as often as they may".into();
            self.fail(now, CloseReason::Protocol(text));
        }
        // Without our last flight the peer has no keys to open the close frame with.
        if !self.life.is_open()
            && !self.life.is_over()
            && self.seal.is_some()
            && let Some(transmit) = self.fly(now, out)
        {
            return Some(transmit);
        }
        if let Some(close_frame) = self.life.take_closing() {
            return self.send_close(now, &close_frame, out);
        }
        if !self.life.is_open() {
            return None;
        }
        if let Some(transmit) = self.fly(now, out) {
            return Some(transmit);
        }
        if self.seal.is_none() {
            self.app.hold(now, Why::Handshake);
            return None;
        }
        self.pump_stream();
        if self.receiver.is_room_awaited() {
            self.receiver.on_room(now, turn.store.sink().free);
        }
        self.nudge(now);
        self.skip_number(turn.rng);
        self.challenge(now, out)
            .or_else(|| self.answer(now, out))
            .or_else(|| self.small_frames(turn, out))
            .or_else(|| self.probe(now, out))
            .or_else(|| self.data(turn, out))
    }

    /// Skips the packet number drawn last, about one per window.
    fn skip_number(&mut self, rng: &mut Rng) {
        let next = self.sender.next_number();
        let window = self.sender.in_flight() / u64::from(self.sender.datagram().max(1));
        let window = window.max(FEW);
        // A window that has shrunk since the draw brings it closer.
        let at = self.skip_at.unwrap_or_else(|| rng.below(FEW));
        let at = at.min(next + window);
        self.skip_at = Some(at);
        if next < at {
            return;
        }
        self.skip_at = Some(next + 2 + rng.below(window));
        self.sender.skip();
    }

    const fn ecn(&self) -> Ecn {
        match self.todo.ecn {
            Marks::GivenUp => Ecn::NotEct,
            Marks::Trying | Marks::Proven => Ecn::Ect0,
        }
    }

    /// A datagram that was sealed before.
    fn ready_made(&mut self, datagram: &[u8], out: &mut TxBuf) -> Transmit {
        out.begin(datagram.len());
        out.next_segment().copy_from_slice(datagram);
        out.commit(datagram.len(), datagram.len());
        self.app.sent(out);
        Transmit {
            to: self.path.active(),
            ecn: Ecn::NotEct,
        }
    }

    fn fly(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let mut handshake = self.handshake.take()?;
        let transmit = handshake
            .poll(now)
            .map(|datagram| self.ready_made(datagram, out));
        self.handshake = Some(handshake);
        transmit
    }

    fn send_close(
        &mut self,
        now: Instant,
        close_frame: &Closing,
        out: &mut TxBuf,
    ) -> Option<Transmit> {
        let Closing { cause, code, text } = close_frame;
        if self.seal.is_some() {
            let close = Frame::Close {
                cause: *cause,
                code: *code,
                text: frame::close_text(text),
            };
            return self.single(now, None, out, |w, _| {
                frame::encode(w, &close)?;
                Ok(Content::Quiet)
            });
        }
        let mut handshake = self.handshake.take();
        let transmit = handshake
            .as_mut()
            .and_then(|h| h.close(*cause, *code, text))
            .map(|datagram| self.ready_made(datagram, out));
        self.handshake = handshake;
        if transmit.is_none() {
            // There is no peer to notify.
            self.life.end();
        }
        transmit
    }

    /// One datagram of frames that `write` appends, to `to` or the active path; none if it appends
    /// nothing.
    fn single(
        &mut self,
        now: Instant,
        to: Option<std::net::SocketAddr>,
        out: &mut TxBuf,
        write: impl FnOnce(&mut Writer<'_>, &mut Self) -> Result<Content, NoRoom>,
    ) -> Option<Transmit> {
        self.sized(now, to, (BASE_DATAGRAM, false), out, write)
    }

    fn sized(
        &mut self,
        now: Instant,
        to: Option<std::net::SocketAddr>,
        (size, pad): (usize, bool),
        out: &mut TxBuf,
        write: impl FnOnce(&mut Writer<'_>, &mut Self) -> Result<Content, NoRoom>,
    ) -> Option<Transmit> {
        let phase = self.seal.as_mut()?.phase();
        let number = self.sender.next_number();
        out.begin(size);
        let segment = out.next_segment();
        let (body, _) = segment.split_at_mut(size - TAG);
        let mut w = Writer::new(body);
        let header = self.header(phase, number);
        header.encode(&mut w).expect("a header fits");
        let content = write(&mut w, self).expect("small frames fit");
        let mut len = w.len();
        if len == short::LEN {
            return None;
        }
        if pad {
            body[len..].fill(kind::PADDING);
            len = body.len();
        }
        len += TAG;
        out.commit(len, len);
        let seal = self.seal.as_mut()?;
        seal.seal(number, &mut out.raw()[..len]);
        let wire = u32::try_from(len).unwrap_or(u32::MAX);
        self.sender.log(now, content, wire);
        self.app.sent(out);
        Some(Transmit {
            to: to.unwrap_or(self.path.active()),
            ecn: self.ecn(),
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    const fn header(&self, phase: bool, number: u64) -> Short {
        Short {
            phase,
            to: self.ids.remote,
            number: number as u32,
        }
    }

    fn challenge(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let rtt = self.rtt();
        let (to, challenge) = self.path.poll_challenge(now, rtt)?;
        self.single(now, Some(to), out, |w, _| {
            frame::encode(w, &Frame::Challenge(challenge))?;
            Ok(Content::Other)
        })
    }

    fn answer(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let (to, challenge) = self.path.take_answer()?;
        self.single(now, Some(to), out, |w, _| {
            frame::encode(w, &Frame::Response(challenge))?;
            Ok(Content::Other)
        })
    }

    fn small_frames(&mut self, turn: &Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let report = self.receiver.feedback_due().is_some_and(|at| at <= now);
        if report {
            self.receiver.on_room(now, turn.store.sink().free);
        }
        let any = report || self.todo.asks.any();
        let mail = self.sender.has_mail() || self.receiver.has_mail();
        if !any && !mail && !self.sender.state_due() && !self.sender.want_due() {
            return None;
        }
        let transmit = self.single(now, None, out, |w, this| {
            let eliciting = this.write_asks(w)?;
            this.write_books(w)?;
            this.write_mail(w)?;
            if report && let Some(report) = this.receiver.report(now) {
                w.u8(kind::FEEDBACK)?;
                feedback::encode(w, report)?;
            }
            Ok(if eliciting {
                Content::Other
            } else {
                Content::Quiet
            })
        })?;
        if report {
            let bytes = out.bytes().len();
            self.app.stats.feedback_sent += bytes as u64;
            self.receiver.feedback_sent(now, bytes);
        }
        Some(transmit)
    }

    /// Frames that want an acknowledgement; true if there are any.
    fn write_asks(&mut self, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        let asks = std::mem::take(&mut self.todo.asks);
        if asks.ready {
            frame::encode(w, &Frame::Ready)?;
        }
        if asks.ping {
            frame::encode(w, &Frame::Ping)?;
        }
        if asks.credit {
            let read = self.streams.inc.credit();
            frame::encode(w, &Frame::Credit { read })?;
        }
        Ok(asks.any())
    }

    /// Writes this sender's state for the peer's receiver.
    fn write_books(&mut self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let number = self.sender.next_number();
        if let Some(from) = self.sender.take_want() {
            let behind = number - from.min(number);
            frame::encode(w, &Frame::Want { behind })?;
        }
        if self.sender.state_due() {
            let state = Frame::State {
                behind: number - self.sender.settled().min(number),
                interval_us: nanos(self.sender.take_state()) / 1_000,
            };
            frame::encode(w, &state)?;
            let packets = self.sender.requested_packets().unwrap_or(0);
            if packets > 0 || self.requested.is_some() {
                self.requested = Some(packets);
                frame::encode(w, &Frame::AckFrequency { packets })?;
            }
        }
        Ok(())
    }

    /// Messages between the halves of the laws, as far as they fit beside a report; the rest is sent
    /// with the next datagram.
    fn write_mail(&mut self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        const REPORT: usize = 128;
        while w.room() > MAX_MESSAGE + REPORT {
            let (message, up) = match self.sender.mail().take() {
                Some(message) => (message, false),
                None => match self.receiver.mail().take() {
                    Some(message) => (message, true),
                    None => break,
                },
            };
            let bytes = &message;
            frame::encode(w, &Frame::Message { up, bytes })?;
        }
        Ok(())
    }

    fn probe(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let size = self.mtu.next_probe()?;
        let number = self.sender.next_number();
        let transmit = self.sized(now, None, (size, true), out, |w, _| {
            frame::encode(w, &Frame::Ping)?;
            Ok(Content::Probe)
        })?;
        self.mtu.probed(number, size);
        Some(transmit)
    }

    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let bytes = match self.sender.permit(now) {
            Permit::Send { bytes } => bytes,
            Permit::Hold(why) => {
                let blocked = why == Why::Application && self.streams.out.is_blocked();
                let why = if blocked { Why::Peer } else { why };
                self.app.hold(now, why);
                return None;
            }
        };
        let first = self.sender.next_number();
        self.compose(now, bytes, out)?;
        if !self.extents.is_empty()
            && let Err(error) = turn.store.fill(&self.extents, out.raw())
        {
            self.fail(now, CloseReason::Store(error.0));
            let close_frame = self.life.take_closing()?;
            return self.send_close(now, &close_frame, out);
        }
        let (stride, len) = (out.segment(), out.bytes().len());
        let seal = self.seal.as_mut()?;
        for (number, segment) in (first..).zip(out.raw()[..len].chunks_mut(stride)) {
            seal.seal(number, segment);
        }
        self.sender.batch_sent(now, len as u64);
        self.todo.nudges = 0;
        self.app.stats.held.set(now, None);
        self.app.sent(out);
        Some(Transmit {
            to: self.path.active(),
            ecn: self.ecn(),
        })
    }

    /// Writes the headers of up to `bytes` of data, and the stream's bytes.
    fn compose(&mut self, now: Instant, bytes: u64, out: &mut TxBuf) -> Option<()> {
        let phase = self.seal.as_mut()?.phase();
        let size = self.mtu.datagram();
        let fit = out.begin(size);
        self.extents.clear();
        while out.count() < fit
            && (out.count() == 0 || (out.bytes().len() as u64) < bytes)
            && self.segment(now, phase, size, out) == Some(size)
        {}
        (out.count() > 0).then_some(())
    }

    /// The next piece that fits a datagram of `size`, and its head.
    fn next_piece(&mut self, size: usize) -> Option<(Piece, PieceHead)> {
        let (object, offset) = self.sender.peek()?;
        let is_stream = object == STREAM;
        let head = PieceHead::new((!is_stream).then_some(object), offset);
        let room = size - short::LEN - head.len() - TAG;
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let piece = self.sender.next_piece(room)?;
        let start = self.streams.out.start();
        if !is_stream || offset >= start {
            return Some((piece, head));
        }
        // What was declared lost has been acknowledged since, and its bytes are forgotten. The packet
        // is still sent, if with nothing in it, because the sender's books expect it.
        let end = offset + u64::from(piece.len);
        let piece = Piece {
            offset: start,
            len: u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX),
            ..piece
        };
        Some((piece, PieceHead::new(None, start)))
    }

    /// Writes one segment; its length, or `None` if nothing waits.
    fn segment(
        &mut self,
        now: Instant,
        phase: bool,
        size: usize,
        out: &mut TxBuf,
    ) -> Option<usize> {
        let (piece, head) = self.next_piece(size)?;
        let (object, offset) = (piece.object, piece.offset);
        let room = size - short::LEN - head.len() - TAG;
        let len = piece.len as usize;
        let missing = room - len;
        let padding = if missing <= PADDABLE { missing } else { 0 };
        let start = out.next_at();
        let segment = out.next_segment();
        let mut w = Writer::new(segment);
        let header = self.header(phase, self.sender.next_number());
        let written = header
            .encode(&mut w)
            .and_then(|()| w.reserve(padding).map(|p| p.fill(kind::PADDING)))
            .and_then(|()| head.encode(&mut w));
        written.expect("the room was computed from the header");
        let solid = w.len();
        let wire = solid + len + TAG;
        if object == STREAM {
            let bytes = &mut segment[solid..solid + len];
            self.streams.out.copy(offset, bytes);
            out.commit(wire, wire);
        } else {
            self.extents.push(Extent {
                object,
                offset,
                len: piece.len,
                at: u32::try_from(start + solid).unwrap_or(u32::MAX),
            });
            out.commit(wire, solid);
        }
        let wire32 = u32::try_from(wire).unwrap_or(u32::MAX);
        self.sender.log(now, Content::Piece(piece), wire32);
        Some(wire)
    }
}
