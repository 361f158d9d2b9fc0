//! `farhaul cp`: files to a server, or from one.

use std::{
    cell::{Cell, OnceCell},
    io::{self, IsTerminal as _},
    net::SocketAddr,
    num::NonZero,
};

use farhaul_core::{protocol::CloseReason, text, time::Instant};
use farhaul_haul::Identity;
use farhaul_io::Stop;
use farhaul_transfer::{
    Advice, Code, Outcome, Summary, TransferError,
    client::{Download, Options, Upload},
};
use serde_json::Value;

mod app;
mod args;
mod attempt;
mod between;
mod events;
mod fallback;
mod job;
mod lanes;
mod merge;
mod mirror;
mod ordered;
mod pipe;
mod plan;
mod refused;
mod relay;
mod retry;
mod shard;
mod trust;

use app::Copier;
pub(crate) use args::{Args, Blocked, TICKETS, Through, Words};
use attempt::Ended;
use between::Between;
#[cfg(test)]
pub(crate) use events::EVENTS;
use job::Job;
pub(crate) use job::has_ticket;
use ordered::Ordered;
pub(crate) use ordered::ordered;
use pipe::Pipe;
use plan::DryRun;
use refused::KnownBy;
pub(crate) use refused::{other_key, refused_key};
pub(crate) use trust::{trust, unknown};

use crate::{
    bar::Style,
    connect::{Attempt, Carrier},
    exit::{Exit, Failure},
    interrupt,
    keys::{self, Known},
    out,
    place::Place,
    ssh::{self, Bridge, Met},
};

/// Copies.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    go(args, DryRun::default())
}

/// Lists what a dry run would fetch.
pub(crate) fn list(args: &Args, long: bool) -> Result<(), Failure> {
    go(args, DryRun::listing(long))
}

/// Copies for a listing: the object is not printed, and people see nothing but the entries and
/// warnings.
pub(crate) fn listed(args: &Args, long: bool) -> Result<Value, Failure> {
    let places = job::places(&args.paths, args.ticket()?.as_ref())?;
    let mut run = connected(args, places, DryRun::listing(long))?;
    let summary = run.summary()?;
    run.warn(&summary);
    Ok(run.object(&summary))
}

fn go(args: &Args, planned: DryRun) -> Result<(), Failure> {
    if args.sharding.merge {
        return merge::run(args);
    }
    args.refuse_needless()?;
    let places = job::places(&args.paths, args.ticket()?.as_ref())?;
    let named_here = |e| job::or_local(e, &args.paths);
    if let Some(between) = Between::of(&places).map_err(named_here)? {
        args.sharding.refuse_between()?;
        return between.run(args);
    }
    let mut run = connected(args, places, planned)?;
    let summary = run.summary()?;
    run.print_summary(&summary);
    Ok(())
}

/// A copy between this machine and another, and the way there, as far as ssh makes it.
fn connected(args: &Args, places: Vec<Place>, planned: DryRun) -> Result<Run<'_>, Failure> {
    let named_here = |e| job::or_local(e, &args.paths);
    let mut job = Job::of(places).map_err(named_here)?;
    args.sharding.refuse(&job)?;
    pipe::prepare(args, &mut job)?;
    let mut run = Run::new(args, job, planned)?;
    run.job.readable().map_err(|e| run.failure(None, &e))?;
    run.through_ssh(&args.call())?;
    Ok(run)
}

/// Highest number of failures, and of warnings, that are printed for people.
const MOST_LINES: usize = 20;

/// One invocation.
struct Run<'a> {
    args: &'a Args,
    job: Job,
    put: bool,
    /// The destination as it was typed, for messages.
    to: String,
    /// Options of every attempt.
    options: Options,
    /// Actions of a dry run.
    planned: DryRun,
    /// The server that ssh started for this copy.
    bridge: Option<Bridge>,
    /// Parties that ssh made known to each other.
    met: Option<Met>,
    /// Order of another machine for this copy.
    ordered: Option<Ordered>,
    /// Carrier of the datagrams; one that was found to work stays.
    carrier: Cell<Carrier>,
    /// Time at which the first attempt was made.
    began: Cell<Option<Instant>>,
    /// Attempts that were begun.
    attempts: u64,
    /// Stop that a signal sets, once there is something to end.
    stop: OnceCell<Stop>,
    pipe: Pipe,
}

