//! Combines the command line and the file into a policy, and the flags that are left.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use farhaul_haul::PublicKey;
use farhaul_io::Controls;
use farhaul_transfer::server::{Access, Policy, Share};

use super::{
    Args, file, log,
    share::{allowed, share},
};
use crate::{
    app::{console::Console, probes::probes},
    config,
    exit::{Exit, Failure},
    line::Line,
    place::PORT,
    terminal::Terminal,
    tickets::Book,
    timetable::Timetable,
};

/// Shares and options of a server.
pub(super) struct Setup {
    /// Flags, with those of the file.
    pub(super) flags: Args,
    pub(super) policy: Arc<Policy>,
    /// Names of peers, by their keys.
    pub(super) names: BTreeMap<Vec<u8>, String>,
}

impl Setup {
    /// Setup for the flags `given`, with the file they name.
    pub(super) fn of(given: &Args, line: &Line, console: &dyn Console) -> Result<Self, Failure> {
        let (flags, tables) = match &given.config {
            Some(path) => file::merged(path, line.with_defaults(console)?, line)?,
            None => (given.clone(), file::Tables::default()),
        };
        let (peers, names) = (tables.known(), file::names(&tables));
        let allow =
            allowed(&flags.allow, &peers).map_err(|e| Failure::usage(format!("--allow {e}")))?;
        let mut shares = Vec::new();
        for text in &flags.share {
            let share = share(text)?;
            let same = |s: &Share| s.name() == share.name();
            if shares.iter().any(same) {
                let text = format!("two shares are called '{}'", share.name());
                return Err(Failure::usage(text));
            }
            shares.push(share);
        }
        for share in tables.shares {
            if shares.iter().all(|s| s.name() != share.name()) {
                shares.push(share);
            }
        }
        if allow.tickets {
            shares = shares.into_iter().map(|s| s.for_tickets(true)).collect();
        }
        if shares.is_empty() {
            return Err(match &given.config {
                Some(_) => Failure::new(Exit::Config, "nothing is shared")
                    .fix("add a [[share]] to the file, or --share NAME=PATH"),
                None => Failure::usage("nothing is shared")
                    .fix("name a folder with --share NAME=PATH, or a file with --config FILE"),
            });
        }
        let tickets = shares.iter().any(Share::takes_tickets);
        let mut policy = Policy::new(shares, allow.peers, !flags.no_sync)
            .up_to(flags.max_policy)
            .never_above(flags.max_rate.as_ref().and_then(Timetable::always));
        if !flags.max_probe.is_zero() {
            policy = policy.with_probes(probes(flags.max_probe));
        }
        let per_key = flags
            .max_per_key
            .unwrap_or(flags.max_sessions - flags.max_sessions / 4);
        policy = policy.each_at_most(usize::try_from(per_key).unwrap_or(usize::MAX));
        for peer in &tables.peers {
            policy = policy.limit(peer.key.as_bytes().to_vec(), peer.limits);
        }
        if tickets {
            let path = flags.tickets.clone();
            let book = Book::new(path.map_or_else(Book::default_path, Ok)?);
            book.records()?;
            policy = policy.with_tickets(Arc::new(book));
        }
        if policy.is_closed() && given.config.is_none() {
            return Err(
                Failure::usage("no key is allowed, so nobody could use this server")
                    .fix("add --allow KEY (on the other machine: farhaul key gen), or --allow any"),
            );
        }
        Ok(Self {
            flags,
            policy: Arc::new(policy),
            names,
        })
    }

    /// Sets the limits of a listener.
    pub(super) fn limit(&self, controls: &Controls) {
        let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let flags = &self.flags;
        controls.set_max_sessions(number(flags.max_sessions));
        controls.set_per_source(
            flags.max_per_source.map_or(usize::MAX, number),
            number(flags.max_handshakes_per_source),
        );
    }

    /// Takes the place of `earlier`; what cannot be changed while it runs stays, with a warning.
    pub(super) fn succeed(&mut self, earlier: &Self) {
        let (old, new) = (&earlier.flags, &mut self.flags);
        for (flag, differs) in [
            ("listen", old.listen != new.listen),
            ("tcp", old.tcp != new.tcp),
            ("identity", old.identity != new.identity),
            ("metrics", old.metrics != new.metrics),
            ("control", old.control != new.control),
            ("log-format", old.log_format != new.log_format),
        ] {
            if differs {
                log::note(
                    "warning",
                    &format!("{flag} has changed: that takes effect when the server is restarted"),
                );
            }
        }
        (new.listen, new.identity) = (old.listen, old.identity.clone());
        let policy = std::mem::take(&mut self.policy);
        self.policy = Arc::new(Arc::unwrap_or_clone(policy).succeeding(&earlier.policy));
    }

