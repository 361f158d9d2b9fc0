//! What leaves, in which order? The last word, the handshake, acknowledgements, a question to a
//! silent peer, then data: one permit and one call to the store for a whole batch.

use farhaul_core::{
    codec::Writer,
    datagram::{Ecn, Transmit, TxBuf},
    protocol::{CloseReason, Turn},
    send::STREAM,
    stats::Why,
    store::Extent,
    time::Instant,
};

use super::TcpSession;
use crate::tcp::{
    closing::Closing,
    receiver::Answer,
    sender::{Permit, Piece},
    stamp,
    wire::{Close, Header, Hello, MAX_HEADER, MAX_TEXT, Place, Sacks, Stamps, flag},
};

/// How much was written.
#[derive(Default)]
struct Batch {
    count: usize,
    bytes: u64,
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
            self.hold(now, Why::Handshake);
            return self.say_hello(now, out);
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
        let again = self.syn.is_some_and(|k| k.due);
        (self.ask || again).then(|| self.question(now, out))
    }

    fn hold(&mut self, now: Instant, why: Why) {
        if self.held != Some(why) {
            self.held = Some(why);
            self.stats.held.set(now, Some(why));
        }
    }

    const fn count(&mut self, datagrams: usize, bytes: u64) {
        self.stats.wire_sent += bytes;
        self.stats.datagrams_sent += datagrams as u64;
    }

    /// A segment of `header` and `payload` alone.
    fn single(&mut self, header: &Header, payload: &[u8], out: &mut TxBuf) -> Transmit {
        let len = header.encoded_len() + payload.len();
        out.begin(len);
        let mut w = Writer::new(out.next_segment());
        header
            .encode(&mut w)
            .and_then(|()| w.put(payload))
            .expect("the segment has the header's length");
        out.commit(len, len);
        self.count(1, len as u64);
        Transmit {
            to: self.ends.peer,
            ecn: Ecn::NotEct,
        }
    }

    fn say_hello(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let syn = self.syn.as_mut().filter(|k| k.due)?;
        syn.due = false;
        syn.tries += 1;
        let ecn = if self.config.ecn {
            flag::ECE | flag::CWR
        } else {
            0
        };
        let header = Header {
            flags: flag::SYN | ecn,
            seq: self.iss,
            window: u16::try_from(self.receiver.announced()).unwrap_or(u16::MAX),
            stamps: Some(Stamps {
                value: stamp(now),
                echo: 0,
            }),
            hello: Some(Hello {
                from: self.ends.local,
                mss: u16::try_from(self.datagram).unwrap_or(u16::MAX),
                shift: self.receiver.shift(),
                sack: self.config.sack(),
            }),
            ..Header::default()
        };
        Some(self.single(&header, &[], out))
    }

    /// The header of a segment that starts at `seq` and says `answer`.
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
        let mut end = close_frame.text.len().min(MAX_TEXT);
        while !close_frame.text.is_char_boundary(end) {
            end -= 1;
        }
        let mut header = self.header(now, self.sender.nxt(), &answer);
        header.flags |= flag::FIN;
        header.close = Some(Close {
            cause: close_frame.cause,
            code: close_frame.code,
        });
        self.single(&header, &close_frame.text.as_bytes()[..end], out)
    }

    /// Acknowledgements, as many of one length as there are.
    fn answers(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let first = self.receiver.take_answer(now)?;
        let blocks = first.count;
        let header = self.header(now, self.sender.nxt(), &first);
        let len = header.encoded_len();
        let fit = out.begin(len);
        let mut next = Some(header);
        let mut count = 0;
        while let Some(header) = next.take() {
            let mut w = Writer::new(out.next_segment());
            header
                .encode(&mut w)
                .expect("the segment has the header's length");
            out.commit(len, len);
            count += 1;
            let same = self
                .receiver
                .peek_answer()
                .is_some_and(|a| a.count == blocks);
            if same && count < fit {
                let answer = self.receiver.take_answer(now)?;
                next = Some(self.header(now, self.sender.nxt(), &answer));
            }
        }
        let bytes = (count * len) as u64;
        self.stats.feedback_sent += bytes;
        self.count(count, bytes);
        self.knocked();
        Some(Transmit {
            to: self.ends.peer,
            ecn: Ecn::NotEct,
        })
    }

    /// What the server wants to hear again has just been said.
    const fn knocked(&mut self) {
        if let Some(syn) = &mut self.syn {
            syn.due = false;
        }
    }

    /// An old sequence number and nothing else: the peer answers where it stands.
    fn question(&mut self, now: Instant, out: &mut TxBuf) -> Transmit {
        self.ask = false;
        self.knocked();
        let answer = self.receiver.piggyback();
        let mut header = self.header(now, self.sender.una(), &answer);
        header.seq = header.seq.wrapping_sub(1);
        self.single(&header, &[], out)
    }

    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let segments = match self.sender.permit(now) {
            Permit::Send(segments) => segments,
            Permit::Hold(why) => {
                self.hold(now, why);
                return None;
            }
        };
        let batch = self.compose(now, segments, out)?;
        if !self.extents.is_empty()
            && let Err(error) = turn.store.fill(&self.extents, out.raw())
        {
            self.extents.clear();
            self.fail(now, CloseReason::Store(error.0));
            let close_frame = self.life.take_closing()?;
            return Some(self.send_close(now, &close_frame, out));
        }
        self.extents.clear();
        self.sender.batch_sent(now, batch.bytes);
        self.held = None;
        self.stats.held.set(now, None);
        self.count(batch.count, batch.bytes);
        self.knocked();
        let marks = self.numbers.is_some_and(|n| n.ecn);
        Some(Transmit {
            to: self.ends.peer,
            ecn: if marks { Ecn::Ect0 } else { Ecn::NotEct },
        })
    }

    /// Writes the headers of up to `segments` segments, and the stream's bytes.
    fn compose(&mut self, now: Instant, segments: u64, out: &mut TxBuf) -> Option<Batch> {
        let size = self.sender.datagram() as usize;
        let answer = self.receiver.piggyback();
        let mut header = self.header(now, 0, &answer);
        header.place = Some(Place {
            object: 0,
            offset: 0,
        });
        if self.sender.take_reduced() {
            header.flags |= flag::CWR;
        }
        let solid = header.encoded_len();
        let room = u32::try_from(size.saturating_sub(solid)).unwrap_or(u32::MAX);
        let fit = out.begin(size).min(self.config.burst);
        let fit = fit.min(usize::try_from(segments).unwrap_or(usize::MAX));
        let mut batch = Batch::default();
        while batch.count < fit
            && let Some(piece) = self.sender.next(now, room, stamp(now))
        {
            let len = solid + piece.len as usize;
            self.write(&mut header, &piece, out);
            batch.count += 1;
            batch.bytes += len as u64;
            header.flags &= !flag::CWR;
            if len < size {
                break;
            }
        }
        (batch.count > 0).then_some(batch)
    }

    fn write(&mut self, header: &mut Header, piece: &Piece, out: &mut TxBuf) {
        let Some(numbers) = &self.numbers else {
            return;
        };
        header.seq = numbers.own.wrap(piece.seq);
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
            let known = self.out.copy(piece.offset, &mut segment[solid..len]);
            debug_assert!(known, "what is not acknowledged is kept");
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
