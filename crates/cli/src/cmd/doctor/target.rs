//! Which server is meant? One is named as for `bench`, by HOST or HOST:PORT, or as for `cp`, by a place in one of its
//! shares or by a ticket.

use std::{ffi::OsStr, net::SocketAddr};

use farhaul_haul::{Identity, PublicKey};

use super::Args;
use crate::{
    cmd::{bench, key},
    exit::{Exit, Failure},
    keys, place,
    place::{Place, Server},
    ticket::Right,
};

/// A server.
pub(super) struct Target {
    /// As people know it.
    pub(super) typed: String,
    pub(super) to: SocketAddr,
    /// As its key is known.
    pub(super) name: String,
    /// What was named in it.
    pub(super) share: Option<String>,
    /// What a ticket says of it.
    right: Option<Right>,
}

impl Target {
    /// Who this end is there.
    pub(super) fn identity(&self, args: &Args) -> Result<Identity, Failure> {
        match &self.right {
            Some(right) => Identity::from_seed(&right.seed)
                .map_err(|e| Failure::new(Exit::Auth, format!("the ticket's key: {e}"))),
            None => keys::identity(args.identity.as_deref()),
        }
    }

    /// Its key, as a ticket has it.
    pub(super) fn server_key(&self) -> Option<PublicKey> {
        self.right.as_ref().map(|right| right.server)
    }
}

/// The server of a place in a share, as it would be typed for `cp`.
fn server_of(typed: &str) -> Result<Option<(Server, Option<String>)>, Failure> {
    let of_share = typed.contains("::") && !typed.starts_with('[') && !is_address(typed)
        || typed.starts_with('[')
            && typed
                .split_once(']')
                .is_some_and(|(_, rest)| rest.contains("::"))
        || typed.starts_with("farhaul://")
        || place::as_ticket(typed.as_bytes()).is_some()
        || typed.contains('@');
    if !of_share {
        return Ok(None);
    }
    // A share need not be named, and which one it is makes no difference.
    let whole = if typed.ends_with("::") {
        format!("{typed}any")
    } else {
        typed.to_string()
    };
    match place::parse(OsStr::new(&whole))? {
        Place::Far(far) if far.server.login.is_some() => Err(Failure::usage(format!(
            "'{typed}' is a place that `cp` reaches through ssh, which starts a server for one copy; doctor visits one \
             that runs: start `farhaul serve` or `farhaul bench serve` there, and name HOST or HOST:PORT"
        ))),
        Place::Far(far) => {
            let share = (!typed.ends_with("::")).then_some(far.remote.share);
            Ok(Some((far.server, share)))
        }
        Place::Pipe | Place::Local(_) => Ok(None),
    }
}

fn is_address(typed: &str) -> bool {
    typed.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Reads what was typed, and finds its address.
pub(super) fn parse(typed: &str) -> Result<Target, Failure> {
    let Some((server, share)) = server_of(typed)? else {
        return Ok(Target {
            typed: typed.into(),
            to: bench::resolve(typed)?,
            name: key::with_port(typed),
            share: None,
            right: None,
        });
    };
    let name = server.to_string();
    Ok(Target {
        to: bench::resolve(&name)?,
        typed: name.clone(),
        name,
        share,
        right: server.right,
    })
}

/// The host alone, for `[host]` tables of the configuration; none if it is not understood.
pub(crate) fn host_of(typed: &str) -> Option<String> {
    let found = server_of(typed).ok().flatten();
    found.map(|(server, _)| server.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_as_for_cp_and_as_for_bench() {
        for (typed, to, name) in [
            ("127.0.0.1", "127.0.0.1:17992", "127.0.0.1:17992"),
            ("127.0.0.1:5", "127.0.0.1:5", "127.0.0.1:5"),
            ("127.0.0.1::in", "127.0.0.1:17992", "127.0.0.1:17992"),
            ("127.0.0.1:5::in/x/", "127.0.0.1:5", "127.0.0.1:5"),
            ("127.0.0.1::", "127.0.0.1:17992", "127.0.0.1:17992"),
            ("farhaul://127.0.0.1:7/s/p", "127.0.0.1:7", "127.0.0.1:7"),
            ("::1", "[::1]:17992", "[::1]:17992"),
            ("[::1]:7", "[::1]:7", "[::1]:7"),
            ("[::1]::in/x", "[::1]:17992", "[::1]:17992"),
            ("[::1]:7::in", "[::1]:7", "[::1]:7"),
        ] {
            let target = parse(typed).unwrap_or_else(|e| panic!("{typed}: {}", e.text));
            assert_eq!(
                (&*target.to.to_string(), &*target.name),
                (to, name),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_ssh_would_reach_is_refused_with_what_to_do() {
        for typed in ["me@h:dir", "me@h", "h:dir/x", "h:0", "a::/x", "h::in/../x"] {
            let failure = parse(typed).map(|t| t.typed).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{typed}: {}", failure.text);
        }
        let text = parse("me@h:dir").map(|t| t.typed).unwrap_err().text;
        assert!(
            text.contains("through ssh") && text.contains("farhaul serve"),
            "{text}"
        );
    }

    #[test]
    fn a_hosts_table_of_the_configuration_is_found() {
        assert_eq!(host_of("far::in/x").as_deref(), Some("far"));
        assert_eq!(host_of("far:7"), None);
    }
}
