//! The receiving half: which packets arrived, what is missing, and what to report. A gap is
//! reported at once; what arrived is acknowledged every 10 ms in full and every 64 packets in
//! short.
//!
//! libudt looks at its clock only when a packet arrives or 100 ms after the last one, and reports a
//! gap once. The fixed receiver keeps its deadlines and reports a hole again after a round trip and
//! its variations, for as long as it is open. Never is anything beyond the highest packet received
//! named: libudt breaks the connection over it. Source: UDT 4.11 `core.cpp`.

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{codec::Writer, path::Rtt, recv::Gaps, time::Instant};

use super::{
    Behaviour, UdtConfig,
    estimate::Estimate,
    rtt,
    send::SYN,
    seq,
    wire::{AckSpeed, AckState, Control, put_run},
};

/// Packets between light acknowledgements.
const LIGHT: u32 = 64;
/// Acknowledgements whose answers are waited for.
const HISTORY: usize = 1_024;
/// Silence after which libudt looks at its clock.
const LAZY: Duration = Duration::from_millis(100);
/// Bytes of the longest loss list reported at once.
pub(super) const MAX_NAK: usize = 1_024;

/// Acknowledgements sent so far.
#[derive(Debug)]
struct Reported {
    number: u32,
    /// Number acknowledged in full.
    full: u64,
    /// Number acknowledged in full or light.
    any: u64,
    /// Confirmed by the peer.
    confirmed: u64,
    /// The window last advertised.
    window: u64,
    at: Instant,
    long_at: Option<Instant>,
    history: VecDeque<(u32, u64, Instant)>,
}

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    behaviour: Behaviour,
    estimate: Estimate,
    gaps: Gaps,
    /// UDP payload of a full datagram.
    datagram: usize,
    reported: Reported,
    /// Packets since the last full acknowledgement, and light ones among them.
    since_full: u32,
    lights: u32,
    arrived_at: Instant,
    /// True if an acknowledgement is due whatever the clock says.
    due_now: bool,
}

impl Receiver {
    /// Packets are numbered from `isn`; full ones have `datagram` bytes of UDP payload.
    pub(super) fn new(config: &UdtConfig, now: Instant, isn: u32, datagram: usize) -> Self {
        let first = seq::initial(isn);
        Self {
            behaviour: config.behaviour,
            estimate: Estimate::new(config.behaviour, config.wake),
            gaps: Gaps::new(first),
            datagram,
            reported: Reported {
                number: 0,
                full: first,
                any: first,
                confirmed: first,
                window: u64::MAX,
                at: now,
                long_at: None,
                history: VecDeque::new(),
            },
            since_full: 0,
            lights: 0,
            arrived_at: now,
            due_now: false,
        }
    }

    /// Everything before is received or given up.
    pub(super) fn prefix(&self) -> u64 {
        self.gaps.prefix()
    }

    /// Data packets arrived together.
    pub(super) fn on_batch(&mut self, now: Instant, count: u64, rtt: &Rtt) {
        if count == 0 {
            return;
        }
        self.estimate.on_batch(now, count);
        if self.ack_at(rtt).is_some_and(|at| at <= now) {
            self.due_now = true;
        }
        self.arrived_at = now;
    }

