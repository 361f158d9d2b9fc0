//! Summarises the result in one object for people and machines, also after a failure.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::{
    stats::{Stats, Why},
    units::{Rate, Size},
};
use serde::Serialize;

use crate::{
    error::TransferError,
    failure_log::Failure,
    progress::{Phase, Progress},
    role::RoleCore,
    scan::Partition,
    stripe::Striped,
    wire::{Exit, Sending, Usage, path},
};

/// Counts of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Files {
    /// Found at the source.
    pub total: u64,
    /// Received as sent, and in place.
    pub sent: u64,
    /// Files in place already, by content.
    pub skipped: u64,
    /// Files not in place.
    pub failed: u64,
    /// Files and folders deleted at the destination, since the source lacks them.
    pub deleted: u64,
}

/// Exit of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// The exit code.
    pub code: u8,
    /// Name of the exit code.
    pub name: &'static str,
    /// True if the same command may succeed later.
    pub retryable: bool,
    /// Event; empty on success.
    pub text: String,
    /// Advice; may be empty.
    pub fix: String,
}

impl Ended {
    /// Exit by this error, or success.
    fn of(error: Option<&TransferError>) -> Self {
        let success = || Self {
            code: Exit::Ok.number(),
            name: Exit::Ok.name(),
            retryable: false,
            text: String::new(),
            fix: String::new(),
        };
        error.map_or_else(success, Self::from)
    }
}

impl From<&TransferError> for Ended {
    fn from(error: &TransferError) -> Self {
        Self {
            code: error.code.number(),
            name: error.code.name(),
            retryable: error.retryable(),
            text: error.text.clone(),
            fix: error.fix.to_string(),
        }
    }
}

/// Round-trip times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rtt {
    /// Smallest.
    pub min: Option<f64>,
    /// Smoothed, at the end.
    pub smoothed: Option<f64>,
}

/// Kind of verification, and its method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verify {
    /// `received`: what arrived and was written is what was sent. `disk`: and the receiver's disk gives it
    /// back.
    pub what: &'static str,
    /// Algorithm.
    pub alg: &'static str,
    /// Root of the file, for a transfer of one file without holes.
    pub root: Option<String>,
}

impl Verify {
    fn of(facts: &SummaryInput<'_>) -> Self {
        Self {
            what: if facts.verify_disk {
                "disk"
            } else {
                "received"
            },
            alg: "blake3",
            root: facts.core.root().map(|r| path::hex(&r)),
        }
    }
}

/// Bytes below which no figures of the cost of sending are shown: start and end of the programs
/// outweigh it.
const ENOUGH: u64 = 16 << 20;
/// Bytes of placed content below which its cost is no figure of sending: handshake and first probes
/// outweigh it.
const MEASURED: u64 = 1 << 20;

/// Resources used by one end's process; null where that end did not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct End {
    /// Processor time during the transfer.
    pub cpu_seconds: Option<f64>,
    /// Processor time over the content that was placed, % per Gbit/s; null of less than 1 MiB.
    pub cpu_percent_per_gbps: Option<f64>,
    /// The most memory the process has held.
    pub max_rss_bytes: Option<u64>,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ratios are shown with a few digits"
)]
impl End {
    fn new(usage: Option<Usage>, bytes: u64) -> Self {
        let seconds = usage.map(|u| u.cpu_micros as f64 / 1e6);
        Self {
            cpu_seconds: seconds,
            cpu_percent_per_gbps: seconds
                .filter(|_| bytes >= MEASURED)
                .map(|s| s * 100.0 / (bytes as f64 * 8.0 / 1e9)),
            max_rss_bytes: usage.map(|u| u.max_rss).filter(|n| *n > 0),
        }
    }

    /// Adds what another session of this end has used, `bytes` having been placed in all.
    fn after(self, before: &Self, bytes: u64) -> Self {
        let seconds = [self.cpu_seconds, before.cpu_seconds].into_iter().flatten();
        let most = self.max_rss_bytes.max(before.max_rss_bytes);
        let cpu = self.cpu_seconds.map(|_| seconds.sum::<f64>());
        Self {
            cpu_seconds: cpu,
            cpu_percent_per_gbps: cpu
                .filter(|_| bytes >= MEASURED)
                .map(|s| s * 100.0 / (bytes as f64 * 8.0 / 1e9)),
            max_rss_bytes: most,
        }
    }

