//! The receiving half: what the store has written and can take decides how fast is sent; what is missing is
//! asked for; a file is over when the store has written all of it.
//!
//! Invariants: one file at a time; a look each period, in which at most [`MAX_RANGES`] ranges are asked for.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    protocol::CloseReason,
    pull::{Fetch, MAX_RANGES, Offer},
    shell::Incoming,
    store::{Backlog, Extent, Sink},
    time::Instant,
    units::Rate,
};

use super::{
    law::{Law, Seen},
    wire::Message,
};

/// Between two looks at least.
const PERIOD: Duration = Duration::from_millis(100);
/// A sender is told that units come this often at least.
const PROGRESS: Duration = Duration::from_secs(1);
/// The store has written nothing for so long: it is given up.
const STARVED: Duration = Duration::from_mins(5);

/// While a file comes.
#[derive(Debug)]
struct Going {
    /// The next look.
    look: Instant,
    /// Units that had come, and were missing, at the last.
    seen: (u64, u64),
    /// The sender was told of so many units that came, then.
    told: (Instant, u64),
    /// The store has written so much since then.
    moved: (Instant, u64),
}

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    fetch: Fetch,
    law: Law,
    link: Rate,
    period: Duration,
    rtt: Duration,
    datagram: u32,
    sink: Sink,
    backlog: Backlog,
    waiting: u64,
    going: Option<Going>,
    failed: Option<CloseReason>,
}

impl Receiver {
    pub(super) fn new(link: Rate) -> Self {
        Self {
            fetch: Fetch::default(),
            law: Law::new(link, PERIOD),
            link,
            period: PERIOD,
            rtt: Duration::ZERO,
            datagram: 1,
            sink: Sink::ENDLESS,
            backlog: Backlog::default(),
            waiting: 0,
            going: None,
            failed: None,
        }
    }

    pub(super) fn open(&mut self, datagram: u32, rtt: Duration) {
        (self.datagram, self.rtt) = (datagram, rtt);
        self.period = PERIOD.max(rtt / 2);
        self.law = Law::new(self.link, rtt + self.period);
    }

    pub(super) fn on_sink(&mut self, sink: Sink) {
        self.sink = sink;
        self.waiting = self.backlog.waiting(sink, self.fetch.placed());
        if self.waiting == 0 {
            self.law.on_idle();
        }
    }

    /// The peer offers a file, which it is able to send at `most`: the answer.
    pub(super) fn on_offer(
        &mut self,
        now: Instant,
        most: Rate,
        offer: Offer,
    ) -> Result<Message, DecodeError> {
        let (first, bytes) = (offer.first, offer.layout.len());
        self.fetch.on_offer(now, offer)?;
        let rate = self.law.begin(now, self.sink, bytes, most.min(self.link));
        Ok(Message::Start(first, rate, self.sink.free))
    }

    /// The file comes, at this rate.
    pub(super) fn on_go(
        &mut self,
        now: Instant,
        first: u64,
        rate: Rate,
    ) -> Result<(), DecodeError> {
        let offered = self.fetch.file().map(|(first, _)| first);
        if self.going.is_some() || offered != Some(first) {
            return Err(DecodeError::Malformed(
                "the beginning of a file, out of turn",
            ));
        }
        self.law.keeps_to(rate);
        let came = self.fetch.came();
        self.going = Some(Going {
            look: now + self.period,
            seen: (came, self.fetch.missed()),
            told: (now, came),
            moved: (now, self.sink.drained),
        });
        Ok(())
    }

    pub(super) fn on_cut(&mut self, end: u64) -> Result<(), DecodeError> {
        self.fetch.on_cut(end)
    }

    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        self.fetch.on_unit(now, datagram, place)?;
        Ok(())
    }

    /// Lets `say` tell what the peer is to know.
    pub(super) fn report(&mut self, now: Instant, mut say: impl FnMut(&Message)) {
        if self.going.as_ref().is_some_and(|going| going.look <= now) {
            self.look(now, &mut say);
        }
        if self.going.is_none() {
            self.failed = self.fetch.failure(now);
        }
        let placed = self.waiting_now() == 0;
        if self.going.is_some() && self.fetch.is_complete() && placed {
            self.going = None;
            if let Some(first) = self.fetch.finish() {
                say(&Message::Done(first));
            }
        }
    }

    /// What waits, with what was placed since the store was seen.
    fn waiting_now(&mut self) -> u64 {
        self.backlog.waiting(self.sink, self.fetch.placed())
    }

    fn look(&mut self, now: Instant, say: &mut impl FnMut(&Message)) {
        let (Some(going), Some((_, left))) = (&mut self.going, self.fetch.file()) else {
            return;
        };
        let (came, missed) = (self.fetch.came(), self.fetch.missed());
        let seen = Seen {
            sink: self.sink,
            left,
            came: came - going.seen.0,
            missed: missed - going.seen.1,
            gaps: self.fetch.has_gaps(),
        };
        going.seen = (came, missed);
        going.look = now + self.period;
        let rate = self.law.tick(now, seen);
        let (told, count) = going.told;
        let full = self.sink.free < self.datagram.into();
        let quiet = now.since(told) >= PROGRESS && (came > count || full);
        if rate.is_some() || quiet {
            going.told = (now, came);
            say(&Message::Rate(rate.unwrap_or(self.law.rate()), came));
        }
        if full {
            // Who waits for the disk does not wait for the network.
            self.fetch.excuse(now);
        }
        if going.moved.1 != self.sink.drained || self.waiting == 0 {
            going.moved = (now, self.sink.drained);
        }
        let gaps = self.law.rate().time_for(2 * u64::from(self.datagram));
        let repair = self.rtt + self.period;
        let pauses = (repair, repair + gaps);
        let missing = self.fetch.missing(now, pauses, MAX_RANGES);
        if !missing.is_empty() {
            say(&Message::Missing(missing));
        }
        self.judge(now);
    }

    /// Fails what comes to nothing.
    fn judge(&mut self, now: Instant) {
        let Some(going) = &self.going else {
            return;
        };
        if now.since(going.moved.0) >= STARVED {
            let text = format!("the store has taken nothing for {} s", STARVED.as_secs());
            self.failed = Some(CloseReason::Starved(text));
        } else {
            self.failed = self.fetch.failure(now);
        }
    }

    /// The next look.
    pub(super) fn due(&self) -> Option<Instant> {
        let offered = || self.fetch.gives_up_at().filter(|_| self.failed.is_none());
        self.going.as_ref().map(|going| going.look).or_else(offered)
    }

    pub(super) fn failure(&self) -> Option<CloseReason> {
        self.failed.clone()
    }

    /// Units that came more than once.
    pub(super) const fn duplicates(&self) -> u64 {
        self.fetch.again()
    }
}
