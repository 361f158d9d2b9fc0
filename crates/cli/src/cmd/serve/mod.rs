//! `farhaul serve`: shares for peers, until it is stopped.
//!
//! - SIGHUP reads the file of `--config` again: sessions that begin get the new policy, others keep theirs. A
//!   file with a mistake changes nothing.
//! - SIGTERM takes no more sessions and waits for those there are; SIGINT ends them.

pub(crate) use log::note;

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    sync::{Arc, RwLock},
    time::Duration,
};

use farhaul_core::congestion::Sharing;
use farhaul_haul::{Haul, HaulConfig, Identity, Judge, PeerPolicy};
use farhaul_io::{App, Controls, Stop, Waker, server::Listener, service, tunnel};
use farhaul_transfer::{TransferError, server::Policy};
use listenfd::ListenFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use serde_json::json;

use crate::{
    app::console::{self, Console},
    exit::{Exit, Failure},
    keys,
    line::Line,
    place::PORT,
    read,
    ssh::TUNNEL_LAW,
    timetable::Timetable,
    typed,
};

mod control;
mod file;
mod log;
mod metrics;
mod rejected;
mod sessions;
mod setup;
mod share;
mod signals;
mod told;

use rejected::Rejected;
use sessions::Sessions;
use setup::Setup;
pub(super) use setup::{Served, served};
#[cfg(feature = "lab")]
pub(super) use share::share;
use told::{Level, Told};

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for clients: NAME=PATH[:MODE]. ro: fetch (default); rw: fetch and deliver; rw,delete:
    /// also remove and move; create: deliver new names only; wo: deliver only, and leave existing
    /// links, permissions and write-protected files as they are
    #[arg(long, value_name = "NAME=PATH[:ro|wo|create|rw|rw,delete]")]
    share: Vec<OsString>,
    /// File with shares, peers and any of these flags; SIGHUP reads the file again
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT), value_parser = typed::listen)]
    listen: SocketAddr,
    /// Accept TCP, too, for clients whose networks block UDP [default of ADDR: that of --listen]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, value_parser = typed::listen)]
    #[expect(
        clippy::option_option,
        reason = "not given, or given without an address"
    )]
    tcp: Option<Option<SocketAddr>>,
    /// Clients of every share: a public key (repeatable), the name of a peer in the file, "ticket"
    /// for holders of tickets, or "any"
    #[arg(long, value_name = "KEY|NAME|ticket|any")]
    allow: Vec<String>,
    /// File of tickets from `farhaul ticket` [default: tickets.json in the configuration folder]
    #[arg(long, value_name = "FILE")]
    tickets: Option<PathBuf>,
    /// Limit the rate of each client; or rates by time of day, as in '08:00 500Mbit 19:00 off'
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    max_rate: Option<Timetable>,
    /// Largest share of a link that clients may use: low, fair or high
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    max_policy: Sharing,
    /// Longest measurement of `farhaul doctor` in each direction; 0 allows none
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = probe_time, allow_hyphen_values = true)]
    max_probe: Duration,
    /// Concurrent sessions
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_sessions: u32,
    /// Concurrent sessions per IPv4 address or IPv6 /64 [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_per_source: Option<u32>,
    /// Concurrent sessions per key [default: 3/4 of --max-sessions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_per_key: Option<u32>,
    /// Concurrent unfinished handshakes per IPv4 address or IPv6 /64; the server ignores more
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_handshakes_per_source: u32,
    /// Time that running sessions have to end after SIGTERM, as in 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = typed::duration, allow_hyphen_values = true)]
    drain: Duration,
    /// Key file of this server
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Do not wait for the disk before a received file counts; a crash soon after may lose files of
    /// a complete copy
    #[arg(long)]
    no_sync: bool,
    /// Serve metrics for Prometheus over HTTP, under /metrics at ADDR; everybody who reaches ADDR
    /// can read them
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = METRICS, value_parser = typed::address)]
    metrics: Option<SocketAddr>,
    /// Control socket for `farhaul top` and `farhaul ctl`, or off [default: serve-PORT.sock in the runtime directory]
    #[arg(long, value_name = "SOCKET|off")]
    control: Option<PathBuf>,
    /// Write the log as text for people, or as one JSON object a line
    #[arg(long, value_name = "text|json", default_value = "text")]
    log_format: log::Format,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// Print requests of clients, too
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
}