    /// Text for people; the processor time only if `enough` was sent.
    fn words(&self, enough: bool) -> String {
        let cpu = self.cpu_percent_per_gbps.filter(|_| enough);
        let cpu = cpu.map_or(String::new(), |c| {
            format!("{c:.1} % of a core per Gbit/s, ")
        });
        let rss = self.max_rss_bytes;
        let rss = rss.map_or("-".into(), |n| Size::from_bytes(n).to_string());
        format!("{cpu}{rss} of memory")
    }
}

/// The end of a transfer, as far as this side knows it. Unknown values are null, numbers finite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name and version of this object.
    pub schema: &'static str,
    /// True if everything is in place, and verified according to [`Verify::what`].
    pub ok: bool,
    /// `put` or `get`.
    pub direction: &'static str,
    /// Content bytes placed in this run.
    pub bytes_payload: u64,
    /// Content bytes that need not be sent: found in place, or holes.
    pub resumed_bytes: u64,
    /// Content bytes of all files, once all of them are listed.
    pub bytes_total: Option<u64>,
    /// UDP payload bytes sent.
    pub bytes_wire_sent: u64,
    /// UDP payload bytes received.
    pub bytes_wire_received: u64,
    /// UDP payload bytes of feedback.
    pub bytes_feedback: u64,
    /// Feedback per content; null, as the next two, where less than 1 MiB was placed.
    pub feedback_kib_per_gib: Option<f64>,
    /// Content sent again over content sent.
    pub retransmit_ratio: Option<f64>,
    /// Packets lost over packets sent.
    pub loss_ratio: Option<f64>,
    /// Content placed per second of the whole session.
    pub goodput_bps: Option<f64>,
    /// Seconds since the session began.
    pub elapsed_s: f64,
    /// Round-trip times.
    pub rtt_s: Rtt,
    /// Sessions that carried it.
    pub lanes: u32,
    /// Datagrams sent and received.
    pub datagrams: u64,
    /// UDP payload bytes of a full datagram.
    pub datagram_bytes: u32,
    /// Counts of files.
    pub files: Files,
    /// Times that content was sent again because it was wrong or had changed.
    pub retries: u64,
    /// Kind of verification, and its method.
    pub verify: Verify,
    /// Cost of the transfer to the side that has the files.
    pub sender: End,
    /// Cost of the transfer to the side that gets them.
    pub receiver: End,
    /// Share of time for which the sender was held, by reason, and of the rest; empty if it did not report
    /// it.
    pub limited_by: BTreeMap<&'static str, f64>,
    /// Files that are not in place; at most 1,000.
    pub failures: Vec<Failure>,
    /// Warnings; at most 1,000.
    pub warnings: Vec<String>,
    /// Exit of the process.
    pub exit: Ended,
    /// Partition, of one of several shards, once everything was listed.
    #[serde(skip)]
    pub partition: Option<Partition>,
    /// Stripes of it that were complete at the receiver, other than those that were found in place.
    #[serde(skip)]
    pub stripes: Vec<Striped>,
    /// Limit of the rate, if one was set.
    #[serde(skip)]
    pub max_rate: Option<Rate>,
    /// Counters of the sender, where they are known.
    #[serde(skip)]
    sending: Option<Sending>,
    /// Time for which the other end was silent.
    #[serde(skip)]
    silent: Duration,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ratios are shown with a few digits"
)]
fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}

/// Shares of `seconds`: what the sender waited for, and `sending` for the rest. While nothing was heard of its packets it
/// waited for that, and not for its window.
#[expect(
    clippy::cast_precision_loss,
    reason = "shares are shown with a few digits"
)]
fn limits(sending: &Sending, silent: Duration, seconds: f64) -> BTreeMap<&'static str, f64> {
    let mut shares = BTreeMap::new();
    if seconds <= 0.0 {
        return shares;
    }
    let of_silence = (silent.as_secs_f64() / seconds).min(1.0);
    if of_silence > 0.0 {
        shares.insert("silent", of_silence);
    }
    let mut rest = 1.0 - of_silence;
    for (why, micros) in Why::HOLDS.iter().zip(sending.held_micros) {
        let mut share = micros as f64 / 1e6 / seconds;
        if *why == Why::Window {
            share = (share - of_silence).max(0.0);
        }
        let share = share.min(rest);
        rest -= share;
        if share > 0.0 {
            shares.insert(why.name(), share);
        }
    }
    shares.insert("sending", rest);
    shares
}