impl<'a> Run<'a> {
    fn new(args: &'a Args, job: Job, planned: DryRun) -> Result<Self, Failure> {
        let put = job.is_put();
        let mut options = args.options(put)?;
        args.sharding.refuse_mirror(&options.mirror)?;
        options.plan = args.dry_run.then(|| planned.sink(args.printed()));
        Ok(Self {
            args,
            put,
            to: job.destination(),
            job,
            options,
            planned,
            bridge: None,
            met: None,
            ordered: None,
            carrier: Cell::new(Carrier::Udp),
            began: Cell::default(),
            attempts: 0,
            stop: OnceCell::new(),
            pipe: Pipe::default(),
        })
    }

    /// Copies; how that ended.
    fn summary(&mut self) -> Result<Summary, Failure> {
        let mut outcome = self.attempts()?;
        outcome.summary.max_rate = self.options.max_rate;
        self.pipe.end_if_closed();
        if let Some(e) = &outcome.error {
            return Err(self.failure(Some(&outcome.summary), e));
        }
        Ok(outcome.summary)
    }

    fn print_summary(&self, summary: &Summary) {
        if self.args.json_stream {
            out::summary_line(self.object(summary));
        } else if self.args.json {
            out::json(&self.object(summary));
        } else if !self.args.quiet && self.args.dry_run {
            errln!("{}", self.planned.line(summary, &self.to));
        } else if !self.args.quiet {
            errln!("{}", summary.line());
            if let Some(line) = self.args.sharding.line(summary) {
                errln!("{line}");
            }
            if self.ordered.is_some() {
                errln!("path: {}", self.path());
            }
            if let Some((why, share)) = summary.limit().filter(|(_, share)| *share >= 0.1) {
                errln!("limited by: {why} ({:.0} % of the time)", share * 100.0);
            }
            if self.args.verbose {
                errln!("{}", summary.details().trim_end());
            }
        }
        self.warn(summary);
    }

    /// Prints warnings, however the copy ended.
    fn warn(&self, summary: &Summary) {
        let all = &summary.warnings[..];
        if !self.args.quiet {
            for warning in all.iter().take(MOST_LINES) {
                errln!("farhaul: warning: {warning}");
            }
            if let more @ 1.. = all.len().saturating_sub(MOST_LINES) {
                errln!("farhaul: warning: and {more} more, which --json has");
            }
        }
    }

    fn object(&self, summary: &Summary) -> Value {
        let mut object = serde_json::to_value(summary).unwrap_or(Value::Null);
        object["path"] = self.path().into();
        object["attempts"] = self.attempts.into();
        let sharding = &self.args.sharding;
        if let Some(shard) = sharding.object(summary, &self.job, &self.to) {
            object["shard"] = shard;
        }
        if self.args.dry_run {
            self.planned.add_to(&mut object);
        }
        object
    }

