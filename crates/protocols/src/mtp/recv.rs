//! The receiving half: units are asked for, as many as the window lets be in transit; each that comes, or is not in
//! time, makes room for another. The host takes its time for each unit and each request, as those of 2014 did.
//!
//! Invariant: no more is in transit than fits the window and the store.

// spec: mtp §1

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    path::Rtt,
    protocol::CloseReason,
    pull::{Offer, Transit},
    recv::Arrival,
    shell::Incoming,
    store::{Extent, Sink},
    time::Instant,
};

use super::{config::Config, window::Window, wire::Request};

/// A unit is not believed lost earlier than so long after its time.
const LEAST_PATIENCE: Duration = Duration::from_millis(200);
/// Patience doubles so often while nothing comes.
const MOST_DOUBLED: u32 = 6;
/// A full store is looked at so often.
const LOOK: Duration = Duration::from_millis(10);
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

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    transit: Transit,
    window: Window,
    rtt: Rtt,
    host: Host,
    unit_cost: Duration,
    request_cost: Duration,
    datagram: u32,
    /// Bytes that the store takes, and when that was: at the last call.
    free: u64,
    looked: Instant,
    /// Times in a row that units were believed lost, and none came.
    silences: u32,
    doubles_at: Instant,
    number: u32,
    failed: Option<CloseReason>,
}

impl Receiver {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            transit: Transit::default(),
            window: Window::new(config.window, config.tolerated),
            rtt: Rtt::new(Duration::ZERO),
            host: Host::default(),
            unit_cost: config.unit_cost,
            request_cost: config.request_cost,
            datagram: 1,
            free: u64::MAX,
            looked: Instant::EPOCH,
            silences: 0,
            doubles_at: Instant::EPOCH,
            number: 0,
            failed: None,
        }
    }

    pub(super) fn open(&mut self, datagram: u32, rtt: Duration) {
        self.datagram = datagram;
        self.rtt = Rtt::new(rtt);
    }

    pub(super) fn on_sink(&mut self, now: Instant, sink: Sink) {
        (self.free, self.looked) = (sink.free, now);
        if self.is_full() {
            // Who waits for the disk does not wait for the network.
            self.transit.excuse(now);
        }
    }

    const fn is_full(&self) -> bool {
        self.free < self.datagram as u64
    }

    pub(super) fn on_offer(&mut self, now: Instant, offer: Offer) -> Result<(), DecodeError> {
        self.window.begin(now);
        self.transit.on_offer(now, offer)
    }

    pub(super) fn on_cut(&mut self, end: u64) -> Result<(), DecodeError> {
        self.transit.on_cut(end)
    }

    pub(super) fn on_unit(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let (arrival, rtt) = self.transit.on_unit(now, datagram, place)?;
        self.host.spend(now, self.unit_cost);
        if let Some(rtt) = rtt {
            self.rtt.update(now, rtt);
        }
        if arrival == Arrival::New {
            self.silences = 0;
            self.window.on_unit();
            self.window.adjust(now, self.rtt.smoothed());
        }
        Ok(())
    }

    /// The file that begins there is here.
    pub(super) fn take_end(&mut self) -> Option<u64> {
        self.transit.finish()
    }

    /// How long a unit is waited for.
    fn patience(&self) -> Duration {
        self.rtt.timeout(LEAST_PATIENCE) * (1 << self.silences.min(MOST_DOUBLED))
    }

    /// Units that the next request asks for, if one may leave.
    fn portion(&self, now: Instant) -> Option<u64> {
        let fits = self.free / u64::from(self.datagram);
        let transit = self.transit.units();
        let room = self.window.units().min(fits).saturating_sub(transit);
        // What comes last is not waited with.
        let portion = self.window.portion(now).min(room.max(1));
        let enough = room >= self.window.portion(now) || transit == 0;
        (room > 0 && enough && self.transit.has_more()).then_some(portion)
    }

    /// The next request, if it is to leave now.
    pub(super) fn take_request(&mut self, now: Instant) -> Option<Request> {
        if self.host.free_at > now {
            return None;
        }
        let portion = self.portion(now)?;
        let units = self.transit.ask(now, portion)?;
        self.host.spend(now, self.request_cost);
        self.window.on_request();
        self.number = self.number.wrapping_add(1);
        Some(Request {
            number: self.number,
            units,
        })
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        let runs = self.transit.expire(now, self.patience());
        if runs > 0 {
            if self.doubles_at <= now {
                self.silences += 1;
                self.doubles_at = now + self.patience();
            }
            let rtt = self.rtt.smoothed();
            self.window.on_loss(now, rtt, runs);
            self.window.adjust(now, rtt);
        }
        self.failed = self.transit.fetch().failure(now);
    }

    /// When something is to be done.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let now = self.looked;
        let lost = self.transit.asked_at().map(|at| at + self.patience());
        let asks = match self.portion(now) {
            Some(_) => Some(self.host.free_at),
            None if self.transit.has_more() && self.free != u64::MAX => Some(self.looked + LOOK),
            None => self.window.small_at().filter(|at| *at > now),
        };
        let given_up = self.transit.fetch().gives_up_at();
        [lost, asks, given_up].into_iter().flatten().min()
    }

    pub(super) fn failure(&self) -> Option<CloseReason> {
        self.failed.clone()
    }

    /// Units that came more than once.
    pub(super) const fn duplicates(&self) -> u64 {
        self.transit.fetch().again()
    }
}