impl Summary {
    pub(crate) fn new(facts: &SummaryInput<'_>, error: Option<&TransferError>) -> Self {
        let SummaryInput {
            put,
            core,
            stats,
            elapsed,
            progress,
            ours,
            theirs,
            sends,
            sending,
            ..
        } = *facts;
        let (seconds, silent) = (elapsed.as_secs_f64(), progress.silences());
        let (of_sender, of_receiver) = if sends {
            (Some(ours), theirs)
        } else {
            (theirs, Some(ours))
        };
        let feedback = stats.feedback_sent + stats.feedback_received;
        let tally = core.tally;
        Self {
            schema: "farhaul.transfer/1",
            ok: error.is_none(),
            direction: if put { "put" } else { "get" },
            bytes_payload: tally.bytes,
            resumed_bytes: tally.resumed,
            bytes_total: progress.is_scanned().then(|| progress.bytes_total()),
            bytes_wire_sent: stats.wire_sent,
            bytes_wire_received: stats.wire_received,
            bytes_feedback: feedback,
            feedback_kib_per_gib: None,
            retransmit_ratio: None,
            loss_ratio: None,
            goodput_bps: (seconds > 0.0).then(|| Rate::of(tally.bytes, elapsed).as_f64()),
            elapsed_s: seconds,
            rtt_s: Rtt {
                min: stats.rtt_min.map(|d| d.as_secs_f64()),
                smoothed: stats.rtt_smoothed.map(|d| d.as_secs_f64()),
            },
            lanes: facts.lanes,
            datagrams: stats.datagrams_sent + stats.datagrams_received,
            datagram_bytes: stats.datagram_size,
            files: Files {
                total: progress
                    .files_total()
                    .max(tally.files_ok + tally.files_skipped + tally.files_failed),
                sent: tally.files_ok,
                skipped: tally.files_skipped,
                failed: tally.files_failed,
                deleted: tally.deleted,
            },
            retries: progress.retries(),
            verify: Verify::of(facts),
            sender: End::new(of_sender, tally.bytes),
            receiver: End::new(of_receiver, tally.bytes),
            limited_by: sending.map_or_else(BTreeMap::new, |s| limits(&s, silent, seconds)),
            failures: core.log.failures.clone(),
            warnings: core.log.warnings.clone(),
            exit: Ended::of(error),
            partition: core.partition.clone(),
            stripes: core.stripes.clone(),
            max_rate: None,
            sending,
            silent,
        }
        .with_ratios()
    }

    /// Adds the ratios that are computed from its counts, if enough was sent.
    fn with_ratios(mut self) -> Self {
        let sending = self.sending.filter(|_| self.bytes_payload >= MEASURED);
        let feedback = ratio(self.bytes_feedback, self.bytes_payload);
        let feedback = feedback.filter(|_| self.bytes_payload >= MEASURED);
        self.feedback_kib_per_gib = feedback.map(|f| f * f64::from(1 << 20));
        self.retransmit_ratio = sending.and_then(|s| ratio(s.repaired, s.data));
        self.loss_ratio = sending.and_then(|s| ratio(s.lost, s.datagrams));
        self
    }

