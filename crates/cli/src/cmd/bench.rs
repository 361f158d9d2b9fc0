//! `farhaul bench`: measures how fast a protocol is from memory to memory. Its manners are
//! iperf3's: a server and a client, interval lines, a summary; the receiver's count is the truth.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use farhaul_core::{
    congestion::Sharing,
    protocol::{CloseReason, Protocol},
    time::nanos,
    units::{Rate, Size},
};
use farhaul_haul::Identity;
use farhaul_io::Buffers;
use farhaul_lab::{
    bench::{self, BenchError, Bounds, Limit, Progress, Report, Sample, Spec, Target},
    plot::series::Track,
    registry::{self, Choice, Entry},
    stopwatch::Stopwatch,
};
use farhaul_transfer::TransferError;
use serde_json::{Value, json};

use crate::{
    embed,
    exit::{Exit, Failure},
    figure::Figure,
    interrupt, keys,
    names::Names,
    out,
    paths::{Place, Remembered},
    place::PORT,
    reach::{Unreached, unopened},
    typed::listen,
    wait::Wait,
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    serve: Option<Mode>,
    #[command(flatten)]
    client: Client,
}

#[derive(Debug, clap::Subcommand)]
enum Mode {
    /// Run a server for clients
    Serve(Serve),
}

/// The waiting end.
#[derive(Debug, clap::Args)]
struct Serve {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT), value_parser = listen)]
    listen: SocketAddr,
    /// End after one client
    #[arg(short = '1', long)]
    one_off: bool,
    /// Allowed clients: a public key (repeatable), or "any"
    #[arg(long, value_name = "KEY|any", default_value = "any")]
    allow: Vec<String>,
    /// Largest share of a link that clients may use
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    max_policy: Sharing,
    /// The longest run a client may request, with its unit
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    max_time: Duration,
    #[command(flatten)]
    how: How,
}

/// Options of both ends.
#[derive(Debug, clap::Args)]
struct How {
    /// The protocol, as NAME or NAME:PARAMETER=VALUE,...; `farhaul protocols` lists them
    #[arg(long, value_name = "PROTOCOL", default_value = "haul", value_parser = Names::protocols(), hide_possible_values = true)]
    protocol: String,
    /// The congestion law, as NAME or NAME:PARAMETER=VALUE,...
    #[arg(long, value_name = "LAW", value_parser = Names::laws(), hide_possible_values = true)]
    cc: Option<String>,
    /// Limit the rate
    #[arg(long, short = 'b', value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// Share of a link that others use too: low (what they leave), fair (as much as each of them)
    /// or high (as much as two, if the server allows it); for haul's own law
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    policy: Sharing,
    /// Key file of this end, instead of a new key each time
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

/// The asking end.
#[derive(Debug, clap::Args)]
struct Client {
    /// HOST or HOST:PORT of a `farhaul bench serve`; an IPv6 address with a port in brackets
    host: Option<String>,
    /// Time to send: seconds, or with a unit [default: 10]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds, conflicts_with = "bytes", allow_negative_numbers = true)]
    time: Option<Duration>,
    /// Bytes to send instead
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = size, allow_negative_numbers = true)]
    bytes: Option<u64>,
    /// Reverse: the server sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Parallel sessions, each with a socket and a thread
    #[arg(short = 'P', long = "lanes", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    lanes: u32,
    /// Omit the first TIME from the result
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = seconds, allow_negative_numbers = true)]
    omit: Duration,
    /// Interval of reports, and of samples for --plot; 0 for none [default: 1; of samples, 0.1]
    #[arg(short = 'i', long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    interval: Option<Duration>,
    /// Draw what arrived and, of a sender here, its window, rtt and losses over time, as FILE.svg or FILE.png
    #[arg(long, value_name = "FILE")]
    plot: Option<Figure>,
    /// Begin at what an earlier run proved of this path, and remember what this one proves, in FILE or the user's
    /// cache (auto)
    #[arg(long, value_name = "FILE|auto|never", value_parser = Place::parse, default_value = "never", conflicts_with = "reverse")]
    path_memory: Place,
    /// Measure what the congestion law costs this end; protocol tcp only
    #[arg(long, conflicts_with = "reverse")]
    law_time: bool,
    /// One JSON object per line: connected, each interval, and the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    #[command(flatten)]
    how: How,
}