    /// Name of the way that the datagrams go.
    fn path(&self) -> &'static str {
        match (self.carrier.get(), &self.ordered) {
            (Carrier::Udp, Some(_)) => "direct",
            (carrier, _) => carrier.name(),
        }
    }

    fn failure(&self, summary: Option<&Summary>, e: &TransferError) -> Failure {
        if let Some(summary) = summary {
            let quiet =
                self.args.for_programs() || self.args.quiet || self.planned.is_empty(summary);
            if self.args.dry_run && !quiet {
                errln!("{}", self.planned.line(summary, &self.to));
            }
            let done = summary.files.sent + summary.files.skipped + summary.bytes_payload > 0;
            if done && !self.args.for_programs() && !self.args.quiet && !self.args.dry_run {
                errln!("{}", summary.line());
            }
            let listed = self.args.dry_run && !self.planned.is_list();
            let several = summary.failures.len() > 1 && !listed;
            for failure in summary
                .failures
                .iter()
                .take(if several { MOST_LINES } else { 0 })
            {
                errln!("farhaul: {}", failure.text);
            }
            self.warn(summary);
        }
        let owned = summary
            .cloned()
            .unwrap_or_else(|| Summary::of_error(self.put, e));
        Failure::from(e).with_object(self.object(&owned))
    }

    /// Starts a server by ssh, if the far side is reached so.
    fn through_ssh(&mut self, call: &ssh::Call) -> Result<(), Failure> {
        let Some(login) = self.job.server().login.clone() else {
            return Ok(());
        };
        // Missing local files are reported before a connection is made.
        self.app(&self.options)
            .map_err(|e| self.failure(None, &e))?;
        let put = self.put;
        let (server, remotes) = self.job.far_mut();
        let paths: Vec<_> = remotes.iter().map(|remote| remote.path.clone()).collect();
        let identity = Identity::generate().map_err(|e| Failure::internal(&e))?;
        let bridge = Bridge::open(call, &login, &paths, put, identity.public())
            .map_err(|e| or_port(e, &login, &paths))?;
        // What may be listed follows from what was typed, whatever the far end calls it.
        self.options.typed = Some(paths);
        server.port = bridge.port;
        for (remote, path) in remotes.iter_mut().zip(&bridge.paths) {
            remote.path.clone_from(path);
        }
        self.met = Some(Met {
            hosts: bridge.hosts.clone(),
            key: bridge.key,
            identity,
        });
        self.bridge = Some(bridge);
        Ok(())
    }

    /// Addresses to try.
    fn addresses(&self) -> Result<Vec<SocketAddr>, TransferError> {
        let server = self.job.server();
        let resolve = |host: &str, port| self.args.family().resolve(host, port);
        let Some(met) = &self.met else {
            return resolve(&server.host, server.port).map_err(|e| {
                let hint = ssh::alias_hint(&self.args.call(), &server.host);
                match hint.filter(|_| e.code == Code::NetSetup) {
                    Some(hint) => e.fix(hint),
                    None => e,
                }
            });
        };
        let mut found = Vec::new();
        let mut last = None;
        for host in &met.hosts {
            match resolve(host, server.port) {
                Ok(more) => more.into_iter().for_each(|address| {
                    if !found.contains(&address) {
                        found.push(address);
                    }
                }),
                Err(e) => last = Some(e),
            }
        }
        match last {
            Some(e) if found.is_empty() => Err(e),
            _ => Ok(found),
        }
    }

    /// Connects, prompts for an unknown key, transfers.
    fn to_the_end(&self) -> Result<Outcome, TransferError> {
        let server = self.job.server().to_string();
        // Missing local files are reported before a connection is made.
        let first = self.app(&self.options)?;
        drop(first);
        let identity = self.identity()?;
        let mut trusted = match (&self.met, &self.job.server().right) {
            (Some(met), _) => vec![met.key],
            (None, Some(right)) => vec![right.server],
            (None, None) => Known::load().map_err(|e| config(&e))?.of(&server),
        };
        let addresses = self.addresses()?;
        let stop = self.stop()?;
        loop {
            let mut attempt =
                |way: &Attempt<'_>| self.once(way, &identity, Known::policy(&trusted), &stop);
            let by_udp = self.by_udp(&addresses, &mut attempt, &stop);
            let way = if stop.is_set() && by_udp.is_some() {
                None
            } else {
                self.way_around(by_udp.as_ref(), &addresses)?
            };
            let ended = match (way, by_udp) {
                (Some(way), before) => {
                    let mut ended = attempt(&Attempt::Through(&way.tunnel))?;
                    if let Some(Ok(before)) = before.filter(|_| way.goes_on) {
                        let summary = ended.outcome.summary;
                        ended.outcome.summary =
                            summary.after(&before.outcome.summary, self.elapsed());
                    }
                    ended.outcome.summary.warnings.splice(..0, way.warning);
                    ended
                }
                (None, Some(ended)) => ended?,
                (None, None) => {
                    let text = format!("{server}: no address");
                    return Err(TransferError::new(Code::NetSetup, text));
                }
            };
            match ended.unknown {
                Some(key) => {
                    trusted = vec![trust(&server, key)?];
                }
                None => return Ok(ended.outcome),
            }
        }
    }

    /// Stop that ends this copy from outside.
    fn stop(&self) -> Result<Stop, TransferError> {
        match (&self.ordered, self.stop.get()) {
            (Some(ordered), _) => Ok(ordered.gone.clone()),
            (None, Some(stop)) => Ok(stop.clone()),
            (None, None) => {
                let stop = interrupt::stop()?;
                Ok(self.stop.get_or_init(|| stop).clone())
            }
        }
    }

    /// Endings of the attempts at one address after another, if UDP is to be tried.
    fn by_udp(
        &self,
        addresses: &[SocketAddr],
        attempt: &mut impl FnMut(&Attempt<'_>) -> Result<Ended, TransferError>,
        stop: &Stop,
    ) -> Option<Result<Ended, TransferError>> {
        if self.args.blocked.udp_timeout().is_zero() || self.carrier.get() != Carrier::Udp {
            return None;
        }
        let mut last = None;
        for address in addresses {
            let ended = attempt(&Attempt::At(*address));
            let elsewhere = match &ended {
                Ok(ended) => ended.unreached || self.is_other(ended),
                Err(e) => e.code == Code::NetSetup,
            };
            last = Some(ended);
            if !elsewhere || stop.is_set() || self.pipe.has_begun() {
                break;
            }
        }
        last
    }

    /// True if another host answered. An address that means one host to the machine that found it
    /// may mean another one here, if the copy was ordered from there.
    const fn is_other(&self, ended: &Ended) -> bool {
        self.ordered.is_some() && self.met.is_some() && matches!(ended.reason, CloseReason::Auth(_))
    }

    fn identity(&self) -> Result<Identity, TransferError> {
        if let Some(met) = &self.met {
            return Identity::from_seed(met.identity.seed()).map_err(|e| internal(&e));
        }
        if let Some(right) = &self.job.server().right {
            return Identity::from_seed(&right.seed).map_err(|e| internal(&e));
        }
        keys::identity_or_new(self.args.identity.as_deref()).map_err(|e| config(&e))
    }

    fn app(&self, options: &Options) -> Result<Copier, TransferError> {
        match &self.job {
            Job::Put(sources, far) => {
                Upload::new(sources, &far.remote, options.clone()).map(Copier::Up)
            }
            Job::Get(_, from, to) => Download::new(from, to, options.clone()).map(Copier::Down),
            Job::PutPipe(far) => self
                .pipe
                .upload(&far.remote, options.clone())
                .map(Copier::Up),
            Job::GetPipe(far) => {
                let download = self.pipe.download(&far.remote, options.clone());
                download.map(Copier::Down)
            }
        }
    }

    /// Style of the progress display: none where other output has its place.
    fn style(&self) -> Style {
        let shown = matches!(self.job, Job::GetPipe(_)) && io::stdout().is_terminal();
        if shown || self.args.quiet || self.args.for_programs() || self.args.dry_run {
            Style::None
        } else {
            self.args.progress
        }
    }

    const fn known_by(&self) -> KnownBy {
        match (&self.met, &self.job.server().right) {
            (Some(_), _) => KnownBy::Ssh,
            (None, Some(_)) => KnownBy::Ticket,
            (None, None) => KnownBy::Key,
        }
    }

    /// Adds what the session does not know: that ssh works, and that a pipe has no second beginning.
    fn amend(&self, outcome: &mut Outcome) {
        if let (Some(_), Some(error)) = (&self.met, &mut outcome.error)
            && error.code == Code::UdpBlocked
        {
            let fix = format!(
                "ssh gets there, UDP does not: open port {}/udp there (it is the first free one of those that --remote-port names)",
                self.job.server().port
            );
            error.fix = fix.into();
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
        if let (Some(error), Some(bridge)) = (&mut outcome.error, &self.bridge)
            && let [path] = &bridge.paths[..]
        {
            // The far end knows where in its folder it is, not what was typed.
            let theirs = format!("destination '{}'", text::shown(path));
            error.text = error
                .text
                .replace(&theirs, &format!("destination '{}'", self.to));
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
        if let Some(error) = &mut outcome.error
            && self.args.dry_run
        {
            *error = error.clone().of_query();
            if self.planned.is_list() && error.code == Code::Partial {
                // The rest is listed, and to list it again would show no more.
                error.fix = Advice::default();
            }
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
        if let Some(error) = &mut outcome.error
            && self.job.is_piped()
            && error.fix.is_again()
        {
            error.fix =
                "run it again from the beginning: what goes through a pipe cannot be continued"
                    .into();
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
    }
}

/// Failure of ssh, with advice if a path behind its colon looks like a port.
fn or_port(e: Failure, login: &str, paths: &[Vec<u8>]) -> Failure {
    let port = |path: &Vec<u8>| -> Option<NonZero<u16>> {
        let first = path.split(|byte| b"/:".contains(byte)).next();
        first.and_then(|first| std::str::from_utf8(first).ok()?.parse().ok())
    };
    match paths.iter().find_map(port) {
        Some(port) if matches!(e.exit, Exit::Ssh | Exit::RemoteMissing) => {
            let host = login.rsplit_once('@').map_or(login, |(_, host)| host);
            e.fix(format!(
                "one colon and {port} is a path through ssh; for the server at that port write {host}:{port}::SHARE, for ssh at that port -o Port={port} {login}:PATH"
            ))
        }
        _ => e,
    }
}

pub(crate) fn internal(e: &dyn std::fmt::Display) -> TransferError {
    TransferError::new(Code::Internal, e.to_string())
}

fn config(e: &Failure) -> TransferError {
    TransferError::new(Code::Config, e.text.clone())
}
