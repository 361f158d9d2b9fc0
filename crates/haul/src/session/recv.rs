//! Takes what arrived. Each segment is opened in place and its frames taken; object data of the
//! whole batch goes to the store in one call. Datagrams that cannot be opened or decoded, or were
//! seen before, are counted and dropped. Only an authenticated peer that breaks the protocol ends
//! the session.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    closing::{Closing, reported},
    codec::{DecodeError, Reader},
    datagram::{Ecn, Received},
    protocol::{CloseReason, Turn},
    store::Extent,
    text,
    time::Instant,
};

use super::{HaulSession, Marks};
use crate::{
    crypto::{Refusal, Side},
    handshake::Progress,
    seal::Drop,
    wire::{
        feedback::Feedback,
        frame::{self, Frame},
        long::LONG,
        short::{self, Short},
    },
};

impl From<Refusal> for CloseReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Auth(text) => Self::Auth(text),
            Refusal::Protocol(text) => Self::Protocol(text),
        }
    }
}

/// Place and circumstances of a datagram's arrival.
#[derive(Clone, Copy)]
struct Arrival {
    from: SocketAddr,
    ecn: Ecn,
    waited: Duration,
    /// Index of the datagram in the batch.
    at: usize,
}

impl HaulSession {
    pub(super) fn receive(&mut self, turn: &mut Turn<'_>, batch: &mut Received<'_>) {
        let stride = batch.segment.max(1);
        self.extents.clear();
        self.free = turn.store.sink().free;
        let mut at = 0;
        while at < batch.bytes.len() && !self.life.is_over() {
            let end = batch.bytes.len().min(at + stride);
            let arrival = Arrival {
                from: batch.from,
                ecn: batch.ecn,
                waited: batch.waited,
                at,
            };
            self.datagram_arrived(turn, arrival, &mut batch.bytes[at..end]);
            at = end;
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.place(&self.extents, batch.bytes)
        {
            self.fail(turn.now, CloseReason::Store(error.0));
        }
        self.receiver.batch_received(turn.now, batch.granted);
        if self.seal.is_some() && self.life.is_open() {
            self.settle(turn.now);
        }
    }

    fn datagram_arrived(&mut self, turn: &mut Turn<'_>, arrival: Arrival, datagram: &mut [u8]) {
        match datagram.first() {
            Some(first) if first & LONG != 0 => self.on_long(turn.now, arrival, datagram),
            Some(first) if Short::is(*first) => self.on_sealed(turn, arrival, datagram),
            _ => self.app.stats.dropped_malformed += 1,
        }
    }

    fn on_long(&mut self, now: Instant, arrival: Arrival, datagram: &mut [u8]) {
        let Some(handshake) = &mut self.handshake else {
            self.app.stats.dropped_duplicate += 1;
            return;
        };
        if arrival.from != self.path.active() {
            self.app.stats.dropped_unauthentic += 1;
            return;
        }
        let wire = datagram.len();
        match handshake.on_datagram(now, datagram) {
            Ok(Progress::Unauthentic) => {
                self.app.stats.dropped_unauthentic += 1;
                return;
            }
            Ok(Progress::Closed { cause, code, text }) => {
                self.ended(now, reported(cause, code, text));
            }
            Ok(Progress::Version(text)) => self.ended(now, CloseReason::Version(text)),
            Ok(Progress::Ignored) => {
                // A client that repeats its flight has not learned that the handshake is done.
                self.todo.asks.ready |= self.seal.is_some() && self.settings.side == Side::Server;
                self.app.stats.dropped_duplicate += 1;
                self.life.repeat(now);
                return;
            }
            Ok(Progress::Drained) if !self.life.is_open() => self.life.repeat(now),
            Ok(Progress::Drained) => {
                self.life.on_heard(now);
                self.conclude(now);
            }
            Err(refusal) => self.fail(now, refusal.into()),
        }
        self.app.received(wire);
    }

    fn on_sealed(&mut self, turn: &mut Turn<'_>, arrival: Arrival, datagram: &mut [u8]) {
        let ours = Short::decode(datagram).is_ok_and(|h| h.to == self.ids.local);
        if !ours {
            self.app.stats.dropped_unauthentic += 1;
            return;
        }
        let Some(seal) = &mut self.seal else {
            self.app.stats.dropped_early += 1;
            return;
        };
        let (number, end) = match seal.open(self.receiver.end(), datagram) {
            Ok(opened) => opened,
            Err(Drop::Unauthentic) => {
                self.app.stats.dropped_unauthentic += 1;
                return;
            }
            Err(Drop::Malformed) => {
                self.app.stats.dropped_malformed += 1;
                return;
            }
        };
        let payload = &datagram[short::LEN..end];
        match survey(payload) {
            Ok(Survey { data, .. }) if data > self.free => {
                // It is treated as lost, so that it will be sent again; but the peer is alive.
                let wire = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
                if self.receiver.refuse(turn.now, number, wire) {
                    self.app.stats.dropped_full += 1;
                    self.life.on_heard(turn.now);
                } else {
                    self.app.stats.dropped_duplicate += 1;
                }
            }
            Ok(Survey { eliciting, data }) => {
                let wire = datagram.len();
                if self.accept(turn, arrival, number, wire, eliciting) {
                    self.free -= data;
                    let payload = &datagram[short::LEN..end];
                    self.take_frames(turn.now, arrival, (number, wire, end), payload);
                }
            }
            Err(error) => self.broken(turn.now, error),
        }
    }

    /// Notes an authentic, decodable datagram; false if it was seen before.
    fn accept(
        &mut self,
        turn: &mut Turn<'_>,
        arrival: Arrival,
        number: u64,
        wire: usize,
        eliciting: bool,
    ) -> bool {
        let newest = number >= self.receiver.end();
        let wire32 = u32::try_from(wire).unwrap_or(u32::MAX);
        let now = turn.now;
        if !self.receiver.on_packet(
            now.earlier_by(arrival.waited),
            number,
            wire32,
            eliciting,
            arrival.ecn,
        ) {
            self.app.stats.dropped_duplicate += 1;
            return false;
        }
        self.app.received(wire);
        self.life.on_heard(now);
        let rng = &mut *turn.rng;
        self.path
            .on_datagram(now, arrival.from, wire as u64, newest, || rng.next_u64());
        if self.settings.side == Side::Client {
            // The server has keys, so it has our last flight.
            self.handshake = None;
        }
        true
    }

    /// The peer sent what must not be sent. Without authentication it may have been anybody.
    fn broken(&mut self, now: Instant, error: DecodeError) {
        if self
            .seal
            .as_ref()
            .is_some_and(crate::seal::Seal::authenticates)
        {
            self.fail(now, CloseReason::Protocol(error.to_string()));
        } else {
            self.app.stats.dropped_malformed += 1;
        }
    }

    fn take_frames(
        &mut self,
        now: Instant,
        arrival: Arrival,
        (number, wire, end): (u64, usize, usize),
        payload: &[u8],
    ) {
        if !self.life.is_open() {
            self.life.repeat(now);
        }
        let mut r = Reader::new(payload);
        let mut reports = 0;
        while let Ok(Some(frame)) = frame::next(&mut r) {
            match frame {
                Frame::Data {
                    object,
                    offset,
                    data,
                } if self.life.is_open() && !data.is_empty() => {
                    self.app.stats.data_received += data.len() as u64;
                    self.extents.push(Extent {
                        object,
                        offset,
                        len: u32::try_from(data.len()).unwrap_or(u32::MAX),
                        at: u32::try_from(arrival.at + end - data.len()).unwrap_or(u32::MAX),
                    });
                }
                // Each costs as much as a datagram of it may.
                Frame::Feedback(_) if reports == 1 => {
                    self.broken(now, DecodeError::Malformed("two reports in a datagram"));
                }
                Frame::Feedback(feedback) => {
                    reports += 1;
                    self.app.stats.feedback_received += wire as u64;
                    self.on_feedback(now, &feedback);
                }
                Frame::Close { cause, code, text } => {
                    let text = text::shown(text);
                    self.on_close(now, reported(cause, code, text));
                }
                other => self.on_small(now, arrival.from, number, &other),
            }
        }
    }

    fn on_small(&mut self, now: Instant, from: SocketAddr, number: u64, frame: &Frame<'_>) {
        match *frame {
            Frame::Stream { offset, data } => {
                self.app.stats.data_received += data.len() as u64;
                match self.streams.inc.insert(offset, data) {
                    Some(true) => self.app.readable(),
                    Some(false) => {}
                    None => self.broken(now, DecodeError::Malformed("stream beyond its window")),
                }
            }
            Frame::State {
                behind,
                interval_us,
            } => {
                let interval = Duration::from_micros(interval_us);
                self.receiver
                    .on_state(number.saturating_sub(behind), interval);
            }
            Frame::AckFrequency { packets } => self
                .receiver
                .on_ack_frequency((packets > 0).then_some(packets)),
            Frame::Message { up: true, bytes } => self.sender.on_message(now, bytes),
            Frame::Message { up: false, bytes } => {
                self.receiver.notify(now, |law| law.on_message(now, bytes));
            }
            Frame::Want { behind } => self.receiver.on_want(now, number.saturating_sub(behind)),
            // A peer that pings may be waiting for space in its window.
            Frame::Ping => self.todo.asks.credit |= self.streams.inc.is_used(),
            Frame::Credit { read } => {
                if self.streams.out.on_credit(read) {
                    self.pump_stream();
                } else {
                    self.broken(now, DecodeError::Malformed("credit for nothing"));
                }
            }
            Frame::Challenge(challenge) => self.path.on_challenge(from, challenge),
            Frame::Response(response) => self.on_response(now, response),
            Frame::Crypto { .. } => {
                self.broken(now, DecodeError::Malformed("handshake frame"));
            }
            _ => {}
        }
    }

    fn on_feedback(&mut self, now: Instant, feedback: &Feedback<'_>) {
        self.incoming_report.known.next = self.sender.next_number();
        let report = &mut self.incoming_report.report;
        let taken = feedback
            .complete(&mut self.incoming_report.known, report)
            .and_then(|()| self.sender.on_report(now, report));
        match taken {
            Ok(()) => {
                if self.todo.ecn == Marks::Trying {
                    self.todo.ecn = Marks::Proven;
                }
                if let Some(seal) = &mut self.seal {
                    seal.on_acked(self.incoming_report.report.largest);
                }
                // The client has keys, so it knows that the handshake is done.
                if self.settings.side == Side::Server {
                    self.handshake = None;
                }
                self.mtu.on_progress();
            }
            Err(error) => self.broken(now, error),
        }
    }

    fn on_response(&mut self, now: Instant, response: u64) {
        let Some(elsewhere) = self.path.on_response(response) else {
            return;
        };
        self.app.stats.rebinds += 1;
        if elsewhere {
            self.new_path(now);
        }
    }

    /// Forgets everything about the path.
    pub(super) fn new_path(&mut self, now: Instant) {
        self.mtu.reset();
        self.sender.set_datagram(self.datagram());
        let rtt = self.sender.srtt();
        self.sender.reset_path(now, rtt);
    }

    /// Answers the peer's close once, so that the peer need not wait.
    fn on_close(&mut self, now: Instant, reason: CloseReason) {
        if self.life.is_open() {
            self.close_with(now, Some(Closing::answer()), reason);
            self.life.answer_close(now);
        } else {
            self.life.confirmed();
        }
    }
}

/// Content of a datagram.
#[derive(Clone, Copy, Default)]
struct Survey {
    /// True if the packet is ack-eliciting.
    eliciting: bool,
    /// Bytes for the store.
    data: u64,
}

/// Checks every frame.
fn survey(payload: &[u8]) -> Result<Survey, DecodeError> {
    let mut r = Reader::new(payload);
    let mut found = Survey::default();
    while let Some(frame) = frame::next(&mut r)? {
        found.eliciting |= frame.is_eliciting();
        if let Frame::Data { data, .. } = frame {
            found.data += data.len() as u64;
        }
    }
    Ok(found)
}
