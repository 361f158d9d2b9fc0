//! `farhaul sim`: simulates what would happen on a path. The same sessions run over the same link
//! model, in virtual time, repeatable from the seed.

mod copy;
mod embedded;
mod scenario;

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use farhaul_core::{protocol::CloseReason, time::Instant, units::Rate};
use farhaul_lab::{plot::series::Track, scenario::MAX_SAMPLES};
use farhaul_measure::registry::{self, Choice};
use farhaul_sim::{
    Error, FlowConfig, FlowReport, Maker, Moment, Observer, Scenario, Side, SimReport,
};
use serde_json::{Value, json};

pub use self::embedded::{Simulation, cells, simulate};
use super::path::{MTU, PathArgs};
use crate::{
    bar::clock,
    exit::{Exit, Failure},
    figure::Figure,
    names::Names,
    out,
    typed::{seconds, seed},
    wait::Wait,
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The protocol, as NAME or NAME:PARAMETER=VALUE,...; `farhaul protocols` lists them
    #[arg(long, value_name = "PROTOCOL", default_value = "haul", value_parser = Names::protocols(), hide_possible_values = true)]
    protocol: String,
    /// Congestion control (law), as NAME or NAME:PARAMETER=VALUE,...; repeatable, with one flow for each
    #[arg(long, value_name = "LAW", value_parser = Names::laws(), hide_possible_values = true)]
    cc: Vec<String>,
    /// Limit the rate of each flow
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Virtual time, in seconds [default: 30; for a copy, at most 100000]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(1..=LONGEST), allow_negative_numbers = true)]
    secs: Option<u64>,
    /// Application instead of an endless flow: "cp" copies PATH to a folder in TMPDIR, and removes
    /// the copy. Disks take no time
    #[arg(
        long,
        value_name = "APP",
        requires = "path_to_copy",
        conflicts_with = "flows"
    )]
    app: Option<Application>,
    /// File or folder to copy, with --app cp
    #[arg(value_name = "PATH", id = "path_to_copy", requires = "app")]
    source: Option<PathBuf>,
    /// Number of parallel flows [default: 1, or one for each --cc]; the laws of --cc take turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    flows: Option<u32>,
    /// Longest packet, with its IP header
    #[arg(long, value_name = "BYTES", default_value_t = MTU, value_parser = clap::value_parser!(u32).range(576..=65_521))]
    mtu: u32,
    /// Seed of all randomness
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Interval of samples of every flow, for --json and --plot [default: none; with --plot, a 300th of
    /// the time, or 100ms of a copy]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// Draw goodput, window, rtt, queue and losses of every flow over time, as FILE.svg or FILE.png
    #[arg(long, value_name = "FILE")]
    plot: Option<Figure>,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
    #[command(flatten)]
    path: PathArgs,
}

/// Applications that may ride on a session.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Application {
    /// A copy
    Cp,
}

/// The longest run, in seconds of virtual time.
const LONGEST: u64 = 100_000;

/// Other actions of `sim`.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run scenario files: several links, flows and seeds, and expectations
    Run(scenario::Args),
}

fn interval(text: &str) -> Result<Duration, String> {
    farhaul_link::duration(text).map_err(|e| e.to_string())
}