    /// The end of a copy that went on after a session which ended as `before`. The counts are those
    /// of both, in `elapsed`, the pause between them included.
    #[must_use]
    pub fn after(mut self, before: &Self, elapsed: Duration) -> Self {
        // The second one found in place what the first had sent.
        let again = before.bytes_payload.min(self.resumed_bytes);
        self.resumed_bytes -= again;
        let again = before.files.sent.min(self.files.skipped);
        self.files.skipped -= again;
        for (all, more) in [
            (&mut self.bytes_payload, before.bytes_payload),
            (&mut self.bytes_wire_sent, before.bytes_wire_sent),
            (&mut self.bytes_wire_received, before.bytes_wire_received),
            (&mut self.bytes_feedback, before.bytes_feedback),
            (&mut self.datagrams, before.datagrams),
            (&mut self.files.sent, before.files.sent),
            (&mut self.files.deleted, before.files.deleted),
            (&mut self.retries, before.retries),
        ] {
            *all = all.saturating_add(more);
        }
        // A session that ended before its list knows no totals.
        self.bytes_total = self.bytes_total.or(before.bytes_total);
        self.files.total = self.files.total.max(before.files.total);
        self.silent += before.silent;
        self.lanes = self.lanes.max(before.lanes);
        self.rtt_s.min = match (self.rtt_s.min, before.rtt_s.min) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let seconds = elapsed.as_secs_f64();
        self.elapsed_s = seconds;
        self.goodput_bps = (seconds > 0.0).then(|| Rate::of(self.bytes_payload, elapsed).as_f64());
        if let (Some(sending), Some(more)) = (&mut self.sending, &before.sending) {
            sending.add(more);
        }
        self.limited_by = self
            .sending
            .map_or_else(BTreeMap::new, |s| limits(&s, self.silent, seconds));
        self.sender = self.sender.after(&before.sender, self.bytes_payload);
        self.receiver = self.receiver.after(&before.receiver, self.bytes_payload);
        self.warnings.splice(..0, before.warnings.iter().cloned());
        self.with_ratios()
    }

    /// The summary of a transfer that failed before there was a session.
    pub fn of_error(put: bool, error: &TransferError) -> Self {
        let facts = SummaryInput {
            put,
            verify_disk: false,
            core: &RoleCore::default(),
            stats: Stats::default(),
            lanes: 1,
            elapsed: Duration::ZERO,
            progress: &Progress::default(),
            ours: Usage::default(),
            theirs: None,
            sending: None,
            sends: put,
        };
        Self::new(&facts, Some(error))
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let verb = if self.direction == "put" {
            "sent"
        } else {
            "received"
        };
        let bytes = Size::from_bytes(self.bytes_payload);
        let rate = self.goodput_bps.map_or_else(String::new, |bps| {
            let (bits, bytes) = (Rate::from_f64(bps), Rate::from_f64(bps / 8.0).bps());
            format!("  {}/s ({bits})", Size::from_bytes(bytes))
        });
        let files = self.files;
        let noun = if files.sent == 1 { "file" } else { "files" };
        let mut parts = vec![format!("{} {noun}", files.sent)];
        let noun = if files.skipped == 1 { "file" } else { "files" };
        let there = match (files.skipped, Size::from_bytes(self.resumed_bytes)) {
            (0, _) if self.resumed_bytes == 0 => None,
            (0, bytes) => Some(format!("{bytes} already there")),
            (n, _) if self.resumed_bytes == 0 => Some(format!("{n} {noun} already there")),
            (n, bytes) => Some(format!("{n} {noun} and {bytes} already there")),
        };
        parts.extend(there);
        if files.failed > 0 {
            parts.push(format!("{} failed", files.failed));
        }
        if files.deleted > 0 {
            parts.push(format!("{} deleted", files.deleted));
        }
        // What was there already and looks unchanged was not read.
        if self.ok && (files.sent > 0 || self.verify.root.is_some()) {
            let root = self.verify.root.as_deref().and_then(|r| r.get(..16));
            parts.push(
                format!(
                    "verified {} BLAKE3 {}",
                    if self.verify.what == "disk" {
                        "on disk"
                    } else {
                        "as received"
                    },
                    root.unwrap_or_default()
                )
                .trim_end()
                .into(),
            );
        }
        let here = self.bytes_payload.saturating_add(self.resumed_bytes);
        let left = self
            .bytes_total
            .map_or(0, |total| total.saturating_sub(here));
        if !self.ok && left > 0 {
            parts.push(format!("{} to go", Size::from_bytes(left)));
        }
        format!(
            "{verb} {bytes} in {:.1} s{rate}  {}",
            self.elapsed_s,
            parts.join(", ")
        )
    }

