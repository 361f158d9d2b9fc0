//! `farhaul serve`: shares for peers, until it is stopped.

use std::{
    ffi::{OsStr, OsString},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use farhaul_core::{
    congestion::Sharing,
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_haul::{Haul, HaulConfig, PeerPolicy, PublicKey};
use farhaul_io::{App, Waker, server::Listener};
use farhaul_transfer::{
    Handle,
    server::{Access, Allow, Policy, Server, Share},
};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::{
    exit::{Exit, Failure},
    interrupt, keys,
    place::PORT,
    typed,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory that peers may use: NAME=PATH, NAME=PATH:ro (fetch only, the default), :wo (deliver only;
    /// links, write-protected files and all permissions are kept), :create (deliver only, under new names) or
    /// :rw
    #[arg(long, value_name = "NAME=PATH[:ro|wo|create|rw]", required = true)]
    share: Vec<OsString>,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT), value_parser = typed::listen)]
    listen: SocketAddr,
    /// Allowed clients: a public key (repeatable), or "any"; none by default
    #[arg(long, value_name = "KEY|any")]
    allow: Vec<String>,
    /// Never send faster than this, to each peer
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    max_rate: Option<Rate>,
    /// Largest share of a link that peers may use: low, fair or high
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    max_policy: Sharing,
    /// Sessions at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_sessions: u32,
    /// This server's key file
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Do not wait for the disk before a received file counts: a crash, or an error of the disk, soon
    /// after may lose files that were reported to peers as complete
    #[arg(long)]
    no_sync: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

/// Serves.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let shares = args
        .share
        .iter()
        .map(|s| share(s))
        .collect::<Result<Vec<_>, _>>()?;
    for (i, share) in shares.iter().enumerate() {
        if shares[..i].iter().any(|s| s.name() == share.name()) {
            return Err(Failure::usage(format!(
                "two shares are called '{}'",
                share.name()
            )));
        }
    }
    let (allow, peers) = allowed(&args.allow)?;
    let identity = keys::identity(args.identity.as_deref())?;
    let mut config = HaulConfig::new(*identity.seed());
    config.peers = peers;
    config.max_rate = args.max_rate;
    let haul = Haul::server(config).map_err(|e| Failure::new(Exit::Config, e.to_string()))?;
    let system = |e: std::io::Error| Failure::new(Exit::Internal, e.to_string());
    let stop = interrupt::stop().map_err(system)?;
    let mut options = farhaul_io::server::Options::new(args.listen);
    options.max_sessions = usize::try_from(args.max_sessions).unwrap_or(usize::MAX);
    options.busy = Some(Exit::Busy.code().into());
    options.notify = Some(|notice| errln!("warning: {notice}"));
    let policy = Arc::new(Policy::new(shares, allow, !args.no_sync).up_to(args.max_policy));
    let quiet = args.quiet;
    let factory = {
        let policy = Arc::clone(&policy);
        move |peer: SocketAddr, waker: &Waker| -> Box<dyn App> {
            let waker = waker.clone();
            let app = Server::new(Arc::clone(&policy), Some(Arc::new(move || waker.wake())));
            Box::new(Told {
                handle: app.handle(),
                app,
                peer,
                quiet,
            })
        }
    };
    allow_open_files();
    let listener = Listener::bind(options, Box::new(haul), factory).map_err(|e| {
        Failure::new(
            Exit::NetSetup,
            format!("{e}; choose another address with --listen"),
        )
    })?;
    let at = listener
        .local_addr()
        .map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
    if !quiet {
        for share in policy.shares() {
            errln!("share '{}': peers may {}", share.name(), share.access());
        }
        if *policy.allow() == Allow::None {
            errln!("warning: no key is allowed; add --allow KEY, or --allow any");
        }
        errln!("listening on {at}/udp, key {}", identity.public());
    }
    let ended = listener.run(&stop);
    let ended = ended.map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
    if let Some(refusal) = ended.host.refusal() {
        errln!("warning: {refusal}");
    }
    Ok(())
}