/// The longest probe that can be allowed.
fn probe_time(text: &str) -> Result<Duration, String> {
    let time = typed::duration(text)?;
    if time > Duration::from_mins(1) {
        return Err("give at most 1min".into());
    }
    Ok(time)
}

/// Address of metrics if none is named.
const METRICS: &str = "127.0.0.1:17993";

impl Args {
    const fn level(&self) -> Level {
        match (self.quiet, self.verbose) {
            (true, _) => Level::Quiet,
            (false, false) => Level::Ends,
            (false, true) => Level::All,
        }
    }
}

/// State that may change while the server runs.
struct Serving {
    given: Args,
    line: Line,
    console: Arc<dyn Console>,
    setup: RwLock<Arc<Setup>>,
    sessions: Arc<Sessions>,
    rejected: Rejected,
}

impl Serving {
    fn setup(&self) -> Arc<Setup> {
        let setup = self.setup.read();
        Arc::clone(&setup.unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.setup().policy)
    }

    /// Reads the file again; a mistake in it changes nothing.
    fn reload(&self, controls: &Controls) -> Result<Arc<Setup>, Failure> {
        let once = |file: &&PathBuf| read::is_read_once(file);
        if let Some(file) = self.given.config.as_ref().filter(once) {
            let text = format!("{} is a pipe, which was read at the start", file.display());
            let fix = "start the server with the name of a file, which can be read again";
            return Err(Failure::new(Exit::Config, text).fix(fix));
        }
        let mut setup = Setup::of(&self.given, &self.line, &*self.console)?;
        let before = self.setup();
        setup.succeed(&before);
        let setup = Arc::new(setup);
        setup.limit(controls);
        let mut current = self.setup.write();
        **current.as_mut().unwrap_or_else(|e| e.get_mut()) = Arc::clone(&setup);
        Ok(setup)
    }
}

/// Serves.
pub(crate) fn run(args: &Args, line: &Line, console: &Arc<dyn Console>) -> Result<(), Failure> {
    let setup = Setup::of(args, line, &**console)?;
    let flags = setup.flags.clone();
    // Its key is said with its address, in the format of the log.
    let (identity, _) = keys::load_or_generate(flags.identity.as_deref())?;
    let serving = Arc::new(Serving {
        given: args.clone(),
        line: line.clone(),
        console: Arc::clone(console),
        setup: RwLock::new(Arc::new(setup)),
        sessions: Arc::default(),
        rejected: Rejected::default(),
    });
    log::set(flags.log_format);
    // In another program signals, descriptors that were handed over and the service manager are that one's.
    let alone = !console.is_inside();
    let stop = Stop::new().map_err(|e| Failure::internal(&e))?;
    let asked = stop.clone();
    let _ends = console
        .cancel()
        .map(|cancel| cancel.and(move || asked.set()));
    let _queue = alone.then(log::queue).transpose()?;
    let handed = if alone {
        handed_over()?
    } else {
        Handed::default()
    };
    let listener = listen(&serving, &identity, handed.udp)?;
    let controls = listener.controls();
    serving.setup().limit(&controls);
    if alone {
        signals::handle(&serving, &controls, &stop)?;
    }
    let at = listener
        .local_addr()
        .map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
    let tcp = tcp(&flags, handed.tcp, at, &controls, &stop)?;
    let sessions = &serving.sessions;
    let metrics = metrics(&flags, sessions, &controls, &stop)?;
    let control = control(&flags, at.port(), (sessions, &controls), &**console)?;
    if alone {
        sum_up(&serving, &stop)?;
    }
    let key = identity.public();
    if !flags.quiet {
        serving.setup().describe();
        if let Some(control) = &control {
            note("control", &format!("control socket {}", control.path()));
        }
        announce(at, tcp, metrics, &key.to_string());
        serving.setup().suggest(at, key);
    }
    log::date();
    if alone {
        signals::tell(&[NotifyState::Ready]);
    }
    if !alone {
        console.event(&json!({
            "type": "listening",
            "address": at.to_string(),
            "key": key.to_string(),
            "tcp": tcp.map(|at| at.to_string()),
        }));
    }
    let ended = listener.run(&stop);
    // Threads that serve beside it end, however it did.
    stop.set();
    let ended = ended.map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
    log::rejected(serving.rejected.rest());
    if let Some(refusal) = ended.host.refusal() {
        console.message(console::Level::Important, &log::line("warning", &refusal));
    }
    Ok(())
}

