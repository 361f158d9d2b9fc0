//! `farhaul cp`: files to a server, or from one.

use std::{
    cell::Cell,
    io::{self, IsTerminal as _},
    net::{SocketAddr, ToSocketAddrs as _},
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};
use farhaul_haul::{Haul, HaulConfig, Identity, PeerPolicy, PublicKey};
use farhaul_io::{App, Stop, Waker, client};
use farhaul_transfer::{
    Code, Control, Handle, Outcome, Summary, TransferError,
    client::{Download, Options, PeerCheck, Upload},
};
use serde_json::Value;

mod args;
mod between;
mod events;
mod fallback;
mod job;
mod lanes;
mod mirror;
mod ordered;
mod pipe;
mod plan;
mod trust;

pub(crate) use args::Args;
use between::Between;
use events::Events;
use job::Job;
use lanes::{Seen, Threads};
pub(crate) use ordered::ordered;
use pipe::Pipe;
use plan::DryRun;
use trust::trust;

use crate::{
    bar::{Bar, Style},
    exit::{Exit, Failure},
    interrupt,
    keys::{self, Known},
    out,
    reach::Unreached,
    ssh::{Bridge, Met},
    timetable::Timetable,
};

/// Copies.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    go(args, DryRun::default())
}

/// Lists what a dry run would fetch.
pub(crate) fn list(args: &Args) -> Result<(), Failure> {
    go(args, DryRun::listing())
}

fn go(args: &Args, planned: DryRun) -> Result<(), Failure> {
    args.refuse_needless()?;
    let places = job::places(&args.paths, args.ticket()?.as_ref())?;
    if let Some(between) = Between::of(&places)? {
        return between.run(args);
    }
    let mut job = Job::of(places)?;
    pipe::prepare(args, &mut job)?;
    let mut run = Run::new(args, job, planned)?;
    run.job.readable().map_err(|e| run.failure(None, &e))?;
    run.through_ssh()?;
    run.finish()
}

/// One invocation.
struct Run<'a> {
    args: &'a Args,
    job: Job,
    put: bool,
    /// What every attempt is made with.
    options: Options,
    /// What a dry run would do.
    planned: DryRun,
    /// The server that ssh started for this copy.
    bridge: Option<Bridge>,
    /// Whom ssh made known to each other.
    met: Option<Met>,
    /// Set when the machine that ordered this copy of this one is gone.
    ordered: Option<Stop>,
    /// Datagrams go through ssh.
    tunnelled: Cell<bool>,
    pipe: Pipe,
}

impl<'a> Run<'a> {
    fn new(args: &'a Args, job: Job, planned: DryRun) -> Result<Self, Failure> {
        let put = job.is_put();
        let mut options = args.options(put)?;
        options.plan = args
            .dry_run
            .then(|| planned.sink(args.for_programs(), args.quiet));
        Ok(Self {
            args,
            put,
            job,
            options,
            planned,
            bridge: None,
            met: None,
            ordered: None,
            tunnelled: Cell::new(false),
            pipe: Pipe::default(),
        })
    }

    /// Copies, and prints how that ended.
    fn finish(&self) -> Result<(), Failure> {
        let outcome = self.to_the_end().map_err(|e| self.failure(None, &e))?;
        self.pipe.end_if_closed();
        if let Some(e) = &outcome.error {
            return Err(self.failure(Some(&outcome.summary), e));
        }
        self.print_summary(&outcome.summary);
        Ok(())
    }