pub(super) fn share(text: &OsStr) -> Result<Share, Failure> {
    let bytes = text.as_bytes();
    let usage = || {
        Failure::usage(format!(
            "--share {}: write NAME=PATH or NAME=PATH:ro, :wo, :create, :rw",
            text.to_string_lossy()
        ))
    };
    let equals = bytes.iter().position(|b| *b == b'=').ok_or_else(usage)?;
    let name = std::str::from_utf8(&bytes[..equals]).map_err(|_| usage())?;
    if name.is_empty() || name.contains(['/', ':']) {
        return Err(usage());
    }
    let rest = &bytes[equals + 1..];
    let colon = rest.iter().rposition(|b| *b == b':');
    let named =
        colon.and_then(|i| Some((i, Access::parse(std::str::from_utf8(&rest[i + 1..]).ok()?)?)));
    let (path, access) = match named {
        Some((i, access)) => (&rest[..i], access),
        None => (rest, Access::Read),
    };
    let path = Path::new(OsStr::from_bytes(path));
    Share::open(name, path, access).map_err(|e| {
        let text = format!(
            "share '{name}': {}: {e}; it must be a directory that exists, with nothing after it but :ro, :wo, :create or :rw",
            path.display()
        );
        Failure::new(Exit::Config, text)
    })
}

/// Whom the application allows, and whom the handshake lets in.
fn allowed(words: &[String]) -> Result<(Allow, PeerPolicy), Failure> {
    if words.iter().any(|w| w == "any") {
        return Ok((Allow::Any, PeerPolicy::Any));
    }
    let key = |w: &String| {
        w.parse::<PublicKey>()
            .map_err(|e| Failure::usage(format!("--allow {w}: {e}, nor the word 'any'")))
    };
    let keys = words.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() {
        return Ok((Allow::None, PeerPolicy::Keys(Vec::new())));
    }
    let bytes = keys.iter().map(|k| k.as_bytes().to_vec()).collect();
    Ok((Allow::Keys(bytes), PeerPolicy::Keys(keys)))
}

/// Raises the soft limit of open files to the hard one: a session may have about two hundred.
fn allow_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If refused, a session without free descriptors ends with that error.
    let _refused = setrlimit(Resource::Nofile, limit);
}

/// A session that reports on stderr how it ended.
struct Told {
    app: Server,
    handle: Handle,
    peer: SocketAddr,
    quiet: bool,
}

impl Store for Told {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.app.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.app.place(extents, batch)
    }

    fn sink(&self) -> Sink {
        self.app.sink()
    }
}

impl App for Told {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        let closed = matches!(event, Event::Closed(_));
        self.app.on_event(now, event, session);
        if closed
            && !self.quiet
            && let Some(outcome) = self.handle.outcome()
        {
            // Mirrored: the client's "sent" was received here.
            let verb = if outcome.summary.direction == "put" {
                "received"
            } else {
                "sent"
            };
            let line = outcome.summary.line();
            let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
            let why = outcome
                .error
                .map_or_else(String::new, |e| format!("; {}", e.text));
            errln!("{}: {verb} {rest}{why}", self.peer);
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.app.poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.app.next_wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_only_by_default() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().to_str().unwrap();
        let odd = tmp.path().join("a:b");
        std::fs::create_dir(&odd).unwrap();
        for good in [
            format!("x={dir}"),
            format!("x={dir}:rw"),
            format!("x={dir}/a:b"),
            format!("x={dir}/a:b:wo"),
            format!("x={dir}:create"),
        ] {
            assert_eq!(share(OsStr::new(&good)).unwrap().name(), "x", "{good}");
        }
        for bad in [dir.to_string(), format!("={dir}"), format!("a/b={dir}")] {
            assert_eq!(
                share(OsStr::new(&bad)).unwrap_err().exit,
                Exit::Usage,
                "{bad}"
            );
        }
        assert_eq!(
            share(OsStr::new("x=/nonexistent")).unwrap_err().exit,
            Exit::Config
        );
    }

    #[test]
    fn no_key_is_allowed_by_default() {
        assert_eq!(allowed(&[]).unwrap().0, Allow::None);
        assert_eq!(allowed(&["any".into()]).unwrap().0, Allow::Any);
        assert_eq!(allowed(&["fh-pub1x".into()]).unwrap_err().exit, Exit::Usage);
    }
}