/// Simulates.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(Action::Run(args)) = &args.action {
        return scenario::run(args);
    }
    let entry = registry::protocol(&args.protocol).map_err(|e| Failure::usage(e.to_string()))?;
    let choices = args.choices();
    for choice in &choices {
        let made = entry.client(choice);
        made.map_err(|e| Failure::usage(e.to_string()))?;
    }
    let scenario = args.scenario()?;
    if let Some(plot) = &args.plot {
        plot.check()?;
    }
    let mut make = |flow: usize| {
        let made = "was made a moment ago";
        let choice = &choices[flow % choices.len()];
        let client = entry.client(choice).expect(made);
        (client, entry.server(choice).expect(made))
    };
    let (report, outcome) = match &args.source {
        Some(source) => {
            let _wait = Wait::start(|time| format!("simulating a copy, {} s", time.as_secs()));
            let (report, outcome) = copy::run(source, &scenario, &mut make)?;
            (report, Some(outcome))
        }
        None => (watched(&scenario, &mut make).map_err(failure)?, None),
    };
    let laws: Vec<_> = choices
        .iter()
        .map(|choice| choice.law.as_deref().unwrap_or(entry.default_law))
        .collect();
    let law = &laws.join(" and ");
    let label = entry.label(&args.protocol);
    // Before anything is printed: the reader of the output may stop reading.
    let drawn = args.plot.as_ref().map_or(Ok(()), |plot| {
        plot.save(
            &format!("{label}, law {law}: {}", args.path_line(&scenario)),
            &tracks(&report, &laws),
        )
    });
    if !args.json {
        if let Some(outcome) = &outcome {
            out::line(outcome.summary.line());
        }
        out::line(format!("path: {}", args.path_line(&scenario)));
        print(&label, &laws, &report);
    }
    let mut object = object(&args.protocol, law, &report);
    if let [_, _, ..] = laws[..] {
        object["laws"] = laws
            .iter()
            .copied()
            .cycle()
            .take(report.flows.len())
            .collect();
    }
    let mut failed = None;
    if let Some(outcome) = outcome {
        object["copy"] = serde_json::to_value(&outcome.summary).unwrap_or(Value::Null);
        failed = outcome.error.as_ref().map(Failure::from);
    }
    if let Some(failure) = failed.or_else(|| fault(&report)).or(drawn.err()) {
        object["ok"] = false.into();
        return Err(failure.with_object(object));
    }
    if args.json {
        out::json(&object);
    }
    Ok(())
}

/// The run; on a terminal its virtual time is shown.
fn watched(scenario: &Scenario, make: Maker<'_>) -> Result<SimReport, Error> {
    if !io::stderr().is_terminal() {
        return farhaul_sim::run(scenario, make);
    }
    let clock = Arc::new(AtomicU64::new(0));
    let (reached, whole) = (Arc::clone(&clock), scenario.duration);
    let _wait = Wait::start(move |waited| {
        let reached = Duration::from_nanos(reached.load(Relaxed));
        of_virtual_time(reached, whole, waited)
    });
    farhaul_sim::run_observed(scenario, make, &mut Clock(clock))
}

fn of_virtual_time(reached: Duration, whole: Duration, waited: Duration) -> String {
    let (done, all) = (reached.as_secs_f64(), whole.as_secs_f64());
    let left = waited.as_secs_f64() * (all / done - 1.0);
    let eta = if left.is_finite() {
        format!(
            ", ETA {}",
            clock(Duration::from_secs_f64(left.clamp(0.0, 1e9)))
        )
    } else {
        String::new()
    };
    format!("simulated {done:.1} of {all:.0} s{eta}")
}

/// Shows which virtual time was reached.
struct Clock(Arc<AtomicU64>);

impl Observer for Clock {
    fn on_session(&mut self, at: Instant, _: usize, _: Side, _: Moment<'_>) {
        self.0.store(at.as_nanos(), Relaxed);
    }
}

impl Args {
    /// One choice for each law that was named, and one for none.
    fn choices(&self) -> Vec<Choice> {
        let of = |law| Choice {
            law,
            max_rate: self.max_rate,
            simulated: true,
            ..Choice::default()
        };
        let named: Vec<_> = self.cc.iter().cloned().map(Some).map(of).collect();
        if named.is_empty() {
            vec![of(None)]
        } else {
            named
        }
    }

    fn flows(&self) -> u32 {
        let laws = u32::try_from(self.cc.len()).unwrap_or(u32::MAX);
        self.flows.unwrap_or_else(|| laws.clamp(1, 64))
    }

    fn scenario(&self) -> Result<Scenario, Failure> {
        let [forward, back] = self.path.paths(self.mtu)?;
        Ok(Scenario {
            forward,
            back,
            flows: (0..self.flows()).map(|_| FlowConfig::default()).collect(),
            duration: self.duration(),
            seed: self.seed,
            interval: self.interval()?,
            interface_mtu: Some(self.mtu),
            ..Scenario::default()
        })
    }

    /// The path, for people.
    fn path_line(&self, scenario: &Scenario) -> String {
        farhaul_link::describe(&scenario.forward, &scenario.back, self.mtu)
    }

