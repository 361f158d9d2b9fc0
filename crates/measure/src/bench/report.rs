//! Result of a bench: one object with the figures by which all transports here are compared. The
//! text shown to people is made from the object, never the other way round.

use std::{collections::BTreeMap, fmt, time::Duration};

use farhaul_core::{stats::Why, units::Rate};
use serde::{Deserialize, Serialize};

use super::{Lane, message::Datagrams};
use crate::histogram::RttMs;

/// The version of [`Report`]; changes only by addition keep it.
pub(super) const SCHEMA: &str = "farhaul.bench/1";
/// Bytes that must have arrived before anything is held against them: of fewer, start and end are all
/// there is.
const ENOUGH: u64 = 1 << 20;

/// Processor time per bit moved: per cent of one core per Gbit/s.
pub fn percent_per_gbps(cpu: Duration, bits: f64) -> Option<f64> {
    (bits > 0.0).then(|| cpu.as_secs_f64() * 1e11 / bits)
}

/// Cost of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Program version.
    pub version: String,
    /// Processor time, user and system, s.
    pub cpu_seconds: f64,
    /// Per cent of one core per Gbit/s of goodput; none if less than 1 MiB arrived.
    pub cpu_percent_per_gbps: Option<f64>,
    /// The most memory held, bytes.
    pub max_rss_bytes: Option<u64>,
}

/// Bytes that arrived in a part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Beginning of the interval, s from the client's first act.
    pub from: f64,
    /// End of the interval, s.
    pub to: f64,
    /// Goodput at the receiver.
    pub goodput_bits_per_second: f64,
}

/// Cost of the congestion law at the sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LawTime {
    /// Calls into the law.
    pub calls: u64,
    /// Time spent in these calls, less that of the clock, s.
    pub seconds: f64,
    /// Time in the law over the processor time of the process.
    pub share_of_cpu: f64,
}

/// The result of a bench.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `farhaul.bench/1`.
    pub schema: String,
    /// True: this is a result.
    pub ok: bool,
    /// Program version at this end.
    pub version: String,
    /// Name of the protocol.
    pub protocol: String,
    /// Name of the congestion law.
    pub cc: String,
    /// Sessions side by side.
    pub lanes: usize,
    /// True if the server sent.
    pub reverse: bool,
    /// Time from the client's first act to the arrival of the last new byte, less what was omitted,
    /// s.
    pub seconds: f64,
    /// Bytes that arrived, each counted once, less what was omitted.
    pub bytes: u64,
    /// Goodput at the receiver, start included.
    pub goodput_bits_per_second: f64,
    /// The sending end.
    pub sender: Cost,
    /// The receiving end.
    pub receiver: Cost,
    /// UDP payload bytes that the receiver sent, handshake and all.
    pub feedback_bytes: u64,
    /// Feedback per GiB of goodput, in KiB; none if less than 1 MiB arrived.
    pub feedback_kib_per_gib: Option<f64>,
    /// UDP payload bytes that the sender sent.
    pub wire_bytes: u64,
    /// Wire bytes over goodput bytes; none if less than 1 MiB arrived.
    pub wire_over_goodput: Option<f64>,
    /// Bytes sent again.
    pub repaired_bytes: u64,
    /// Datagrams that the sender sent.
    #[serde(default)]
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets declared lost spuriously.
    pub packets_spurious: u64,
    /// UDP payload bytes of a full datagram.
    pub datagram_size: u32,
    /// Rate of the sender's first blast, if the protocol sends in blasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_blast_bits_per_second: Option<f64>,
    /// Round-trip times at the sender.
    pub rtt_ms: RttMs,
    /// Shares of the time the sender did not send, by reason; `sending` is the rest.
    pub limited_by: BTreeMap<String, f64>,
    /// True if everything that was offered arrived.
    pub complete: bool,
    /// The run in parts, if it was sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Datagrams of a test at a constant rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
    /// Cost of the law, if that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub law: Option<LawTime>,
    /// Causes that made the run dearer on this side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Limit of the rate of each session, if one was set.
    #[serde(skip)]
    pub max_rate: Option<Rate>,
}

