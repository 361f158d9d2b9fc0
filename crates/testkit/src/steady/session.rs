//! How do the parts make a session? Hello until welcome, then data one way or both, reports back,
//! close in three copies.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use farhaul_core::{
    codec::{DecodeError, Reader, Writer},
    datagram::{Ecn, Received, Transmit, TxBuf},
    protocol::{CloseReason, Event, Session, Turn},
    stats::{Stats, Why},
    store::{Extent, ObjectId, StoreError},
    time::Instant,
};

use super::{
    Steady,
    receiver::Receiver,
    sender::Sender,
    wire::{CLOSE, DATA, DATA_HEADER, Data, HELLO, MAX_REPORT, REPORT, WELCOME, head, put_head},
};

/// Hello is repeated after this.
const RETRY: Duration = Duration::from_millis(250);
/// A session ends when nothing was heard for so long.
const IDLE: Duration = Duration::from_secs(30);
/// Copies of a close.
const FAREWELLS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    Open,
    Over,
}

#[derive(Debug)]
pub(super) struct SteadySession {
    id: u64,
    to: SocketAddr,
    client: bool,
    phase: Phase,
    /// Hello (client) or welcome (server) is due.
    greet_at: Option<Instant>,
    greeted: Option<Instant>,
    heard: Instant,
    farewells: u8,
    delivered: bool,
    sender: Sender,
    receiver: Receiver,
    events: VecDeque<Event>,
    extents: Vec<Extent>,
    stats: Stats,
}

impl SteadySession {
    pub(super) fn new(config: Steady, now: Instant, id: u64, to: SocketAddr, client: bool) -> Self {
        Self {
            id,
            to,
            client,
            phase: Phase::Greeting,
            greet_at: client.then_some(now),
            greeted: None,
            heard: now,
            farewells: 0,
            delivered: true,
            sender: Sender::new(config, now),
            receiver: Receiver::default(),
            events: VecDeque::new(),
            extents: Vec::new(),
            stats: Stats {
                datagram_size: u32::from(config.datagram),
                pacing_rate: config.rate,
                window: u64::MAX,
                ..Stats::default()
            },
        }
    }

    fn finish(&mut self, reason: CloseReason) {
        if self.phase != Phase::Over {
            self.phase = Phase::Over;
            self.events.push_back(Event::Closed(reason));
        }
    }

    fn connect(&mut self, now: Instant) {
        if self.phase == Phase::Greeting {
            self.phase = Phase::Open;
            self.events.push_back(Event::Connected { peer_key: None });
            if let Some(greeted) = self.greeted.filter(|_| self.client) {
                self.sender.rtt = now.since(greeted).max(Duration::from_millis(1));
            }
        }
    }

    /// One datagram, found at `at` in its batch.
    fn hear(&mut self, now: Instant, datagram: &[u8], at: usize) -> Result<(), DecodeError> {
        let Some((kind, id)) = head(datagram).filter(|(_, id)| *id == self.id) else {
            return Err(DecodeError::Truncated);
        };
        let mut r = Reader::new(&datagram[5..]);
        self.heard = now;
        match kind {
            HELLO if !self.client => {
                self.connect(now);
                self.greet_at = Some(now);
            }
            WELCOME if self.client => {
                self.greet_at = None;
                self.connect(now);
            }
            DATA => self.on_data(now, Data::take(&mut r)?, datagram.len(), at),
            REPORT => self.on_report(now, id, &mut r)?,
            CLOSE => self.finish(CloseReason::Peer {
                code: 0,
                text: String::new(),
            }),
            _ => {}
        }
        Ok(())
    }

    fn on_data(&mut self, now: Instant, data: Data, len: usize, at: usize) {
        let payload = (len - DATA_HEADER) as u64;
        let Some(end) = data.position.checked_add(payload) else {
            return;
        };
        self.receiver.on_data(now, data.position, end);
        self.stats.data_received += payload;
        self.extents.push(Extent {
            object: data.object,
            offset: data.offset,
            len: u32::try_from(payload).unwrap_or(u32::MAX),
            at: u32::try_from(at + DATA_HEADER).unwrap_or(u32::MAX),
        });
    }

