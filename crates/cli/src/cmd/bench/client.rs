//! The end of a bench that asks.

use std::{net::SocketAddr, thread, time::Duration};

use farhaul_core::{protocol::Protocol, time::nanos, units::Rate};
use farhaul_io::{Buffers, Stop};
use farhaul_measure::registry::{self, Choice, Entry};
use farhaul_measure::{
    bench::{self, Limit, Progress, Report, Spec, Target},
    stopwatch::Stopwatch,
};
use serde_json::{Value, json};

#[cfg(feature = "lab")]
use super::shown::tracks;
use super::{How, failure, host, kernel, shown::Shown, usage};
use crate::{
    app::console::{Console, Level},
    exit::Failure,
    out,
    paths::{Place, Remembered},
    typed::{bare_seconds, size},
    wait::Wait,
};

#[cfg(not(feature = "lab"))]
use crate::cmd::absent::Figure;
#[cfg(feature = "lab")]
use crate::figure::Figure;

/// Rate of `-u` without `-b`, which is iperf3's.
const USUAL_CONSTANT: Rate = Rate::mbit(1);

/// The asking end.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags")]
pub(super) struct Client {
    /// HOST or HOST:PORT of a `farhaul bench serve`; an IPv6 address with a port in brackets
    host: Option<String>,
    /// Time to send: seconds, or with a unit [default: 10]
    #[arg(short = 't', long, value_name = "TIME", value_parser = bare_seconds, conflicts_with = "bytes", allow_negative_numbers = true)]
    time: Option<Duration>,
    /// Bytes to send, instead of a time
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    bytes: Option<u64>,
    /// Reverse: the server sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Both directions at once
    #[arg(short = 'd', long, conflicts_with_all = ["reverse", "plot", "path_memory", "law_time"])]
    bidir: bool,
    /// Send datagrams at the constant rate of -b, 1Mbit by default, and count jitter, losses, reordered datagrams and
    /// duplicates
    #[arg(short = 'u', long, conflicts_with_all = ["cc", "policy", "path_memory", "law_time"])]
    udp: bool,
    /// Measure the kernel's TCP instead, to a `farhaul bench serve --tcp`; --cc names its
    /// congestion control
    #[arg(long, conflicts_with_all = ["reverse", "bidir", "udp", "plot", "path_memory", "law_time", "lanes", "omit", "rate", "policy", "identity", "protocol"])]
    tcp: bool,
    /// Parallel sessions, each with a socket and a thread
    #[arg(short = 'P', long = "lanes", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    lanes: u32,
    /// Send TIME longer, and omit the first TIME from the result
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = bare_seconds, allow_negative_numbers = true)]
    omit: Duration,
    /// Time between reports, and between samples of --plot; 0 for no report [default: 1; samples:
    /// 0.1]
    #[arg(short = 'i', long, value_name = "TIME", value_parser = bare_seconds, allow_negative_numbers = true)]
    interval: Option<Duration>,
    /// Draw the rate over time as FILE.svg or FILE.png; where this end sends, also window, rtt and
    /// losses
    #[arg(long, value_name = "FILE")]
    plot: Option<Figure>,
    /// File that remembers the rates of paths, so that a run begins at what an earlier one proved;
    /// auto is the user's cache
    #[arg(long, value_name = "FILE|auto|never", value_parser = Place::parse, default_value = "never", conflicts_with = "reverse")]
    path_memory: Place,
    /// Measure the processor time of the congestion control here; protocol tcp only
    #[arg(long, conflicts_with = "reverse")]
    law_time: bool,
    /// One JSON object per line: connected, each interval, and the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    #[command(flatten)]
    how: How,
}

/// One direction of a run.
struct Way<'a> {
    spec: Spec,
    /// Name of the direction, where there are two.
    name: Option<&'static str>,
    to: SocketAddr,
    stop: &'a Stop,
    console: &'a dyn Console,
}

/// Result of a run.
pub(super) enum Measured {
    One(Box<Report>),
    /// Up and down at once.
    Both(Box<[Report; 2]>),
}

impl Measured {
    /// The object of `--json`.
    pub(super) fn object(&self) -> Value {
        match self {
            Self::One(report) => serde_json::to_value(report).unwrap_or_default(),
            Self::Both(both) => {
                let [up, down] = &**both;
                json!({ "schema": "farhaul.bench.bidir/1", "ok": true, "up": up, "down": down })
            }
        }
    }
}