impl Report {
    /// Puts the parallel sessions of one run together. Processor time is the process's, so the
    /// sessions' figures are not added but the largest is taken.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub fn new(protocol: &str, cc: &str, reverse: bool, omit: Duration, lanes: &[Lane]) -> Self {
        let elapsed = lanes.iter().map(|l| l.elapsed).max().unwrap_or_default();
        // Half of these figures are the peer's word.
        let sum = |of: fn(&Lane) -> u64| lanes.iter().map(of).fold(0, u64::saturating_add);
        let all = sum(|l| l.receiver.received);
        let bytes = all - sum(|l| l.receiver.omitted).min(all);
        let seconds = elapsed.saturating_sub(omit).as_secs_f64();
        let goodput = if seconds > 0.0 {
            bytes as f64 * 8.0 / seconds
        } else {
            0.0
        };
        let feedback_bytes = sum(|l| l.receiver.wire_sent);
        let wire_bytes = sum(|l| l.sender.wire_sent);
        // Costs and wire bytes are of the whole run, so they are held against all of its bytes.
        let per_byte = |x: u64| (all >= ENOUGH).then(|| x as f64 / all as f64);
        Self {
            schema: SCHEMA.into(),
            ok: true,
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: protocol.into(),
            cc: cc.into(),
            lanes: lanes.len(),
            reverse,
            seconds,
            bytes,
            goodput_bits_per_second: goodput,
            sender: cost(lanes.iter().map(|l| &l.sender), all),
            receiver: cost(lanes.iter().map(|l| &l.receiver), all),
            feedback_bytes,
            feedback_kib_per_gib: per_byte(feedback_bytes).map(|x| x * f64::from(1 << 20)),
            wire_bytes,
            wire_over_goodput: per_byte(wire_bytes),
            repaired_bytes: sum(|l| l.sender.repaired),
            packets_sent: sum(|l| l.sender.packets_sent),
            packets_lost: sum(|l| l.sender.packets_lost),
            packets_spurious: sum(|l| l.sender.packets_spurious),
            datagram_size: lanes.first().map_or(0, |l| l.sender.datagram_size),
            first_blast_bits_per_second: lanes
                .iter()
                .find_map(|l| l.sender.first_blast)
                .map(|bps| bps as f64),
            rtt_ms: rtt(lanes),
            limited_by: limits(lanes),
            complete: !lanes.is_empty() && lanes.iter().all(|l| l.receiver.complete),
            intervals: Vec::new(),
            datagrams: lanes
                .iter()
                .filter_map(|l| l.receiver.datagrams)
                .reduce(Datagrams::and),
            law: None,
            warnings: Vec::new(),
            max_rate: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn cost<'a>(sides: impl Iterator<Item = &'a super::message::Side>, bytes: u64) -> Cost {
    sides.fold(Cost::default(), |worst, side| {
        let cpu = side.cpu_seconds.clamp(0.0, 1e12).max(worst.cpu_seconds);
        Cost {
            version: side.farhaul.clone(),
            cpu_seconds: cpu,
            cpu_percent_per_gbps: percent_per_gbps(
                Duration::from_secs_f64(cpu),
                bytes as f64 * 8.0,
            )
            .filter(|_| bytes >= ENOUGH),
            max_rss_bytes: side.max_rss_bytes.max(worst.max_rss_bytes),
        }
    })
}

fn rtt(lanes: &[Lane]) -> RttMs {
    let of = |get: fn(&RttMs) -> Option<f64>| lanes.iter().filter_map(move |l| get(&l.sender.rtt));
    RttMs {
        min: of(|r| r.min).reduce(f64::min),
        p50: of(|r| r.p50).reduce(f64::max),
        p99: of(|r| r.p99).reduce(f64::max),
    }
}

/// Shares over the time of all parallel sessions.
fn limits(lanes: &[Lane]) -> BTreeMap<String, f64> {
    let total: f64 = lanes.iter().map(|l| l.elapsed.as_secs_f64()).sum();
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    if total <= 0.0 {
        return shares;
    }
    let mut sending = 1.0;
    for (why, seconds) in lanes.iter().flat_map(|l| &l.sender.held) {
        let share = (seconds / total).clamp(0.0, sending);
        sending -= share;
        if share > 0.0 {
            *shares.entry(why.clone()).or_default() += share;
        }
    }
    shares.insert("sending".into(), sending);
    shares
}

impl Report {
    /// Packets that were lost, of those sent; none if that is not known.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub fn loss_ratio(&self) -> Option<f64> {
        let lost = self.packets_lost.saturating_sub(self.packets_spurious);
        let ratio = lost as f64 / self.packets_sent as f64;
        (self.packets_sent > 0).then(|| ratio.min(1.0))
    }

