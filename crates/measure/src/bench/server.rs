//! The server's end of one parallel session: it runs the request of the client's hello, within its
//! own bounds.

use std::time::Duration;

use farhaul_core::{
    congestion::Sharing,
    protocol::{Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::App;

use super::{
    BROKEN, Limit, Request, Served,
    ends::{Meter, Receiving, Sending, Times},
    message::{Hello, Inbox, Message, PLAIN, VERSION, send},
    payload,
};

/// Code with which a server refuses what it is not allowed to do.
pub const REFUSED: u32 = 2;
/// Code with which a server refuses another version of the bench.
pub const OTHER_VERSION: u32 = 3;

/// Code with which a server ends a session that only holds its place.
pub const IDLE: u32 = 4;
/// Longest time in which a connected client may send its request, and close at the end.
const ASKS_WITHIN: Duration = Duration::from_secs(10);
/// Longest time in between in which nothing arrives or is acknowledged.
const MOVES_WITHIN: Duration = Duration::from_mins(1);
/// Longest time without an acknowledgement while this server sends at a constant rate, so that a client that has gone
/// is not flooded. At low rates the time of [`FEW`] datagrams, if that is longer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
const FEW: f64 = 4.0;

/// Slowest constant rate, bit/s: about a datagram in 12 s.
const LEAST_CONSTANT: u64 = 1_000;

/// Most that a client may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Longest run.
    pub time: Duration,
    /// Most bytes.
    pub bytes: u64,
    /// Most parallel sessions.
    pub lanes: u32,
    /// The largest claim to shared links.
    pub sharing: Sharing,
    /// The server sends no faster.
    pub rate: Rate,
    /// True if senders may send at a constant rate, whatever is lost.
    pub constant: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            time: Duration::from_hours(24),
            bytes: 1 << 60,
            lanes: 256,
            sharing: Sharing::Fair,
            rate: Rate::UNLIMITED,
            constant: false,
        }
    }
}

impl Bounds {
    fn refusal(&self, hello: &Hello) -> Option<String> {
        let time = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        let too_much = match hello.limit {
            Limit::Nanos(n) => n > time,
            Limit::Bytes(n) => n > self.bytes,
        };
        if too_much {
            Some(format!(
                "at most {:?} or {} bytes at a time here",
                self.time, self.bytes
            ))
        } else if sharing(hello).is_none_or(|s| s as u8 > self.sharing as u8) {
            Some(format!(
                "policy {} is not allowed here, {} is: set by the server's --max-policy",
                farhaul_core::text::plain(&hello.policy),
                self.sharing
            ))
        } else if hello.lanes == 0 || hello.lanes > self.lanes || hello.lane >= hello.lanes {
            Some(format!("from 1 to {} lanes here", self.lanes))
        } else if hello.interval > 0 && hello.interval < 10_000_000 {
            Some("an interval of at least 10 ms, please".into())
        } else if hello.constant.is_some() && !self.constant {
            Some("no tests at a constant rate here: use a `farhaul bench serve`".into())
        } else if hello.constant.is_some_and(|bps| bps < LEAST_CONSTANT) {
            Some(format!(
                "a rate of at least {} here",
                Rate::from_bps(LEAST_CONSTANT)
            ))
        } else {
            None
        }
    }
}

fn sharing(hello: &Hello) -> Option<Sharing> {
    hello.policy.parse().ok()
}

/// One parallel session of a bench's server.
pub struct Server {
    bounds: Bounds,
    tell: Box<dyn Fn(Served) + Send>,
    meter: Meter,
    inbox: Inbox,
    /// Time of the request.
    greeted: Option<Instant>,
    sending: Option<Sending>,
    receiving: Receiving,
    reported: bool,
    whole: bool,
    /// Time at which the session ends if nothing moves; with the counts by which that shows.
    leaves: Option<Instant>,
    /// Time at which the longest run is over, however much was asked for.
    ends: Option<Instant>,
    moves_within: Duration,
    counts: (u64, u64),
}

impl Server {
    /// Serves one session within `bounds`; calls `tell` when it begins and ends.
    pub fn new(bounds: Bounds, tell: impl Fn(Served) + Send + 'static) -> Self {
        payload::prepare();
        Self {
            bounds,
            tell: Box::new(tell),
            meter: Meter::new(),
            inbox: Inbox::default(),
            greeted: None,
            sending: None,
            receiving: Receiving::default(),
            reported: false,
            whole: false,
            leaves: None,
            ends: None,
            moves_within: MOVES_WITHIN,
            counts: (0, 0),
        }
    }

    /// Ends a session that only holds its place.
    fn leave(&mut self, now: Instant, session: &mut dyn Session) {
        let stats = session.stats();
        let counts = (stats.data_acked, stats.data_received);
        if self.greeted.is_some() && !self.reported && counts != self.counts {
            self.counts = counts;
            self.leaves = Some(now + self.moves_within);
        }
        let is_over = self.ends.is_some_and(|at| at <= now);
        if !is_over && self.leaves.is_none_or(|at| at > now) || session.is_closed() {
            return;
        }
        let text = if is_over {
            format!(
                "longer than the {:?} that the server allows",
                self.bounds.time
            )
        } else if self.greeted.is_none() {
            format!(
                "no hello was received within {} s of the handshake",
                ASKS_WITHIN.as_secs()
            )
        } else if self.reported {
            format!("everything was sent {} s ago", ASKS_WITHIN.as_secs())
        } else {
            format!("nothing moved for {} s", self.moves_within.as_secs())
        };
        session.close(now, IDLE, &text);
    }

