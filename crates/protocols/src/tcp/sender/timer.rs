//! Acts on silence: a segment overtaken in time (RACK), a tail that needs a probe, a timeout, or a
//! peer that takes nothing more.

use std::time::Duration;

use farhaul_core::{session::earliest, stats::Why, time::Instant};

use super::{HEADER, Losses, Sender, Timers, episode::Phase};
use crate::tcp::scoreboard::Fate;

/// Longest time for which a receiver may hold an acknowledgement back (RFC 8985 §7.2).
const WORST_DELAY: Duration = Duration::from_millis(200);
/// Datagrams to which the path may narrow, one after the other (RFC 4821 §7.7).
const NARROWER: [u32; 3] = [1_472, 1_200, 548];
/// Timeouts in a row after which the path is believed to be narrower than the datagrams.
const BLACK_HOLE: u32 = 3;

impl Sender {
    /// Sets the timers after an acknowledgement; `progress` if something arrived.
    pub(super) fn rearm(&mut self, now: Instant, progress: bool) {
        if self.board.outstanding() == 0 {
            self.timers.rto = None;
            self.timers.pto = None;
            self.timers.reorder = None;
        } else if progress {
            self.timers.rto = Some(now + self.rto());
            self.arm_probe(now);
        }
        if self.peer.edge > self.board.nxt() {
            self.peer.probe_at = None;
        }
    }

    /// Sets the probe's timer if the tail may need one (RFC 8985 §7.2).
    pub(super) fn arm_probe(&mut self, now: Instant) {
        let wanted = self.config.tlp
            && self.sack
            && self.episode.phase == Phase::Open
            && self.probe.is_none()
            && self.board.sacked_segments() == 0
            && self.board.outstanding() > 0;
        self.timers.pto = wanted.then(|| {
            let mut wait = self
                .path
                .rtt
                .sampled()
                .map_or(Duration::from_secs(1), |r| r * 2);
            if self.board.outstanding() == 1 {
                wait += WORST_DELAY;
            }
            now + wait.max(Duration::from_millis(2))
        });
        // No later than the timeout, which it then puts off.
        if let (Some(pto), Some(rto)) = (&mut self.timers.pto, self.timers.rto) {
            *pto = rto.min(*pto);
        }
    }

    /// Acts on deadlines that passed.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        self.work(now);
        self.governor.on_timer(now);
        if due(self.timers.reorder) {
            let before = self.in_flight();
            let mut losses = Losses::default();
            self.detect(now, &mut losses);
            self.count_losses(&losses);
            let was_open = self.episode.phase == Phase::Open;
            self.tell_losses(now, &losses, before);
            if was_open && losses.packets > 0 {
                self.timers.pto = None;
                // Recovery begins without an acknowledgement that would have moved its window.
                self.step(0, false, true);
            }
        }
        if due(self.timers.pto) {
            self.timers.pto = None;
            self.probe_due = true;
            self.timers.rto = Some(now + self.rto());
        }
        if due(self.timers.rto) {
            self.expire(now);
        }
    }

    /// The retransmission timeout (RFC 6298 §5.4 to 5.7): everything not acknowledged is lost.
    fn expire(&mut self, now: Instant) {
        self.count.timeouts += 1;
        self.timers.backoff = self.timers.backoff.saturating_add(1);
        if self.board.first().is_some_and(|s| s.fate == Fate::Sacked) {
            self.board.renege();
        }
        self.narrow();
        let mut losses = Losses::default();
        let before = self.in_flight();
        self.duplicates = 0;
        self.repairs.clear();
        self.repaired.clear();
        self.rack.forget();
        for index in self.board.base()..self.board.end() {
            match self.board.get(index).map(|s| s.fate) {
                Some(Fate::InFlight) => self.lose(index, &mut losses),
                Some(Fate::Lost) => self.repairs.push_back(index),
                _ => {}
            }
        }
        self.count_losses(&losses);
        if self.timers.backoff <= 1 || self.episode.phase != Phase::Loss {
            self.episode.enter(Phase::Loss, self.board.nxt(), before);
        }
        self.judged = self.board.end();
        self.probe = None;
        self.probe_due = false;
        self.timers.pto = None;
        self.timers.reorder = None;
        let backoff = self.timers.backoff;
        self.governor
            .notify(now, |law| law.on_timeout(now, backoff));
        self.timers.rto = Some(now + self.rto());
    }

    /// A path that swallows every full datagram may be narrower than thought.
    fn narrow(&mut self) {
        if self.timers.backoff < BLACK_HOLE || self.path.proven >= self.payload() {
            return;
        }
        if let Some(narrower) = NARROWER.into_iter().find(|n| *n < self.path.datagram) {
            self.path.datagram = narrower;
            self.cut(narrower - HEADER);
        }
    }

    /// The peer's window is shut: ask after a while, ever less often (RFC 9293 §3.8.6.1). True if it
    /// is to be asked now.
    pub(crate) fn window_probe(&mut self, now: Instant) -> bool {
        let shut = self.board.outstanding() == 0
            && self.outbox.peek().is_some()
            && self.peer.edge <= self.board.nxt();
        if !shut {
            self.peer.probe_at = None;
            return false;
        }
        let due = self.peer.probe_at.is_some_and(|at| at <= now);
        if due {
            self.peer.probes += 1;
        }
        if due || self.peer.probe_at.is_none() {
            let wait = self.rto() * (1 << self.peer.probes.min(6));
            self.peer.probe_at = Some(now + wait.min(Duration::from_mins(1)));
        }
        due
    }

    /// Time to call [`Self::on_timeout`].
    pub(crate) fn next_timeout(&self) -> Option<(Instant, Why)> {
        let Timers {
            rto, pto, reorder, ..
        } = self.timers;
        let repair = [rto, pto, reorder].into_iter().flatten().min();
        earliest([
            repair.map(|at| (at, Why::Repair)),
            self.backlog.due().map(|at| (at, Why::Feedback)),
            self.wake().map(|at| (at, Why::Pacing)),
            self.governor.next_tick().map(|at| (at, Why::Law)),
            self.peer.probe_at.map(|at| (at, Why::Peer)),
        ])
    }
}
