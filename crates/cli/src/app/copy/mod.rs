//! A copy between this machine and another: attempts by UDP or around it, until one ends for good.

use std::{
    cell::{Cell, OnceCell},
    net::SocketAddr,
    num::NonZero,
    sync::Arc,
};

use farhaul_core::{protocol::CloseReason, text, time::Instant};
use farhaul_haul::Identity;
use farhaul_io::Stop;
use farhaul_transfer::{
    Advice, Outcome, Summary, TransferError,
    client::{Download, Options, Upload},
};
use serde_json::Value;

mod attempt;
pub(crate) mod events;
mod fallback;
mod job;
mod lanes;
mod pipe;
mod plan;
mod refused;
mod request;
mod retry;
mod shard;
mod stoppable;
mod trust;

pub use self::request::Request;
use self::{attempt::Ended, pipe::Pipe, stoppable::Copier};
pub(crate) use self::{
    job::{Job, has_ticket, of_one_server, or_local, places},
    plan::{DryRun, Printed},
    request::Ordered,
    trust::{Seen, check_key, trust, unknown},
};
use crate::{
    app::console::{Console, Level},
    connect::{Attempt, Carrier, internal},
    exit::{Exit, Failure},
    interrupt::Ending,
    keys::{self, Known},
    reach::KnownBy,
    ssh::{self, Bridge, Met},
};

/// Copies. The console gets events and messages meanwhile, and may end the copy. An equal request continues a copy that
/// was ended.
///
/// # Errors
/// As `farhaul cp` fails: the exit code, a message, and advice.
///
/// # Examples
/// A server of one folder, and a copy to it, with keys of their own:
///
/// ```
/// use std::{fs, os::unix::fs::PermissionsExt as _, sync::{Arc, mpsc}, thread};
///
/// use farhaul::{Cancel, Console, Request, calls::{self, Call}};
/// use serde_json::Value;
///
/// /// Hands events on, and leaves messages aside.
/// struct Quiet {
///     events: mpsc::Sender<Value>,
///     cancel: Cancel,
/// }
///
/// impl Console for Quiet {
///     fn event(&self, event: &Value) {
///         let _nobody_waits = self.events.send(event.clone());
///     }
///     fn cancel(&self) -> Option<&Cancel> {
///         Some(&self.cancel)
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let [from, to, own, theirs] = ["from", "to", "own", "theirs"].map(|name| folder.path().join(name));
/// fs::create_dir(&from)?;
/// fs::create_dir(&to)?;
/// fs::write(from.join("a"), "some bytes")?;
/// for (key, seed) in [(&own, [1_u8; 32]), (&theirs, [2; 32])] {
///     fs::write(key, seed)?;
///     fs::set_permissions(key, fs::Permissions::from_mode(0o600))?;
/// }
///
/// let (events, heard) = mpsc::channel();
/// let cancel = Cancel::new();
/// let console: Arc<dyn Console> = Arc::new(Quiet { events, cancel: cancel.clone() });
/// let mut serve = Call { command: "serve".into(), ..Call::default() };
/// let share = format!("in={}:rw", to.display());
/// for (flag, value) in [
///     ("listen", "127.0.0.1:0".into()),
///     ("allow", "any".into()),
///     ("control", "off".into()),
///     ("identity", theirs.into_os_string()),
///     ("share", share.into()),
/// ] {
///     serve.flags.push((flag.into(), calls::Value::Text(value)));
/// }
/// let around = Arc::clone(&console);
/// let server = thread::spawn(move || serve.run(&around));
/// let listening = heard.recv()?;
/// let place = format!("{}::in/", listening["address"].as_str().unwrap_or_default());
///
/// let request = Request::new([&from], place)?.identity(&own).trust_any();
/// let copied = farhaul::copy(request, &console)?;
/// assert_eq!(copied.summary.files.sent, 1);
/// assert_eq!(fs::read_to_string(to.join("from/a"))?, "some bytes");
///
/// cancel.cancel();
/// server.join().expect("the server ends")?;
/// # Ok(())
/// # }
/// ```
pub fn copy(request: Request, console: &Arc<dyn Console>) -> Result<Copied, Failure> {
    let mut run = Run::new(request, console);
    let readable = run.request.job.readable();
    readable.map_err(|e| run.failure(None, &e))?;
    if run.request.ordered.is_none() {
        run.through_ssh(&run.request.call.clone())?;
    }
    run.copied()
}

/// Result of a copy.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Figures of all attempts.
    pub summary: Summary,
    /// The object of `--json`.
    pub object: Value,
    /// The summary in words.
    pub lines: Vec<String>,
}

/// Highest number of failures, and of warnings, that people are told.
const MOST_LINES: usize = 20;