impl Client {
    /// Measures.
    pub(super) fn measured(&self, console: &dyn Console) -> Result<Measured, Failure> {
        let Some(host) = &self.host else {
            return Err(Failure::usage(
                "name a host that runs `farhaul bench serve`, or run `bench serve` here",
            ));
        };
        let spec = self.spec(console)?;
        if self.tcp {
            let report = kernel::measure(
                host::resolve(host)?,
                self.how.cc.as_deref(),
                (spec.limit, self.reports()),
                self.is_quiet(),
            )?;
            return Ok(Measured::One(Box::new(report)));
        }
        let entry = registry::protocol(&self.how.protocol).map_err(usage)?;
        if self.udp && entry.descriptor.name != "haul" {
            return Err(Failure::usage(
                "-u sends the datagrams of haul at a constant rate: omit --protocol, or omit -u to measure that protocol",
            ));
        }
        // What cannot be made is refused here, before a name is looked up.
        entry.client(&self.how.choice(console)?).map_err(usage)?;
        let to = host::resolve(host)?;
        let stop = console.stop()?;
        let way = Way {
            spec,
            name: None,
            to,
            stop: &stop,
            console,
        };
        #[cfg(feature = "lab")]
        if let Some(plot) = &self.plot {
            plot.check()?;
        }
        if self.bidir {
            return self.both(&entry, &way);
        }
        let (report, drawn) = self.measure(&entry, &way)?;
        self.whole(report, drawn)
    }