/// Prints for people where the server is.
fn announce(at: SocketAddr, tcp: Option<SocketAddr>, metrics: Option<SocketAddr>, key: &str) {
    if let Some(at) = metrics {
        note("metrics", &format!("metrics at http://{at}/metrics"));
    }
    if let Some(at) = tcp {
        note(
            "tcp",
            &format!("listening on {at}/tcp for peers whose networks block UDP"),
        );
    }
    note("listening", &format!("listening on {at}/udp, key {key}"));
}

/// Opens the socket, or takes the one that was handed over.
fn listen(
    serving: &Arc<Serving>,
    identity: &Identity,
    handed: Option<UdpSocket>,
) -> Result<Listener, Failure> {
    let mut config = HaulConfig::new(*identity.seed());
    let judging = Arc::clone(serving);
    config.peers = PeerPolicy::Judge(Judge::new(move |key| {
        judging.policy().lets_in(key.as_bytes())
    }));
    config.app = farhaul_transfer::offer();
    config.memory = Some(Arc::default());
    if serving.setup().flags.max_policy != Sharing::Low {
        config.tunnel_law = Some(TUNNEL_LAW.into());
    }
    let haul = Haul::server(config).map_err(|e| Failure::new(Exit::Config, e.to_string()))?;
    let mut options = farhaul_io::server::Options::new(serving.setup().flags.listen);
    options.busy = Some(Exit::Busy.number().into());
    options.notify = Some(|notice| note("warning", &notice.to_string()));
    let told = Arc::clone(serving);
    let factory = move |peer: SocketAddr, waker: &Waker| -> Box<dyn App> {
        Box::new(Told::new(&told, peer, waker))
    };
    let Some(socket) = handed else {
        return Listener::bind(options, Box::new(haul), factory).map_err(|e| {
            let fix = "choose another address with --listen";
            Failure::new(Exit::NetSetup, format!("{e}; {fix}"))
        });
    };
    let listener = Listener::adopt(socket, options, Box::new(haul), factory)
        .map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
    if !listener.has_own_threads() {
        let text =
            "the socket that was handed over is another user's: all sessions share one thread";
        note("warning", text);
    }
    Ok(listener)
}

/// Writes the number of failed handshakes each minute, until `stop` is set.
fn sum_up(serving: &Arc<Serving>, stop: &Stop) -> Result<(), Failure> {
    let (serving, stop) = (Arc::clone(serving), stop.clone());
    let warn = |line: &str| note("warning", line);
    let started = service::spawn("sums", warn, move || {
        while !stop.is_set() {
            let mut stopped = [PollFd::new(&stop, PollFlags::IN)];
            let every = Timespec::try_from(rejected::WINDOW).ok();
            // A signal only ends the wait.
            let _interrupted = poll(&mut stopped, every.as_ref());
            log::rejected(serving.rejected.rest());
        }
    });
    started.map_err(|e| Failure::from(&TransferError::no_thread(&e)))
}

/// Address where metrics are served, if they are.
fn metrics(
    flags: &Args,
    sessions: &Arc<Sessions>,
    controls: &Controls,
    stop: &Stop,
) -> Result<Option<SocketAddr>, Failure> {
    let start = |at| {
        metrics::start(at, sessions, controls, stop).map_err(|e| {
            let text = format!("cannot serve metrics at {at}: {e}");
            Failure::new(Exit::NetSetup, text).fix("choose another address with --metrics")
        })
    };
    flags.metrics.map(start).transpose()
}

