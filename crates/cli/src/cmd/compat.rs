//! `farhaul compat`: speaks the protocols of other programs, as they speak them. Nothing here is
//! encrypted, verified or authorized, so each of them runs only if invoked by name, and prints a
//! warning.

mod link;
mod rbudp;
mod samples;
mod ttp;

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use clap::Subcommand;
use farhaul_core::protocol::{CloseReason, Protocol};
use farhaul_io::{App, Stop, Waker, client, server};
use farhaul_measure::registry::{self, Choice};
use farhaul_measure::stream::{Blast, Measured, Sink};
use farhaul_protocols::udt;
use farhaul_transfer::{TransferError, server::Share};
use samples::{RecvFile, SendFile, Tell};

use super::{bench::resolve_at, serve::share};
use crate::{
    exit::{Exit, Failure},
    interrupt,
    names::Names,
    out,
    reach::{Unreached, unopened},
    typed,
};

/// Default address of libudt's programs.
const PORT: u16 = 9_000;
/// Number of bytes that is more than is ever sent.
const ENDLESS: u64 = 1 << 60;
const WARNING: &str =
    "warning: clear text: no authentication, no encryption, and no digest of files";

/// Protocols of other programs.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// The sample programs of libudt 4, in clear text
    #[command(subcommand)]
    Udt4(Udt4),
    /// The file programs of RBUDP 1.0 (QUANTA), in clear text
    #[command(subcommand)]
    Rbudp(rbudp::Rbudp),
    /// Client and server of the Tsunami UDP protocol 1.1, in clear text
    #[command(subcommand)]
    Ttp(ttp::Ttp),
}

/// The programs.
#[derive(Debug, Subcommand)]
pub(crate) enum Udt4 {
    /// Serve files to `recvfile`, until stopped
    Sendfile(Sendfile),
    /// Fetch one file from `sendfile`
    Recvfile(Recvfile),
    /// Receive from `appclient`, count and discard the data
    Server(Taker),
    /// Send to `appserver` as fast as possible
    Client(Sender),
}

/// Options of UDT.
#[derive(Debug, clap::Args)]
pub(crate) struct How {
    /// udt4 or udt4-tuned, with parameters as in udt4:mss=1500
    #[arg(long, value_name = "PROTOCOL", default_value = "udt4-tuned")]
    protocol: String,
    /// The congestion law, as NAME or NAME:PARAMETER=VALUE,...
    #[arg(long, value_name = "LAW", value_parser = Names::laws(), hide_possible_values = true)]
    cc: Option<String>,
}

/// `compat udt4 sendfile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Sendfile {
    /// A directory whose files may be fetched, as NAME/FILE
    #[arg(long, value_name = "NAME=PATH[:ro]", required = true)]
    share: Vec<OsString>,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT), value_parser = typed::address)]
    listen: SocketAddr,
    #[command(flatten)]
    how: How,
}

/// `compat udt4 recvfile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Recvfile {
    /// HOST or HOST:PORT of the server
    host: String,
    /// Name of the file on the server
    remote: OsString,
    /// The file to write; replaced once everything is here
    local: PathBuf,
    #[command(flatten)]
    how: How,
}

/// `compat udt4 server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Taker {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT), value_parser = typed::address)]
    listen: SocketAddr,
    /// End after one client
    #[arg(short = '1', long)]
    one_off: bool,
    /// One JSON object per client instead of text
    #[arg(long, short = 'J')]
    json: bool,
    #[command(flatten)]
    how: How,
}

/// `compat udt4 client`.
#[derive(Debug, clap::Args)]
pub(crate) struct Sender {
    /// HOST or HOST:PORT of the server
    host: String,
    /// Duration of sending: seconds, or with a unit [default: 10]
    #[arg(short = 't', long, value_name = "TIME", value_parser = typed::bare_seconds, conflicts_with = "bytes", allow_negative_numbers = true)]
    time: Option<Duration>,
    /// Amount to send instead of a time
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = typed::size, allow_negative_numbers = true)]
    bytes: Option<u64>,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
    #[command(flatten)]
    how: How,
}

/// Runs one of them.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match args {
        Args::Udt4(Udt4::Sendfile(args)) => args.run(),
        Args::Udt4(Udt4::Recvfile(args)) => args.run(),
        Args::Udt4(Udt4::Server(args)) => args.run(),
        Args::Udt4(Udt4::Client(args)) => args.run(),
        Args::Rbudp(program) => rbudp::run(program),
        Args::Ttp(program) => ttp::run(program),
    }
}

impl How {
    fn endpoint(&self, listens: bool) -> Result<Box<dyn Protocol>, Failure> {
        let choice = Choice {
            law: self.cc.clone(),
            ..Choice::default()
        };
        registry::protocol(&self.protocol)
            .and_then(|entry| udt::stream(&entry, &choice, listens))
            .map_err(|e| Failure::usage(e.to_string()))
    }