    fn on_report(&mut self, now: Instant, _id: u64, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (prefix, _newest) = (r.u64()?, r.u64()?);
        let mut gaps = Vec::new();
        while !r.is_empty() {
            let (start, len) = (r.u64()?, r.u64()?);
            gaps.push(start..start.saturating_add(len));
        }
        self.stats.packets_lost += gaps.len() as u64;
        self.sender.on_report(now, prefix, &gaps);
        self.stats.data_acked = self.sender.acked;
        if self.sender.is_idle() && !self.delivered {
            self.delivered = true;
            self.events.push_back(Event::Delivered);
        }
        Ok(())
    }

    /// A packet without a body.
    fn bare(&self, kind: u8, out: &mut TxBuf) {
        out.begin(5);
        let mut w = Writer::new(out.next_segment());
        put_head(&mut w, kind, self.id).expect("five bytes were begun");
        out.commit(5, 5);
    }

    fn write(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Result<bool, StoreError> {
        let now = turn.now;
        if self.farewells > 0 {
            self.farewells -= 1;
            self.bare(CLOSE, out);
            return Ok(true);
        }
        if self.phase == Phase::Over {
            return Ok(false);
        }
        if self.greet_at.is_some_and(|at| at <= now) {
            self.greet_at = self.client.then_some(now + RETRY);
            self.greeted.get_or_insert(now);
            self.bare(if self.client { HELLO } else { WELCOME }, out);
            return Ok(true);
        }
        if self.receiver.due().is_some_and(|at| at <= now) {
            out.begin(MAX_REPORT);
            if let Some(len) = self.receiver.report(now, self.id, out.next_segment()) {
                out.commit(len, len);
                self.stats.feedback_sent += len as u64;
                return Ok(true);
            }
        }
        if self.phase == Phase::Open && self.sender.write(now, self.id, out, &mut self.extents) {
            turn.store.fill(&self.extents, out.raw())?;
            return Ok(true);
        }
        Ok(false)
    }
}

impl Session for SteadySession {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        self.extents.clear();
        let segment = batch.segment.max(1);
        for (i, datagram) in batch.bytes.chunks(segment).enumerate() {
            if self.hear(turn.now, datagram, i * segment).is_err() {
                self.stats.dropped_malformed += 1;
            } else {
                self.stats.datagrams_received += 1;
                self.stats.wire_received += datagram.len() as u64;
            }
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.place(&self.extents, batch.bytes)
        {
            self.finish(CloseReason::Store(error.0));
        }
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        if turn.now >= self.heard + IDLE {
            self.finish(CloseReason::TimedOut);
        }
        self.sender.on_timer(turn.now);
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        match self.write(turn, out) {
            Ok(true) => {
                self.stats.wire_sent += out.bytes().len() as u64;
                self.stats.datagrams_sent += out.count() as u64;
                Some(Transmit {
                    to: self.to,
                    ecn: Ecn::NotEct,
                })
            }
            Ok(false) => None,
            Err(error) => {
                self.finish(CloseReason::Store(error.0));
                None
            }
        }
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if self.phase == Phase::Over {
            return None;
        }
        let sending = self.sender.deadline().filter(|_| self.phase == Phase::Open);
        [
            sending.map(|at| (at, Why::Pacing)),
            self.greet_at.map(|at| (at, Why::Handshake)),
            self.receiver.due().map(|at| (at, Why::Feedback)),
            Some((self.heard + IDLE, Why::Liveness)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.delivered &= len == 0;
        self.sender.queue(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.is_empty(), "this test session has no ordered stream");
    }

    fn unwritten(&self) -> usize {
        0
    }

    fn read(&mut self, _into: &mut Vec<u8>) {}

    fn close(&mut self, _now: Instant, code: u32, text: &str) {
        if self.phase != Phase::Over {
            self.farewells = FAREWELLS;
            self.finish(CloseReason::Local {
                code,
                text: text.into(),
            });
        }
    }

    fn is_closed(&self) -> bool {
        self.phase == Phase::Over && self.farewells == 0
    }

    fn stats(&self) -> Stats {
        Stats {
            data_sent: self.sender.data_sent,
            repaired: self.sender.repaired,
            in_flight: self.sender.data_sent.saturating_sub(self.sender.acked),
            rtt_min: Some(self.sender.rtt),
            rtt_smoothed: Some(self.sender.rtt),
            ..self.stats
        }
    }
}
