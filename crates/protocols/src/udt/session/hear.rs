//! What does an arriving datagram change? Everything is dropped that does not come from the peer's
//! exact address, is not for this socket, cannot be decoded, or comes after the end. What no honest
//! peer says ends the session.

use farhaul_core::{
    datagram::Received,
    protocol::{CloseReason, Event, Turn},
    store::Extent,
    time::Instant,
};

use super::{MAX_ACK2, UdtSession};
use crate::udt::{
    opening::{Opening, Progress},
    recv::Arrival,
    wire::{AckState, Control, DataHeader, HEADER, Handshake, LossList, Packet, Request, decode},
};

/// Whether a datagram was good for anything.
enum Heard {
    Yes,
    Data,
    /// Data that was here before, or has no room.
    Again,
    No,
}

impl UdtSession {
    pub(super) fn hear(&mut self, turn: &mut Turn<'_>, batch: &Received<'_>) {
        let now = turn.now;
        if !self.life.is_open() {
            return;
        }
        if batch.from != self.peer {
            self.stats.dropped_malformed += 1;
            return;
        }
        self.extents.clear();
        let segment = batch.segment.max(1);
        let mut data = 0;
        for (i, datagram) in batch.bytes.chunks(segment).enumerate() {
            let heard = self.datagram(now, datagram, i * segment);
            match heard {
                Heard::Data => data += 1,
                Heard::Again => {
                    data += 1;
                    self.stats.dropped_duplicate += 1;
                }
                Heard::Yes => {}
                Heard::No => {
                    self.stats.dropped_malformed += 1;
                    continue;
                }
            }
            self.stats.datagrams_received += 1;
            self.stats.wire_received += datagram.len() as u64;
            if !self.life.is_open() {
                return;
            }
            self.life.heard(now);
        }
        if let Some(link) = &mut self.link {
            link.receiver.on_batch(now, data, &self.rtt);
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.place(&self.extents, batch.bytes)
        {
            self.fail(now, CloseReason::Store(error.0));
        }
        self.settle();
    }

    fn datagram(&mut self, now: Instant, datagram: &[u8], at: usize) -> Heard {
        let Ok(packet) = decode(datagram) else {
            return Heard::No;
        };
        match packet {
            Packet::Data(header, payload) if header.to == self.ours.id => {
                self.meet_early(now);
                self.hear_data(now, &header, payload, at)
            }
            Packet::Control(to, Control::Handshake(theirs)) => {
                if to != self.ours.id && to != 0 {
                    return Heard::No;
                }
                self.handshake(now, &theirs)
            }
            Packet::Control(to, control) if to == self.ours.id => {
                if control == Control::KeepAlive {
                    self.meet_early(now);
                }
                self.hear_control(now, &control, datagram.len())
            }
            _ => Heard::No,
        }
    }

    /// The other equal sends already: the connection is made.
    fn meet_early(&mut self, now: Instant) {
        if let Some(agreed) = self.opening.as_ref().and_then(Opening::on_packet) {
            self.open(now, agreed, None);
        }
        if let Some(link) = &mut self.link {
            link.hold = None;
        }
    }

    fn handshake(&mut self, now: Instant, theirs: &Handshake) -> Heard {
        let Some(opening) = &mut self.opening else {
            return self.late_handshake(theirs);
        };
        match opening.on_handshake(now, theirs) {
            Progress::Waiting => {}
            Progress::Made(agreed) => {
                self.open(now, agreed, None);
                // The listener's session may be waiting to hear that its words are listened to.
                self.todo.keep_alive = true;
            }
            Progress::Refused(text) => self.fail(now, CloseReason::Protocol(text)),
        }
        Heard::Yes
    }

    /// The peer asks again what has been answered: the answer was lost.
    fn late_handshake(&mut self, theirs: &Handshake) -> Heard {
        let Some(link) = &self.link else {
            return Heard::No;
        };
        let request = match (self.ours.request, theirs.request) {
            (Request::Response, Request::Connect | Request::Response) => Request::Response,
            (Request::Rendezvous, Request::Rendezvous | Request::Response) => Request::Confirm,
            _ => return Heard::Yes,
        };
        if theirs.id != link.peer {
            return Heard::No;
        }
        self.todo.answer = Some(Handshake {
            request,
            ..self.ours
        });
        Heard::Yes
    }

    fn hear_data(&mut self, now: Instant, header: &DataHeader, payload: &[u8], at: usize) -> Heard {
        let Some(link) = &mut self.link else {
            return Heard::No;
        };
        let len = HEADER + payload.len();
        if len > link.most {
            return Heard::No;
        }
        let window = link.inflow.room(link.receiver.prefix()).max(2);
        let number = match link.receiver.on_data(now, header.seq, len, window) {
            Arrival::New(number) => number,
            Arrival::Duplicate | Arrival::Outside => return Heard::Again,
        };
        match link.inflow.take(number, header, payload) {
            Ok(taken) => {
                self.stats.data_received += taken.data;
                if let Some(extent) = taken.extent {
                    let at = u32::try_from(at + HEADER).unwrap_or(u32::MAX);
                    self.extents.push(Extent {
                        at: at + extent.at,
                        ..extent
                    });
                }
                if taken.readable {
                    self.readable();
                }
            }
            Err(bad) => self.fail(now, CloseReason::Protocol(bad.0.into())),
        }
        Heard::Data
    }

    fn readable(&mut self) {
        if self.events.back() != Some(&Event::Readable) {
            self.events.push_back(Event::Readable);
        }
    }

    fn hear_control(&mut self, now: Instant, control: &Control<'_>, len: usize) -> Heard {
        let Some(link) = &mut self.link else {
            return Heard::No;
        };
        link.hold = None;
        match *control {
            Control::Ack {
                number,
                next,
                state,
            } => self.ack(now, (number, next), state.as_ref(), len),
            Control::Nak(losses) => self.nak(now, losses, len),
            Control::Ack2 { number } => {
                if let Some(sample) = link.receiver.on_ack2(now, number) {
                    self.rtt.update(sample);
                }
            }
            Control::Drop {
                message,
                first,
                last,
            } => {
                let window = link.inflow.room(link.receiver.prefix()).max(2);
                if let Some(range) = link.receiver.on_drop(first, last, window)
                    && link.inflow.give_up(range, message)
                {
                    self.readable();
                }
            }
            Control::Shutdown(body) => self.shutdown(now, body),
            Control::PeerError { code } => self.fail(
                now,
                CloseReason::Peer {
                    code,
                    text: format!("its application failed (UDT error {code})"),
                },
            ),
            Control::KeepAlive
            | Control::Warning
            | Control::User { .. }
            | Control::Handshake(_) => {}
        }
        Heard::Yes
    }

    fn ack(
        &mut self,
        now: Instant,
        (number, next): (u32, u32),
        state: Option<&AckState>,
        len: usize,
    ) {
        self.stats.feedback_received += len as u64;
        if state.is_some() {
            if self.todo.ack2.len() == MAX_ACK2 {
                self.todo.ack2.pop_front();
            }
            self.todo.ack2.push_back(number);
        }
        if self.sender.on_ack(now, next, state, &mut self.rtt).is_err() {
            let text = "it acknowledges what was never sent";
            self.fail(now, CloseReason::Protocol(text.into()));
        }
    }

    fn nak(&mut self, now: Instant, losses: LossList<'_>, len: usize) {
        self.stats.feedback_received += len as u64;
        if self.sender.on_nak(now, losses, &self.rtt).is_err() {
            let text = "it misses what was never sent";
            self.fail(now, CloseReason::Protocol(text.into()));
        }
    }

    fn shutdown(&mut self, now: Instant, body: &[u8]) {
        let (code, words) = match body.split_first_chunk() {
            Some((code, words)) => (u32::from_be_bytes(*code), words),
            None => (0, body),
        };
        let text = String::from_utf8_lossy(words);
        let text: String = text
            .trim_end_matches('\0')
            .chars()
            .take(super::MAX_WORDS)
            .collect();
        let text = farhaul_core::text::plain(&text);
        self.events
            .push_back(Event::Closed(CloseReason::Peer { code, text }));
        self.stats.held.set(now, None);
        self.life.end(now, &self.rtt, None);
    }
}