/// A time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    farhaul_link::duration(text).map_err(|e| e.to_string())
}

/// A time that is in seconds if it has no unit, as in iperf3.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=1e6).contains(&s) => Ok(Duration::from_secs_f64(s)),
        Ok(_) => Err("give 0 to 1000000 seconds".into()),
        Err(_) => time(text),
    }
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    match text.parse::<Size>() {
        Ok(size) if size.bytes() > 0 => Ok(size.bytes()),
        Ok(_) => Err("give at least one byte".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// Runs the server or the client.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.serve {
        Some(Mode::Serve(serve)) => serve.run(),
        None => args.client.run(),
    }
}

impl How {
    /// The law, which is haul's own if it has a policy.
    fn law(&self) -> Result<Option<String>, Failure> {
        if self.policy == Sharing::Fair {
            return Ok(self.cc.clone());
        }
        let other = self.cc.as_deref().is_some_and(|cc| cc != "haul");
        if other || self.protocol.split(':').next() != Some("haul") {
            return Err(Failure::usage(format!(
                "--policy {} is a policy of haul's own law: omit --cc and --protocol, or choose a similar law, \
                 such as --cc ledbat",
                self.policy
            )));
        }
        Ok(Some(format!("haul:policy={}", self.policy)))
    }

    fn choice(&self) -> Result<Choice, Failure> {
        let identity = self
            .identity
            .as_deref()
            .map(|file| keys::identity(Some(file)));
        Ok(Choice {
            law: self.law()?,
            max_rate: self.rate,
            identity: identity.transpose()?.map(|id| id.seed().to_vec()),
            ..Choice::default()
        })
    }
}

impl Serve {
    fn run(self) -> Result<(), Failure> {
        let entry = registry::protocol(&self.how.protocol).map_err(usage)?;
        let mut choice = self.how.choice()?;
        if !self.allow.iter().any(|a| a == "any") {
            choice.peers.clone_from(&self.allow);
        }
        let protocol = entry.server(&choice).map_err(usage)?;
        let bounds = Bounds {
            time: self.max_time,
            sharing: self.max_policy,
            ..Bounds::default()
        };
        let stop = interrupt::stop()?;
        let clients = self.one_off.then_some(1);
        let mut ready = |at: SocketAddr| {
            let at_once = json!({ "type": "listening", "address": at.to_string() });
            if embed::tell(&at_once) {
                return;
            }
            errln!("bench server at {at} with {}", entry.descriptor.name);
        };
        bench::serve(self.listen, protocol, bounds, clients, &stop, &mut ready).map_err(|e| {
            let mut failure = served(&e);
            if failure.exit == Exit::NetSetup {
                failure.text += "; choose another address with --listen";
            }
            failure
        })?;
        if self.how.json {
            out::json(&json!({ "schema": "farhaul.bench.serve/1", "ok": true }));
        }
        Ok(())
    }
}

