//! Writes what leaves. Acknowledgements that report holes leave alone; others wait for data to ride
//! on.

use farhaul_core::{
    codec::Writer,
    datagram::TxBuf,
    shell::{Packet, SessionState},
    time::Instant,
};

use super::TcpConnection;
use crate::tcp::{
    clock::stamp,
    protocol::syn,
    receiver::Answer,
    wire::{Header, MAX_HEADER, Place, Sacks, Stamps, flag},
};

/// The next segment of a batch, without payload.
pub(super) fn write(header: &Header, out: &mut TxBuf) {
    let mut w = Writer::new(out.next_segment());
    let written = header.encode(&mut w);
    written.expect("the batch was begun for that length");
    let len = w.len();
    out.commit(len, len);
}

impl TcpConnection {
    pub(super) fn write_syn(&self, now: Instant, out: &mut TxBuf) {
        let stamps = Stamps {
            value: stamp(now),
            echo: 0,
        };
        let ends = (self.local, self.datagram);
        let mut header = syn(&self.config, &self.receiver, ends, (self.iss, Some(stamps)));
        if self.config.ecn {
            header.flags |= flag::ECE | flag::CWR;
        }
        out.begin(MAX_HEADER);
        write(&header, out);
    }

    /// Lets the message that is repeated until the server is heard leave now, if it is due; again
    /// after a pause.
    pub(super) fn syn_sent(&mut self, now: Instant) -> bool {
        let due = self.syn.as_mut().filter(|syn| syn.again <= now);
        let Some(syn) = due else {
            return false;
        };
        syn.tries += 1;
        syn.again = now + syn.pause;
        syn.pause *= 2;
        true
    }

    /// The header of a segment that starts at `seq` and carries `answer`.
    pub(super) fn header(&self, now: Instant, seq: u64, answer: &Answer) -> Header {
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
            to: self.remote,
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

    /// Acknowledgements, as many of one length as there are.
    #[inline]
    pub(super) fn write_answers(
        &mut self,
        state: &mut SessionState,
        out: &mut TxBuf,
    ) -> Option<()> {
        let now = state.now;
        self.numbers?;
        self.ask |= self.sender.window_probe(now);
        let mut answer = self.receiver.take_answer(now)?;
        let mut header = self.header(now, self.sender.board.nxt(), &answer);
        let fit = out.begin(header.encoded_len());
        write(&header, out);
        while out.count() < fit
            && let Some(next) = self.receiver.take_like(&answer)
        {
            answer = next;
            header = self.header(now, self.sender.board.nxt(), &answer);
            write(&header, out);
        }
        state.app.stats.feedback_sent += out.bytes().len() as u64;
        self.syn_sent(now);
        Some(())
    }

    /// Writes the part that is the same in all segments of a batch of data.
    #[inline]
    pub(super) fn begin_batch(&mut self, now: Instant) {
        let answer = self.receiver.piggyback();
        self.header = self.header(now, 0, &answer);
        self.header.place = Some(Place {
            object: 0,
            offset: 0,
        });
        if std::mem::take(&mut self.sender.marks.reduced) {
            self.header.flags |= flag::CWR;
        }
    }

    /// Writes a segment of the batch, if one may leave.
    #[inline]
    pub(super) fn write_segment(&mut self, now: Instant, packet: &mut Packet<'_>) -> Option<()> {
        const FITS: &str = "a header fits any datagram";
        let numbers = self.numbers?;
        let piece = self.sender.next(now, packet.room(), stamp(now))?;
        self.header.seq = numbers.own.wrap(piece.seq);
        self.header.place = Some(Place {
            object: piece.object,
            offset: piece.offset,
        });
        self.header.encode(packet.header()).expect(FITS);
        self.header.flags &= !flag::CWR;
        let filled = self.out.fill(piece.object, piece.offset, piece.len, packet);
        filled.expect(FITS);
        Some(())
    }
}

const _: () = assert!(MAX_HEADER < 548, "a header fits any datagram");
