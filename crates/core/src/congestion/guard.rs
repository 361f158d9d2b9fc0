//! Guards the engine against a faulty law. The guard replaces an invalid rate or window by the last
//! valid one, and counts and names the fault. A law that goes on so has [failed](Guard::failure),
//! which ends the session with its name. The guard also remembers the answers, so that the engine
//! asks the law once per event and not once per packet.

use std::time::Duration;

use super::{AckEvent, Allowance, CongestionController, LossEvent, Mail, PathView, Sharing};
use crate::{
    time::Instant,
    units::{Rate, Size},
};

/// No path is faster: 100 Tbit/s.
const MOST_RATE: Rate = Rate::gbit(100_000);
/// No path is longer: 100 Tbit/s times 20 s, bytes.
const MOST_WINDOW: Size = Size::from_bytes(250_000_000_000_000);
/// Invalid answers after which a law has failed.
const MAX_FAULTS: u64 = 100;
/// No law means less.
const LEAST_RATE: Rate = Rate::from_bps(100);

/// A law whose answers are validated.
pub struct Guard {
    law: Box<dyn CongestionController>,
    allowance: Allowance,
    mail: Mail,
    next_tick: Option<Instant>,
    timeout: Option<Duration>,
    max_lag: Duration,
    datagram: u32,
    srtt: Duration,
    /// True if the law has asked for a window.
    windowed: bool,
    faults: u64,
    fault: Option<&'static str>,
}

impl Guard {
    /// Guards `law`.
    pub fn new(law: Box<dyn CongestionController>) -> Self {
        let path = PathView::default();
        let mut guard = Self {
            law,
            allowance: Allowance {
                window: Size::ZERO,
                rate: Rate::ZERO,
                quantum: Size::ZERO,
            },
            mail: Mail::default(),
            next_tick: None,
            timeout: None,
            max_lag: Duration::ZERO,
            datagram: path.datagram,
            srtt: path.srtt,
            windowed: false,
            faults: 0,
            fault: None,
        };
        guard.allowance = guard.cautious();
        guard.refresh();
        guard
    }

    /// Window, rate and quantum allowed now; always possible and never zero.
    pub const fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// Time at which the law's timer expires.
    pub const fn next_tick(&self) -> Option<Instant> {
        self.next_tick
    }

    /// The law's own timeout, if it has one.
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Longest time that a late sender may catch up.
    pub const fn max_lag(&self) -> Duration {
        self.max_lag
    }

    /// The law itself, for rare queries.
    pub fn law(&self) -> &dyn CongestionController {
        &*self.law
    }

    /// Number of invalid answers, and a description of the last.
    pub const fn faults(&self) -> (u64, Option<&'static str>) {
        (self.faults, self.fault)
    }

    /// Reason to close the session, if the law has failed.
    pub fn failure(&self) -> Option<String> {
        let fault = self.fault.filter(|_| self.faults >= MAX_FAULTS)?;
        let name = self.law.name();
        Some(format!(
            "the congestion law '{name}' is faulty: {MAX_FAULTS} times it asked for {fault}"
        ))
    }

    /// Sets the share of contended links to claim; false if the law does not support it.
    pub fn set_sharing(&mut self, sharing: Sharing) -> bool {
        self.law.set_sharing(sharing)
    }

    /// Makes the flow one of several that have one share together; false if the law does not
    /// support it.
    pub fn set_lanes(&mut self, lanes: u32) -> bool {
        self.law.set_lanes(lanes)
    }

    /// The connection opened.
    pub fn on_start(&mut self, now: Instant, path: &PathView) {
        self.learn(path);
        self.law.on_start(now, path);
        self.refresh();
    }

    /// A batch was sent.
    pub fn on_sent(&mut self, now: Instant, bytes: Size, path: &PathView) {
        self.law.on_sent(now, bytes, path);
        self.refresh();
    }

    /// Feedback.
    pub fn on_ack(&mut self, ack: &AckEvent) {
        self.learn(&ack.path);
        self.law.on_ack(ack);
        self.collect(ack.now);
    }

    /// Losses.
    pub fn on_loss(&mut self, loss: &LossEvent) {
        self.learn(&loss.path);
        self.law.on_loss(loss);
        self.refresh();
    }

    /// Any other event.
    pub fn notify(&mut self, now: Instant, event: impl FnOnce(&mut dyn CongestionController)) {
        event(&mut *self.law);
        self.collect(now);
    }