/// Warns of what a copy did otherwise than it may have been meant.
pub(crate) fn warn(summary: &Summary, console: &dyn Console) {
    let all = &summary.warnings[..];
    let say = |text: &str| console.message(Level::Warning, &format!("farhaul: warning: {text}"));
    all.iter().take(MOST_LINES).for_each(|warning| say(warning));
    if let more @ 1.. = all.len().saturating_sub(MOST_LINES) {
        say(&format!("and {more} more, which --json has"));
    }
}

/// Signal by which a program ends whose reader is gone.
const PIPE: u8 = 13;

/// One invocation.
struct Run {
    request: Request,
    console: Arc<dyn Console>,
    put: bool,
    /// The destination as it was typed, for messages.
    to: String,
    /// Actions of a dry run.
    planned: Option<DryRun>,
    /// The server that ssh started for this copy.
    bridge: Option<Bridge>,
    /// Parties that ssh made known to each other.
    met: Option<Met>,
    /// Carrier of the datagrams; one that was found to work stays.
    carrier: Cell<Carrier>,
    /// Time at which the first attempt was made.
    began: Cell<Option<Instant>>,
    /// Attempts that were begun.
    attempts: u64,
    /// Stop that a signal sets, once there is something to end.
    stop: OnceCell<Ending>,
    pipe: Pipe,
}

impl Run {
    fn new(mut request: Request, console: &Arc<dyn Console>) -> Self {
        let planned = request.plan.take().map(|(planned, printed)| {
            request.options.plan = Some(planned.sink(printed, console));
            planned
        });
        Self {
            put: request.job.is_put(),
            to: request.job.destination(),
            planned,
            met: request.met.take(),
            request,
            console: Arc::clone(console),
            bridge: None,
            carrier: Cell::new(Carrier::Udp),
            began: Cell::default(),
            attempts: 0,
            stop: OnceCell::new(),
            pipe: Pipe::default(),
        }
    }

    fn copied(&mut self) -> Result<Copied, Failure> {
        let Outcome { mut summary, error } = self.attempts()?;
        summary.max_rate = self.request.options.max_rate;
        if self.pipe.is_closed() {
            // As `cat` ends whose reader is gone: there is nothing to say.
            return Err(Failure::new(Exit::Signal(PIPE), ""));
        }
        match error {
            Some(e) => Err(self.failure(Some(&summary), &e)),
            None => Ok(Copied {
                object: self.object(&summary),
                lines: self.lines(&summary),
                summary,
            }),
        }
    }

    /// The summary for people.
    fn lines(&self, summary: &Summary) -> Vec<String> {
        if let Some(planned) = &self.planned {
            return vec![planned.line(summary, &self.to)];
        }
        let mut lines = vec![summary.line()];
        lines.extend(shard::line(self.request.options.shard, summary));
        if self.request.ordered.is_some() {
            lines.push(format!("path: {}", self.path()));
        }
        if let Some((why, share)) = summary.limit().filter(|(_, share)| *share >= 0.1) {
            let percent = share * 100.0;
            lines.push(format!("limited by: {why} ({percent:.0} % of the time)"));
        }
        lines
    }

    fn say(&self, level: Level, text: &str) {
        self.console.message(level, text);
    }

    fn object(&self, summary: &Summary) -> Value {
        let mut object = serde_json::to_value(summary).unwrap_or(Value::Null);
        object["path"] = self.path().into();
        object["attempts"] = self.attempts.into();
        if let Some(shard) = self.request.options.shard {
            object["shard"] = shard::object(shard, summary, &self.request.job, &self.to);
        }
        if let Some(planned) = &self.planned {
            planned.add_to(&mut object);
        }
        object
    }

