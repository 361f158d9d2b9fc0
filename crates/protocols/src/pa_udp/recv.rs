//! The receiving half. The bytes that the store has written and can take decide the sending rate.
//! Missing units are requested, and a file is over when the store has written all of it.
//!
//! Invariants: one file at a time; a look each period, in which at most [`MAX_RANGES`] ranges are asked for.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    protocol::CloseReason,
    pull::{Ends, PullMachine, Source, Style, Tally},
    store::Backlog,
    time::Instant,
    units::Rate,
};

use super::{
    law::{Law, Seen},
    wire::Signal,
};

/// Between two looks at least.
const PERIOD: Duration = Duration::from_millis(100);
/// Longest time between reports of arrived units to a sender.
const PROGRESS: Duration = Duration::from_secs(1);
/// The store has written nothing for so long: it is given up.
const STARVED: Duration = Duration::from_mins(5);

/// PA-UDP in a session.
pub type PaUdpMachine = PullMachine<PaUdpStyle>;

/// PA-UDP's own part of a session.
#[derive(Debug)]
pub struct PaUdpStyle {
    law: Law,
    link: Rate,
    most: Rate,
    period: Duration,
    backlog: Backlog,
    waiting: u64,
    /// Data that had come at the last look.
    seen: Tally,
    /// Count of units that the sender was last informed of, and when.
    told: (Instant, u64),
    /// Bytes that the store has written since then.
    moved: (Instant, u64),
}

impl PaUdpStyle {
    pub(super) fn new(link: Rate, most: Rate) -> Self {
        Self {
            law: Law::new(link, PERIOD),
            link,
            most,
            period: PERIOD,
            backlog: Backlog::default(),
            waiting: 0,
            seen: Tally::default(),
            told: (Instant::EPOCH, 0),
            moved: (Instant::EPOCH, 0),
        }
    }

    /// The file comes, at this rate.
    fn on_go(
        &mut self,
        now: Instant,
        ends: &mut Ends,
        first: u64,
        rate: Rate,
    ) -> Result<(), DecodeError> {
        let offered = ends.fetch.file().map(|(first, _)| first);
        if ends.check_at.is_some() || offered != Some(first) {
            return Err(DecodeError::Malformed(
                "the beginning of a file, out of turn",
            ));
        }
        self.law.keeps_to(rate);
        ends.check_at = Some(now + self.period);
        self.seen = ends.fetch.tally();
        self.told = (now, self.seen.came);
        self.moved = (now, ends.sink.drained);
        Ok(())
    }
}

impl Style for PaUdpStyle {
    type Extension = Signal;
    const LANE: bool = true;

    fn source(&self) -> Source {
        Source::new(self.most, 0)
    }

    fn open(&mut self, rtt: Duration) {
        self.period = PERIOD.max(rtt / 2);
        self.law = Law::new(self.link, rtt + self.period);
    }

    fn on_sink(&mut self, ends: &Ends) {
        self.waiting = self.backlog.waiting(ends.sink, ends.fetch.placed());
        if self.waiting == 0 {
            self.law.on_idle();
        }
    }

    fn on_offer(&mut self, now: Instant, ends: &mut Ends, most: Rate) {
        if let Some((first, bytes)) = ends.fetch.file() {
            let rate = self.law.begin(now, ends.sink, bytes, most.min(self.link));
            ends.send(&Signal::Start(first, rate, ends.sink.free));
        }
    }

    fn on_extension(
        &mut self,
        now: Instant,
        ends: &mut Ends,
        signal: Signal,
    ) -> Result<(), DecodeError> {
        match signal {
            Signal::Start(first, rate, _) => {
                ends.source.ask_all(first)?;
                let rate = ends.source.command(rate);
                ends.send(&Signal::Go(first, rate));
            }
            Signal::Go(first, rate) => self.on_go(now, ends, first, rate)?,
            Signal::Rate(rate, _) => _ = ends.source.command(rate),
            Signal::Missing(ranges) => {
                let mut ranges = ranges.iter();
                ranges.try_for_each(|range| ends.source.ask(range))?;
            }
        }
        Ok(())
    }

    fn on_check(&mut self, now: Instant, ends: &mut Ends) {
        let Some((_, left)) = ends.fetch.file() else {
            return;
        };
        let tally = ends.fetch.tally();
        let since = tally.since(std::mem::replace(&mut self.seen, tally));
        let seen = Seen {
            sink: ends.sink,
            left,
            came: since.came,
            missed: since.missed,
            gaps: ends.fetch.has_gaps(),
        };
        ends.check_at = Some(now + self.period);
        let news = self.law.tick(now, seen).is_some();
        let (told, count) = self.told;
        let quiet = now.since(told) >= PROGRESS && (tally.came > count || ends.is_full());
        if news || quiet {
            self.told = (now, tally.came);
            ends.send(&Signal::Rate(self.law.rate(), tally.came));
        }
        if self.moved.1 != ends.sink.drained || self.waiting == 0 {
            self.moved = (now, ends.sink.drained);
        }
        let missing = ends.missing(now, self.law.rate(), self.period);
        if !missing.is_empty() {
            ends.send(&Signal::Missing(missing));
        }
        if now.since(self.moved.0) >= STARVED {
            let text = format!("the store has taken nothing for {} s", STARVED.as_secs());
            ends.fail(CloseReason::Starved(text));
        }
    }

    /// True if the store has written all of it, including bytes placed since it was seen.
    fn is_over(&mut self, ends: &Ends) -> bool {
        ends.check_at.is_some() && self.backlog.waiting(ends.sink, ends.fetch.placed()) == 0
    }
}