    /// `network 93 %, window 5 %`: the reasons, largest first, down to one per cent. Near a rate that was set the
    /// reason is that rate, not the network.
    #[expect(clippy::cast_precision_loss, reason = "a handful of sessions")]
    pub fn limits(&self) -> String {
        let each = Rate::from_f64(self.goodput_bits_per_second / self.lanes.max(1) as f64);
        let own = self.max_rate.filter(|most| each.is_near(*most));
        let mut shares: Vec<_> = self.limited_by.iter().collect();
        shares.sort_by(|a, b| b.1.total_cmp(a.1));
        let shown = shares.iter().filter(|(_, share)| **share >= 0.01);
        let words: Vec<_> = shown
            .map(|(why, share)| {
                let is_own = own.is_some() && *why == Why::Pacing.name();
                let why = if is_own { "--rate" } else { why };
                format!("{why} {:.0} %", **share * 100.0)
            })
            .collect();
        words.join(", ")
    }
}

impl Report {
    fn show_wire(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "feedback   {} KiB per GiB",
            or_dash(self.feedback_kib_per_gib, 1)
        )?;
        write!(
            f,
            "wire       {} bytes per byte of goodput",
            or_dash(self.wire_over_goodput, 4)
        )?;
        // The kernel's TCP tells neither.
        if self.datagram_size > 0 {
            let (repaired, size) = (self.repaired_bytes, self.datagram_size);
            write!(f, ", {repaired} bytes repaired, datagrams of {size} bytes")?;
        }
        writeln!(f)
    }
}

/// A number with `digits`, or a dash.
fn or_dash(x: Option<f64>, digits: usize) -> String {
    x.map_or_else(|| "-".into(), |x| format!("{x:.digits$}"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |x: Option<u64>| x.map_or_else(|| "-".into(), |b| (b >> 20).to_string());
        writeln!(
            f,
            "goodput    {} at the receiver, over {:.2} s with the start and the tail",
            Rate::from_f64(self.goodput_bits_per_second),
            self.seconds
        )?;
        if let Some(datagrams) = &self.datagrams {
            writeln!(f, "datagrams  {datagrams}")?;
        }
        writeln!(
            f,
            "cpu        {} % of a core per Gbit/s sending, {} % receiving",
            or_dash(self.sender.cpu_percent_per_gbps, 2),
            or_dash(self.receiver.cpu_percent_per_gbps, 2)
        )?;
        // At a constant rate nothing waits for repairs. The interfaces count no TCP of loopback.
        let at_will = self.datagrams.is_none();
        if at_will && self.wire_bytes > 0 {
            self.show_wire(f)?;
        }
        if self.rtt_ms != RttMs::default() {
            writeln!(
                f,
                "rtt        least {} ms, median {} ms, 99 % below {} ms",
                or_dash(self.rtt_ms.min, 2),
                or_dash(self.rtt_ms.p50, 2),
                or_dash(self.rtt_ms.p99, 2)
            )?;
        }
        write!(
            f,
            "memory     {} MiB sending, {} MiB receiving",
            mib(self.sender.max_rss_bytes),
            mib(self.receiver.max_rss_bytes)
        )?;
        if let Some(law) = &self.law {
            write!(
                f,
                "\nlaw        {:.2} % of the sender's processor time, in {} calls",
                law.share_of_cpu * 100.0,
                law.calls
            )?;
        }
        if at_will && !self.limited_by.is_empty() {
            write!(f, "\nlimited by {}", self.limits())?;
        }
        self.warnings
            .iter()
            .try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}
