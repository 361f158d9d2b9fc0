//! The far end of a copy through ssh: opens the requested places to one key. The server ends with its standard input, or
//! after [`ALONE`] without a session. ssh may not notice for hours that its network is gone.

mod idle;

use std::{
    env,
    ffi::OsStr,
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::{
        fd::AsFd as _,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use farhaul_core::congestion::Sharing;
use farhaul_haul::{Haul, HaulConfig, Identity, PeerPolicy, PublicKey};
use farhaul_io::{
    App, Controls, ShardError, Stop, Waker,
    server::{Listener, ListenerStats},
    tunnel,
};
use farhaul_transfer::{
    Ordered, TransferError, means_contents,
    server::{Access, Allow, Policy, Server, Share},
};

use self::idle::{Guests, Over, Watch, guests};
use crate::{
    app::probes::probes,
    exit::{Exit, Failure},
    interrupt, place, read,
    ssh::{Answer, Ask, RELEASE, SHARE, TUNNEL_LAW, all_from_hex, from_hex, to_hex},
};

/// One line for a firewall, below what Linux gives out by itself.
const PORTS: std::ops::RangeInclusive<u16> = 17_992..=18_055;
/// The most bytes of paths that are answered, which a line of that length has room for in hex.
const MOST_PATHS: usize = 24 << 10;
/// The longest probe, as of `serve --max-probe`.
const MOST_OF_PROBE: Duration = Duration::from_secs(10);
/// Time that the server stays without any session.
const ALONE: Duration = Duration::from_mins(1);

/// A server for one near end.
pub(crate) struct Opened {
    listener: Listener,
    port: u16,
    key: PublicKey,
    rests: Vec<Vec<u8>>,
    watch: Watch,
}

impl Opened {
    /// Opens what is asked for.
    pub(crate) fn of(ask: &Ask) -> Result<Self, Failure> {
        let protocol = || Failure::new(Exit::Protocol, "not a message of `farhaul cp`");
        let peer: PublicKey = ask.key.parse().map_err(|_| protocol())?;
        let typed = all_from_hex(&ask.paths).ok_or_else(protocol)?;
        let (root, rests) = match (ask.put, &typed[..]) {
            (true, [typed]) => nearest(typed).map(|(root, rest)| (root, vec![rest]))?,
            (false, [_, ..]) => fetch(&typed)?,
            _ => return Err(protocol()),
        };
        let access = if ask.put {
            Access::ReadWrite
        } else {
            Access::Read
        };
        let share = Share::open(SHARE, &root, access)
            .map_err(|e| Failure::new(Exit::DestError, format!("{}: {e}", place::local(&root))))?
            .called(&root);
        let allow = Allow::Keys(vec![peer.as_bytes().to_vec()]);
        let identity = Identity::generate().map_err(|e| Failure::internal(&e))?;
        // The key is of this copy only; the peer through ssh counts as the same when the copy is repeated.
        let mut policy = Policy::new(vec![share], allow, true).up_to(Sharing::High);
        if !ask.put {
            policy = policy.with_probes(probes(MOST_OF_PROBE));
        }
        if let (true, [rest]) = (ask.put, &rests[..]) {
            // Who delivers may be another host than the one that asks.
            let ordered = ask.ordered.as_deref();
            let ordered = ordered.map(|hex| from_hex(hex).ok_or_else(protocol));
            let ordered = ordered.transpose()?.map(Ordered::from_bytes);
            policy = policy.deliveries_to(rest.clone(), ordered);
        }
        let policy = Arc::new(policy.of_one_person());
        let (first, end) = ask.ports.unwrap_or((*PORTS.start(), *PORTS.end()));
        let (guests, watch) = guests();
        let mut last = None;
        for port in first..=end {
            match listen(port, &identity, (peer, &policy), &guests) {
                Ok(listener) => {
                    return Ok(Self {
                        listener,
                        port,
                        key: identity.public(),
                        rests,
                        watch,
                    });
                }
                Err(e) => last = Some(e),
            }
        }
        let why = last.map_or_else(String::new, |e| format!(": {e}"));
        let text = format!("no UDP port from {first} to {end} is free{why}");
        Err(Failure::new(Exit::NetSetup, text))
    }

    /// Answer to the near end.
    pub(crate) fn answer(&self) -> Answer {
        // "client-address client-port server-address server-port"
        let connection = env::var("SSH_CONNECTION").unwrap_or_default();
        Answer {
            port: self.port,
            key: self.key.to_string(),
            paths: self.rests.iter().map(|rest| to_hex(rest)).collect(),
            address: connection.split(' ').nth(2).and_then(|a| a.parse().ok()),
            refusal: None,
            release: RELEASE.into(),
            tunnel: true,
        }
    }

    /// Serves until the standard input ends, or nobody comes for [`ALONE`].
    pub(crate) fn serve(self) -> Result<(), Failure> {
        let stop = interrupt::stop()?;
        let near = stop.clone();
        let (port, controls) = (self.port, self.listener.controls());
        thread::Builder::new()
            .name("near-end".into())
            .spawn(move || {
                // Whatever ends it, the near end is gone.
                let _ended = carry(port, &controls);
                near.set();
            })
            .map_err(|e| TransferError::no_thread(&e))?;
        self.until(&stop, ALONE)
    }

    /// Serves until `stop`, which is set after `alone` without a session.
    fn until(self, stop: &Stop, alone: Duration) -> Result<(), Failure> {
        let (watch, leave) = (self.watch, stop.clone());
        thread::Builder::new()
            .name("idle".into())
            .spawn(move || {
                if watch.until_idle(alone) == Over::Idle {
                    leave.set();
                }
            })
            .map_err(|e| TransferError::no_thread(&e))?;
        self.listener
            .run(stop)
            .map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
        Ok(())
    }
}

/// Reads to the end of the input, and carries datagrams of sessions if that is asked for.
fn carry(port: u16, controls: &Controls) -> io::Result<()> {
    let mut from = io::BufReader::with_capacity(256 << 10, io::stdin().lock());
    if !tunnel::is_asked_for(&mut from) {
        return io::copy(&mut from, &mut io::sink()).map(drop);
    }
    let heard = |stats: ListenerStats| stats.host.socket.datagrams_received > 0;
    let answer = tunnel::Answer::of(controls.stats().is_some_and(heard));
    let to = fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    tunnel::serve((Ipv4Addr::LOCALHOST, port).into(), answer, from, to)
}

fn listen(
    port: u16,
    identity: &Identity,
    (peer, policy): (PublicKey, &Arc<Policy>),
    guests: &Guests,
) -> Result<Listener, ShardError> {
    let mut config = HaulConfig::new(*identity.seed());
    config.peers = PeerPolicy::Keys(vec![peer]);
    config.tunnel_law = Some(TUNNEL_LAW.into());
    config.app = farhaul_transfer::offer();
    let haul = Haul::server(config).map_err(|e| ShardError::System("haul", io::Error::other(e)))?;
    let at = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let options = farhaul_io::server::Options::new(at);
    let (policy, guests) = (Arc::clone(policy), guests.clone());
    let factory = move |_: SocketAddr, waker: &Waker| -> Box<dyn App> {
        let waker = waker.clone();
        let wake = Arc::new(move || waker.wake());
        Box::new(guests.counted(Server::new(Arc::clone(&policy), Some(wake))))
    };
    Listener::bind(options, Box::new(haul), factory)
}

/// A folder, and a path in it.
type Inside = (PathBuf, Vec<u8>);

/// Path as the shell there would find it: from where ssh begins, or with a `~` from the user's
/// home.
pub(crate) fn typed_path(typed: &[u8]) -> PathBuf {
    let below_home = match typed {
        b"~" => Some(&b""[..]),
        _ => typed.strip_prefix(b"~/"),
    };
    match (below_home, env::home_dir()) {
        (Some(below), Some(home)) => {
            let slashes = below.iter().take_while(|b| **b == b'/').count();
            home.join(OsStr::from_bytes(&below[slashes..]))
        }
        _ if typed.is_empty() => PathBuf::from("."),
        _ => PathBuf::from(OsStr::from_bytes(typed)),
    }
}

/// The folder that holds all that is fetched, and the place of each in it. Some may be missing,
/// which the server then reports, as long as one exists.
fn fetch(typed: &[Vec<u8>]) -> Result<(PathBuf, Vec<Vec<u8>>), Failure> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for typed in typed {
        match fetch_one(typed) {
            Ok(inside) => found.push(inside),
            Err(e) => {
                problems.push(e);
                found.push(nearest(typed)?);
            }
        }
    }
    if problems.len() == typed.len() {
        let names: Vec<_> = problems.iter().take(10).map(|e| e.text.as_str()).collect();
        let more = match problems.len() - names.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        // On one line: it travels as a part of one.
        let text = format!("{}{more}", names.join("; "));
        let fix = if typed.iter().any(|typed| has_pattern(typed)) {
            "patterns are not expanded there: name the folder, with --include"
        } else {
            ""
        };
        return Err(Failure::new(Exit::SourceMissing, text).fix(fix));
    }
    let mut root = found[0].0.clone();
    for (folder, _) in &found {
        while !folder.starts_with(&root) {
            root.pop();
        }
    }
    let within = |(folder, name): &Inside| {
        let way = folder.strip_prefix(&root).unwrap_or(folder);
        let mut rest = way.as_os_str().as_bytes().to_vec();
        if !rest.is_empty() && !name.is_empty() {
            rest.push(b'/');
        }
        rest.extend_from_slice(name);
        rest
    };
    let rests: Vec<_> = found.iter().map(within).collect();
    let bytes: usize = rests.iter().map(Vec::len).sum();
    if bytes > MOST_PATHS {
        let text = format!(
            "the names of the sources below {} have {bytes} bytes, more than the {MOST_PATHS} that one command can fetch; copy in parts",
            place::local(&root)
        );
        return Err(Failure::usage(text));
    }
    Ok((root, rests))
}

/// True if the path may have been meant as a pattern of a shell, which scp has there.
fn has_pattern(path: &[u8]) -> bool {
    path.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// The folder of the fetched entry, and its name there, with a slash for its contents. The near end
/// expects no other name than the last one typed, so `.` and `..` mean their content.
fn fetch_one(typed: &[u8]) -> Result<Inside, Failure> {
    let path = typed_path(typed);
    let missing =
        |e: io::Error| Failure::new(Exit::SourceMissing, format!("{}: {e}", place::local(&path)));
    let contents = means_contents(typed);
    // The folder is found as the shell there would find it; a link at the end is sent as it is.
    let (folder, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !contents => {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            (parent.canonicalize().map_err(missing)?, name.to_os_string())
        }
        _ => {
            let whole = path.canonicalize().map_err(missing)?;
            let name = whole.file_name().unwrap_or_default().to_os_string();
            (whole.parent().unwrap_or(&whole).to_path_buf(), name)
        }
    };
    let meta = folder.join(&name).symlink_metadata().map_err(missing)?;
    // A link is sent as it is, whatever it leads to.
    if (contents || !meta.is_symlink())
        && let Some(e) = read::forbidden(&path)
    {
        return Err(missing(e));
    }
    let mut rest = name.into_vec();
    if contents && !rest.is_empty() {
        rest.push(b'/');
    }
    Ok((folder, rest))
}

/// The nearest folder that exists, and the path from there, with the slash as typed.
fn nearest(typed: &[u8]) -> Result<Inside, Failure> {
    let path = typed_path(typed);
    let failed = |at: &Path, e: &io::Error| {
        Failure::new(Exit::DestError, format!("{}: {e}", place::local(at)))
    };
    let mut there = path.as_path();
    while !fs::metadata(there).is_ok_and(|m| m.is_dir()) {
        there = match there.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        if there == Path::new(".") {
            break;
        }
    }
    let root = there.canonicalize().map_err(|e| failed(there, &e))?;
    let rest = path.strip_prefix(there).unwrap_or(&path);
    if rest.components().any(|part| part == Component::ParentDir) {
        let missing = rest
            .components()
            .next()
            .map_or(there.into(), |first| there.join(first));
        let text = format!(
            "{}: there is no folder {}, so '..' leads nowhere",
            place::local(&path),
            place::local(&missing)
        );
        return Err(Failure::new(Exit::DestError, text).fix("write the path without '..'"));
    }
    let mut rest = rest.as_os_str().as_bytes().to_vec();
    while rest.last() == Some(&b'/') {
        rest.pop();
    }
    if typed.last() == Some(&b'/') && !rest.is_empty() {
        rest.push(b'/');
    }
    Ok((root, rest))
}

#[cfg(test)]
mod tests;