    /// Name of the way that the datagrams go.
    fn path(&self) -> &'static str {
        match (self.carrier.get(), &self.request.ordered) {
            (Carrier::Udp, Some(_)) => "direct",
            (carrier, _) => carrier.name(),
        }
    }

    fn failure(&self, summary: Option<&Summary>, e: &TransferError) -> Failure {
        if let Some(summary) = summary {
            let done = summary.files.sent + summary.files.skipped + summary.bytes_payload;
            match &self.planned {
                Some(planned) if !planned.is_empty(summary) => {
                    self.say(Level::Notice, &planned.line(summary, &self.to));
                }
                None if done > 0 => self.say(Level::Notice, &summary.line()),
                _ => {}
            }
            let listed = self.planned.as_ref().is_some_and(|p| !p.is_list());
            let several = summary.failures.len() > 1 && !listed;
            let most = if several { MOST_LINES } else { 0 };
            for failure in summary.failures.iter().take(most) {
                self.say(Level::Important, &format!("farhaul: {}", failure.text));
            }
            warn(summary, &*self.console);
        }
        let owned = summary
            .cloned()
            .unwrap_or_else(|| Summary::of_error(self.put, e));
        Failure::from(e).with_object(self.object(&owned))
    }

    /// Starts a server by ssh, if the far side is reached so.
    fn through_ssh(&mut self, call: &ssh::Call) -> Result<(), Failure> {
        let Some(login) = self.request.job.server().login.clone() else {
            return Ok(());
        };
        // Missing local files are reported before a connection is made.
        self.app(&self.request.options)
            .map_err(|e| self.failure(None, &e))?;
        let put = self.put;
        let (server, remotes) = self.request.job.far_mut();
        let paths: Vec<_> = remotes.iter().map(|remote| remote.path.clone()).collect();
        let identity = Identity::generate().map_err(|e| Failure::internal(&e))?;
        let bridge = Bridge::open(call, &login, &paths, put, identity.public(), &self.console)
            .map_err(|e| or_port(e, &login, &paths))?;
        // What may be listed follows from what was typed, whatever the far end calls it.
        self.request.options.typed = Some(paths);
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
        let server = self.request.job.server();
        let resolve = |host: &str, port| self.request.family.resolve(host, port);
        let Some(met) = &self.met else {
            return resolve(&server.host, server.port).map_err(|e| {
                let hint = ssh::alias_hint(&self.request.call, &server.host);
                match hint.filter(|_| e.code == Exit::NetSetup) {
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
        let server = self.request.job.server().to_string();
        // Missing local files are reported before a connection is made.
        let first = self.app(&self.request.options)?;
        drop(first);
        let identity = self.identity()?;
        let mut trusted = match (&self.met, &self.request.job.server().right) {
            (Some(met), _) => vec![met.key],
            (None, Some(right)) => vec![right.server],
            (None, None) => {
                let known = Known::load(&*self.console).map_err(|e| config(&e))?;
                known.of(&server)
            }
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
                    return Err(TransferError::new(Exit::NetSetup, text));
                }
            };
            match ended.unknown {
                Some(key) => {
                    trusted = vec![trust(&server, key, &*self.console)?];
                }
                None => return Ok(ended.outcome),
            }
        }
    }

    /// Stop that ends this copy from outside.
    fn stop(&self) -> Result<Stop, TransferError> {
        match (&self.request.ordered, self.stop.get()) {
            (Some(ordered), _) => Ok(ordered.gone.clone()),
            (None, Some(ending)) => Ok(Stop::clone(ending)),
            (None, None) => {
                let ending = self.console.stop()?;
                Ok(Stop::clone(self.stop.get_or_init(|| ending)))
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
        if self.request.ways.udp_timeout.is_zero() || self.carrier.get() != Carrier::Udp {
            return None;
        }
        let mut last = None;
        for address in addresses {
            let ended = attempt(&Attempt::At(*address));
            let elsewhere = match &ended {
                Ok(ended) => ended.unreached || self.is_other(ended),
                Err(e) => e.code == Exit::NetSetup,
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
        self.request.ordered.is_some()
            && self.met.is_some()
            && matches!(ended.reason, CloseReason::Auth(_))
    }

    fn identity(&self) -> Result<Identity, TransferError> {
        if let Some(met) = &self.met {
            return Identity::from_seed(met.identity.seed()).map_err(|e| internal(&e));
        }
        if let Some(right) = &self.request.job.server().right {
            return Identity::from_seed(&right.seed).map_err(|e| internal(&e));
        }
        let given = self.request.identity.as_deref();
        keys::identity_or_new(given, &*self.console).map_err(|e| config(&e))
    }

    fn app(&self, options: &Options) -> Result<Copier, TransferError> {
        match &self.request.job {
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

    const fn known_by(&self) -> KnownBy {
        match (&self.met, &self.request.job.server().right) {
            (Some(_), _) => KnownBy::Ssh,
            (None, Some(_)) => KnownBy::Ticket,
            (None, None) => KnownBy::Key,
        }
    }

    /// Adds to the error what the session does not know: that ssh works, and that a pipe has no second beginning. The
    /// summary ends by the error as it is then.
    fn amend(&self, outcome: &mut Outcome) {
        let Some(error) = &mut outcome.error else {
            return;
        };
        if self.met.is_some() && error.code == Exit::UdpBlocked {
            let fix = format!(
                "ssh gets there, UDP does not: open port {}/udp there (it is the first free one of those that --remote-port names)",
                self.request.job.server().port
            );
            error.fix = fix.into();
        }
        if let Some(bridge) = &self.bridge
            && let [path] = &bridge.paths[..]
        {
            // The far end knows where in its folder it is, not what was typed.
            let theirs = format!("destination '{}'", text::shown(path));
            error.text = error
                .text
                .replace(&theirs, &format!("destination '{}'", self.to));
        }
        if let Some(planned) = &self.planned {
            *error = error.clone().of_query();
            if planned.is_list() && error.code == Exit::Partial {
                // The rest is listed, and to list it again would show no more.
                error.fix = Advice::default();
            }
        }
        if self.request.job.is_piped() && error.fix.is_again() {
            error.fix =
                "run it again from the beginning: what goes through a pipe cannot be continued"
                    .into();
        }
        outcome.summary.exit = (&*error).into();
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

fn config(e: &Failure) -> TransferError {
    TransferError::new(Exit::Config, e.text.clone())
}
