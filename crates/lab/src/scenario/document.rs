//! One case of a scenario file, read and checked value by value; names are resolved in
//! [`super::plan`].

use std::{fmt::Display, ops::Range, str::FromStr, time::Duration};

use farhaul_core::units::{Rate, Size};
use farhaul_link::{PathConfig, QueueLimit, Step, duration, preset};
use farhaul_sim::Bursts;

use super::{
    processor::{PROCESSOR, Processor},
    profile,
    source::{Fields, Placed, Problem, rate},
};
use crate::{
    emulated::{Group, Program},
    run_store::Backend,
};

/// Keys of the document itself.
pub(super) const TOP: [&str; 26] = [
    "name",
    "about",
    "source",
    "duration",
    "seeds",
    "mtu",
    "framing",
    "sample",
    "queue_sample",
    "coalesce",
    "batch",
    "start_spread",
    "host",
    "link",
    "flow",
    "cross",
    "expect",
    "vary",
    "backends",
    "series",
    "program",
    "processor",
    "profile",
    "loopback_mtu",
    "not_comparable",
    "cpu",
];
const PATH: [&str; 16] = [
    "profile",
    "rate",
    "rate_steps",
    "delay",
    "delay_steps",
    "queue",
    "loss",
    "jitter",
    "reorder",
    "duplicate",
    "corrupt",
    "blackout",
    "policer",
    "aqm",
    "router",
    "mtu",
];
const HOST: [&str; 4] = ["name", "nic", "nic_queue", "nic_jitter"];
const FLOW: [&str; 17] = [
    "local",
    "write",
    "name",
    "protocol",
    "law",
    "max_rate",
    "from",
    "to",
    "path",
    "reverse",
    "start",
    "stop",
    "duration",
    "bytes",
    "count",
    "stagger",
    "extra_delay",
];
const PROGRAM: [&str; 8] = [
    "name", "prepare", "server", "client", "ready", "goodput", "metrics", "verify",
];
const CROSS: [&str; 13] = [
    "name", "from", "path", "reverse", "rate", "packet", "start", "stop", "duration", "on", "off",
    "random", "jitter",
];

/// Settings that hold for the whole run.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) source: String,
    pub(super) duration: Duration,
    /// First and last.
    pub(super) seeds: (u64, u64),
    pub(super) backends: Vec<Backend>,
    pub(super) not_comparable: Option<String>,
    /// Between the points that are kept of a run's series.
    pub(super) series: Option<Duration>,
    /// Share of one core, for all programs of an end on the emulator.
    pub(super) cpu: Option<f64>,
    pub(super) mtu: u32,
    /// MTU of the loopback devices of the emulator's hosts.
    pub(super) loopback_mtu: Option<u32>,
    pub(super) framing: u32,
    pub(super) sample: Duration,
    pub(super) queue_sample: Duration,
    pub(super) coalesce: Duration,
    pub(super) batch: usize,
    pub(super) start_spread: Duration,
}

/// A queue as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Queue {
    Limit(QueueLimit),
    /// Multiples of the link's rate times the longest round trip of the flows that cross it.
    Bdp(f64),
    /// Longest packets with their framing.
    Packets(u64),
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    /// Configuration without its queue.
    pub(super) config: PathConfig,
    pub(super) queue: Queue,
    /// Places at which mistakes in the queue, and in the rest, are to be shown.
    pub(super) queue_at: Range<usize>,
    pub(super) at: Range<usize>,
}

/// A link, which has two directions.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) name: Placed<String>,
    pub(super) forward: Direction,
    pub(super) back: Direction,
}

/// A host with an interface of its own.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) name: Placed<String>,
    /// Link that packets sent by the host pass through.
    pub(super) nic: Direction,
}

/// Ends of a way, as named.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) from: Option<Placed<String>>,
    pub(super) to: Option<Placed<String>>,
    pub(super) path: Vec<Placed<String>>,
    pub(super) reverse: bool,
    pub(super) at: Range<usize>,
}

