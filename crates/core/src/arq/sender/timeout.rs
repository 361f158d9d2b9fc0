//! Acts when no feedback arrives. The sender repeats the oldest packets, beyond the window, further
//! and further apart but never more than a second. It also requests a report on unknown packets.

use std::time::Duration;

use super::{Content, Lost, MAX_TIMEOUT, MOST_PROBES, PROBES, Sender};
use crate::{send::State, session::earliest, stats::Why, time::Instant};

/// The shortest timeout that a law can set.
const LEAST_TIMEOUT: Duration = Duration::from_millis(1);

impl Sender {
    /// No feedback in time, or the law's own timer.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.flight.governor.on_timer(now) {
            self.request_feedback();
        }
        if self.silence_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.clocks.backoff += 1;
        self.clocks.progress_at = Some(now);
        let backoff = self.clocks.backoff;
        let probes = (PROBES << backoff.saturating_sub(1).min(8)).min(MOST_PROBES);
        // What a full store dropped says nothing of the path, and would be dropped again.
        if !self.is_store_full() {
            self.flight.on_silence(now, backoff);
            self.request_feedback();
            self.clocks.silent_at = Some(now);
            self.clocks.unheard = backoff > 1;
            self.clocks.probes = probes;
        }
        self.coverage.want = Some(self.coverage.end.max(self.settled()));
        self.coverage.asked_at = Some(now);
        self.repair_oldest(probes);
    }

    /// Re-sends the oldest outstanding pieces without waiting to hear of them. Path MTU probes
    /// among them are over: nothing is sent again for them. They do not count, and their size may
    /// be tried again soon.
    fn repair_oldest(&mut self, probes: u32) {
        let mut lost = Lost::default();
        let mut found = 0;
        for number in self.settled()..self.next_number() {
            let Some(sent) = self.flight.log().get(number) else {
                break;
            };
            if sent.state == State::Outstanding {
                let probe = sent.content.content == Content::Probe;
                self.lose(number, &mut lost);
                found += u32::from(!probe);
                if found == probes {
                    break;
                }
            }
        }
    }

    fn silence_deadline(&self) -> Option<Instant> {
        if self.in_flight() == 0 {
            return None;
        }
        let own = || self.path.rtt.timeout(self.interval());
        let timeout = self
            .flight
            .governor
            .timeout()
            .unwrap_or_else(own)
            .max(LEAST_TIMEOUT);
        let longest = MAX_TIMEOUT.max(timeout);
        let timeout = timeout
            .saturating_mul(1 << self.clocks.backoff.min(6))
            .min(longest);
        self.clocks.progress_at.map(|at| at + timeout)
    }

    /// The next deadline.
    pub fn next_timeout(&self) -> Option<(Instant, Why)> {
        let silence = self.silence_deadline().map(|at| (at, Why::Repair));
        let law = self.flight.governor.next_tick().map(|at| (at, Why::Law));
        let room = self.window().min(self.granted_next());
        let sendable = self.peek().is_some()
            && !self.is_full()
            && !self.is_mute()
            && (self.in_flight() < room || self.clocks.probes > 0);
        let pacing = sendable
            .then(|| self.flight.governor.wake())
            .flatten()
            .map(|at| (at, Why::Pacing));
        let copy = self
            .tail
            .due()
            .filter(|_| self.in_flight() < room && !self.is_mute());
        earliest([silence, law, pacing, copy.map(|at| (at, Why::Repair))])
    }
}
