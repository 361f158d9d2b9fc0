//! The receiving half: a file that is offered is asked for as soon as the group has something to give, and from then on
//! a rate each two round trips, and what is missing.
//!
//! Invariants: one file at a time; at most [`MAX_RANGES`] ranges are asked for at a time.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    protocol::CloseReason,
    pull::{Fetch, LEAST_RATE, MAX_RANGES, Offer},
    shell::Incoming,
    store::Extent,
    time::Instant,
    units::Rate,
};

use super::{
    group::{Group, Member},
    law::Law,
    wire::{Command, Message},
};

/// Between two rates at least.
const INTERVAL: Duration = Duration::from_millis(10);
/// Units of an interval that is judged, at the rate asked for.
const FEW: u64 = 4;
/// IP (version 4) and UDP before a datagram's bytes.
pub(super) const OVERHEAD: u32 = 28;

/// What had come when an interval began.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    bytes: u64,
    came: u64,
    missed: u64,
}

/// While a file comes.
#[derive(Debug)]
struct Going {
    member: Member,
    /// Once it was asked for.
    law: Option<Law>,
    /// The interval began; none before the first unit.
    mark: Option<Mark>,
    /// The next look.
    look: Instant,
    /// The sender is to be told the rate.
    command: bool,
}

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    group: Group,
    fetch: Fetch,
    interval: Duration,
    rtt: Duration,
    /// Bytes of units that came, with all that was around them.
    bytes: u64,
    datagram: u32,
    /// What the store takes.
    free: u64,
    number: u64,
    going: Option<Going>,
    failed: Option<CloseReason>,
}

impl Receiver {
    pub(super) fn new(group: &Group) -> Self {
        Self {
            group: group.clone(),
            fetch: Fetch::default(),
            interval: INTERVAL,
            rtt: Duration::ZERO,
            bytes: 0,
            datagram: 1,
            free: u64::MAX,
            number: 0,
            going: None,
            failed: None,
        }
    }

    pub(super) fn open(&mut self, datagram: u32, rtt: Duration) {
        (self.datagram, self.rtt) = (datagram, rtt);
        self.interval = INTERVAL.max(rtt * 2);
    }

    /// The peer offers a file.
    pub(super) fn on_offer(&mut self, now: Instant, offer: Offer) -> Result<(), DecodeError> {
        self.fetch.on_offer(now, offer)?;
        let member = self.group.join(self.rtt);
        if self.group.is_crowded() {
            let text = "more flows than this host's capacity can serve";
            self.failed = Some(CloseReason::Starved(text.into()));
            return Ok(());
        }
        self.going = Some(Going {
            member,
            law: None,
            mark: None,
            look: now,
            command: false,
        });
        Ok(())
    }

    /// Who leaves makes room at once.
    pub(super) fn on_close(&mut self) {
        self.going = None;
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
        if self
            .going
            .as_ref()
            .is_some_and(|going| going.mark.is_none())
        {
            let mark = self.mark(now);
            self.going
                .iter_mut()
                .for_each(|going| going.mark = Some(mark));
        }
        self.fetch.on_unit(now, datagram, place)?;
        self.bytes += u64::from(datagram.wire + OVERHEAD);
        Ok(())
    }

    const fn mark(&self, now: Instant) -> Mark {
        Mark {
            at: now,
            bytes: self.bytes,
            came: self.fetch.came(),
            missed: self.fetch.missed(),
        }
    }

    /// Lets `say` tell what the peer is to know on the channel.
    pub(super) fn report(&mut self, now: Instant, mut say: impl FnMut(&Message)) {
        if self.fetch.is_complete() {
            self.on_close();
            if let Some(first) = self.fetch.finish() {
                say(&Message::Close(first));
            }
        }
        if self.going.as_ref().is_some_and(|going| going.look <= now) {
            self.look(now, &mut say);
        }
    }

    fn look(&mut self, now: Instant, say: &mut impl FnMut(&Message)) {
        let mark = self.mark(now);
        if self.free < self.datagram.into() {
            // Who waits for the disk does not wait for the network.
            self.fetch.excuse(now);
        }
        let Some(going) = &mut self.going else {
            return;
        };
        let mut ranges = Vec::new();
        if let Some(law) = &mut going.law {
            going.look = now + self.interval;
            // Of fewer units than these nothing can be told: the interval goes on.
            let enough = |from: &Mark| {
                let bytes = law.rate().bytes_in(now.since(from.at));
                bytes / u64::from(self.datagram) >= FEW
            };
            let before = going.mark.as_mut().filter(|from| enough(from));
            let before = before.map(|before| std::mem::replace(before, mark));
            // The first is not whole; and silence has reasons of its own, for which the file is given up at last.
            let whole = |from: &Mark| now.since(from.at) >= self.interval && mark.came > from.came;
            let whole = before.filter(whole);
            let demand = whole.map(|from| {
                let (came, missed) = (mark.came - from.came, mark.missed - from.missed);
                #[expect(clippy::cast_precision_loss, reason = "a share")]
                let loss = missed as f64 / (came + missed).max(1) as f64;
                let rate = Rate::of(mark.bytes - from.bytes, now.since(from.at));
                law.on_interval(rate, loss)
            });
            let (target, _) = going.member.visit(now, demand);
            law.on_target(target);
            let gap = law.rate().time_for(2 * u64::from(self.datagram));
            let repair = self.rtt + self.interval;
            ranges = self.fetch.missing(now, (repair, repair + gap), MAX_RANGES);
            going.command = ranges.is_empty();
        } else {
            // spec: gtp §1.2
            self.fetch.excuse(now);
            let (target, capacity) = going.member.visit(now, None);
            if target >= LEAST_RATE {
                going.law = Some(Law::new(target, capacity));
                ranges.extend(self.fetch.whole());
            }
            going.look = now + self.interval / 2;
        }
        if !ranges.is_empty() {
            let command = self.command();
            say(&Message::Request(command, ranges));
        }
        self.failed = self.fetch.failure(now);
    }

    /// So much can be placed.
    pub(super) const fn set_free(&mut self, free: u64) {
        self.free = free;
    }

    fn command(&mut self) -> Command {
        self.number += 1;
        let law = self.going.as_ref().and_then(|going| going.law.as_ref());
        Command {
            number: self.number,
            rate: law.map_or(LEAST_RATE, Law::rate),
        }
    }

    /// The rate, if the sender is to be told of it now.
    pub(super) fn take_command(&mut self) -> Option<Command> {
        let going = self.going.as_mut()?;
        std::mem::take(&mut going.command).then(|| self.command())
    }

    /// The next look.
    pub(super) fn due(&self) -> Option<Instant> {
        self.going.as_ref().map(|going| going.look)
    }

    pub(super) fn failure(&self) -> Option<CloseReason> {
        self.failed.clone()
    }

    /// Units that came more than once.
    pub(super) const fn duplicates(&self) -> u64 {
        self.fetch.again()
    }
}