/// One or several flows alike.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) name: Placed<String>,
    pub(super) ends: Ends,
    pub(super) protocol: Placed<String>,
    pub(super) law: Option<Placed<String>>,
    pub(super) max_rate: Option<Rate>,
    pub(super) start: Duration,
    pub(super) stop: Option<Duration>,
    pub(super) bytes: Option<u64>,
    pub(super) write: Option<u64>,
    pub(super) count: u64,
    /// Time by which each starts later than the one before.
    pub(super) stagger: Duration,
    pub(super) extra_delay: Duration,
    /// True if both ends are on one host.
    pub(super) local: bool,
}

/// Traffic that does not listen.
#[derive(Clone, Debug)]
pub(super) struct Cross {
    pub(super) name: Placed<String>,
    pub(super) ends: Ends,
    pub(super) rate: Rate,
    pub(super) packet: u32,
    pub(super) start: Duration,
    pub(super) stop: Option<Duration>,
    pub(super) bursts: Option<Bursts>,
    pub(super) jitter: f64,
}

/// A whole case.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) frame: Frame,
    pub(super) hosts: Vec<Host>,
    pub(super) links: Vec<Link>,
    pub(super) flows: Vec<Flow>,
    pub(super) cross: Vec<Cross>,
    pub(super) programs: Vec<Program>,
    /// Processors of the simulator's hosts.
    pub(super) processors: Vec<Processor>,
    /// Groups sampled on the emulator; without groups nothing is sampled.
    pub(super) profile: Vec<Group>,
}

impl Document {
    pub(super) fn read(top: &Fields<'_>) -> Result<Self, Problem> {
        let frame = frame(top)?;
        let of_link: Vec<&str> = PATH
            .iter()
            .chain(&["name", "back", "rtt"])
            .copied()
            .collect();
        let links = top.tables("link", &of_link)?;
        let document = Self {
            hosts: each(&top.tables("host", &HOST)?, |f| host(f, frame.mtu))?,
            links: each(&links, |f| link(f, frame.mtu))?,
            flows: each(&top.tables("flow", &FLOW)?, flow)?,
            cross: each(&top.tables("cross", &CROSS)?, |f| cross(f, frame.mtu))?,
            programs: each(&top.tables("program", &PROGRAM)?, program)?,
            processors: each(&top.tables("processor", &PROCESSOR)?, Processor::read)?,
            profile: profile::groups(top)?,
            frame,
        };
        for (what, missing) in [
            ("link", document.links.is_empty()),
            ("flow", document.flows.iter().all(|f| f.count == 0)),
        ] {
            if missing {
                let text = format!("a scenario needs at least one [[{what}]]");
                return Err(top.source.problem(&(0..0), text));
            }
        }
        Ok(document)
    }
}

