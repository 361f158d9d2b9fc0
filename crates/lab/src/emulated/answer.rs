//! Turns the output of a flow's programs into a [`FlowResult`], with what the emulator counted of
//! the flow's packets.

use std::{collections::BTreeMap, time::Duration};

use farhaul_core::time::Instant;
use farhaul_emu::{DirectionReport, WanReport};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Amount, FIRST_BLAST, Flow, FlowResult, Program, System, TcpDriver,
    process::Ended,
    reading::{Reading, What},
};
use farhaul_measure::{
    bench::{Cost, Interval, Report, percent_per_gbps},
    histogram::RttMs,
    iperf,
};

/// Payload below which nothing is held against it, bytes: start and end are all there is.
const ENOUGH: u64 = 1 << 20;
/// An Ethernet header.
const ETHERNET: u64 = 14;

/// Course of a flow's programs.
pub(super) struct Played {
    /// The beginning of the run.
    pub(super) begun: Instant,
    pub(super) commands: Vec<String>,
    pub(super) driver: Option<TcpDriver>,
    /// Bytes that an external program was to send.
    pub(super) bytes: Option<u64>,
    pub(super) server: Option<Ended>,
    pub(super) client: Option<Ended>,
    /// Trouble beside the programs.
    pub(super) trouble: Option<String>,
}

/// Packets that crossed the network for a flow: with its data, and against it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    forth: Count,
    back: Count,
    dropped: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Counts {
    /// Everything, or the packets of flow `number` among several, by its ports.
    pub(super) fn of(wan: &WanReport, reverse: bool, number: Option<usize>) -> Self {
        let mut ways = [&wan.near_to_far, &wan.far_to_near];
        if reverse {
            ways.reverse();
        }
        let [forth, back] = ways.map(|way| Count::of(way, number));
        let dropped = |way: &DirectionReport| match number {
            Some(number) => way.ports.get(number).map_or(0, |count| count.dropped),
            None => way.drops.values().sum(),
        };
        Self {
            forth,
            back,
            dropped: dropped(ways[0]),
        }
    }
}

impl Count {
    fn of(way: &DirectionReport, number: Option<usize>) -> Self {
        let Some(number) = number else {
            return Self {
                packets: way.offered_packets,
                bytes: way.offered_bytes,
            };
        };
        way.ports
            .get(number)
            .map_or_else(Self::default, |count| Self {
                packets: count.packets,
                bytes: count.bytes,
            })
    }
}

/// The result of `flow`.
pub(super) fn result(flow: &Flow, played: &Played, counts: Counts) -> FlowResult {
    let start = played.client.as_ref();
    let empty = FlowResult {
        name: flow.name.clone(),
        system: flow.system.to_string(),
        start: start.map_or(0.0, |client| {
            client.started.since(played.begun).as_secs_f64()
        }),
        commands: played.commands.clone(),
        processors: [start, played.server.as_ref()]
            .map(|end| end.map(|end| end.sampled.clone()).unwrap_or_default()),
        ..FlowResult::default()
    };
    let found = ends(flow, played).and_then(|ends| measured(flow, played, ends));
    match found {
        Ok(found) => counted(flow, found, counts, empty),
        Err(why) => FlowResult {
            failed: Some(why),
            ..empty
        },
    }
}

/// Client and server, if neither failed.
fn ends<'a>(flow: &Flow, played: &'a Played) -> Result<(&'a Ended, Option<&'a Ended>), String> {
    let server = played.server.as_ref();
    let server_failed = server.filter(|server| !server.asked);
    let server_failed = server_failed.and_then(|server| server.failed.as_deref());
    if let Some(trouble) = &played.trouble {
        return Err(match server_failed {
            Some(how) => format!("{trouble}: {how}"),
            None => trouble.clone(),
        });
    }
    let client = played.client.as_ref().ok_or("it was not started")?;
    if client.asked {
        let time = flow.amount.time();
        return Err(match flow.amount {
            Amount::Time(_) => format!("the client did not end after its {time:?}"),
            Amount::Bytes { bytes, .. } => {
                format!("the client did not send its {bytes} bytes within {time:?}")
            }
        });
    }
    if let Some(how) = &client.failed {
        return Err(format!("the client failed: {how}"));
    }
    match server_failed {
        Some(how) => Err(format!("the server failed: {how}")),
        None => Ok((client, server)),
    }
}

/// Figures that the programs measured.
#[derive(Clone, Debug, Default)]
struct Found {
    seconds: f64,
    bytes: u64,
    goodput: f64,
    sender: Cost,
    receiver: Cost,
    retransmits: Option<u64>,
    rtt_ms: RttMs,
    intervals: Vec<Interval>,
    metrics: BTreeMap<String, f64>,
}