    fn duration(&self) -> Duration {
        let usual = if self.source.is_some() { LONGEST } else { 30 };
        Duration::from_secs(self.secs.unwrap_or(usual))
    }

    /// The samples of a run are kept until its end.
    fn kept(&self, interval: Duration) -> Result<Duration, Failure> {
        let samples = self.duration().as_nanos() * u128::from(self.flows());
        if interval.is_zero() || samples / interval.as_nanos() <= MAX_SAMPLES {
            return Ok(interval);
        }
        let text =
            format!("--interval {interval:?} is too short: at most {MAX_SAMPLES} samples are kept");
        Err(Failure::usage(text).fix("give a longer one, or fewer --secs or --flows"))
    }

    fn interval(&self) -> Result<Duration, Failure> {
        let plotted = self.plot.is_some();
        match self.interval {
            Some(interval) if plotted && interval.is_zero() => Err(Failure::usage(
                "--interval 0s leaves nothing to --plot: give a longer one, or omit it",
            )),
            Some(interval) => self.kept(interval),
            None if !plotted => Ok(Duration::ZERO),
            // How long a copy takes is not known.
            None if self.source.is_some() => Ok(Duration::from_millis(100)),
            None => Ok(self.duration() / 300),
        }
    }
}

fn tracks(report: &SimReport, laws: &[&str]) -> Vec<Track> {
    let flows = report.flows.iter().enumerate();
    flows
        .map(|(i, flow)| Track::of_flow(&named(i, laws), flow))
        .collect()
}