fn each<T>(
    tables: &[Fields<'_>],
    read: impl Fn(&Fields<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, Problem> {
    tables.iter().map(read).collect()
}

fn frame(top: &Fields<'_>) -> Result<Frame, Problem> {
    let text = |key: &str| Ok(top.text(key)?.map_or_else(String::new, |t| t.value));
    let ms = Duration::from_millis;
    let span = top.parse("duration", positive)?;
    let mtu = top.number("mtu", 576..65_522)?.unwrap_or(1_500);
    let loopback_mtu = top.number("loopback_mtu", 576..65_522)?;
    let batch = top.number("batch", 1..65)?.unwrap_or(64);
    let span = span.ok_or_else(|| top.problem("duration", NO_DURATION))?;
    let every = |key: &str, default: Duration| {
        let every = top.duration(key)?.unwrap_or(default);
        // Zero is none at all.
        if span.as_nanos() > every.as_nanos().max(1) * MAX_SAMPLES && !every.is_zero() {
            let text = format!("more than {MAX_SAMPLES} samples: sample less often");
            return Err(top.problem(key, text));
        }
        Ok(every)
    };
    Ok(Frame {
        name: top.needed("name", "\"two-flows\"")?.value,
        about: text("about")?,
        source: text("source")?,
        duration: span,
        seeds: top.parse("seeds", seeds)?.unwrap_or((1, 1)),
        backends: backends(top)?,
        not_comparable: top.text("not_comparable")?.map(|t| t.value),
        series: top.parse("series", positive)?,
        cpu: top.parse("cpu", core)?,
        mtu: u32::try_from(mtu).expect("bounded"),
        loopback_mtu: loopback_mtu.map(|mtu| u32::try_from(mtu).expect("bounded")),
        framing: top.parse("framing", framing)?.unwrap_or(0),
        sample: every("sample", ms(100))?,
        queue_sample: every("queue_sample", ms(5))?,
        coalesce: top.duration("coalesce")?.unwrap_or(ms(1)),
        batch: usize::try_from(batch).expect("bounded"),
        start_spread: top.duration("start_spread")?.unwrap_or_default(),
    })
}

pub(super) fn backends(top: &Fields<'_>) -> Result<Vec<Backend>, Problem> {
    let given = top.each("backends", str::parse)?;
    Ok(if given.is_empty() {
        vec![Backend::Sim]
    } else {
        given
    })
}

/// The most samples of one flow or link: each is kept until the end of the run.
pub const MAX_SAMPLES: u128 = 1_000_000;

const NO_DURATION: &str = "a scenario needs a duration, as in duration = \"60s\"";

fn positive(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(time) if time.is_zero() => Err("it must be more than zero".into()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// A share of one core that control groups can hold.
fn core(text: &str) -> Result<f64, String> {
    match farhaul_link::share(text) {
        Ok(share) if share >= 0.05 => Ok(share),
        Ok(_) => Err(format!(
            "'{text}' of a core is less than 5%, which is not kept exactly"
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// `1..5` or `3`: the seeds with which to run.
pub fn seeds(text: &str) -> Result<(u64, u64), String> {
    let what = || format!("'{text}' is not a range of seeds such as 1..5, or a seed");
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| what());
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("'{text}' runs backwards: write {last}..{first}"));
    }
    if last - first >= 10_000 {
        return Err(format!("'{text}' is more than 10000 seeds"));
    }
    Ok((first, last))
}

/// Preamble, header, check sequence and gap.
const ETHERNET: u32 = 38;

fn framing(text: &str) -> Result<u32, String> {
    match text {
        "none" => Ok(0),
        "ethernet" => Ok(ETHERNET),
        _ => Err(format!(
            "'{text}' is not a framing: ethernet (38 bytes) or none"
        )),
    }
}

fn queue(text: &str) -> Result<Queue, String> {
    let lower = text.trim().to_ascii_lowercase();
    let queue = if let Some(factor) = lower.strip_suffix("bdp") {
        match factor.trim().parse() {
            Ok(factor) if (0.0..=1_000.0).contains(&factor) => Queue::Bdp(factor),
            _ => {
                return Err(format!(
                    "'{text}' is not a multiple such as 1BDP or 0.25BDP"
                ));
            }
        }
    } else if let Some(count) = lower.strip_suffix("packets") {
        match count.trim().parse() {
            Ok(count) if count <= 1_000_000_000 => Queue::Packets(count),
            _ => {
                return Err(format!(
                    "'{text}' is not a number of packets such as 64packets"
                ));
            }
        }
    } else {
        Queue::Limit(
            text.parse()
                .map_err(|e| format!("{e}, 1BDP or 64packets"))?,
        )
    };
    let zero = match queue {
        Queue::Bdp(factor) => factor <= 0.0,
        Queue::Packets(count) => count == 0,
        Queue::Limit(QueueLimit::Bytes(size)) => size == Size::ZERO,
        Queue::Limit(QueueLimit::Time(time)) => time.is_zero(),
    };
    if zero {
        return Err(format!(
            "a queue of {text} holds no packet; write 1BDP, 18MB or 64packets"
        ));
    }
    Ok(queue)
}

/// A direction with the values of `fields`, and of `base` where they have none.
fn direction(fields: &Fields<'_>, base: Direction) -> Result<Direction, Problem> {
    let mut direction = Direction {
        at: fields.span.clone(),
        ..base
    };
    if let Some(profile) = fields.parse("profile", preset)? {
        direction.queue = Queue::Limit(profile.queue);
        direction.config = PathConfig {
            mtu: direction.config.mtu,
            ..profile
        };
    }
    let config = &mut direction.config;
    // A rate or delay that is given is not one of a profile that changes over time.
    if let Some(rate) = fields.rate("rate")? {
        config.rate = rate;
        config.rate_steps.clear();
    }
    if let Some(delay) = fields.duration("delay")? {
        config.delay = delay;
        config.delay_steps.clear();
    }
    config.loss = match fields.parse("loss", str::parse)? {
        Some(loss) => loss,
        None => config.loss.clone(),
    };
    config.jitter = fields.parse("jitter", str::parse)?.or(config.jitter);
    config.reorder = fields.parse("reorder", str::parse)?.or(config.reorder);
    config.duplicate = fields.share("duplicate")?.unwrap_or(config.duplicate);
    config.corrupt = fields.share("corrupt")?.unwrap_or(config.corrupt);
    config.policer = optional(fields, "policer", config.policer)?;
    config.aqm = optional(fields, "aqm", config.aqm)?;
    config.router = fields.parse("router", str::parse)?.or(config.router);
    if let Some(mtu) = fields.number("mtu", 576..65_522)? {
        config.mtu = Some(u32::try_from(mtu).expect("bounded"));
    }
    if fields.has("blackout") {
        config.blackouts = fields.each("blackout", str::parse)?;
    }
    if fields.has("rate_steps") {
        config.rate_steps = fields.each("rate_steps", |t| step(t, rate))?;
    }
    if fields.has("delay_steps") {
        config.delay_steps = fields.each("delay_steps", |t| {
            step(t, |t| duration(t).map_err(|e| e.to_string()))
        })?;
    }
    if let Some(limit) = fields.parse("queue", queue)? {
        direction.queue = limit;
        direction.queue_at = fields.text("queue")?.map_or(0..0, |t| t.span);
    }
    Ok(direction)
}

/// Parses a value that a direction may be without, which `"none"` says as the value of a variable.
fn optional<T: FromStr<Err: Display>>(
    fields: &Fields<'_>,
    key: &str,
    base: Option<T>,
) -> Result<Option<T>, Problem> {
    match fields.text(key)? {
        Some(text) if text.value == "none" => Ok(None),
        Some(_) => fields.parse(key, str::parse),
        None => Ok(base),
    }
}

/// `TIME:VALUE`.
fn step<T>(text: &str, value: impl Fn(&str) -> Result<T, String>) -> Result<Step<T>, String> {
    let (at, to) = text
        .split_once(':')
        .ok_or_else(|| format!("'{text}' is not a step TIME:VALUE such as 5s:1Gbit or 5s:80ms"))?;
    Ok(Step {
        at: duration(at).map_err(|e| e.to_string())?,
        to: value(to)?,
    })
}

/// A clean direction with a queue of one bandwidth-delay product.
fn clean(fields: &Fields<'_>, mtu: u32) -> Direction {
    Direction {
        config: PathConfig {
            mtu: Some(mtu),
            ..PathConfig::default()
        },
        queue: Queue::Bdp(1.0),
        queue_at: fields.span.clone(),
        at: fields.span.clone(),
    }
}

fn link(fields: &Fields<'_>, mtu: u32) -> Result<Link, Problem> {
    let name = fields.needed("name", "\"bottleneck\"")?;
    if !fields.has("profile") {
        fields.needed("rate", "\"1Gbit\"")?;
    }
    let mut forward = direction(fields, clean(fields, mtu))?;
    if let Some(rtt) = fields.duration("rtt")? {
        if fields.has("delay") {
            return Err(fields.problem("rtt", "rtt and delay are alternatives: give one of them"));
        }
        forward.config.delay = rtt / 2;
        if !fields.has("delay_steps") {
            forward.config.delay_steps.clear();
        }
    }
    let back = match fields.table("back", &PATH)? {
        Some(back) => direction(&back, forward.clone())?,
        None => forward.clone(),
    };
    Ok(Link {
        name,
        forward,
        back,
    })
}

fn host(fields: &Fields<'_>, mtu: u32) -> Result<Host, Problem> {
    let name = fields.needed("name", "\"server1\"")?;
    fields.needed("nic", "\"1Gbit\"")?;
    let mut nic = clean(fields, mtu);
    nic.config.rate = fields.rate("nic")?.unwrap_or(nic.config.rate);
    nic.config.jitter = fields.parse("nic_jitter", str::parse)?;
    nic.queue = fields
        .parse("nic_queue", queue)?
        .unwrap_or(Queue::Packets(1_000));
    Ok(Host { name, nic })
}

fn ends(fields: &Fields<'_>, to: bool) -> Result<Ends, Problem> {
    Ok(Ends {
        from: fields.text("from")?,
        to: if to { fields.text("to")? } else { None },
        path: fields.list("path")?,
        reverse: fields.flag("reverse")?,
        at: fields.span.clone(),
    })
}

/// Start and end.
fn times(fields: &Fields<'_>) -> Result<(Duration, Option<Duration>), Problem> {
    let start = fields.duration("start")?.unwrap_or_default();
    let stop = match (
        fields.duration("stop")?,
        fields.parse("duration", positive)?,
    ) {
        (Some(_), Some(_)) => {
            let text = "stop and duration are alternatives: give one of them";
            return Err(fields.problem("duration", text));
        }
        (None, Some(lasts)) => Some(start + lasts),
        (stop, None) => stop,
    };
    if stop.is_some_and(|stop| stop <= start) {
        return Err(fields.problem("stop", "it stops before it starts"));
    }
    Ok((start, stop))
}

fn flow(fields: &Fields<'_>) -> Result<Flow, Problem> {
    let (start, stop) = times(fields)?;
    let bytes = fields.size("bytes")?.map(Size::bytes);
    if bytes == Some(0) {
        return Err(fields.problem("bytes", "it has nothing to send; give at least one byte"));
    }
    let write = fields.size("write")?.map(Size::bytes);
    if write == Some(0) {
        return Err(fields.problem("write", "a write has at least one byte"));
    }
    Ok(Flow {
        name: fields.needed("name", "\"first\"")?,
        ends: ends(fields, true)?,
        protocol: fields.text("protocol")?.unwrap_or(Placed {
            value: "haul".into(),
            span: fields.span.clone(),
        }),
        // As a value of a variable: the protocol's own.
        law: fields.text("law")?.filter(|law| law.value != "none"),
        max_rate: fields.rate("max_rate")?,
        start,
        stop,
        bytes,
        write,
        count: fields.number("count", 0..1_001)?.unwrap_or(1),
        stagger: fields.duration("stagger")?.unwrap_or_default(),
        extra_delay: fields.duration("extra_delay")?.unwrap_or_default(),
        local: fields.flag("local")?,
    })
}

/// Reads a program. Its commands have placeholders of their own; variables of the scenario are
/// replaced in them as well.
fn program(fields: &Fields<'_>) -> Result<Program, Problem> {
    fields.needed("name", "\"srt\"")?;
    let needed = |key: &str, example: &str| {
        let text = fields.template(key)?;
        text.ok_or_else(|| {
            fields.problem(
                "name",
                format!("a program needs {key}, as in {key} = {example}"),
            )
        })
    };
    let program = Program {
        name: fields.needed("name", "\"srt\"")?.value,
        prepare: fields.template("prepare")?,
        server: fields.template("server")?,
        client: needed("client", "\"iperf3 -c {host} -p {port} -J\"")?,
        ready: fields.template("ready")?,
        goodput: needed("goodput", "\"json:/end/sum_received/bits_per_second\"")?,
        metrics: fields.templates("metrics")?,
        verify: fields.template("verify")?,
    };
    program.check().map_err(|e| fields.problem("name", e))?;
    Ok(program)
}

fn cross(fields: &Fields<'_>, mtu: u32) -> Result<Cross, Problem> {
    let (start, stop) = times(fields)?;
    fields.needed("rate", "\"200Mbit\"")?;
    let rate = fields.rate("rate")?.unwrap_or(Rate::ZERO);
    if rate == Rate::UNLIMITED {
        return Err(fields.problem("rate", "cross traffic needs a finite rate"));
    }
    let packet = fields.number("packet", 28..u64::from(mtu) + 1)?;
    let on = fields.parse("on", positive)?;
    let off = fields.duration("off")?;
    let bursts = match (on, off) {
        (Some(on), Some(off)) => Some(Bursts {
            on,
            off,
            random: fields.flag("random")?,
        }),
        (None, None) => None,
        _ => return Err(fields.problem("on", "on and off belong together")),
    };
    Ok(Cross {
        name: fields.needed("name", "\"udp\"")?,
        ends: ends(fields, false)?,
        rate,
        packet: packet.map_or(mtu, |n| u32::try_from(n).expect("bounded")),
        start,
        stop,
        bursts,
        jitter: fields.share("jitter")?.unwrap_or(0.0),
    })
}