    /// Connects and runs `app` until it is over.
    fn connect<A: App>(&self, host: &str, app: A) -> Result<client::Outcome<A>, Failure> {
        let to = resolve_at(host, PORT)?;
        let protocol = self.endpoint(false)?;
        errln!("{WARNING}");
        let net = |e: String| Failure::new(Exit::NetSetup, e);
        let waker = Waker::new().map_err(|e| net(e.to_string()))?;
        let outcome = client::run(&client::Options::new(to), protocol, app, &waker)
            .map_err(|e| Failure::from(unopened(&e)))?;
        let unsent = outcome.host.unsent;
        if let Some(unreached) = Unreached::of(&outcome.reason, outcome.refused, unsent) {
            return Err(unreached.failure("the UDT program", to));
        }
        match &outcome.reason {
            CloseReason::Protocol(text) => Err(Failure::new(Exit::Protocol, text.clone())),
            _ => Ok(outcome),
        }
    }

    /// Listens until `stop`.
    fn listen(
        &self,
        at: SocketAddr,
        stop: &Stop,
        factory: impl FnMut(SocketAddr, &Waker) -> Box<dyn App> + Send + 'static,
    ) -> Result<(), Failure> {
        let net = |e: String| Failure::new(Exit::NetSetup, e);
        let protocol = self.endpoint(true)?;
        errln!("{WARNING}");
        let listener = server::Listener::bind(at, protocol, factory)
            .map_err(|e| net(format!("{e}; choose another address with --listen")))?;
        let at = listener.local_addr().map_err(|e| net(e.to_string()))?;
        errln!("listening on {at}/udp");
        listener.run(stop).map_err(|e| net(e.to_string()))?;
        Ok(())
    }
}

/// The shares that were typed, all of them to be fetched from.
fn shares(typed: &[OsString]) -> Result<Vec<Share>, Failure> {
    let mut shares: Vec<Share> = Vec::new();
    for text in typed {
        let share = share(text)?;
        let name = share.name();
        if shares.iter().any(|s| s.name() == name) {
            return Err(Failure::usage(format!("two shares are called '{name}'")));
        }
        if !share.may_be_fetched() {
            return Err(Failure::usage(format!(
                "share '{name}' is for delivering only, but this framing only fetches: write :ro"
            )));
        }
        shares.push(share);
    }
    Ok(shares)
}

impl Sendfile {
    fn run(&self) -> Result<(), Failure> {
        let shares: Arc<[_]> = shares(&self.share)?.into();
        let stop = interrupt::stop()?;
        self.how.listen(self.listen, &stop, move |peer, _| {
            let tell: Tell = Arc::new(move |line: &str| errln!("{peer}: {line}"));
            Box::new(SendFile::new(Arc::clone(&shares), tell))
        })
    }
}

impl Recvfile {
    fn run(&self) -> Result<(), Failure> {
        self.how.endpoint(false)?;
        let app =
            RecvFile::new(self.remote.as_bytes(), &self.local).map_err(|e| Failure::from(&e))?;
        let outcome = self.how.connect(&self.host, app)?;
        let bytes = outcome.app.result().map_err(|e| Failure::from(&e))?;
        errln!("{}: {bytes} bytes, not verified", self.local.display());
        Ok(())
    }
}

fn show(measured: &Measured, json: bool) {
    if json {
        return out::json(measured);
    }
    out::line(format!(
        "{} bytes in {:.2} s: {:.3} Gbit/s, {:.1} % of a core per Gbit/s",
        measured.bytes,
        measured.seconds,
        measured.goodput_bits_per_second / 1e9,
        measured.cpu_percent_per_gbps.unwrap_or(0.0),
    ));
}

impl Taker {
    fn run(&self) -> Result<(), Failure> {
        let stop = interrupt::stop()?;
        let (ended, results) = mpsc::channel::<(Measured, CloseReason)>();
        let (json, one_off, until) = (self.json, self.one_off, stop.clone());
        let show_all = move || {
            for (measured, _) in results {
                show(&measured, json);
                if one_off {
                    until.set();
                }
            }
        };
        let shown = std::thread::Builder::new()
            .spawn(show_all)
            .map_err(|e| TransferError::no_thread(&e))?;
        self.how.listen(self.listen, &stop, move |_, _| {
            Box::new(Sink::new(ended.clone()))
        })?;
        shown
            .join()
            .map_err(|_| Failure::internal(&"the thread that prints has failed"))
    }
}

impl Sender {
    fn run(&self) -> Result<(), Failure> {
        let (ended, results) = mpsc::channel();
        let lasts = self
            .bytes
            .is_none()
            .then(|| self.time.unwrap_or(Duration::from_secs(10)));
        let app = Blast::new(self.bytes.unwrap_or(ENDLESS), lasts, ended);
        let reason = self.how.connect(&self.host, app)?.reason;
        let (measured, _) = results
            .recv()
            .map_err(|_| Failure::internal(&"the session ended without a reason"))?;
        if !measured.ok {
            let text = format!("ended after {} bytes: {reason}", measured.bytes);
            return Err(Failure::new(Exit::ConnectionLost, text));
        }
        show(&measured, self.json);
        Ok(())
    }
}
