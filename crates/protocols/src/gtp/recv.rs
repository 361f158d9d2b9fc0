//! The receiving half. It requests an offered file as soon as the group has something to give, and
//! from then on a rate each two round trips, and the missing units. The sender obeys.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    protocol::CloseReason,
    pull::{Ends, Fetch, HEADS, LEAST_RATE, PullMachine, Source, Style, Tally},
    shell::Incoming,
    store::Extent,
    time::Instant,
    units::Rate,
};

use super::{
    group::{Group, Member},
    law::Law,
    wire::{Command, Request},
};

/// Between two rates at least.
const INTERVAL: Duration = Duration::from_millis(10);
/// Units of an interval that is judged, at the rate asked for.
const FEW: u64 = 4;
/// IP (version 4) and UDP before a datagram's bytes.
const OVERHEAD: u32 = 28;

/// GTP in a session.
pub type GtpMachine = PullMachine<GtpStyle>;

/// State while a file comes.
#[derive(Debug)]
struct Going {
    member: Member,
    /// Law, once the file was asked for.
    law: Option<Law>,
    /// Beginning of the interval, and the units that had come by then; none before the first unit.
    mark: Option<(Instant, Tally)>,
    /// True if the sender is to be sent the rate.
    command: bool,
}

/// GTP's own part of a session.
#[derive(Debug)]
pub struct GtpStyle {
    group: Group,
    most: Rate,
    interval: Duration,
    /// Commands given, and the newest that was obeyed.
    given: u64,
    obeyed: u64,
    going: Option<Going>,
}

impl GtpStyle {
    pub(super) fn new(group: &Group, most: Rate) -> Self {
        Self {
            group: group.clone(),
            most,
            interval: INTERVAL,
            given: 0,
            obeyed: 0,
            going: None,
        }
    }

    fn command(&mut self) -> Command {
        self.given += 1;
        let law = self.going.as_ref().and_then(|going| going.law.as_ref());
        Command {
            number: self.given,
            rate: law.map_or(LEAST_RATE, Law::rate),
        }
    }

    fn obey(&mut self, source: &mut Source, command: Command) {
        // Datagrams overtake each other, and what is said on the channel.
        if command.number > self.obeyed {
            self.obeyed = command.number;
            source.command(command.rate);
        }
    }
}

impl Style for GtpStyle {
    type Extension = Request;

    fn source(&self) -> Source {
        Source::new(self.most, OVERHEAD + HEADS)
    }

    fn open(&mut self, rtt: Duration) {
        self.interval = INTERVAL.max(rtt * 2);
    }

    fn on_offer(&mut self, now: Instant, ends: &mut Ends, _most: Rate) {
        let member = self.group.join(ends.rtt);
        if self.group.is_crowded() {
            let text = "more flows than this host's capacity can serve";
            return ends.fail(CloseReason::Starved(text.into()));
        }
        ends.check_at = Some(now);
        self.going = Some(Going {
            member,
            law: None,
            mark: None,
            command: false,
        });
    }

    fn on_extension(
        &mut self,
        _now: Instant,
        ends: &mut Ends,
        request: Request,
    ) -> Result<(), DecodeError> {
        let mut ranges = request.ranges.iter();
        ranges.try_for_each(|range| ends.source.ask(range))?;
        self.obey(&mut ends.source, request.command);
        Ok(())
    }

    fn on_request(&mut self, source: &mut Source, bytes: &[u8]) -> Result<(), DecodeError> {
        self.obey(source, Command::take(&mut Reader::new(bytes))?);
        Ok(())
    }

    fn poll_request(
        &mut self,
        _now: Instant,
        _ends: &mut Ends,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        let going = self.going.as_mut();
        let due = going.is_some_and(|going| std::mem::take(&mut going.command));
        if due {
            self.command().put(w)?;
        }
        Ok(due)
    }

    fn on_unit(
        &mut self,
        now: Instant,
        fetch: &mut Fetch,
        unit: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        if let Some(going) = &mut self.going {
            going.mark.get_or_insert((now, fetch.tally()));
        }
        fetch.on_unit(now, unit, place).map(|_| ())
    }

    fn on_check(&mut self, now: Instant, ends: &mut Ends) {
        let tally = ends.fetch.tally();
        let Some(going) = &mut self.going else {
            return;
        };
        let ranges = if let Some(law) = &mut going.law {
            let demand = going.mark.as_mut().and_then(|mark| {
                let (from, before) = *mark;
                let (time, seen) = (now.since(from), tally.since(before));
                // Fewer units than these show nothing: the interval goes on.
                if law.rate().bytes_in(time) / u64::from(ends.datagram) < FEW {
                    return None;
                }
                *mark = (now, tally);
                // The first is not whole; and silence has reasons of its own, for which the file is given up at last.
                if time < self.interval || seen.came == 0 {
                    return None;
                }
                #[expect(clippy::cast_precision_loss, reason = "a share")]
                let loss = seen.missed as f64 / (seen.came + seen.missed) as f64;
                let bytes = seen.bytes + seen.came * u64::from(OVERHEAD);
                Some(law.on_interval(Rate::of(bytes, time), loss))
            });
            let (target, _) = going.member.visit(now, demand);
            law.on_target(target);
            ends.check_at = Some(now + self.interval);
            let missing = ends.missing(now, law.rate(), self.interval);
            going.command = missing.is_empty();
            missing
        } else {
            // spec: gtp §1.2
            ends.fetch.restart_timeout(now);
            ends.check_at = Some(now + self.interval / 2);
            let (target, capacity) = going.member.visit(now, None);
            let given = target >= LEAST_RATE;
            going.law = given.then(|| Law::new(target, capacity));
            let whole = ends.fetch.whole().filter(|_| given);
            whole.into_iter().collect()
        };
        if !ranges.is_empty() {
            let command = self.command();
            ends.send(&Request { command, ranges });
        }
    }

    /// Leaves the group, which makes room at once.
    fn on_end(&mut self) {
        self.going = None;
    }
}
