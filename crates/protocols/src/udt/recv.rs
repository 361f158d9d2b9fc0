//! The receiving half: which packets arrived, what is missing, and what to say about it. A gap is told
//! at once; what arrived is told every 10 ms in full and every 64 packets in short.
//!
//! libudt looks at its clock only when a packet arrives or 100 ms after the last one, and tells a gap
//! once; the fixed receiver keeps its deadlines and tells a hole again after a round trip and its
//! variations, for as long as it is open. Never is anything beyond the highest packet received named:
//! libudt breaks the connection over it. Source: UDT 4.11 `core.cpp`.

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{codec::Writer, recv::Gaps, time::Instant};

use super::{
    Behaviour,
    estimate::Estimate,
    rtt::RoundTrip,
    send::SYN,
    seq,
    wire::{AckSpeed, AckState, Control, put_run},
};

/// Packets between light acknowledgements.
const LIGHT: u32 = 64;
/// Acknowledgements whose answers are waited for.
const HISTORY: usize = 1_024;
/// After this much silence libudt looks at its clock.
const LAZY: Duration = Duration::from_millis(100);
/// Bytes of the longest loss list told at once.
pub(super) const MAX_NAK: usize = 1_024;

/// What became of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is new, under this number.
    New(u64),
    /// It was here before.
    Duplicate,
    /// It is beyond the window.
    Outside,
}

/// Acknowledgements sent so far.
#[derive(Debug)]
struct Told {
    number: u32,
    /// Said in full.
    full: u64,
    /// Said in full or light.
    any: u64,
    /// Confirmed by the peer.
    confirmed: u64,
    /// The window last said.
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
    told: Told,
    /// Packets since the last full acknowledgement, and light ones among them.
    since_full: u32,
    lights: u32,
    arrived_at: Instant,
    /// An acknowledgement is due whatever the clock says.
    due_now: bool,
}

