//! What leaves, in which order? A close, the handshake, acknowledgements, a question to a
//! silent peer, then data: one permit and one call to the store for a whole batch.

use std::mem;

use farhaul_core::{
    closing::Closing,
    codec::Writer,
    datagram::{Ecn, Transmit, TxBuf},
    protocol::{CloseReason, Turn},
    send::{Permit, STREAM},
    stats::Why,
    store::Extent,
    time::Instant,
};

use super::TcpSession;
use crate::tcp::{
    protocol::syn,
    receiver::Answer,
    scoreboard::Segment,
    stamp,
    wire::{Close, Header, MAX_HEADER, MAX_TEXT, Place, Sacks, Stamps, flag},
};

/// The next segment of a batch: `header` and `payload`.
fn write(header: &Header, payload: &[u8], out: &mut TxBuf) {
    let mut w = Writer::new(out.next_segment());
    let written = header.encode(&mut w).and_then(|()| w.put(payload));
    written.expect("the batch was begun for that length");
    let len = w.len();
    out.commit(len, len);
}

impl TcpSession {
    pub(super) fn transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        if let Some(close_frame) = self.life.take_closing() {
            return Some(self.send_close(now, &close_frame, out));
        }
        if !self.life.is_open() {
            return None;
        }
        if self.numbers.is_none() {
            self.app.hold(now, Why::Handshake);
            return self.send_syn(now, out);
        }
        self.ask |= self.sender.window_probe(now);
        self.data_first(turn, out)
    }

    /// Acknowledgements that tell of holes go alone; others wait for data to ride on.
    fn data_first(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        if let Some(transmit) = self.answers(now, out) {
            return Some(transmit);
        }
        let sent = self.data(turn, out);
        if sent.is_some() {
            return sent;
        }
        let again = self.syn.is_some_and(|syn| syn.again <= now);
        (self.ask || again).then(|| self.question(now, out))
    }

    /// A segment of `header` and `payload` alone.
    fn single(&mut self, header: &Header, payload: &[u8], out: &mut TxBuf) -> Transmit {
        let len = header.encoded_len() + payload.len();
        out.begin(len);
        write(header, payload, out);
        self.sent(Ecn::NotEct, out)
    }

    fn sent(&mut self, ecn: Ecn, out: &TxBuf) -> Transmit {
        self.app.sent(out);
        let to = self.ends.peer;
        Transmit { to, ecn }
    }

    fn send_syn(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        self.syn.filter(|syn| syn.again <= now)?;
        self.syn_sent(now);
        let ecn = if self.config.ecn {
            flag::ECE | flag::CWR
        } else {
            0
        };
        let stamps = Stamps {
            value: stamp(now),
            echo: 0,
        };
        let ends = (self.ends.local, self.datagram);
        let header = Header {
            flags: flag::SYN | ecn,
            ..syn(&self.config, &self.receiver, ends, (self.iss, Some(stamps)))
        };
        Some(self.single(&header, &[], out))
    }

    /// The header of a segment that starts at `seq` and carries `answer`.
    fn header(&self, now: Instant, seq: u64, answer: &Answer) -> Header {
        let Some(numbers) = &self.numbers else {
            return Header::default();
        };
        let open = self.syn.as_ref().and_then(|k| k.open);
        let window = answer.edge.saturating_sub(answer.ack) >> numbers.own_shift;
        let mut sacks = Sacks::default();
        for block in &answer.sacks[..answer.count] {
            sacks.push(numbers.peer.wrap(block.start), numbers.peer.wrap(block.end));
        }
        Header {
            flags: flag::ACK | if answer.echo { flag::ECE } else { 0 },
            to: self.ends.remote,
            seq: numbers.own.wrap(seq),
            ack: numbers.peer.wrap(answer.ack),
            window: u16::try_from(window).unwrap_or(u16::MAX),
            stamps: Some(Stamps {
                value: stamp(now),
                echo: answer.stamp.unwrap_or(0),
            }),
            sacks,
            open,
            ..Header::default()
        }
    }

    fn send_close(&mut self, now: Instant, close_frame: &Closing, out: &mut TxBuf) -> Transmit {
        let answer = self.receiver.piggyback();
        let end = close_frame.text.floor_char_boundary(MAX_TEXT);
        let mut header = self.header(now, self.sender.board.nxt(), &answer);
        header.flags |= flag::FIN;
        header.close = Some(Close {
            cause: close_frame.cause,
            code: close_frame.code,
        });
        self.single(&header, &close_frame.text.as_bytes()[..end], out)
    }

    /// Acknowledgements, as many of one length as there are.
    fn answers(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let mut answer = self.receiver.take_answer(now)?;
        let mut header = self.header(now, self.sender.board.nxt(), &answer);
        let fit = out.begin(header.encoded_len());
        write(&header, &[], out);
        while out.count() < fit
            && let Some(next) = self.receiver.take_like(&answer)
        {
            answer = next;
            header = self.header(now, self.sender.board.nxt(), &answer);
            write(&header, &[], out);
        }
        self.app.stats.feedback_sent += out.bytes().len() as u64;
        self.syn_sent(now);
        Some(self.sent(Ecn::NotEct, out))
    }

    /// What is repeated until the server is heard leaves now; again after a pause.
    fn syn_sent(&mut self, now: Instant) {
        if let Some(syn) = self.syn.as_mut().filter(|syn| syn.again <= now) {
            syn.tries += 1;
            syn.again = now + syn.pause;
            syn.pause *= 2;
        }
    }

    /// An old sequence number and nothing else: the peer answers where it stands.
    fn question(&mut self, now: Instant, out: &mut TxBuf) -> Transmit {
        self.ask = false;
        self.syn_sent(now);
        let answer = self.receiver.piggyback();
        let mut header = self.header(now, self.sender.board.una(), &answer);
        header.seq = header.seq.wrapping_sub(1);
        self.single(&header, &[], out)
    }

    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let bytes = match self.sender.permit(now) {
            Permit::Send { bytes } => bytes,
            Permit::Hold(why) => {
                self.app.hold(now, why);
                return None;
            }
        };
        self.compose(now, bytes, out);
        if out.count() == 0 {
            return None;
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.fill(&self.extents, out.raw())
        {
            self.extents.clear();
            self.fail(now, CloseReason::Store(error.0));
            let close_frame = self.life.take_closing()?;
            return Some(self.send_close(now, &close_frame, out));
        }
        self.extents.clear();
        self.sender.batch_sent(now, out.bytes().len() as u64);
        self.app.stats.held.set(now, None);
        self.syn_sent(now);
        let marks = self.numbers.is_some_and(|n| n.ecn);
        Some(self.sent(if marks { Ecn::Ect0 } else { Ecn::NotEct }, out))
    }

    /// Writes the headers of up to `bytes` of segments, and the stream's bytes.
    fn compose(&mut self, now: Instant, bytes: u64, out: &mut TxBuf) {
        let Some(numbers) = self.numbers else {
            return;
        };
        let size = self.sender.path.datagram as usize;
        let answer = self.receiver.piggyback();
        let mut header = self.header(now, 0, &answer);
        header.place = Some(Place {
            object: 0,
            offset: 0,
        });
        if mem::take(&mut self.sender.marks.reduced) {
            header.flags |= flag::CWR;
        }
        let solid = header.encoded_len();
        let room = u32::try_from(size.saturating_sub(solid)).unwrap_or(u32::MAX);
        let fit = out.begin(size).min(self.config.burst);
        let fit = fit.min(usize::try_from(bytes).unwrap_or(usize::MAX) / size.max(1));
        while out.count() < fit
            && let Some(segment) = self.sender.next(now, room, stamp(now))
        {
            header.seq = numbers.own.wrap(segment.seq);
            self.write_data(&mut header, &segment, out);
            header.flags &= !flag::CWR;
            if segment.len < room {
                break;
            }
        }
    }

    fn write_data(&mut self, header: &mut Header, piece: &Segment, out: &mut TxBuf) {
        header.place = Some(Place {
            object: piece.object,
            offset: piece.offset,
        });
        let start = out.next_at();
        let segment = out.next_segment();
        let mut w = Writer::new(segment);
        header.encode(&mut w).expect("a header fits any datagram");
        let solid = w.len();
        let len = solid + piece.len as usize;
        if piece.object == STREAM {
            self.out.copy(piece.offset, &mut segment[solid..len]);
            out.commit(len, len);
        } else {
            self.extents.push(Extent {
                object: piece.object,
                offset: piece.offset,
                len: piece.len,
                at: u32::try_from(start + solid).unwrap_or(u32::MAX),
            });
            out.commit(len, solid);
        }
    }
}

const _: () = assert!(MAX_HEADER < 548, "a header fits any datagram");