    /// Takes a data packet of `len` bytes of UDP payload, with room for `window` packets from the
    /// last full acknowledgement on. Returns its number if it is new and within the window.
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        seq: u32,
        len: usize,
        window: u64,
    ) -> Option<u64> {
        let number = seq::Number::expand(seq, self.gaps.next());
        if number >= self.reported.full.saturating_add(window) {
            return None;
        }
        self.since_full += 1;
        if number >= self.gaps.next() {
            self.estimate.on_packet(now, number);
        }
        if !self.gaps.on_packet(number) {
            return None;
        }
        // The end of what was sent in one go: its sender waits for nothing else. Of an equal that sends
        // larger packets than were agreed on, the largest is a full one.
        self.datagram = self.datagram.max(len);
        self.due_now |= len < self.datagram;
        Some(number)
    }

    /// The peer gives up `first..=last`; returns the numbers that are not waited for any more. Of
    /// several the last one is left out: libudt names one too many, and a packet of the next
    /// message is not given up.
    pub(super) fn on_drop(&mut self, first: u32, last: u32, window: u64) -> Option<Range<u64>> {
        let first = seq::Number::expand(first, self.gaps.next());
        let last = seq::Number::expand(last, self.gaps.next());
        if last >= self.reported.full.saturating_add(window) {
            return None;
        }
        let end = if first == last { last + 1 } else { last };
        self.gaps.miss_below(end);
        self.gaps.give_up(first..end);
        self.due_now = true;
        Some(first..end)
    }

    /// The peer has seen acknowledgement `number`; the round trip that took.
    pub(super) fn on_ack2(&mut self, now: Instant, number: u32) -> Option<Duration> {
        let index = self.reported.history.iter().position(|h| h.0 == number)?;
        let (_, upto, sent) = self.reported.history[index];
        self.reported.history.drain(..=index);
        self.reported.confirmed = self.reported.confirmed.max(upto);
        Some(now.since(sent)).filter(|d| !d.is_zero())
    }

    /// The reader made room: a sender that was held up is to know.
    pub(super) fn on_room(&mut self, window: u64) {
        let known = self.reported.window;
        if known < 64 && window >= known.saturating_mul(4) {
            self.due_now = true;
        }
    }

    /// Time at which a full acknowledgement is due by the clock, if there is anything to say.
    fn ack_at(&self, rtt: &Rtt) -> Option<Instant> {
        let prefix = self.prefix();
        let timer = self.reported.at + SYN;
        if prefix > self.reported.full {
            Some(timer)
        } else if prefix > self.reported.confirmed {
            let since = self.reported.long_at.unwrap_or(self.reported.at);
            Some(timer.max(since + rtt::timeout(rtt)))
        } else {
            None
        }
    }

    /// Time to look again.
    pub(super) fn deadline(&self, rtt: &Rtt) -> Option<Instant> {
        if self.due_now || self.gaps.has_fresh() {
            return Some(Instant::EPOCH);
        }
        let ack = self.ack_at(rtt).map(|at| match self.behaviour {
            Behaviour::Libudt => at.max(self.arrived_at + LAZY),
            Behaviour::Fixed => at,
        });
        let nak = self.pause(rtt).and_then(|pause| self.gaps.due(pause));
        [ack, nak].into_iter().flatten().min()
    }

    /// The acknowledgement to send now, with room for `window` more packets.
    pub(super) fn ack(&mut self, now: Instant, window: u64, rtt: &Rtt) -> Option<Control<'static>> {
        let prefix = self.prefix();
        let timely = self.behaviour == Behaviour::Fixed || now >= self.arrived_at + LAZY;
        let by_clock = timely && self.ack_at(rtt).is_some_and(|at| at <= now);
        let due = std::mem::take(&mut self.due_now) || by_clock;
        if due && !self.is_quiet(now, prefix, window, rtt) {
            return Some(self.full(now, prefix, window, rtt));
        }
        if self.since_full >= LIGHT * (self.lights + 1) {
            self.lights = self.since_full / LIGHT;
            if prefix > self.reported.any || self.behaviour == Behaviour::Libudt {
                self.reported.any = prefix;
                let next = seq::Number::wrap(prefix);
                return Some(Control::Ack {
                    number: 0,
                    next,
                    state: None,
                });
            }
        }
        None
    }

    /// True if an acknowledgement would tell nothing. libudt repeats a number only a round trip and
    /// its variations after its last long acknowledgement, whatever arrived since.
    fn is_quiet(&self, now: Instant, prefix: u64, window: u64, rtt: &Rtt) -> bool {
        let reported = &self.reported;
        let since = reported.long_at.unwrap_or(reported.at);
        let repeats = self.behaviour == Behaviour::Libudt
            && prefix == reported.full
            && now < since + rtt::timeout(rtt);
        (prefix == reported.confirmed || repeats) && window <= reported.window
    }

    fn full(&mut self, now: Instant, prefix: u64, window: u64, rtt: &Rtt) -> Control<'static> {
        let reported = &mut self.reported;
        let long = reported.long_at.is_none_or(|at| now.since(at) > SYN);
        if long {
            reported.long_at = Some(now);
        }
        reported.number = (reported.number + 1) & seq::MAX;
        (reported.full, reported.any, reported.window, reported.at) = (prefix, prefix, window, now);
        if reported.history.len() == HISTORY {
            reported.history.pop_front();
        }
        reported.history.push_back((reported.number, prefix, now));
        (self.since_full, self.lights) = (0, 0);
        let [rtt_us, var_us] = rtt::words(rtt);
        let speed = long.then(|| AckSpeed {
            arrival: self.estimate.arrival(),
            capacity: self.estimate.capacity(),
        });
        Control::Ack {
            number: reported.number,
            next: seq::Number::wrap(prefix),
            state: Some(AckState {
                rtt_us,
                var_us,
                window: u32::try_from(window).unwrap_or(u32::MAX).max(2),
                speed,
            }),
        }
    }

    /// Pause after which a hole is reported again; libudt never does so.
    fn pause(&self, rtt: &Rtt) -> Option<Duration> {
        (self.behaviour == Behaviour::Fixed).then(|| rtt::timeout(rtt) + SYN)
    }

    /// Writes packets that are missing and have not been reported, or not for long, into `list`;
    /// returns its length.
    pub(super) fn nak(&mut self, now: Instant, rtt: &Rtt, list: &mut [u8; MAX_NAK]) -> usize {
        let pause = self.pause(rtt);
        let next = || self.gaps.next_report(now, pause, u64::MAX);
        let mut due: Vec<_> = std::iter::from_fn(next).take(MAX_NAK / 8).collect();
        due.sort_unstable_by_key(|range| range.start);
        let mut w = Writer::new(list);
        for run in due {
            put_run(
                &mut w,
                seq::Number::wrap(run.start),
                seq::Number::wrap(run.end - 1),
            )
            .expect("a run takes 8 bytes at most");
        }
        w.len()
    }
}

#[cfg(test)]
mod tests;