    /// Runs both directions at once.
    fn both(&self, entry: &Entry, way: &Way<'_>) -> Result<Measured, Failure> {
        let one = |reverse, name| {
            let way = Way {
                spec: Spec {
                    reverse,
                    ..way.spec
                },
                name: Some(name),
                ..*way
            };
            let measured = self.measure(entry, &way);
            if measured.is_err() {
                way.stop.set();
            }
            measured
        };
        let (up, down) = thread::scope(|scope| {
            let down = scope.spawn(|| one(true, "down"));
            (one(false, "up"), down.join())
        });
        let (up, _) = up?;
        let (down, _) = down.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Measured::Both(Box::new([up, down])))
    }

    /// Measures one direction; answers also whether the figure could be drawn.
    fn measure(
        &self,
        entry: &Entry,
        way: &Way<'_>,
    ) -> Result<(Report, Result<(), Failure>), Failure> {
        let spec = &way.spec;
        let stopwatch = self.law_time.then(Stopwatch::default);
        let choice = Choice {
            wrap: stopwatch.as_ref().map(Stopwatch::wrap),
            ..self.how.choice(way.console)?
        };
        let law = choice.law.as_deref().unwrap_or(entry.default_law);
        let law = spec.constant.map_or(law, |_| "constant");
        let path = Remembered::open(&self.path_memory, way.to);
        let mut made = lanes(entry, &choice, spec.lanes, path.0.as_ref())?;
        let target = Target {
            to: way.to,
            protocol: self.how.protocol.clone(),
            cc: law.into(),
            buffers: Buffers::default(),
            stopwatch,
            wrap: None,
            stop: Some(way.stop.clone()),
        };
        let name = match spec.constant {
            Some(rate) if spec.lanes > 1 => {
                format!("datagrams at {rate} in each of {} sessions", spec.lanes)
            }
            Some(rate) => format!("datagrams at {rate}"),
            None => format!("{}, law {law}", entry.label(&self.how.protocol)),
        };
        let (mut shown, mut samples) = (Shown::every(self.reports()), Vec::new());
        let mut wait = (!self.is_quiet()).then(|| Wait::for_answer(format_args!("{}/udp", way.to)));
        let mut show = |progress| match progress {
            Progress::Sample { lane, sample } => {
                shown.sample(lane, sample);
                samples.push((lane, sample));
            }
            Progress::Connected(took) => {
                drop(wait.take());
                let ms = took.as_secs_f64() * 1e3;
                let text = format!("{name}, to {}: connected in {ms:.1} ms", way.to);
                let event = json!({ "type": "connected", "seconds": took.as_secs_f64() });
                self.tell(way, event, &text);
            }
            Progress::Interval(span) => {
                if let Some(line) = shown.add(span) {
                    self.tell(way, line.event(), &line.to_string());
                }
            }
        };
        let mut make = || made.pop().expect("one was made for each lane");
        let mut report = bench::run(&target, spec, &mut make, &mut show).map_err(|e| {
            let unreached = failure::unreached(&e, &target);
            unreached.unwrap_or_else(|| failure::failure(&e, &choice))
        })?;
        report.max_rate = spec.max_rate;
        if let Some(rest) = shown.rest(&report) {
            self.tell(way, rest.event(), &rest.to_string());
        }
        keep(path, way.console);
        #[cfg(feature = "lab")]
        let drawn = self.plot.as_ref().map_or(Ok(()), |plot| {
            plot.save(&name, &tracks(spec.lanes, &report, &samples))
        });
        #[cfg(not(feature = "lab"))]
        let drawn = Ok(());
        Ok((report, drawn))
    }

    /// Shows an event: to the program around this one, as a line of JSON, or as text.
    fn tell(&self, way: &Way<'_>, mut event: Value, text: &str) {
        if let Some(name) = way.name {
            event["direction"] = name.into();
        }
        match way.name {
            _ if self.json_stream || way.console.is_inside() => way.console.event(&event),
            _ if self.how.json => {}
            Some(name) => out::line(format!("{name:<5}{text}")),
            None => out::line(text),
        }
    }

    /// The result; people see it also if its figure could not be drawn.
    fn whole(&self, report: Report, drawn: Result<(), Failure>) -> Result<Measured, Failure> {
        let measured = Measured::One(Box::new(report));
        let Err(failure) = drawn else {
            return Ok(measured);
        };
        if !self.is_quiet() {
            self.show(&measured);
        }
        let mut object = measured.object();
        object["ok"] = false.into();
        Err(failure.with_object(object))
    }

    /// Prints the result.
    pub(super) fn show(&self, measured: &Measured) {
        match measured {
            _ if self.json_stream => out::summary_line(measured.object()),
            Measured::One(report) if self.how.json => out::json(report),
            Measured::One(report) => out::line(format!("\n{report}")),
            Measured::Both(_) if self.how.json => out::json(&measured.object()),
            Measured::Both(both) => {
                let [up, down] = &**both;
                out::line(format!("\nup\n{up}\n\ndown\n{down}"));
            }
        }
    }

    /// True if nothing is printed for people.
    const fn is_quiet(&self) -> bool {
        self.how.json || self.json_stream
    }

    /// Interval of the lines that are shown.
    fn reports(&self) -> Duration {
        self.interval.unwrap_or(Duration::from_secs(1))
    }

    /// Interval of the samples that are measured.
    fn samples(&self) -> Duration {
        let given = self.interval.filter(|i| !i.is_zero());
        match given {
            Some(interval) => interval,
            None if self.plot.is_some() => Duration::from_millis(100),
            None => self.reports(),
        }
    }

    fn spec(&self, console: &dyn Console) -> Result<Spec, Failure> {
        let limit = match self.bytes {
            // Each parallel session sends its share.
            Some(bytes) => Limit::Bytes(bytes.div_ceil(u64::from(self.lanes))),
            // What is omitted comes on top, as in iperf3.
            None => Limit::Nanos(nanos(
                self.time.unwrap_or(Duration::from_secs(10)) + self.omit,
            )),
        };
        if self.time.is_some_and(|time| time.is_zero()) {
            return Err(Failure::usage(
                "-t 0 leaves nothing to measure: give a longer time, or -n",
            ));
        }
        let interval = self.samples();
        if !interval.is_zero() && interval < Duration::from_millis(10) {
            return Err(Failure::usage("-i takes 0 or at least 10ms"));
        }
        if self.udp && self.how.rate == Some(Rate::UNLIMITED) {
            let text = "-u sends at a constant rate, which has to be given";
            return Err(Failure::usage(text).fix(
                "write -u -b RATE, as in -u -b 1Gbit; without -u and -b, farhaul sends as fast as the path takes",
            ));
        }
        if self.reverse && self.how.cc.is_some() {
            return Err(Failure::usage(
                "with -R the server sends, by the law that `farhaul bench serve` was given: set --cc there",
            ));
        }
        Ok(Spec {
            limit,
            reverse: self.reverse,
            lanes: self.lanes,
            omit: self.omit,
            interval,
            live: !self.how.json || console.is_inside(),
            max_rate: self.how.max_rate(),
            constant: self.udp.then(|| self.how.rate.unwrap_or(USUAL_CONSTANT)),
            sharing: self.how.policy,
        })
    }
}

/// The ends of so many parallel sessions; one of them resumes from what an earlier run proved of
/// the path.
fn lanes(
    entry: &Entry,
    choice: &Choice,
    lanes: u32,
    path: Option<&Remembered>,
) -> Result<Vec<Box<dyn Protocol>>, Failure> {
    let path = path.filter(|_| entry.descriptor.name == "haul");
    let resumes = path.map(|path| registry::haul(Some(path.memory())));
    let others = (1..lanes).map(|_| entry);
    let all = std::iter::once(resumes.as_ref().unwrap_or(entry)).chain(others);
    all.map(|entry| entry.client(choice).map_err(usage))
        .collect()
}

/// Remembers the path, and says why it was not known or will not be.
fn keep((path, unread): (Option<Remembered>, Option<String>), console: &dyn Console) {
    let unsaved = path.and_then(|path| path.save().err());
    for warning in unread.into_iter().chain(unsaved) {
        console.message(Level::Important, &format!("farhaul: warning: {warning}"));
    }
}