/// Failure for a fault that makes the run no result.
fn fault(report: &SimReport) -> Option<Failure> {
    for (i, flow) in report.flows.iter().enumerate() {
        let [client, server] = &flow.reasons;
        for (side, reason) in [("client", client), ("server", server)] {
            let exit = match reason {
                Some(CloseReason::Internal(_)) => Exit::Internal,
                Some(CloseReason::Protocol(_)) => Exit::Protocol,
                Some(CloseReason::Store(_)) => Exit::VerifyFailed,
                Some(CloseReason::Auth(_) | CloseReason::Denied(_)) => Exit::Auth,
                Some(CloseReason::Version(_)) => Exit::Version,
                Some(CloseReason::Lane(_)) => Exit::UdpBlocked,
                // A path may break a connection: that is a result, and it is printed.
                _ => continue,
            };
            let why = reason.as_ref().map(ToString::to_string).unwrap_or_default();
            return Some(Failure::new(exit, format!("flow {i}, {side}: {why}")));
        }
    }
    let nobody = report.flows.iter().all(|flow| flow.connected.is_none());
    nobody.then(|| {
        let text = format!(
            "no session was established in {} s of virtual time",
            report.seconds
        );
        Failure::new(Exit::UdpBlocked, text).fix(
            "the path lets too little through (--loss, --blackout, --policer, --mtu), or --secs is shorter than its \
             round trips",
        )
    })
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn failure(error: Error) -> Failure {
    let exit = match &error {
        Error::Livelock { .. } => Exit::Internal,
        _ => Exit::Usage,
    };
    Failure::new(exit, error.to_string())
}

/// Shares of a flow's time in which its sender did not send, by reason.
fn limits(flow: &FlowReport) -> Value {
    let total = flow.seconds.max(1e-9);
    let mut rest = 1.0;
    let mut shares = serde_json::Map::new();
    for (why, seconds) in &flow.sender.held {
        let share = (seconds / total).clamp(0.0, rest);
        rest -= share;
        shares.insert((*why).to_string(), share.into());
    }
    shares.insert("sending".into(), rest.into());
    Value::Object(shares)
}

/// The bench's keys where they mean the same, then everything the simulator knows. The first flow
/// speaks for all but goodput, which is the sum.
fn object(protocol: &str, law: &str, report: &SimReport) -> Value {
    let goodput: f64 = report.flows.iter().map(|f| f.goodput_bits_per_second).sum();
    let first = report.flows.first();
    json!({
        "schema": "farhaul.sim/1",
        "ok": true,
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": protocol,
        "cc": law,
        "seconds": report.seconds,
        "goodput_bits_per_second": goodput,
        "feedback_bytes": first.map(|f| f.receiver.feedback_sent),
        "feedback_kib_per_gib": first.and_then(|f| f.feedback_kib_per_gib),
        "wire_bytes": first.map(|f| f.sender.wire_sent),
        "wire_over_goodput": first.and_then(|f| f.wire_over_goodput),
        "repaired_bytes": first.map(|f| f.sender.repaired),
        "limited_by": first.map(limits),
        "simulation": report,
    })
}

/// A flow, with its law where there are several.
fn named(i: usize, laws: &[&str]) -> String {
    match laws {
        [_] | [] => format!("flow {i}"),
        several => format!("flow {i} ({})", several[i % several.len()]),
    }
}

fn print(protocol: &str, laws: &[&str], report: &SimReport) {
    let law = laws.join(" and ");
    out::line(format!(
        "{protocol}, law {law}: {:.1} s of virtual time, seed {}, {} packets, trace {}",
        report.seconds, report.seed, report.packets, report.trace_hash
    ));
    for (i, flow) in report.flows.iter().enumerate() {
        let number = |x: Option<f64>, digits: usize| {
            x.map_or_else(|| "-".into(), |x| format!("{x:.digits$}"))
        };
        out::line(format!(
            "{}: {}, connected in {} s, nine tenths of its share after {} s",
            named(i, laws),
            Rate::from_f64(flow.goodput_bits_per_second),
            number(flow.connected, 3),
            number(flow.time_to_90_percent, 2)
        ));
        out::line(format!(
            "        feedback {} KiB per GiB, wire {} bytes per byte, {} bytes repaired",
            number(flow.feedback_kib_per_gib, 1),
            number(flow.wire_over_goodput, 4),
            flow.sender.repaired
        ));
        if let Value::Object(shares) = limits(flow) {
            let words: Vec<_> = shares
                .iter()
                .filter_map(|(why, share)| Some((why, share.as_f64().filter(|s| *s >= 0.01)?)))
                .map(|(why, share)| format!("{why} {:.0} %", share * 100.0))
                .collect();
            out::line(format!("        limited by {}", words.join(", ")));
        }
        for text in flow.closed.iter().flatten() {
            out::line(format!("        {text}"));
        }
        for side in [&flow.sender, &flow.receiver] {
            if let Some(fault) = side.law_fault {
                out::line(format!(
                    "        the law returned invalid values {} times, which were replaced, last {fault}",
                    side.law_faults
                ));
            }
        }
    }
    for (name, link) in [("forward", &report.forward), ("reverse", &report.back)] {
        let drops: Vec<_> = link
            .drops
            .iter()
            .map(|(cause, n)| format!("{n} dropped ({cause})"))
            .collect();
        out::line(format!(
            "{name}: {} packets, longest queue {} bytes, {:.1} ms; {}",
            link.offered,
            link.max_queue_bytes,
            link.max_wait_ms,
            if drops.is_empty() {
                "none dropped".into()
            } else {
                drops.join(", ")
            }
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_no_result_ends_with_the_code_of_what_ended_it() {
        let entry = registry::protocol("haul").unwrap();
        let choice = Choice {
            simulated: true,
            ..Choice::default()
        };
        let scenario = Scenario {
            duration: Duration::from_millis(100),
            ..Scenario::default()
        };
        let mut make = |_| {
            let client = entry.client(&choice).unwrap();
            (client, entry.server(&choice).unwrap())
        };
        let report = farhaul_sim::run(&scenario, &mut make).unwrap();
        assert!(fault(&report).is_none());
        for (reason, exit) in [
            (
                CloseReason::Internal("the law".into()),
                Some(Exit::Internal),
            ),
            (
                CloseReason::Protocol("the law".into()),
                Some(Exit::Protocol),
            ),
            (CloseReason::TimedOut, None),
        ] {
            let mut ended = report.clone();
            ended.flows[0].reasons[1] = Some(reason);
            let fault = fault(&ended);
            assert_eq!(fault.as_ref().map(|f| f.exit), exit);
            assert!(fault.is_none_or(|f| f.text.contains("flow 0, server: ")));
        }
        let mut alone = report;
        alone.flows[0].connected = None;
        assert_eq!(fault(&alone).unwrap().exit, Exit::UdpBlocked);
    }
}
