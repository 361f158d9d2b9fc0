//! Finds the server that is meant. Servers are named as for `bench`, by HOST or HOST:PORT. Or as
//! for `cp`, by a place in a share or by a ticket. Or ssh starts the server, on a host that is
//! named as for ssh.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    sync::Arc,
};

use farhaul_haul::{Identity, PeerPolicy, PublicKey};

use super::Args;
use crate::{
    app::console::Console,
    cmd::{bench, key},
    connect::{Family, Visitor},
    exit::{Exit, Failure},
    keys, place,
    ssh::Bridge,
    ticket::Right,
};

/// Server as it was typed.
pub(super) enum Named {
    /// A server that runs.
    Server(Box<Target>),
    /// `[user@]host`, where ssh starts one.
    Ssh(String),
}

/// A server that ssh started for this visit, and who this end is there.
struct Started {
    bridge: Bridge,
    identity: Identity,
}

/// A server.
pub(super) struct Target {
    /// Name that people know it by.
    pub(super) typed: String,
    /// Addresses where the server may be; the one that was found is the first then.
    pub(super) addresses: Vec<SocketAddr>,
    /// Name under which its key is known.
    pub(super) name: String,
    /// Share of the server that was named.
    pub(super) share: Option<String>,
    /// Right that a ticket gives.
    right: Option<Right>,
    started: Option<Started>,
}

impl Named {
    /// Starts the server by ssh, if it is reached so.
    pub(super) fn open(self, args: &Args, console: &Arc<dyn Console>) -> Result<Target, Failure> {
        let login = match self {
            Self::Server(target) => return Ok(*target),
            Self::Ssh(login) => login,
        };
        let identity = Identity::generate().map_err(|e| Failure::internal(&e))?;
        let call = args.ssh.call(args.identity.as_deref(), Family::Any);
        let here = [b".".to_vec()];
        let bridge = Bridge::open(&call, &login, &here, false, identity.public(), console)?;
        let mut addresses = Vec::new();
        for host in &bridge.hosts {
            let found = (host.as_str(), bridge.port).to_socket_addrs();
            for address in found.into_iter().flatten() {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        if addresses.is_empty() {
            let text = format!(
                "none of the names of {login} has an address: {}",
                bridge.hosts.join(", ")
            );
            return Err(Failure::new(Exit::NetSetup, text).fix("check the name and the resolver"));
        }
        Ok(Target {
            typed: login.clone(),
            addresses,
            name: login,
            share: None,
            right: None,
            started: Some(Started { bridge, identity }),
        })
    }
}

impl Target {
    /// Identity of this end there.
    pub(super) fn identity(&self, args: &Args, console: &dyn Console) -> Result<Identity, Failure> {
        if let Some(started) = &self.started {
            return Identity::from_seed(started.identity.seed()).map_err(|e| Failure::internal(&e));
        }
        match &self.right {
            Some(right) => Identity::from_seed(&right.seed)
                .map_err(|e| Failure::new(Exit::Auth, format!("the ticket's key: {e}"))),
            None => keys::identity(args.identity.as_deref(), console),
        }
    }

    /// Key of the server, as a ticket has it.
    pub(super) fn server_key(&self) -> Option<PublicKey> {
        self.right.as_ref().map(|right| right.server)
    }

    /// Key of the server, which was made for this visit.
    pub(super) fn key_by_ssh(&self) -> Option<PublicKey> {
        self.started.as_ref().map(|started| started.bridge.key)
    }

    /// The first address.
    pub(super) fn to(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Server that ssh has started.
    pub(super) fn bridge(&self) -> Option<&Bridge> {
        self.started.as_ref().map(|started| &started.bridge)
    }

    /// Visitor with this identity.
    pub(super) fn visitor<'a>(
        &'a self,
        identity: &'a Identity,
        args: &Args,
        console: &'a dyn Console,
    ) -> Visitor<'a> {
        let key = self.key_by_ssh();
        Visitor {
            server: &self.typed,
            identity,
            peers: key.map_or(PeerPolicy::Any, |key| PeerPolicy::Keys(vec![key])),
            udp_timeout: args.blocked.udp_timeout,
            console,
        }
    }
}

/// Reads what was typed, and finds the address of a server.
pub(super) fn parse(typed: &str) -> Result<Named, Failure> {
    let Some((server, share)) = place::server_of(typed)? else {
        return Ok(Named::Server(Box::new(Target {
            typed: typed.into(),
            addresses: vec![bench::resolve(typed)?],
            name: key::with_port(typed),
            share: None,
            right: None,
            started: None,
        })));
    };
    if let Some(login) = server.login {
        return Ok(Named::Ssh(login));
    }
    let name = server.to_string();
    Ok(Named::Server(Box::new(Target {
        addresses: vec![bench::resolve(&name)?],
        typed: name.clone(),
        name,
        share,
        right: server.right,
        started: None,
    })))
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
            ("farhaul://127.0.0.1:7", "127.0.0.1:7", "127.0.0.1:7"),
            ("farhaul://127.0.0.1:7/s/p", "127.0.0.1:7", "127.0.0.1:7"),
            ("::1", "[::1]:17992", "[::1]:17992"),
            ("[::1]:7", "[::1]:7", "[::1]:7"),
            ("[::1]::in/x", "[::1]:17992", "[::1]:17992"),
            ("[::1]:7::in", "[::1]:7", "[::1]:7"),
        ] {
            let Ok(Named::Server(target)) = parse(typed) else {
                panic!("{typed}")
            };
            assert_eq!(
                (&*target.to().to_string(), &*target.name),
                (to, name),
                "{typed}"
            );
        }
    }

    #[test]
    fn hosts_of_ssh_are_told_from_servers() {
        for (typed, login) in [
            ("me@h:dir", "me@h"),
            ("me@h:", "me@h"),
            ("me@h", "me@h"),
            ("h:", "h"),
            ("h:/dir", "h"),
        ] {
            let named = parse(typed);
            assert!(
                matches!(&named, Ok(Named::Ssh(found)) if found == login),
                "{typed}"
            );
        }
        for typed in ["h:0", "h:dir", "a::/x", "h::in/../x"] {
            let failure = parse(typed).err().expect("it is refused");
            assert_eq!(failure.exit, Exit::Usage, "{typed}: {}", failure.text);
        }
    }
}
