//! Repeats attempts of a copy with `--retry`, after an end that is no fault of the command. The
//! connection was lost, the server is busy, or this host has no network. Each attempt continues
//! where the one before stopped.
//!
//! - Pauses double from a second to a minute. An attempt that gets further than any before makes the next pause short
//!   again, and the time that was given begins anew. What has to be sent again is no progress.
//! - Until a server has answered, this host may be without a network for a minute: what was typed may be wrong.
//! - No question is asked twice: a key that was accepted is known, and ssh runs without questions.

use std::time::Duration;

use farhaul_core::{rng::Rng, time::Instant};
use farhaul_io::{Stop, clock, system_rng};
use farhaul_transfer::{Advice, Outcome, Summary, TransferError};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde_json::json;

use super::{Run, events::RETRY};
use crate::{
    app::console::Level,
    connect::Carrier,
    exit::{self, Exit, Failure},
    interrupt, when,
};

/// The first pause.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest pause, but for a quarter.
const LONGEST: Duration = Duration::from_mins(1);

/// Longest time without a network here before a server has answered.
const UNREACHED: Duration = Duration::from_mins(1);

/// Record of the attempts so far.
struct Attempts {
    /// Longest time without progress.
    patience: Duration,
    began: Instant,
    /// Time at which there was progress last, or the first attempt began.
    progress: Instant,
    /// Bytes and files that were in place at the end of the attempt that got furthest.
    furthest: (u64, u64),
    /// Time after which no attempt begins.
    until: Option<Instant>,
    pause: Duration,
    /// True if a server has answered one of them.
    reached: bool,
    /// Sum of those that had a session.
    done: Option<Summary>,
    rng: Rng,
}

impl Attempts {
    fn new(now: Instant, patience: Duration, until: Option<Instant>, rng: Rng) -> Self {
        Self {
            patience,
            began: now,
            progress: now,
            furthest: (0, 0),
            until,
            pause: SHORTEST,
            reached: false,
            done: None,
            rng,
        }
    }

    /// An attempt had a session, or nearly; the outcome of all of them, which began `elapsed` ago.
    fn add_up(&mut self, now: Instant, elapsed: Duration, mut outcome: Outcome) -> Outcome {
        let code = outcome.error.as_ref().map(|e| e.code);
        // Who finds the destination locked at first has not had it.
        self.reached |= !matches!(code, Some(Exit::UdpBlocked | Exit::NetSetup | Exit::Locked));
        let summary = &outcome.summary;
        let bytes = summary.bytes_payload.saturating_add(summary.resumed_bytes);
        let files = summary.files.sent + summary.files.skipped;
        if bytes > self.furthest.0 || files > self.furthest.1 {
            self.furthest = (bytes.max(self.furthest.0), files.max(self.furthest.1));
            (self.progress, self.pause) = (now, SHORTEST);
        }
        if let Some(before) = &self.done {
            outcome.summary = outcome.summary.after(before, elapsed);
            // Each attempt warns of the same links.
            let mut seen = Vec::new();
            outcome.summary.warnings.retain(|warning| {
                let is_new = !seen.contains(warning);
                if is_new {
                    seen.push(warning.clone());
                }
                is_new
            });
        }
        if outcome.error.is_some() {
            self.done = Some(outcome.summary.clone());
        }
        outcome
    }

    /// Pause before the attempt after one that ended so; `None` if there is to be none.
    fn pause(&mut self, now: Instant, exit: Exit) -> Option<Duration> {
        let end = self.progress + self.patience;
        let end = self.until.map_or(end, |until| until.min(end));
        let left = end.since(now);
        if left.is_zero() || !self.may_help(now, exit) {
            return None;
        }
        let base = self.pause;
        self.pause = (base * 2).min(LONGEST);
        // Those that were cut off together do not come back together.
        let quarter = u64::try_from(base.as_nanos() / 4).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(self.rng.below(quarter * 2));
        Some((base * 3 / 4 + jitter).min(left))
    }

    /// True if the same command may end otherwise, with nobody doing anything about it.
    fn may_help(&self, now: Instant, exit: Exit) -> bool {
        match exit {
            Exit::ConnectionLost | Exit::Busy => true,
            Exit::NetSetup => self.reached || now.since(self.began) < UNREACHED,
            // What was there before may come back; a journal stays locked until the server knows that this end was gone.
            Exit::UdpBlocked | Exit::Ssh | Exit::Locked => self.reached,
            _ => false,
        }
    }
}

