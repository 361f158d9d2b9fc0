//! The receiving half. It requests units, as many as the window lets be in transit. Each that
//! comes, or is not in time, makes room for another. The host takes its time for each unit and each
//! request, as those of 2014 did.
//!
//! Invariant: no more is in transit than fits the window and the store.

// spec: mtp §1

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Writer},
    path::Rtt,
    pull::{Ends, Fetch, HEADS, PullMachine, Source, Style},
    recv::Arrival,
    shell::Incoming,
    store::Extent,
    time::Instant,
    units::Rate,
};

use super::{
    config::Config,
    window::Window,
    wire::{NoExtension, Request},
};

/// A unit is not believed lost earlier than so long after its time.
const MIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Most doublings of the patience while nothing comes.
const MOST_DOUBLED: u32 = 6;
/// Interval at which a full store is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// A host that was called late does at once what it had time for.
const LAG: Duration = Duration::from_millis(1);

/// A host of the time: it does one thing after the other.
#[derive(Debug, Default)]
struct Host {
    free_at: Instant,
}

impl Host {
    fn spend(&mut self, now: Instant, time: Duration) {
        self.free_at = self.free_at.max(now.earlier_by(LAG)) + time;
    }
}

/// MTP's model in a session.
pub type MtpMachine = PullMachine<MtpStyle>;

/// MTP's part of a pull session.
#[derive(Debug)]
pub struct MtpStyle {
    config: Config,
    window: Window,
    rtt: Rtt,
    host: Host,
    /// Times in a row that units were believed lost, and none came.
    timeouts: u32,
    doubles_at: Instant,
    number: u32,
}

impl MtpStyle {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            window: Window::new(config.window, config.tolerated),
            rtt: Rtt::new(Duration::ZERO),
            host: Host::default(),
            timeouts: 0,
            doubles_at: Instant::EPOCH,
            number: 0,
        }
    }

    /// Time for which a unit is waited for.
    fn timeout(&self) -> Duration {
        self.rtt.timeout(MIN_TIMEOUT) * (1 << self.timeouts.min(MOST_DOUBLED))
    }

    /// Units that the next request asks for, if one may leave.
    fn portion(&self, ends: &Ends, now: Instant) -> Option<u64> {
        let fits = ends.sink.free / u64::from(ends.datagram);
        let transit = ends.fetch.in_transit();
        let room = self.window.units().min(fits).saturating_sub(transit);
        // What comes last is not waited with.
        let portion = self.window.portion(now).min(room.max(1));
        let enough = room >= self.window.portion(now) || transit == 0;
        (room > 0 && enough && ends.fetch.has_more()).then_some(portion)
    }
}

impl Style for MtpStyle {
    type Extension = NoExtension;

    fn source(&self) -> Source {
        let most = self.config.max_rate.unwrap_or(Rate::UNLIMITED);
        let mut source = Source::new(most, HEADS);
        source.command(most);
        source
    }

    fn open(&mut self, rtt: Duration) {
        self.rtt = Rtt::new(rtt);
    }

    fn on_offer(&mut self, now: Instant, _ends: &mut Ends, _most: Rate) {
        self.window.begin(now);
    }

    fn on_request(&mut self, source: &mut Source, bytes: &[u8]) -> Result<(), DecodeError> {
        source.ask(&Request::decode(bytes)?.units)
    }

    fn poll_request(
        &mut self,
        now: Instant,
        ends: &mut Ends,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        let portion = self.portion(ends, now).filter(|_| self.host.free_at <= now);
        let Some(units) = portion.and_then(|most| ends.fetch.ask(now, most)) else {
            return Ok(false);
        };
        self.host.spend(now, self.config.request_cost);
        self.window.on_request();
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        Request { number, units }.encode(w)?;
        Ok(true)
    }

    fn on_unit(
        &mut self,
        now: Instant,
        fetch: &mut Fetch,
        unit: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let (arrival, rtt) = fetch.on_answer(now, unit, place)?;
        self.host.spend(now, self.config.unit_cost);
        if let Some(rtt) = rtt {
            self.rtt.update(now, rtt);
        }
        if arrival == Arrival::New {
            self.timeouts = 0;
            self.window.on_unit();
            self.window.adjust(now, self.rtt.smoothed());
        }
        Ok(())
    }

    /// Time at which something is to be asked for, or is not waited for any more.
    fn deadline(&self, ends: &Ends) -> Option<Instant> {
        let now = ends.sink_at;
        let lost = ends.fetch.asked_at().map(|at| at + self.timeout());
        let asks = match self.portion(ends, now) {
            Some(_) => Some(self.host.free_at),
            None if ends.fetch.has_more() && !ends.sink.is_endless() => Some(now + CHECK_INTERVAL),
            None => self.window.small_at().filter(|at| *at > now),
        };
        lost.into_iter().chain(asks).min()
    }

    fn on_timer(&mut self, now: Instant, ends: &mut Ends) {
        let runs = ends.fetch.expire(now, self.timeout());
        if runs > 0 {
            if self.doubles_at <= now {
                self.timeouts += 1;
                self.doubles_at = now + self.timeout();
            }
            let rtt = self.rtt.smoothed();
            self.window.on_loss(now, rtt, runs);
            self.window.adjust(now, rtt);
        }
    }
}