    fn on_hello(&mut self, now: Instant, hello: &Hello, session: &mut dyn Session) {
        if !(PLAIN..=VERSION).contains(&hello.version) {
            let text = format!(
                "this server has version {VERSION} of the bench, not {} (farhaul {} here, {} there)",
                hello.version,
                env!("CARGO_PKG_VERSION"),
                hello.farhaul
            );
            session.close(now, OTHER_VERSION, &text);
            return;
        }
        if let Some(text) = self.bounds.refusal(hello) {
            session.close(now, REFUSED, &text);
            return;
        }
        let rate = hello.max_rate.map_or(Rate::UNLIMITED, Rate::from_bps);
        let rate = rate.min(self.bounds.rate);
        let constant = hello.constant.map(Rate::from_bps);
        let obeys = match constant {
            _ if !hello.reverse => true,
            Some(constant) => session.send_constantly(now, constant.min(rate)),
            None => session.govern(rate, sharing(hello).unwrap_or_default()),
        };
        if !obeys {
            let text = "this server's protocol accepts no rate or policy from clients: set them at the server";
            session.close(now, REFUSED, text);
            return;
        }
        self.greeted = Some(now);
        if let Some(rate) = constant.filter(|_| hello.reverse) {
            let few = FEW * f64::from(session.stats().datagram_size);
            let time = Duration::from_secs_f64(few * 8.0 / rate.as_f64());
            self.moves_within = time.clamp(ANSWERS_WITHIN, MOVES_WITHIN);
        }
        self.leaves = Some(now + self.moves_within);
        self.ends = Some(now + self.bounds.time + ASKS_WITHIN);
        (self.tell)(Served::Began(Request {
            reverse: hello.reverse,
            limit: hello.limit,
            lanes: hello.lanes,
            lane: hello.lane,
            constant,
        }));
        let started = now.earlier_by(Duration::from_nanos(hello.since_start));
        if hello.reverse {
            let sending = Sending::new(hello.limit, started);
            self.sending = Some(sending.stamped(constant.is_some()));
        } else {
            let times = Times {
                started,
                omit: Duration::from_nanos(hello.omit),
                interval: Duration::from_nanos(hello.interval),
            };
            self.receiving.begin(now, times);
            if constant.is_some() {
                self.receiving.count_datagrams();
                send(session, &Message::Ready);
            }
            if hello.marks_at_end {
                self.receiving.keep_marks();
            }
        }
    }

    fn on_message(&mut self, now: Instant, message: Message, session: &mut dyn Session) {
        match message {
            Message::Hello(hello) if self.greeted.is_none() => self.on_hello(now, &hello, session),
            Message::Done { bytes, datagrams } if self.greeted.is_some() => {
                self.receiving.all_is(now, bytes, datagrams);
            }
            Message::Outcome(_) if self.sending.is_some() && !self.reported => {
                self.reported = true;
                self.leaves = Some(now + ASKS_WITHIN);
                let side = self.meter.side(session);
                send(session, &Message::Outcome(Box::new(side)));
            }
            Message::Stop if self.greeted.is_some() => {
                if let Some(sending) = &mut self.sending {
                    sending.cut(now);
                }
            }
            _ => session.close(now, BROKEN, "a message out of turn"),
        }
    }
}

impl Store for Server {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        if let Some(sending) = &mut self.sending {
            sending.fill(extents, batch);
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.receiving.place(extents, batch)
    }
}

impl App for Server {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Readable => {
                self.inbox.receive(session);
                loop {
                    match self.inbox.take() {
                        Ok(Some(message)) => self.on_message(now, message, session),
                        Ok(None) => break,
                        Err(e) => {
                            session.close(now, BROKEN, &e.to_string());
                            break;
                        }
                    }
                }
            }
            Event::Connected { .. } => self.leaves = Some(now + ASKS_WITHIN),
            Event::Delivered => {}
            Event::Closed(reason) => {
                use farhaul_core::protocol::CloseReason::Peer;
                self.whole = self.reported && matches!(reason, Peer { code: 0, .. });
                if let Some(greeted) = self.greeted {
                    let bytes = match &self.sending {
                        Some(_) => session.stats().data_acked,
                        None => self.receiving.bytes(),
                    };
                    (self.tell)(Served::Ended {
                        bytes,
                        took: now.since(greeted),
                        whole: self.whole,
                    });
                }
                return;
            }
        }
        self.poll(now, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.leave(now, session);
        if self.greeted.is_none() || self.reported {
            return;
        }
        self.meter.sample(now, session);
        if let Some(sending) = &mut self.sending {
            sending.poll(now, session);
            return;
        }
        if let Some(mark) = self.receiving.poll(now, session) {
            send(session, &Message::Mark(mark));
        }
        if self.receiving.is_complete(now) {
            self.reported = true;
            self.leaves = Some(now + ASKS_WITHIN);
            for mark in self.receiving.kept_marks() {
                send(session, &Message::Mark(mark));
            }
            let side = self.receiving.complete(now, self.meter.side(session));
            send(session, &Message::Outcome(Box::new(side)));
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let next = match &self.sending {
            _ if self.reported || self.greeted.is_none() => None,
            Some(sending) => sending.next_wake(),
            None => self.receiving.next_wake(),
        };
        [next, self.leaves, self.ends].into_iter().flatten().min()
    }
}