impl Client {
    fn run(self) -> Result<(), Failure> {
        let Some(host) = &self.host else {
            return Err(Failure::usage(
                "name a host that runs `farhaul bench serve`, or run `bench serve` here",
            ));
        };
        let spec = self.spec()?;
        let entry = registry::protocol(&self.how.protocol).map_err(usage)?;
        let stopwatch = self.law_time.then(Stopwatch::default);
        let choice = Choice {
            stopwatch: stopwatch.clone(),
            ..self.how.choice()?
        };
        let law = choice.law.as_deref().unwrap_or(entry.default_law);
        // What cannot be made is refused here, before a name is looked up.
        entry.client(&choice).map_err(usage)?;
        let to = resolve(host)?;
        let path = Remembered::open(&self.path_memory, to);
        let mut made = lanes(&entry, &choice, spec.lanes, path.0.as_ref())?;
        let target = Target {
            to,
            protocol: self.how.protocol.clone(),
            cc: law.into(),
            buffers: Buffers::default(),
            stopwatch,
            wrap: None,
            stop: Some(interrupt::stop()?),
        };
        if let Some(plot) = &self.plot {
            plot.check()?;
        }
        let (quiet, label) = (
            self.how.json || self.json_stream,
            entry.label(&self.how.protocol),
        );
        let mut shown = Shown::every(self.reports());
        let mut samples = Vec::new();
        let mut wait = (!quiet).then(|| Wait::for_answer(format_args!("{}/udp", target.to)));
        let tell = embed::teller();
        let mut show_progress = |progress| match progress {
            Progress::Sample { lane, sample } => samples.push((lane, sample)),
            progress if let Some(tell) = &tell => pass_on(|event| tell(event), shown.add(progress)),
            progress if self.json_stream => pass_on(out::json_line, shown.add(progress)),
            progress if !quiet => {
                drop(wait.take());
                if let Some(progress) = shown.add(progress) {
                    print_progress(&target, &label, progress);
                }
            }
            _ => {}
        };
        let mut make = || made.pop().expect("one was made for each lane");
        let report = bench::run(&target, &spec, &mut make, &mut show_progress)
            .map_err(|e| unreached(&e, &target).unwrap_or_else(|| failure(&e, &choice)))?;
        if let Some(rest) = shown.rest(&report) {
            if self.json_stream {
                pass_on(out::json_line, Some(rest));
            } else if !quiet {
                print_progress(&target, &label, rest);
            }
        }
        keep(path);
        let name = format!("{label}, law {law}");
        let drawn = self.plot.as_ref().map_or(Ok(()), |plot| {
            plot.save(&name, &tracks(spec.lanes, &report, &samples))
        });
        self.conclude(&report, drawn)
    }

    /// Shows the result, also of a run whose figure could not be drawn.
    fn conclude(&self, report: &Report, drawn: Result<(), Failure>) -> Result<(), Failure> {
        let Err(failure) = drawn else {
            self.show(report);
            return Ok(());
        };
        if !self.how.json && !self.json_stream {
            self.show(report);
        }
        let mut object = serde_json::to_value(report).unwrap_or_default();
        object["ok"] = false.into();
        Err(failure.with_object(object))
    }

    fn show(&self, report: &Report) {
        if self.json_stream {
            out::summary_line(serde_json::to_value(report).unwrap_or_default());
        } else if self.how.json {
            out::json(report);
        } else {
            out::line(format!("\n{report}"));
        }
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

    fn spec(&self) -> Result<Spec, Failure> {
        let limit = match self.bytes {
            // Each parallel session sends its share.
            Some(bytes) => Limit::Bytes(bytes.div_ceil(u64::from(self.lanes))),
            None => Limit::Nanos(nanos(self.time.unwrap_or(Duration::from_secs(10)))),
        };
        if limit == Limit::Nanos(0) {
            return Err(Failure::usage(
                "-t 0 leaves nothing to measure: give a longer time, or -n",
            ));
        }
        if let Limit::Nanos(n) = limit
            && n <= nanos(self.omit)
        {
            return Err(Failure::usage(
                "-O omits the whole run: make it shorter than -t",
            ));
        }
        let interval = self.samples();
        if !interval.is_zero() && interval < Duration::from_millis(10) {
            return Err(Failure::usage("-i takes 0 or at least 10ms"));
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
            live: !self.how.json || embed::is_inside(),
            max_rate: self.how.rate,
            sharing: self.how.policy,
        })
    }
}

/// Puts intervals together where they are shorter than those that are to be shown.
struct Shown {
    every: Duration,
    /// The end of the next interval that is shown.
    next: Duration,
    from: Duration,
    bytes: u64,
    /// Bytes in all intervals that were shown.
    told: u64,
}

impl Shown {
    /// Interval of reports; none if it is 0.
    const fn every(every: Duration) -> Self {
        Self {
            every,
            next: every,
            from: Duration::ZERO,
            bytes: 0,
            told: 0,
        }
    }