impl Run {
    /// Makes attempts until one ends for good; its outcome, with what all of them have done.
    pub(super) fn attempts(&mut self) -> Result<Outcome, Failure> {
        let began = clock::now();
        self.began.set(Some(began));
        let until = self.request.max_time.map(|lasts| began + lasts);
        let mut attempts = Attempts::new(began, self.patience(), until, system_rng());
        loop {
            let first = self.attempts == 0;
            self.attempts += 1;
            let ready = if first { Ok(()) } else { self.renew() };
            let ended = ready.and_then(|()| self.to_the_end().map_err(|e| self.failure(None, &e)));
            let now = clock::now();
            let ended = ended.map(|outcome| attempts.add_up(now, self.elapsed(), outcome));
            let (exit, text) = match &ended {
                Ok(Outcome { error: None, .. }) => return ended,
                Ok(Outcome { error: Some(e), .. }) => (exit::of_error(e), e.text.clone()),
                Err(failure) => (failure.exit, failure.cause().to_owned()),
            };
            // What went through a pipe cannot be had again.
            let again = !self.pipe.has_begun() && !self.is_left(exit);
            let pause = again.then(|| attempts.pause(now, exit)).flatten();
            let Some(pause) = pause else {
                return ended.map_err(|failure| self.summed(failure, attempts.done));
            };
            let stop = self.stop().map_err(|e| self.failure(None, &e))?;
            if !stop.is_set() {
                self.say_pause(exit, &text, pause);
            }
            if interrupted_within(&stop, pause) {
                let code = Exit::from_number(128 + interrupt::signal());
                let code = code.unwrap_or(Exit::INTERRUPTED);
                return Err(self.given_up(code, "interrupted", attempts.done, &text));
            }
            if until.is_some_and(|until| clock::now() >= until) {
                let why = "the time given by --max-time is over";
                return Err(self.given_up(Exit::Limit, why, attempts.done, &text));
            }
        }
    }

    /// True if nobody is there to try again with. Of a copy between two other hosts the receiving
    /// one leaves after a minute without a session, and a relay ends with its session.
    fn is_left(&self, exit: Exit) -> bool {
        let relayed = self.carrier.get() == Carrier::Relay;
        self.request.ordered.is_some() && (relayed || exit == Exit::UdpBlocked)
    }

    /// The failure of an attempt without a session, with what those before have done.
    fn summed(&self, failure: Failure, done: Option<Summary>) -> Failure {
        let Some(done) = done else { return failure };
        let mut object = self.object(&done);
        if let Some(members) = object.as_object_mut() {
            members.remove("exit");
            members.remove("error");
        }
        self.say(Level::Notice, &done.line());
        failure.with_object(object)
    }

    /// Time for which this copy may be without progress, if attempts are to be repeated at all.
    fn patience(&self) -> Duration {
        match self.planned {
            Some(_) => Duration::ZERO,
            None => self.request.retry,
        }
    }

    /// Makes ready for another attempt: by UDP again, and through ssh by a server that is started anew.
    fn renew(&mut self) -> Result<(), Failure> {
        self.carrier.set(Carrier::Udp);
        if self.request.ordered.is_some() || self.request.job.server().login.is_none() {
            return Ok(());
        }
        self.bridge = None;
        if let Some(typed) = self.request.options.typed.take() {
            let (_, remotes) = self.request.job.far_mut();
            for (remote, path) in remotes.iter_mut().zip(typed) {
                remote.path = path;
            }
        }
        self.through_ssh(&self.request.call.clone().without_questions())
    }

    /// Prints the end of an attempt and the pause before the next.
    fn say_pause(&self, exit: Exit, text: &str, pause: Duration) {
        let next = self.attempts + 1;
        if self.console.wants_events() {
            self.console.event(&json!({
                "type": RETRY,
                "time": when::now(),
                "elapsed_s": self.elapsed().as_secs_f64(),
                "attempt": next,
                "wait_s": pause.as_secs_f64(),
                "error": text,
                "exit": exit::object(exit),
            }));
        }
        let what = match exit {
            Exit::Busy | Exit::Locked => "the server",
            Exit::NetSetup | Exit::Ssh => "the network",
            _ => "the other end",
        };
        let seconds = pause.as_secs_f64();
        let text =
            format!("farhaul: {text}; waiting for {what}: attempt {next} begins in {seconds:.1} s");
        self.say(Level::Notice, &text);
    }

    /// Failure of a copy that ends while another attempt is waited for.
    fn given_up(&self, code: Exit, why: &str, done: Option<Summary>, text: &str) -> Failure {
        let text = format!("{why} before another attempt; the last one ended so: {text}");
        let error = TransferError::new(code, text)
            .fix(Advice::again("run the same command again to continue"));
        let summary = done.map(|mut summary| {
            summary.exit = (&error).into();
            summary
        });
        self.failure(summary.as_ref(), &error)
    }
}