    /// More lines for people: bytes on the wire, and their cost where enough was sent for a figure.
    pub fn details(&self) -> String {
        let percent =
            |share: Option<f64>| share.map_or("-".into(), |s| format!("{:.2} %", s * 100.0));
        let ms = |s: Option<f64>| s.map_or("-".into(), |s| format!("{:.1} ms", s * 1e3));
        let enough = self.bytes_payload >= ENOUGH;
        let over = self.bytes_wire_sent.max(self.bytes_wire_received);
        let costs = if enough {
            let feedback = self.feedback_kib_per_gib;
            format!(
                ", retransmitted {}, lost {}, feedback {} KiB per GiB",
                percent(self.retransmit_ratio),
                percent(self.loss_ratio),
                feedback.map_or("-".into(), |f| format!("{f:.1}")),
            )
        } else {
            String::new()
        };
        let lanes = match self.lanes {
            1 => String::new(),
            n => format!(" over {n} lanes"),
        };
        let mut text = format!(
            "wire: {} one way{lanes}{costs}\n\
             path: rtt {} minimum, {} at the end, datagrams of {} bytes\n\
             sender: {}\nreceiver: {}\n",
            Size::from_bytes(over),
            ms(self.rtt_s.min),
            ms(self.rtt_s.smoothed),
            self.datagram_bytes,
            self.sender.words(enough),
            self.receiver.words(enough),
        );
        let held = self.limited_by.iter().filter(|(_, share)| **share >= 0.005);
        let held: Vec<_> = held
            .map(|(why, share)| format!("{} {:.0} %", self.word(why), share * 100.0))
            .collect();
        if enough && !held.is_empty() {
            text += "limited by: ";
            text += &held.join(", ");
            text.push('\n');
        }
        text
    }

    /// Reason that held the sender most, if anything did and enough was sent for a figure.
    pub fn limit(&self) -> Option<(&'static str, f64)> {
        let told = (self.bytes_payload >= ENOUGH).then_some(&self.limited_by);
        told.into_iter()
            .flatten()
            .map(|(w, s)| (self.word(w), *s))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The word for what held the sender: near a rate that was set that rate, not the network.
    fn word(&self, why: &'static str) -> &'static str {
        let rate = Rate::from_f64(self.goodput_bps.unwrap_or(0.0));
        let is_own = self.max_rate.is_some_and(|most| rate.is_near(most));
        if is_own && why == Why::Pacing.name() {
            "--max-rate"
        } else {
            why
        }
    }
}

/// Input of a summary.
#[derive(Clone, Copy)]
pub(crate) struct SummaryInput<'a> {
    pub(crate) put: bool,
    pub(crate) verify_disk: bool,
    pub(crate) core: &'a RoleCore,
    pub(crate) stats: Stats,
    /// Number of sessions; `stats` are their sum.
    pub(crate) lanes: u32,
    pub(crate) elapsed: Duration,
    pub(crate) progress: &'a Progress,
    pub(crate) ours: Usage,
    pub(crate) theirs: Option<Usage>,
    /// True if this side has the files.
    pub(crate) sends: bool,
    /// The sender's statistics of its sending.
    pub(crate) sending: Option<Sending>,
}

/// Outcome of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Summary, as far as it is known.
    pub summary: Summary,
    /// Error of a failed transfer.
    pub error: Option<TransferError>,
}

/// View of a transfer for other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    progress: Arc<Progress>,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

impl Handle {
    pub(crate) fn new() -> Self {
        Self {
            progress: Arc::new(Progress::default()),
            outcome: Arc::new(Mutex::new(None)),
        }
    }

    /// Progress of the transfer.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Outcome of the transfer, once it has ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds what else should be known of the outcome.
    pub(crate) fn warn(&self, text: String) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = outcome.as_mut() {
            outcome.summary.warnings.push(text);
        }
    }

    /// The first outcome stands.
    pub(crate) fn end(&self, make: impl FnOnce() -> Outcome) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.is_none() {
            *outcome = Some(make());
            self.progress.set_phase(Phase::Done);
        }
    }
}

#[cfg(test)]
mod tests;
