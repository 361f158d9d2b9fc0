//! `farhaul key`: this user's identity, and the servers that are known.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use farhaul_core::text;
use farhaul_haul::{Identity, Judge, PeerPolicy, PublicKey};

use crate::{
    app::copy::trust,
    connect::{Attempt, Family, UDP_TIMEOUT, Visitor, internal},
    exit::{Exit, Failure},
    keys::{self, Known},
    out,
    place::{self, PORT, Server},
    terminal::Terminal,
    wait::Wait,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make your key, unless you have one, and print its public part
    Gen {
        /// Replace an existing key, and keep it as FILE.old; servers that allow the old key do not
        /// know the new one
        #[arg(long)]
        force: bool,
        /// File for the key
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the public key
    Show {
        /// Key file to read
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Trust a server by its key
    Trust {
        /// HOST or HOST:PORT as given to cp
        server: String,
        /// Public key of the server, fh-pub1...; without KEY, farhaul fetches and shows the key,
        /// and asks you
        key: Option<PublicKey>,
    },
    /// Forget a server's key
    Untrust {
        /// HOST or HOST:PORT
        server: String,
    },
    /// List the known servers
    List,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.verb {
        Verb::Gen { force, out } => {
            let path = out.map_or_else(keys::identity_path, Ok)?;
            gen_at(&path, force)?;
        }
        Verb::Show { file } => {
            let make = if file.is_some() {
                "make one with `farhaul key gen --out FILE`"
            } else {
                "make one with `farhaul key gen`"
            };
            let path = file.map_or_else(keys::identity_path, Ok)?;
            let missing = || {
                Failure::new(Exit::Config, format!("{}: no key there", path.display())).fix(make)
            };
            out::line(keys::load(&path)?.ok_or_else(missing)?.public());
        }
        Verb::Trust { server, key } => {
            let typed = text::plain(&server);
            let server = with_port(&server);
            let place = place::parse_server(OsStr::new(&format!("{server}::")))?;
            let place = place
                .filter(|_| !server.contains(char::is_whitespace))
                .ok_or_else(|| {
                    Failure::usage(format!("'{typed}' names no server"))
                        .fix("write HOST or HOST:PORT")
                })?;
            // As copies write it.
            let server = place.to_string();
            match key {
                Some(key) => {
                    Known::change(|known| known.trust(&server, key))?;
                    errln!("farhaul now trusts {server} by the key {key}");
                }
                None => shown_key(&server, &place)?,
            }
        }
        Verb::Untrust { server } => {
            let server = with_port(&server);
            if !Known::change(|known| known.forget(&server))? {
                return Err(Failure::new(Exit::Config, format!("{server} is not known")));
            }
            errln!("farhaul no longer trusts {server}");
        }
        Verb::List => Known::load(&Terminal)?
            .servers
            .iter()
            .for_each(|(server, key)| out::line(format!("{server} {key}"))),
    }
    Ok(())
}

/// The key that a server shows at the first of its addresses where it answers by UDP, whether it admits this side or not.
fn server_key(
    server: &str,
    identity: &Identity,
    addresses: &[SocketAddr],
) -> Result<PublicKey, Failure> {
    let seen = Arc::new(OnceLock::new());
    let note = Arc::clone(&seen);
    let judge = Judge::new(move |key| {
        // One server has one key.
        let _first = note.set(*key);
        true
    });
    let visitor = Visitor {
        server,
        identity,
        peers: PeerPolicy::Judge(judge),
        udp_timeout: UDP_TIMEOUT,
        console: &Terminal,
    };
    let wait = Wait::for_answer(server);
    let mut failed = None;
    for to in addresses {
        let by = Attempt::At(*to);
        let asked = visitor.shares(&by);
        if let Some(key) = seen.get() {
            return Ok(*key);
        }
        failed = asked.err().or(failed);
        if visitor.console.is_interrupted() {
            break;
        }
    }
    drop(wait);
    let failed = failed.unwrap_or_else(|| internal(&"a server without an address or a key"));
    Err(Failure::from(&failed))
}

/// Asks `server` for its key, and a person whether that is right.
fn shown_key(server: &str, place: &Server) -> Result<(), Failure> {
    let identity = keys::identity_or_new(None, &Terminal)?;
    let addresses = Family::Any.resolve(&place.host, place.port);
    let addresses = addresses.map_err(|e| Failure::from(&e))?;
    let key = server_key(server, &identity, &addresses)?;
    let known = Known::load(&Terminal)?.of(server);
    if known.contains(&key) {
        errln!("farhaul already trusts {server} by this key");
        out::line(key);
        return Ok(());
    }
    trust(server, key, &Terminal).map_err(|e| Failure::from(&e))?;
    errln!("farhaul now trusts {server} by the key {key}");
    Ok(())
}

/// Prints the key at `path`, made now unless there is one that is not to be replaced.
fn gen_at(path: &Path, force: bool) -> Result<(), Failure> {
    let shown = place::local(path);
    if !force {
        let there = if path.is_file() {
            keys::load(path)?
        } else {
            None
        };
        let (identity, made) = match there {
            Some(identity) => (identity, false),
            None => keys::generate_first(path)?,
        };
        if !made {
            errln!("{shown} exists, and stays; its public key is this one (--force makes another)");
        }
        out::line(identity.public());
        return Ok(());
    }
    let old = keys::set_aside(path)?;
    out::line(keys::generate(path)?.public());
    if let Some(old) = old {
        errln!(
            "the key that was in {shown} is in {} now; servers that allow it (--allow) must allow the new one; if \
             `farhaul serve` uses it, its clients refuse the new one until they `farhaul key trust` it",
            place::local(&old)
        );
    }
    Ok(())
}

/// The name under which a server is known.
pub(super) fn with_port(server: &str) -> String {
    let bare = server.parse::<std::net::Ipv6Addr>().is_ok();
    let port = !bare
        && server
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (bare, port) {
        (true, _) => format!("[{server}]:{PORT}"),
        (_, true) => server.to_string(),
        _ => format!("{server}:{PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_host_and_port() {
        assert_eq!(with_port("h"), "h:17992");
        assert_eq!(with_port("h:5"), "h:5");
        assert_eq!(with_port("::1"), "[::1]:17992");
        assert_eq!(with_port("[::1]"), "[::1]:17992");
        assert_eq!(with_port("[::1]:5"), "[::1]:5");
    }
}