    /// Prints what to type on the other machine.
    pub(super) fn suggest(&self, at: SocketAddr, key: PublicKey) {
        let Some(share) = self.policy.shares().first() else {
            return;
        };
        let host = if at.ip().is_unspecified() {
            let system = rustix::system::uname();
            system.nodename().to_string_lossy().into_owned()
        } else if at.is_ipv6() {
            format!("[{}]", at.ip())
        } else {
            at.ip().to_string()
        };
        let server = match at.port() {
            PORT => host,
            port => format!("{host}:{port}"),
        };
        let name = share.name();
        let copy = if share.is_writable() {
            format!("farhaul cp FILES {server}::{name}/")
        } else {
            format!("farhaul cp {server}::{name}/ .")
        };
        log::hint(&format!(
            "on the other machine, type:\n  farhaul key trust {server} {key}\n  {copy}"
        ));
    }

    /// Prints the setup for people.
    pub(super) fn describe(&self) {
        for share in self.policy.shares() {
            let text = format!("share '{}': peers may {}", share.name(), share.access());
            log::note("share", &text);
            if let Some((verb, e)) = share.denied() {
                let uid = rustix::process::geteuid().as_raw();
                let text = format!(
                    "share '{}': this server's user (uid {uid}) may not {verb} its folder: {e}",
                    share.name()
                );
                log::note("warning", &text);
            }
            if let n @ 1.. = share.uncounted() {
                let text = format!(
                    "share '{}': folders that cannot be read do not count towards its quota: {n}",
                    share.name()
                );
                log::note("warning", &text);
            }
        }
        if self.policy.is_closed() {
            log::note(
                "warning",
                "no key is allowed: add allow = [...] to a share in the file, and send SIGHUP",
            );
            return;
        }
        for share in self.policy.unused() {
            let text = format!("no peer may use share '{share}': add allow = [...] to it");
            log::note("warning", &text);
        }
    }
}

/// Shares that a file serves, for the commands that go with it.
pub(in crate::cmd) struct Served {
    pub(in crate::cmd) listen: SocketAddr,
    pub(in crate::cmd) identity: Option<PathBuf>,
    pub(in crate::cmd) tickets: Option<PathBuf>,
    shares: Vec<Share>,
}

/// Shares that `farhaul serve --config FILE` serves.
pub(in crate::cmd) fn served(file: &Path, line: &Line) -> Result<Served, Failure> {
    let defaults = line.with_defaults(&Terminal)?;
    let mut words: Vec<OsString> = ["farhaul", "serve", "--config"].map(Into::into).to_vec();
    words.push(file.into());
    let line = Line {
        words,
        ..line.clone()
    };
    let (flags, tables) = file::merged(file, defaults, &line)?;
    let all = allowed(&flags.allow, &tables.known()).is_ok_and(|allowed| allowed.tickets);
    let shares = tables.shares.into_iter();
    Ok(Served {
        listen: flags.listen,
        identity: flags.identity,
        tickets: flags.tickets,
        shares: shares
            .map(|s| {
                let takes = s.takes_tickets() || all;
                s.for_tickets(takes)
            })
            .collect(),
    })
}

impl Served {
    /// Refuses a ticket that would be of no use.
    pub(in crate::cmd) fn takes(&self, share: &str, mode: Access) -> Result<(), Failure> {
        let names = self.shares.iter().map(Share::name);
        let Some(found) = self.shares.iter().find(|s| s.name() == share) else {
            return Err(Failure::usage(config::unknown("share", share, names)));
        };
        if !found.takes_tickets() {
            let text = format!("share '{share}' takes no tickets");
            return Err(
                Failure::usage(text).fix("add \"ticket\" to its allow, and reload the server")
            );
        }
        if found.mode().and(mode) != Some(mode) {
            let text = format!(
                "share '{share}' is {}, so a ticket cannot be {}",
                found.mode().word(),
                mode.word()
            );
            return Err(Failure::usage(text));
        }
        Ok(())
    }
}