    fn add(&mut self, progress: Progress) -> Option<Progress> {
        let Progress::Interval { to, bytes, .. } = progress else {
            return Some(progress);
        };
        self.bytes += bytes;
        if self.every.is_zero() || to < self.next {
            return None;
        }
        while self.next <= to {
            self.next += self.every;
        }
        let from = std::mem::replace(&mut self.from, to);
        let bytes = std::mem::take(&mut self.bytes);
        self.told += bytes;
        Some(Progress::Interval { from, to, bytes })
    }

    /// Rest at the end, if that is most of an interval; unknown if the start was omitted.
    fn rest(&self, report: &Report) -> Option<Progress> {
        let end = Duration::from_secs_f64(report.seconds);
        let bytes = report.bytes.checked_sub(self.told)?;
        let most = end.saturating_sub(self.from) > self.every / 2;
        (most && !self.every.is_zero()).then_some(Progress::Interval {
            from: self.from,
            to: end,
            bytes,
        })
    }
}

/// Tracks over time: one of a single session, or one of all parallel sessions and one of each.
fn tracks(lanes: u32, report: &Report, samples: &[(u32, Sample)]) -> Vec<Track> {
    let lane = |lane: u32, name: &str| {
        let of = samples.iter().filter(|(l, _)| *l == lane);
        Track::of_sender(name, of.map(|(_, sample)| sample))
    };
    let name = if lanes == 1 { "flow" } else { "all lanes" };
    let mut all = Track::of_intervals(name, &report.intervals);
    if lanes == 1 {
        all.moments.extend(lane(0, name).moments);
        return vec![all];
    }
    let each = (0..lanes).map(|l| lane(l, &format!("lane {l}")));
    [all].into_iter().chain(each).collect()
}

fn print_progress(target: &Target, label: &str, progress: Progress) {
    match progress {
        Progress::Connected(took) => {
            let Target { to, cc, .. } = target;
            let ms = took.as_secs_f64() * 1e3;
            out::line(format!(
                "{label} to {to}, law {cc}: connected in {ms:.1} ms"
            ));
        }
        Progress::Interval { from, to, bytes } => {
            let rate = Rate::of(bytes, to.saturating_sub(from));
            out::line(format!(
                "{:8.2}-{:<8.2} s   {:>12}   {:>15}",
                from.as_secs_f64(),
                to.as_secs_f64(),
                Size::from_bytes(bytes).to_string(),
                rate.to_string()
            ));
        }
        Progress::Sample { .. } => {}
    }
}

/// Reports to another program.
fn pass_on(tell: impl FnOnce(&Value), progress: Option<Progress>) {
    if let Some(event) = progress.and_then(event) {
        tell(&event);
    }
}

/// Progress as an event.
fn event(progress: Progress) -> Option<Value> {
    match progress {
        Progress::Connected(took) => Some(json!({
            "type": "connected",
            "seconds": took.as_secs_f64(),
        })),
        Progress::Interval { from, to, bytes } => Some(json!({
            "type": "interval",
            "from_s": from.as_secs_f64(),
            "to_s": to.as_secs_f64(),
            "bytes": bytes,
            "bits_per_second": Rate::of(bytes, to.saturating_sub(from)).as_f64(),
        })),
        Progress::Sample { .. } => None,
    }
}

/// `HOST`, `HOST:PORT`, `1.2.3.4`, `::1` or `[::1]:PORT`.
pub(crate) fn resolve(host: &str) -> Result<SocketAddr, Failure> {
    resolve_at(host, PORT)
}