/// The control socket, unless it is off. One that was not asked for need not be possible.
fn control(
    flags: &Args,
    port: u16,
    (sessions, controls): (&Arc<Sessions>, &Controls),
    console: &dyn Console,
) -> Result<Option<control::Socket>, Failure> {
    let warn = |text: &str| console.message(console::Level::Important, &log::line("warning", text));
    let path = match &flags.control {
        Some(path) if path.as_os_str() == "off" => return Ok(None),
        Some(path) => path.clone(),
        None => {
            let Some(dir) = crate::control::directory() else {
                let text = "no control socket: there is no runtime directory; name one with --control, or off";
                warn(text);
                return Ok(None);
            };
            control::sweep(&dir);
            dir.join(format!("serve-{port}.sock"))
        }
    };
    match control::start(&path, sessions, controls) {
        Ok(socket) => Ok(Some(socket)),
        Err(e) => {
            let text = format!("control socket {}: {e}", path.display());
            if flags.control.is_some() {
                return Err(Failure::new(Exit::NetSetup, text).fix("name another with --control"));
            }
            warn(&format!("there is no {text}"));
            Ok(None)
        }
    }
}

/// Address where sessions come over TCP, if they may.
fn tcp(
    flags: &Args,
    handed: Option<TcpListener>,
    udp: SocketAddr,
    controls: &Controls,
    stop: &Stop,
) -> Result<Option<SocketAddr>, Failure> {
    let socket = match (handed, flags.tcp) {
        (Some(socket), _) => socket,
        (None, Some(at)) => {
            let at = at.unwrap_or(udp);
            TcpListener::bind(at).map_err(|e| {
                let text = format!("cannot listen on {at}/tcp: {e}");
                Failure::new(Exit::NetSetup, text).fix("choose another address with --tcp ADDR")
            })?
        }
        (None, None) => return Ok(None),
    };
    let at = socket.local_addr();
    let unanswered = Arc::new(|peer: SocketAddr| {
        let peer = peer.ip();
        note(
            "warning",
            &format!(
                "what {peer} sent through TCP was not answered: if a firewall of this machine blocks UDP on its own loopback device, admit lo"
            ),
        );
    });
    let report = |line: &str| note("warning", line);
    let started = tunnel::accept(
        socket,
        udp,
        controls.clone(),
        stop.clone(),
        unanswered,
        report,
    );
    let at = started.and(at).map_err(|e| {
        let text = format!("cannot take TCP connections: {e}");
        Failure::new(Exit::NetSetup, text)
    })?;
    Ok(Some(at))
}

/// Sockets of a service manager (`LISTEN_FDS`).
#[derive(Default)]
struct Handed {
    udp: Option<UdpSocket>,
    tcp: Option<TcpListener>,
}

/// Sockets that were handed over: none, or a UDP socket, beside which there may be one for TCP.
fn handed_over() -> Result<Handed, Failure> {
    let refuse = |text: String| Failure::new(Exit::NetSetup, text);
    let mut from = ListenFd::from_env();
    let mut handed = Handed::default();
    for i in 0..from.len() {
        if handed.udp.is_none()
            && let Ok(Some(udp)) = from.take_udp_socket(i)
        {
            handed.udp = Some(udp);
        } else if handed.tcp.is_none()
            && let Ok(Some(tcp)) = from.take_tcp_listener(i)
        {
            handed.tcp = Some(tcp);
        } else {
            return Err(refuse(format!(
                "socket {i} that was handed over (LISTEN_FDS) is not used: one UDP socket and one that listens \
                 for TCP are"
            )));
        }
    }
    if from.len() > 0 && handed.udp.is_none() {
        let text = "no UDP socket was handed over (LISTEN_FDS)";
        return Err(refuse(text.into()));
    }
    Ok(handed)
}