/// `empty`, filled in.
fn counted(flow: &Flow, found: Found, counts: Counts, empty: FlowResult) -> FlowResult {
    let per_byte = |n: u64| (found.bytes >= ENOUGH).then(|| float(n) / float(found.bytes));
    let feedback = counts.back.bytes + ETHERNET * counts.back.packets;
    let mut metrics = found.metrics;
    metrics.insert("network_drops".into(), float(counts.dropped));
    let shift = |part: Interval| Interval {
        from: part.from + empty.start,
        to: part.to + empty.start,
        ..part
    };
    let intervals = if flow.interval.is_zero() {
        Vec::new()
    } else {
        let whole = |part: &Interval| (part.to - part.from) * 10.0 >= flow.interval.as_secs_f64();
        let parts = found.intervals.into_iter().filter(whole);
        parts.map(shift).collect()
    };
    FlowResult {
        seconds: found.seconds,
        bytes: found.bytes,
        goodput_bits_per_second: found.goodput,
        sender: found.sender,
        receiver: found.receiver,
        feedback_kib_per_gib: per_byte(feedback).map(|x| x * f64::from(1 << 20)),
        ip_over_goodput: per_byte(counts.forth.bytes),
        retransmits: found.retransmits,
        rtt_ms: found.rtt_ms,
        intervals,
        metrics,
        ..empty
    }
}

fn measured(
    flow: &Flow,
    played: &Played,
    (client, server): (&Ended, Option<&Ended>),
) -> Result<Found, String> {
    let server = || server.ok_or_else(|| "there is no server".to_string());
    match &flow.system {
        System::Farhaul { .. } => Ok(bench(parse(client, "farhaul bench")?)),
        System::Kernel { law, .. } => match played.driver {
            Some(TcpDriver::Iperf3) => iperf3(client, server()?, law),
            _ => Ok(bench(parse(client, "farhaul _tcp")?)),
        },
        System::Libudt { .. } => libudt(
            flow.amount,
            &parse(client, "libudt")?,
            &parse(server()?, "libudt")?,
        ),
        System::Udp { .. } => udp(client, server()?),
        System::Delay(_) => delay(&parse(client, "farhaul _delay")?),
        System::Program(program) => {
            external(program, (flow.amount, played.bytes), client, server().ok())
        }
    }
}

/// Parses the JSON that a program printed: its whole output, or the last line.
fn parse<T: for<'a> Deserialize<'a>>(ended: &Ended, whose: &str) -> Result<T, String> {
    let line = ended
        .stdout
        .trim_end()
        .lines()
        .next_back()
        .unwrap_or_default();
    serde_json::from_str(&ended.stdout)
        .or_else(|_| serde_json::from_str(line))
        .map_err(|e| {
            let short: String = line.chars().take(200).collect();
            format!("{whose} printed something unexpected: {e}: {short}")
        })
}

fn bench(report: Report) -> Found {
    let size = u64::from(report.datagram_size);
    let shares = report.limited_by.into_iter();
    let mut metrics: BTreeMap<String, f64> = shares
        .map(|(why, share)| (format!("limited_by_{why}"), share))
        .collect();
    metrics.insert("packets_lost".into(), float(report.packets_lost));
    if let Some(rate) = report.first_blast_bits_per_second {
        metrics.insert(FIRST_BLAST.into(), rate);
    }
    if let Some(law) = &report.law {
        metrics.insert("law_share".into(), law.share_of_cpu);
    }
    for (name, end) in [("sender", &report.sender), ("receiver", &report.receiver)] {
        if let Some(bytes) = end.max_rss_bytes {
            metrics.insert(format!("{name}_rss_bytes"), float(bytes));
        }
    }
    Found {
        seconds: report.seconds,
        bytes: report.bytes,
        goodput: report.goodput_bits_per_second,
        sender: report.sender,
        receiver: report.receiver,
        retransmits: (size > 0).then(|| report.repaired_bytes.div_ceil(size.max(1))),
        rtt_ms: report.rtt_ms,
        intervals: report.intervals,
        metrics,
    }
}

fn iperf3(client: &Ended, server: &Ended, law: &str) -> Result<Found, String> {
    let mut root: Value = parse(client, "iperf3")?;
    if let Ok(of_server) = parse::<Value>(server, "iperf3") {
        root["server_output_json"] = of_server;
    }
    let report = iperf::read(&root, law)?;
    Ok(Found {
        retransmits: root["end"]["sum_sent"]["retransmits"].as_u64(),
        metrics: BTreeMap::new(),
        ..bench(report)
    })
}

/// Output of `udt_peer`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Peer {
    bytes: u64,
    seconds: f64,
    connect_seconds: f64,
    cpu_seconds: f64,
    retransmits: u64,
    rtt_ms: RttMs,
    intervals: Vec<Interval>,
}

fn libudt(amount: Amount, client: &Peer, server: &Peer) -> Result<Found, String> {
    // The server counts from its part of the handshake, half a round trip before the client's end of it.
    // UDT's handshake takes two.
    let before = client.connect_seconds * 0.75;
    let seconds = match amount {
        // A connection that stalled is held against the whole time.
        Amount::Time(time) => (before + server.seconds).max(time.as_secs_f64()),
        Amount::Bytes { .. } => before + server.seconds,
    };
    if server.bytes == 0 {
        return Err("nothing arrived".into());
    }
    let cost = |cpu_seconds| cost("libudt", cpu_seconds, server.bytes);
    let shift = |part: &Interval| Interval {
        from: part.from + before,
        to: part.to + before,
        ..*part
    };
    Ok(Found {
        seconds,
        bytes: server.bytes,
        goodput: rate(server.bytes, seconds),
        sender: cost(client.cpu_seconds),
        receiver: cost(server.cpu_seconds),
        retransmits: Some(client.retransmits),
        rtt_ms: client.rtt_ms,
        intervals: server.intervals.iter().map(shift).collect(),
        metrics: BTreeMap::new(),
    })
}