    fn print_summary(&self, summary: &Summary) {
        if self.args.json_stream {
            out::summary_line(self.object(summary));
        } else if self.args.json {
            out::json(&self.object(summary));
        } else if !self.args.quiet && self.args.dry_run {
            errln!("{}", self.planned.line(summary, &self.destination()));
        } else if !self.args.quiet {
            errln!("{}", summary.line());
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

    /// What else should be known, however the copy ended.
    fn warn(&self, summary: &Summary) {
        let all = if self.args.quiet {
            &[]
        } else {
            &summary.warnings[..]
        };
        for warning in all {
            errln!("farhaul: warning: {warning}");
        }
    }

    /// The destination, for messages.
    fn destination(&self) -> String {
        match &self.job {
            Job::Get(_, _, to) => to.display().to_string(),
            Job::Put(_, far) | Job::PutPipe(far) => far.to_string(),
            Job::GetPipe(_) => "the standard output".into(),
        }
    }

    fn object(&self, summary: &Summary) -> Value {
        let mut object = serde_json::to_value(summary).unwrap_or(Value::Null);
        object["path"] = self.path().into();
        if self.args.dry_run {
            self.planned.add_to(&mut object);
        }
        object
    }

    /// Which way the datagrams go.
    const fn path(&self) -> &'static str {
        match (self.tunnelled.get(), &self.ordered) {
            (false, None) => "udp",
            (true, None) => "ssh",
            (false, Some(_)) => "direct",
            (true, Some(_)) => "relayed",
        }
    }

    fn failure(&self, summary: Option<&Summary>, e: &TransferError) -> Failure {
        if let Some(summary) = summary {
            let quiet =
                self.args.for_programs() || self.args.quiet || self.planned.is_empty(summary);
            if self.args.dry_run && !quiet {
                errln!("{}", self.planned.line(summary, &self.destination()));
            }
            let done = summary.files.sent + summary.files.skipped + summary.bytes_payload > 0;
            if done && !self.args.for_programs() && !self.args.quiet && !self.args.dry_run {
                errln!("{}", summary.line());
            }
            let several = summary.failures.len() > 1 && !self.args.dry_run;
            for failure in summary.failures.iter().take(if several { 20 } else { 0 }) {
                errln!("farhaul: {}", failure.text);
            }
            self.warn(summary);
        }
        let owned = summary
            .cloned()
            .unwrap_or_else(|| Summary::of_error(self.put, e));
        let exit = Exit::from(e.code);
        let mut object = self.object(&owned);
        // The transfer knows that it was interrupted, not by which signal.
        object["exit"]["code"] = exit.code().into();
        object["exit"]["name"] = exit.name().into();
        Failure::from(e).with_object(object)
    }

    /// Has ssh start a server, if that is how the far side is reached.
    fn through_ssh(&mut self) -> Result<(), Failure> {
        let Some(login) = self.job.server().login.clone() else {
            return Ok(());
        };
        // Missing local files are reported before a connection is made.
        self.app(&self.options)
            .map_err(|e| self.failure(None, &e))?;
        let (put, call) = (self.put, self.args.call());
        let (server, remotes) = self.job.far_mut();
        let paths: Vec<_> = remotes.iter().map(|remote| remote.path.clone()).collect();
        let identity = Identity::generate().map_err(|e| Failure::from(&internal(&e)))?;
        let bridge = Bridge::open(&call, &login, &paths, put, identity.public())?;
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

    /// Where to try.
    fn addresses(&self) -> Result<Vec<SocketAddr>, TransferError> {
        let server = self.job.server();
        let resolve = |host: &str, port| self.family(resolve(host, port)?, host);
        let Some(met) = &self.met else {
            return resolve(&server.host, server.port);
        };
        let mut found = Vec::new();
        let mut last = None;
        for host in &met.hosts {
            match resolve(host, server.port) {
                Ok(more) => found.extend(more),
                Err(e) => last = Some(e),
            }
        }
        match last {
            Some(e) if found.is_empty() => Err(e),
            _ => Ok(found),
        }
    }

    /// Those of the requested family.
    fn family(
        &self,
        mut found: Vec<SocketAddr>,
        host: &str,
    ) -> Result<Vec<SocketAddr>, TransferError> {
        let (four, six) = (self.args.ipv4, self.args.ipv6);
        found.retain(|a| {
            if four {
                a.is_ipv4()
            } else {
                !six || a.is_ipv6()
            }
        });
        if found.is_empty() {
            let (family, flag) = if four { ("IPv4", "-4") } else { ("IPv6", "-6") };
            let text = format!("{host} has no {family} address");
            return Err(TransferError::new(Code::NetSetup, text).fix(format!("leave {flag} out")));
        }
        Ok(found)
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
        let stop = match &self.ordered {
            Some(stop) => stop.clone(),
            None => interrupt::stop().map_err(|e| internal(&e))?,
        };
        loop {
            let mut last = None;
            for address in &addresses {
                let peers = if trusted.is_empty() {
                    PeerPolicy::Any
                } else {
                    PeerPolicy::Keys(trusted.clone())
                };
                let ended = self.once(*address, &identity, peers, &stop);
                let elsewhere = match &ended {
                    Ok(ended) => ended.unreached,
                    Err(e) => e.code == Code::NetSetup,
                };
                last = Some(ended);
                if !elsewhere || stop.is_set() || self.pipe.has_begun() {
                    break;
                }
            }
            let none = || TransferError::new(Code::NetSetup, format!("{server}: no address"));
            let ended = last.ok_or_else(none)?;
            let ended = self.or_through_ssh(ended, &identity, &trusted, &stop)?;
            match ended.unknown {
                Some(key) => {
                    trusted = vec![trust(&server, key, !matches!(self.job, Job::PutPipe(_)))?];
                }
                None => return Ok(ended.outcome),
            }
        }
    }

    fn identity(&self) -> Result<Identity, TransferError> {
        if let Some(met) = &self.met {
            return Identity::from_seed(met.identity.seed()).map_err(|e| internal(&e));
        }
        if let Some(right) = &self.job.server().right {
            return Identity::from_seed(&right.seed).map_err(|e| internal(&e));
        }
        match keys::identity(self.args.identity.as_deref()) {
            Ok(identity) => Ok(identity),
            Err(e) if self.args.identity.is_some() => Err(config(&e)),
            // There is no place to keep one: servers that allow any peer will do.
            Err(e) if e.exit == Exit::Config && keys::identity_path().is_ok_and(|p| p.exists()) => {
                Err(config(&e))
            }
            Err(_) => Identity::generate().map_err(|e| internal(&e)),
        }
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

    /// One attempt at one address.
    fn once(
        &self,
        to: SocketAddr,
        identity: &Identity,
        peers: PeerPolicy,
        stop: &Stop,
    ) -> Result<Ended, TransferError> {
        let server = self.job.server();
        let pinned = peers != PeerPolicy::Any || self.args.trust_any;
        let seen = Seen::default();
        let waker = Waker::new().map_err(|e| internal(&e))?;
        let wake = waker.clone();
        let cancel = Arc::new(AtomicBool::new(false));
        let control = Arc::<Control>::default();
        let rates = self.args.max_rate.clone().filter(|r| r.always().is_none());
        let mut options = Options {
            cancel: Arc::clone(&cancel),
            wake: Some(Arc::new(move || wake.wake())),
            server: server.to_string(),
            control: Some(Arc::clone(&control)),
            check: Some(check_key(Arc::clone(&seen), pinned)),
            ..self.options.clone()
        };
        let mut config = HaulConfig::new(*identity.seed());
        config.peers = peers;
        config.app = farhaul_transfer::offer();
        config.max_rate = options.max_rate;
        config.law = format!("haul:policy={}", self.args.policy);
        let threads = Threads::default();
        // What one pipe carries is no faster in several sessions.
        options.open = (!self.tunnelled.get()).then(|| threads.opener(to, &config, &seen));
        let app = self.app(&options)?;
        let handle = app.handle();
        let haul = Haul::client(config).map_err(|e| internal(&e))?;
        let mut how = client::Options::new(to);
        how.stop = Some(stop.clone());
        let bar = Bar::start(Arc::clone(handle.progress()), self.style());
        let progress = Arc::clone(handle.progress());
        let print = match &self.ordered {
            Some(_) => Some(ordered::report_event as fn(&Value)),
            None => self
                .args
                .json_stream
                .then_some(out::json_line as fn(&Value)),
        };
        let events = print
            .map(|print| Events::start(progress, print))
            .transpose();
        let events = events.map_err(|e| internal(&e))?;
        let app = Stoppable {
            app,
            stop: stop.clone(),
            cancel,
            lasts: self.args.max_time,
            began: None,
            rates: rates.map(|rates| (rates, control)),
            polled: None,
        };
        let ended = client::run(&how, Box::new(haul), app, &waker);
        threads.join();
        drop((bar, events));
        let ended = ended.map_err(|e| TransferError::new(Code::NetSetup, e.to_string()))?;
        let gone = || TransferError::new(Code::Internal, "the session ended without saying how");
        let mut outcome = handle.outcome().ok_or_else(gone)?;
        let unreached = Unreached::of(&ended.reason, ended.refused, ended.host.send_error);
        explain(
            &mut outcome,
            (&ended.reason, unreached),
            (self.known_by(), identity.public()),
            &server.to_string(),
            to,
        );
        outcome.summary.warnings.extend(ended.host.refusal());
        self.amend(&mut outcome, stop);
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        let unknown = seen.filter(|_| !pinned);
        Ok(Ended {
            outcome,
            unreached: unreached.is_some(),
            unknown,
        })
    }

    /// How progress is shown: not at all where other output has its place.
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

    /// Adds what the session does not know: that ssh works, and whether a signal ended it.
    fn amend(&self, outcome: &mut Outcome, stop: &Stop) {
        if let (Some(_), Some(error)) = (&self.met, &mut outcome.error)
            && error.code == Code::UdpBlocked
        {
            error.fix = format!(
                "ssh gets there, UDP does not: open port {}/udp there (it is the first free one of those that --remote-port names)",
                self.job.server().port
            );
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
        if let Some(error) = &mut outcome.error
            && self.job.is_piped()
            && error.fix.contains("run the same command again")
        {
            error.fix =
                "run it again from the beginning: what goes through a pipe cannot be continued"
                    .into();
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
        if let Some(error) = &mut outcome.error
            && error.code == Code::Interrupted
            && !stop.is_set()
        {
            error.code = Code::Limit;
            error.text = "the time given by --max-time is over".into();
            outcome.summary.exit = outcome.summary.exit.with(error);
        }
    }
}

/// How an attempt ended.
struct Ended {
    outcome: Outcome,
    /// There was no session; another address may work.
    unreached: bool,
    /// The server's key, if it must be accepted first.
    unknown: Option<PublicKey>,
}

/// How the two sides know each other's keys.
#[derive(Clone, Copy)]
enum KnownBy {
    /// The user decided about the server's, its administrator about the user's.
    Key,
    /// Both were exchanged through ssh.
    Ssh,
    /// Both are in a ticket.
    Ticket,
}

/// Makes more of an error than the session could know.
fn explain(
    outcome: &mut Outcome,
    (reason, unreached): (&CloseReason, Option<Unreached>),
    (known_by, own): (KnownBy, PublicKey),
    server: &str,
    to: SocketAddr,
) {
    let Some(error) = &mut outcome.error else {
        return;
    };
    if let Some(unreached) = unreached {
        error.code = unreached.code();
        error.text = unreached.text(server, to);
        error.fix = unreached.fix("`farhaul serve`", to);
    } else if let Some((text, fix)) = refused_key(reason, server, known_by, own) {
        (error.text, error.fix) = (text, fix);
    }
    outcome.summary.exit = outcome.summary.exit.with(error);
}

/// Message and remedy if one side refused the other's key.
fn refused_key(
    reason: &CloseReason,
    server: &str,
    known_by: KnownBy,
    own: PublicKey,
) -> Option<(String, String)> {
    let (text, fix) = match (reason, known_by) {
        (CloseReason::Auth(_), KnownBy::Key) => (
            format!(
                "{server} has another key than the known one: someone may impersonate the server, or its key was replaced"
            ),
            format!(
                "compare its key with its administrator; only if it is the right one, `farhaul key trust {server} fh-pub1...`"
            ),
        ),
        (CloseReason::Denied(_), KnownBy::Key) => (
            format!("{server} does not accept your key {own}"),
            format!(
                "give your key to its administrator, who starts `farhaul serve` with --allow {own}"
            ),
        ),
        (CloseReason::Auth(_), KnownBy::Ticket) => (
            format!("{server} has another key than the ticket names"),
            "ask whoever gave you the ticket for a new one".into(),
        ),
        (CloseReason::Denied(_), KnownBy::Ticket) => (
            format!("{server} does not know the ticket, or no longer"),
            "ask whoever gave you the ticket for a new one".into(),
        ),
        // Both keys were generated for this copy, and exchanged through ssh.
        (CloseReason::Auth(_), KnownBy::Ssh) => (
            format!("what answers at {server} over UDP is not the farhaul that ssh started there"),
            "run the same command again, or name other ports with --remote-port".into(),
        ),
        (CloseReason::Denied(_), KnownBy::Ssh) => (
            format!("the farhaul that answers at {server} over UDP does not accept your key"),
            "run the same command again, or name other ports with --remote-port".into(),
        ),
        _ => return None,
    };
    Some((text, fix))
}

/// Remembers the server's key; refuses it unless it was `known` before the handshake, or any will do.
fn check_key(seen: Seen, known: bool) -> PeerCheck {
    Arc::new(move |key| {
        let key = key
            .and_then(|k| k.try_into().ok())
            .map(PublicKey::from_bytes);
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = key;
        if known {
            return Ok(());
        }
        Err(TransferError::new(
            Code::Auth,
            "the server's key is not known",
        ))
    })
}

/// Asks whether a new server's key is right; without a terminal it is refused.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, TransferError> {
    let failed = |e: &dyn std::fmt::Display| {
        TransferError::new(Code::NetSetup, format!("{host}: {e}"))
            .fix("check the name and the resolver")
    };
    let found: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|e| failed(&e))?
        .collect();
    if found.is_empty() {
        Err(failed(&"no address"))
    } else {
        Ok(found)
    }
}

fn internal(e: &dyn std::fmt::Display) -> TransferError {
    TransferError::new(Code::Internal, e.to_string())
}

fn config(e: &Failure) -> TransferError {
    TransferError::new(Code::Config, e.text.clone())
}

/// An upload or a download.
enum Copier {
    Up(Upload),
    Down(Download),
}

impl Copier {
    fn handle(&self) -> Handle {
        match self {
            Self::Up(app) => app.handle(),
            Self::Down(app) => app.handle(),
        }
    }

    const fn app(&mut self) -> &mut dyn App {
        match self {
            Self::Up(app) => app,
            Self::Down(app) => app,
        }
    }
}

/// Passes an interrupt on to the transfer.
struct Stoppable {
    app: Copier,
    stop: Stop,
    cancel: Arc<AtomicBool>,
    /// It may last so long.
    lasts: Option<Duration>,
    began: Option<Instant>,
    /// Its highest rate by time of day, and what keeps to it.
    rates: Option<(Timetable, Arc<Control>)>,
    polled: Option<Instant>,
}

/// Between two looks at the time of day.
const LOOK: Duration = Duration::from_secs(1);

impl Store for Stoppable {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.app.app().fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.app.app().place(extents, batch)
    }

    fn sink(&self) -> Sink {
        match &self.app {
            Copier::Up(app) => app.sink(),
            Copier::Down(app) => app.sink(),
        }
    }
}

impl App for Stoppable {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.app.app().on_event(now, event, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.stop.is_set() {
            self.cancel.store(true, Ordering::Relaxed);
        }
        if let Some((rates, control)) = &self.rates {
            control.schedule(rates.now());
            self.polled = Some(now);
        }
        let began = *self.began.get_or_insert(now);
        if self.lasts.is_some_and(|lasts| now.since(began) >= lasts) {
            self.cancel.store(true, Ordering::Relaxed);
        }
        self.app.app().poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        let app = match &self.app {
            Copier::Up(app) => app.next_wake(),
            Copier::Down(app) => app.next_wake(),
        };
        let end = self
            .began
            .zip(self.lasts)
            .map(|(began, lasts)| began + lasts);
        let look = self
            .rates
            .as_ref()
            .zip(self.polled)
            .map(|(_, at)| at + LOOK);
        app.into_iter().chain(end).chain(look).min()
    }
}