    /// True if messages of the law wait to be sent.
    pub fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }

    /// Outgoing messages to the law's receiving half.
    pub const fn mail(&mut self) -> &mut Mail {
        &mut self.mail
    }

    fn collect(&mut self, now: Instant) {
        if !self.mail.ask(|into| self.law.message(now, into)) {
            self.faults += 1;
            self.fault = Some("a message that is too long");
        }
        self.refresh();
    }

    fn learn(&mut self, path: &PathView) {
        self.datagram = path.datagram;
        self.srtt = path.srtt;
    }

    /// Asks the law; what cannot be is replaced, part by part.
    fn refresh(&mut self) {
        let mut asked = self.law.allowance();
        let fault = self.law.fault().or_else(|| self.wrong(&asked));
        if let Some(fault) = fault {
            self.faults += 1;
            self.fault = Some(fault);
            self.mend(&mut asked);
        }
        self.windowed |= asked.window != Size::UNLIMITED && fault.is_none();
        asked.quantum = asked.quantum.max(Size::from_bytes(1));
        self.allowance = asked;
        self.next_tick = self.law.next_tick();
        self.timeout = self.law.timeout();
        self.max_lag = self.law.max_lag();
    }

    /// Replaces by the last good answer what [`wrong`] found.
    fn mend(&self, asked: &mut Allowance) {
        if !possible(asked.rate) {
            asked.rate = self.allowance.rate;
        }
        if asked.window == Size::ZERO || self.is_endless(asked.window) {
            asked.window = self.allowance.window;
        }
    }

    /// True for a window without an end. A law has a window or it has none: one that had a window
    /// and now asks for all has grown beyond what integers hold.
    fn is_endless(&self, window: Size) -> bool {
        window > MOST_WINDOW && (window != Size::UNLIMITED || self.windowed)
    }

    /// The fault of an answer, if there is one. A float that is not a number became zero on its way
    /// here, an infinite one the largest integer.
    fn wrong(&self, asked: &Allowance) -> Option<&'static str> {
        if asked.rate < LEAST_RATE {
            Some("a rate of zero or not a number")
        } else if asked.rate > MOST_RATE {
            Some("an infinite rate")
        } else if asked.window == Size::ZERO {
            Some("a window of zero or not a number")
        } else if self.is_endless(asked.window) {
            Some("an infinite window")
        } else {
            None
        }
    }

    /// Ten datagrams per rtt, for a law that never gave a valid answer.
    fn cautious(&self) -> Allowance {
        let window = 10 * u64::from(self.datagram);
        Allowance {
            window: Size::from_bytes(window),
            rate: Rate::of(window, self.srtt.max(Duration::from_micros(1))).max(LEAST_RATE),
            quantum: Size::from_bytes(u64::from(self.datagram)),
        }
    }
}

fn possible(rate: Rate) -> bool {
    (LEAST_RATE..=MOST_RATE).contains(&rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A law that returns this window and rate.
    struct Says(f64, f64);

    impl CongestionController for Says {
        fn name(&self) -> &'static str {
            "says"
        }

        fn on_ack(&mut self, ack: &AckEvent) {
            let [rate, window] = [ack.delivered, ack.lost].map(Size::bytes);
            *self = Self(f64::from_bits(rate), f64::from_bits(window));
        }

        fn on_loss(&mut self, _loss: &LossEvent) {}

        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the mistake that laws make"
        )]
        fn allowance(&self) -> Allowance {
            Allowance {
                window: Size::from_bytes(self.1 as u64),
                rate: Rate::from_f64(self.0),
                quantum: Size::from_bytes(1_500),
            }
        }
    }

    fn told(guard: &mut Guard, rate: f64, window: f64) -> Allowance {
        guard.on_ack(&AckEvent {
            delivered: Size::from_bytes(rate.to_bits()),
            lost: Size::from_bytes(window.to_bits()),
            ..AckEvent::default()
        });
        guard.allowance()
    }

    #[test]
    fn what_cannot_be_is_replaced_and_named() {
        let mut guard = Guard::new(Box::new(Says(f64::NAN, f64::NAN)));
        let first = guard.allowance();
        assert!(first.rate > Rate::ZERO && first.window > Size::ZERO);
        assert_eq!(guard.faults().0, 1);
        let good = told(&mut guard, 1e9, 1e6);
        assert_eq!(good.rate, Rate::gbit(1));
        assert_eq!(guard.faults().0, 1);
        for (rate, window, words) in [
            (f64::NAN, 1e6, "a rate of zero or not a number"),
            (0.0, 1e6, "a rate of zero or not a number"),
            (-1.0, 1e6, "a rate of zero or not a number"),
            (f64::INFINITY, 1e6, "an infinite rate"),
            (1e9, f64::NAN, "a window of zero or not a number"),
            (1e9, 0.0, "a window of zero or not a number"),
            (1e9, 1e18, "an infinite window"),
        ] {
            let now = told(&mut guard, rate, window);
            assert_eq!((now.rate, now.window), (good.rate, good.window));
            assert_eq!(guard.faults().1, Some(words));
        }
        assert_eq!(guard.faults().0, 8);
        assert_eq!(guard.failure(), None);
        for _ in 8..100 {
            told(&mut guard, 1e9, f64::NAN);
        }
        let failure = guard.failure().unwrap();
        assert!(failure.contains("'says'"), "{failure}");
        assert!(failure.ends_with("a window of zero or not a number"));
    }
}