fn udp(client: &Ended, server: &Ended) -> Result<Found, String> {
    let sent: farhaul_measure::udp::Sent = parse(client, "farhaul _udp")?;
    let got: farhaul_measure::udp::Received = parse(server, "farhaul _udp")?;
    let cost = |ended: &Ended| cost("", ended.cpu.as_secs_f64(), got.bytes);
    let lost = sent.packets.saturating_sub(got.packets);
    let share = float(lost) / float(sent.packets.max(1));
    // The receiver's first and last would leave out one of the gaps.
    let all = rate(got.bytes, sent.seconds);
    let found = sent.found;
    let goodput = found.map_or(all, |found| found.goodput_bits_per_second);
    let share = found.map_or(share, |found| found.loss);
    let delays = [
        ("delay_p50_ms", got.delay_ms.p50),
        ("delay_p99_ms", got.delay_ms.p99),
    ];
    let delays = delays
        .into_iter()
        .filter_map(|(name, ms)| Some((name, ms?)));
    let metrics = delays.chain([("loss", share)]);
    let metrics = metrics
        .map(|(name, figure)| (name.into(), figure))
        .collect();
    Ok(Found {
        seconds: sent.seconds,
        bytes: got.bytes,
        goodput,
        sender: cost(client),
        receiver: cost(server),
        intervals: got.intervals,
        metrics,
        ..Found::default()
    })
}

fn delay(trips: &farhaul_measure::delay::Delays) -> Result<Found, String> {
    if trips.packets == 0 {
        return Err(format!("none of the {} packets came back", trips.lost));
    }
    let lost = float(trips.lost) / float(trips.packets + trips.lost);
    Ok(Found {
        seconds: trips.seconds,
        bytes: trips.bytes,
        goodput: rate(trips.bytes, trips.seconds),
        metrics: [
            ("loss".to_string(), lost),
            ("delay_us".to_string(), trips.mean_us),
            ("delay_p50_us".to_string(), trips.p50_us),
        ]
        .into(),
        ..Found::default()
    })
}

fn external(
    program: &Program,
    (amount, to_send): (Amount, Option<u64>),
    client: &Ended,
    server: Option<&Ended>,
) -> Result<Found, String> {
    let seconds = client.took.as_secs_f64();
    let find = |reading: &Reading| {
        let from = match (reading.server, server) {
            (true, Some(server)) => server,
            (true, None) => return Err("it has no server to read from".into()),
            (false, _) => client,
        };
        let found = reading.find([&from.stdout, &from.stderr]);
        found.map_err(|e| e.to_string())
    };
    let parsed = |how: &str, rate| Reading::parse(how, rate).map_err(|e| e.to_string());
    let reading = parsed(&program.goodput, true)?;
    let (goodput, bytes) = match (&reading.what, to_send, amount) {
        (What::Bytes, Some(bytes), _) => (rate(bytes, seconds), bytes),
        (_, _, Amount::Bytes { bytes, .. }) => (find(&reading)?, bytes),
        (_, _, Amount::Time(time)) => {
            let goodput = find(&reading)?;
            (goodput, whole_bytes(goodput, time))
        }
    };
    let mut metrics = BTreeMap::new();
    for (name, how) in &program.metrics {
        let figure = parsed(how, false).and_then(|reading| find(&reading));
        metrics.insert(name.clone(), figure.map_err(|e| format!("{name}: {e}"))?);
    }
    let cost = |ended: &Ended| cost(&program.name, ended.cpu.as_secs_f64(), bytes);
    Ok(Found {
        seconds,
        bytes,
        goodput,
        sender: cost(client),
        receiver: server.map(cost).unwrap_or_default(),
        metrics,
        ..Found::default()
    })
}

fn cost(version: &str, cpu_seconds: f64, bytes: u64) -> Cost {
    let cpu = Duration::try_from_secs_f64(cpu_seconds).unwrap_or_default();
    Cost {
        version: version.into(),
        cpu_seconds,
        cpu_percent_per_gbps: percent_per_gbps(cpu, float(bytes) * 8.0).filter(|_| bytes >= ENOUGH),
        max_rss_bytes: None,
    }
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        float(bytes) * 8.0 / seconds
    } else {
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn float(n: u64) -> f64 {
    n as f64
}

/// Bytes of a goodput over a time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded before the cast"
)]
fn whole_bytes(goodput: f64, time: Duration) -> u64 {
    (goodput * time.as_secs_f64() / 8.0).clamp(0.0, 9e15) as u64
}

#[cfg(test)]
mod tests;