impl Receiver {
    /// Packets are numbered from `isn`; full ones have `datagram` bytes of UDP payload.
    pub(super) fn new(behaviour: Behaviour, now: Instant, isn: u32, datagram: usize) -> Self {
        let first = seq::initial(isn);
        Self {
            behaviour,
            estimate: Estimate::new(behaviour),
            gaps: Gaps::new(first),
            datagram,
            told: Told {
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
    pub(super) fn on_batch(&mut self, now: Instant, count: u64, rtt: &RoundTrip) {
        if count == 0 {
            return;
        }
        self.estimate.on_batch(now, count);
        if self.ack_at(rtt).is_some_and(|at| at <= now) {
            self.due_now = true;
        }
        self.arrived_at = now;
    }

    /// A data packet of `len` bytes of UDP payload arrived, with room for `window` packets from the
    /// last full acknowledgement on.
    pub(super) fn on_data(&mut self, now: Instant, seq: u32, len: usize, window: u64) -> Arrival {
        let number = seq::expand(seq, self.gaps.next());
        if number >= self.told.full.saturating_add(window) {
            return Arrival::Outside;
        }
        self.since_full += 1;
        if number >= self.gaps.next() {
            self.estimate.on_packet(now, number);
        }
        if !self.gaps.on_packet(number) {
            return Arrival::Duplicate;
        }
        // The end of what was sent in one go: its sender waits for nothing else. Of an equal that sends
        // larger packets than were agreed on, the largest is a full one.
        self.datagram = self.datagram.max(len);
        self.due_now |= len < self.datagram;
        Arrival::New(number)
    }

    /// The peer gives up `first..=last`; returns what is not waited for any more. Of several the last
    /// one is left out: libudt names one too many, and a packet of the next message is not given up.
    pub(super) fn on_drop(&mut self, first: u32, last: u32, window: u64) -> Option<Range<u64>> {
        let first = seq::expand(first, self.gaps.next());
        let last = seq::expand(last, self.gaps.next());
        if last >= self.told.full.saturating_add(window) {
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
        let index = self.told.history.iter().position(|h| h.0 == number)?;
        let (_, upto, sent) = self.told.history[index];
        self.told.history.drain(..=index);
        self.told.confirmed = self.told.confirmed.max(upto);
        Some(now.since(sent)).filter(|d| !d.is_zero())
    }

    /// The reader made room: a sender that was held up is told.
    pub(super) fn on_room(&mut self, window: u64) {
        let told = self.told.window;
        if told != u64::MAX && told < 64 && window >= told.saturating_mul(4) {
            self.due_now = true;
        }
    }

    /// When a full acknowledgement is due by the clock, if there is anything to say.
    fn ack_at(&self, rtt: &RoundTrip) -> Option<Instant> {
        let prefix = self.prefix();
        let timer = self.told.at + SYN;
        if prefix > self.told.full {
            Some(timer)
        } else if prefix > self.told.confirmed {
            let since = self.told.long_at.unwrap_or(self.told.at);
            Some(timer.max(since + rtt.patience()))
        } else {
            None
        }
    }

    /// When to look again.
    pub(super) fn deadline(&self, rtt: &RoundTrip) -> Option<Instant> {
        if self.due_now || self.gaps.has_fresh() {
            return Some(Instant::EPOCH);
        }
        let ack = self.ack_at(rtt).map(|at| match self.behaviour {
            Behaviour::Libudt => at.max(self.arrived_at + LAZY),
            Behaviour::Fixed => at,
        });
        let nak = self.repeat_at(rtt);
        [ack, nak].into_iter().flatten().min()
    }

    fn repeat_at(&self, rtt: &RoundTrip) -> Option<Instant> {
        self.gaps.due(rtt.patience() + SYN)
    }

    /// The acknowledgement to send now, with room for `window` more packets.
    pub(super) fn ack(
        &mut self,
        now: Instant,
        window: u64,
        rtt: &RoundTrip,
    ) -> Option<Control<'static>> {
        let prefix = self.prefix();
        let timely = self.behaviour == Behaviour::Fixed || now >= self.arrived_at + LAZY;
        let by_clock = timely && self.ack_at(rtt).is_some_and(|at| at <= now);
        if std::mem::take(&mut self.due_now) || by_clock {
            let quiet = prefix == self.told.confirmed && window <= self.told.window;
            if !quiet {
                return Some(self.full(now, prefix, window, rtt));
            }
        }
        if self.since_full >= LIGHT * (self.lights + 1) {
            self.lights = self.since_full / LIGHT;
            if prefix > self.told.any || self.behaviour == Behaviour::Libudt {
                self.told.any = prefix;
                return Some(Control::Ack {
                    number: 0,
                    next: seq::wrap(prefix),
                    state: None,
                });
            }
        }
        None
    }

    fn full(
        &mut self,
        now: Instant,
        prefix: u64,
        window: u64,
        rtt: &RoundTrip,
    ) -> Control<'static> {
        let told = &mut self.told;
        let long = told.long_at.is_none_or(|at| now.since(at) > SYN);
        if long {
            told.long_at = Some(now);
        }
        told.number = if told.number == seq::MAX {
            0
        } else {
            told.number + 1
        };
        (told.full, told.any, told.window, told.at) = (prefix, prefix, window, now);
        if told.history.len() == HISTORY {
            told.history.pop_front();
        }
        told.history.push_back((told.number, prefix, now));
        (self.since_full, self.lights) = (0, 0);
        let (rtt_us, var_us) = rtt.words();
        let speed = long.then(|| AckSpeed {
            arrival: self.estimate.arrival(),
            capacity: self.estimate.capacity(),
        });
        Control::Ack {
            number: told.number,
            next: seq::wrap(prefix),
            state: Some(AckState {
                rtt_us,
                var_us,
                window: u32::try_from(window).unwrap_or(u32::MAX).max(2),
                speed,
            }),
        }
    }

    /// Writes what is missing and has not been told, or not for long, into `list`; returns its length.
    pub(super) fn nak(&mut self, now: Instant, rtt: &RoundTrip, list: &mut [u8; MAX_NAK]) -> usize {
        let mut due: Vec<Range<u64>> = Vec::new();
        let pause = rtt.patience() + SYN;
        while due.len() < MAX_NAK / 8
            && let Some(range) = self.gaps.take_due(now, pause)
        {
            due.push(range);
        }
        while due.len() < MAX_NAK / 8
            && let Some(range) = self.gaps.take_fresh()
        {
            due.push(range);
        }
        due.sort_unstable_by_key(|range| range.start);
        let mut w = Writer::new(list);
        for range in due {
            for run in self.gaps.within(range).collect::<Vec<_>>() {
                let (first, last) = (seq::wrap(run.start), seq::wrap(run.end - 1));
                if put_run(&mut w, first, last).is_err() {
                    // Told with the next list.
                    self.gaps.put_back(run);
                } else if self.behaviour == Behaviour::Fixed {
                    self.gaps.on_reported(now, run);
                }
            }
        }
        w.len()
    }
}

#[cfg(test)]
mod tests;