/// Waits for so long; true as soon as `stop` is set.
fn interrupted_within(stop: &Stop, time: Duration) -> bool {
    let until = clock::now() + time;
    loop {
        let left = until.since(clock::now());
        if stop.is_set() || left.is_zero() {
            return stop.is_set();
        }
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        let left = Timespec::try_from(left).ok();
        if let Err(e) = poll(&mut fds, left.as_ref())
            && e != Errno::INTR
        {
            return stop.is_set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    fn attempts(patience: Duration) -> Attempts {
        Attempts::new(at(0), patience, None, Rng::new(7))
    }

    fn outcome(code: Exit, bytes: u64) -> Outcome {
        let error = TransferError::new(code, "ended");
        let mut summary = Summary::of_error(true, &error);
        summary.bytes_payload = bytes;
        summary.warnings = vec!["a link".into()];
        Outcome {
            summary,
            error: Some(error),
        }
    }

    #[test]
    fn pauses_double_to_a_minute_and_are_short_again_after_progress() {
        let mut attempts = attempts(HOUR);
        for base in [1_u64, 2, 4, 8, 16, 32, 60, 60] {
            let pause = attempts.pause(at(0), Exit::ConnectionLost).unwrap();
            let base = Duration::from_secs(base);
            assert!(pause >= base * 3 / 4 && pause <= base * 5 / 4, "{pause:?}");
        }
        attempts.add_up(at(9), HOUR, outcome(Exit::ConnectionLost, 5));
        let pause = attempts.pause(at(9), Exit::ConnectionLost).unwrap();
        assert!(pause < SHORTEST * 2, "{pause:?}");
    }

    #[test]
    fn it_ends_when_the_time_is_over_in_which_nothing_arrived() {
        let mut attempts = attempts(Duration::from_secs(100));
        attempts.pause = LONGEST;
        let last = attempts.pause(at(99), Exit::ConnectionLost);
        assert_eq!(last, Some(Duration::from_secs(1)), "what is left");
        assert_eq!(attempts.pause(at(100), Exit::ConnectionLost), None);
        attempts.add_up(at(150), HOUR, outcome(Exit::ConnectionLost, 5));
        attempts.add_up(at(180), HOUR, outcome(Exit::ConnectionLost, 5));
        assert!(attempts.pause(at(249), Exit::ConnectionLost).is_some());
        assert!(attempts.pause(at(250), Exit::ConnectionLost).is_none());
        attempts.until = Some(at(200));
        assert!(attempts.pause(at(200), Exit::ConnectionLost).is_none());
        let mut never = self::attempts(Duration::ZERO);
        assert_eq!(never.pause(at(0), Exit::ConnectionLost), None);
    }

    #[test]
    fn what_was_typed_wrong_is_not_tried_again_and_a_silent_server_only_if_it_has_answered() {
        let mut attempts = attempts(HOUR);
        let always = [Exit::ConnectionLost, Exit::Busy, Exit::NetSetup];
        let later = [Exit::UdpBlocked, Exit::Ssh, Exit::Locked];
        for exit in Exit::ALL.into_iter().chain([Exit::Signal(2)]) {
            let again = attempts.may_help(at(59), exit);
            assert_eq!(again, always.contains(&exit), "{exit:?}");
        }
        assert!(
            !attempts.may_help(at(60), Exit::NetSetup),
            "it was typed wrong"
        );
        attempts.add_up(at(0), HOUR, outcome(Exit::Locked, 0));
        assert!(!attempts.reached);
        attempts.add_up(at(0), HOUR, outcome(Exit::NetSetup, 0));
        assert!(!attempts.reached);
        attempts.add_up(at(0), HOUR, outcome(Exit::ConnectionLost, 0));
        for exit in Exit::ALL {
            let again = always.contains(&exit) || later.contains(&exit);
            assert_eq!(attempts.may_help(at(61), exit), again, "{exit:?}");
        }
    }

    #[test]
    fn the_outcome_is_that_of_all_attempts() {
        let mut attempts = attempts(HOUR);
        for bytes in [5, 0, 7] {
            attempts.add_up(at(0), HOUR, outcome(Exit::ConnectionLost, bytes));
        }
        let last = attempts.add_up(at(0), HOUR, outcome(Exit::VerifyFailed, 1));
        assert_eq!(last.summary.bytes_payload, 13);
        assert_eq!(last.summary.warnings, ["a link"]);
        assert_eq!(last.error.map(|e| e.code), Some(Exit::VerifyFailed));
    }

    #[test]
    fn a_stop_ends_a_pause_at_once() {
        let stop = Stop::new().unwrap();
        assert!(!interrupted_within(&stop, Duration::from_millis(1)));
        stop.set();
        // Nobody would wait for the end of this test.
        assert!(interrupted_within(&stop, HOUR * 24));
    }
}