/// Resolves a host, with the default port where none is given.
pub(crate) fn resolve_at(host: &str, usual: u16) -> Result<SocketAddr, Failure> {
    let unbracketed = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    if let Ok(ip) = unbracketed.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, usual));
    }
    if is_scoped(unbracketed) {
        return look_up(host, unbracketed, usual);
    }
    let named = if host.contains(':') {
        host.to_string()
    } else {
        format!("{host}:{usual}")
    };
    let (name, port) = named.rsplit_once(':').unwrap_or((&named, ""));
    let odd = |c: char| c.is_whitespace() || "/@[]".contains(c);
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.is_empty()
        || (!bracketed && name.contains(odd))
        || port.parse::<u16>().map_or(true, |p| p == 0)
    {
        return Err(Failure::usage(format!(
            "'{host}' is no host: write HOST or HOST:PORT, an IPv6 address with a port as [::1]:{usual}"
        )));
    }
    let inner = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    look_up(host, inner.unwrap_or(name), port.parse().unwrap_or(usual))
}

/// True for an address with a zone: the name of a device here, which the resolver understands.
fn is_scoped(host: &str) -> bool {
    let address = host.split_once('%').map(|(address, _)| address);
    address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// The first address of `name`; `typed` is how people know it.
fn look_up(typed: &str, name: &str, port: u16) -> Result<SocketAddr, Failure> {
    let unknown = |why: String| {
        let text = format!("cannot find '{typed}': {why}; check the name and the resolver");
        Failure::new(Exit::NetSetup, text)
    };
    (name, port)
        .to_socket_addrs()
        .map_err(|e| unknown(e.to_string()))?
        .next()
        .ok_or_else(|| unknown("it has no address".into()))
}

/// The ends of so many parallel sessions; one of them resumes from what an earlier run proved of
/// the path.
fn lanes(
    entry: &Entry,
    choice: &Choice,
    lanes: u32,
    path: Option<&Remembered>,
) -> Result<Vec<Box<dyn Protocol>>, Failure> {
    let resumes = Choice {
        memory: path.map(Remembered::memory),
        ..choice.clone()
    };
    let others = (1..lanes).map(|_| choice);
    let all = std::iter::once(&resumes).chain(others);
    all.map(|choice| entry.client(choice).map_err(usage))
        .collect()
}

/// Remembers the path, and says why it was not known or will not be.
fn keep((path, unread): (Option<Remembered>, Option<String>)) {
    let unsaved = path.and_then(|path| path.save().err());
    for warning in unread.into_iter().chain(unsaved) {
        errln!("farhaul: warning: {warning}");
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn usage(error: registry::ChoiceError) -> Failure {
    Failure::usage(error.to_string())
}

/// Failure for a session that there never was.
fn unreached(error: &BenchError, target: &Target) -> Option<Failure> {
    let unreached = match error {
        BenchError::Refused(_) => Some(Unreached::Refused),
        BenchError::Unsent(why) => Unreached::of(&CloseReason::NoAnswer, false, Some(*why)),
        BenchError::Closed(reason) => Unreached::of(reason, false, None),
        _ => None,
    };
    // A server of another protocol does not answer.
    let what = match target.protocol.as_str() {
        "haul" => "`farhaul bench serve`".into(),
        other => format!("`farhaul bench serve --protocol {other}`"),
    };
    unreached.map(|unreached| unreached.failure(&what, target.to))
}

/// Failure of the server, which has no key to be accepted.
fn served(error: &BenchError) -> Failure {
    failure(error, &Choice::default())
}

fn failure(error: &BenchError, choice: &Choice) -> Failure {
    match error {
        BenchError::Thread(e) => return Failure::from(TransferError::no_thread(e)),
        BenchError::Shard(e) => return Failure::from(unopened(e)),
        _ => {}
    }
    let exit = match error {
        BenchError::Closed(reason) => match reason {
            CloseReason::Lane(_) => Exit::UdpBlocked,
            CloseReason::Version(_) => Exit::Version,
            CloseReason::Auth(_) | CloseReason::Denied(_) => Exit::Auth,
            CloseReason::Protocol(_) => Exit::Protocol,
            reason if is_of_files(reason) => Exit::Usage,
            CloseReason::Local { .. } => Exit::Signal(interrupt::signal()),
            CloseReason::Peer { code, .. } => match *code {
                bench::REFUSED => Exit::Auth,
                bench::OTHER_VERSION => Exit::Version,
                bench::BROKEN => Exit::Protocol,
                bench::IDLE => Exit::ConnectionLost,
                _ => Exit::Busy,
            },
            CloseReason::Store(_) => Exit::VerifyFailed,
            CloseReason::Internal(_) => Exit::Internal,
            // Timed out, or something newer.
            _ => Exit::ConnectionLost,
        },
        _ => Exit::Internal,
    };
    let text = match error {
        BenchError::Closed(CloseReason::TimedOut) => {
            "the connection was lost: has the server ended, or the network in between? Try again, or `farhaul doctor HOST`".into()
        }
        BenchError::Closed(CloseReason::Denied(_)) => {
            match choice.identity.as_deref().map(Identity::from_seed) {
                Some(Ok(own)) => {
                    let own = own.public();
                    format!("the server does not accept your key {own}: start it with --allow {own}")
                }
                _ => "the server does not accept the key made for this run: name the file of yours with --identity, and \
                      start the server with --allow and what `farhaul key show` prints"
                    .into(),
            }
        }
        BenchError::Closed(reason) if is_of_files(reason) => {
            "`farhaul serve` runs there, which serves files: `farhaul doctor HOST` measures the path to it, or start \
             `farhaul bench serve` there on another port"
                .into()
        }
        other => other.to_string(),
    };
    Failure::new(exit, text)
}

/// True if the reason is a server of files.
const fn is_of_files(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::Local { code, .. } if *code == bench::OTHER_APP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_with_and_without_a_port() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1:17992"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("::1", "[::1]:17992"),
            ("[::1]", "[::1]:17992"),
            ("[::1]:7", "[::1]:7"),
            ("fe80::1%lo", "[fe80::1%1]:17992"),
            ("[fe80::1%lo]", "[fe80::1%1]:17992"),
            ("[fe80::1%lo]:7", "[fe80::1%1]:7"),
        ] {
            assert_eq!(resolve(text).unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(resolve("a.invalid").unwrap_err().exit, Exit::NetSetup);
        for bad in [
            "", " ", ":", "h:99999", "h:0", "[::1", "me@h", "h/x", "::1:x",
        ] {
            assert_eq!(resolve(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn a_panic_here_is_an_internal_error() {
        let exit = |reason| served(&BenchError::Closed(reason)).exit;
        assert_eq!(exit(CloseReason::Internal("x".into())), Exit::Internal);
        assert_eq!(exit(CloseReason::TimedOut), Exit::ConnectionLost);
    }

    #[test]
    fn short_intervals_are_shown_as_long_ones() {
        let ms = Duration::from_millis;
        let interval = |from, to, bytes| Progress::Interval {
            from: ms(from),
            to: ms(to),
            bytes,
        };
        let mut shown = Shown::every(ms(1_000));
        let connected = Progress::Connected(ms(20));
        assert_eq!(shown.add(connected), Some(connected));
        assert_eq!(shown.add(interval(0, 501, 5)), None);
        let first = shown.add(interval(501, 1_002, 6));
        assert_eq!(first, Some(interval(0, 1_002, 11)));
        // As long after the beginning, not after the last one.
        let second = shown.add(interval(1_002, 2_000, 7));
        assert_eq!(second, Some(interval(1_002, 2_000, 7)));
        let mut report = Report {
            seconds: 2.9,
            bytes: 27,
            ..Report::default()
        };
        assert_eq!(shown.rest(&report), Some(interval(2_000, 2_900, 9)));
        report.seconds = 2.1;
        assert_eq!(shown.rest(&report), None);
        assert_eq!(Shown::every(ms(0)).add(interval(0, 5_000, 1)), None);
    }

    #[test]
    fn times_may_be_bare_seconds() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2_500)));
        assert_eq!(seconds("300ms"), Ok(Duration::from_millis(300)));
        assert!(seconds("-1").is_err() && seconds("NaN").is_err() && seconds("soon").is_err());
        assert!(size("0").is_err() && size("1Gbit").is_err());
    }
}
