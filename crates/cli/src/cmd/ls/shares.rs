//! `farhaul ls HOST::`: which shares does a server have for this user? It is asked by a session that carries nothing else.

use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
    net::SocketAddr,
    sync::{Arc, PoisonError},
};

use farhaul_core::text;
use farhaul_haul::{Haul, HaulConfig, Identity, PeerPolicy, PublicKey};
use farhaul_io::{Waker, client, tunnel::Tunnel};
use farhaul_transfer::{
    Shared,
    client::{Answer, Answered, Probe},
};
use serde_json::json;

use super::Args;
use crate::{
    cmd::{bench, cp},
    exit::{Exit, Failure},
    interrupt,
    keys::{self, Known},
    out,
    place::{self, Place, Server},
    reach::Unreached,
    ssh,
    wait::Wait,
};

/// The server, if no share of it was named.
pub(super) fn server(typed: &OsStr) -> Result<Option<Server>, Failure> {
    let Some(text) = typed.to_str() else {
        return Ok(None);
    };
    let of_url = text.strip_prefix("farhaul://");
    let whole = match of_url {
        Some(rest) if !rest.trim_end_matches('/').contains('/') => {
            format!("{}/any", text.trim_end_matches('/'))
        }
        None if text.ends_with("::") => format!("{text}any"),
        _ => return Ok(None),
    };
    match place::parse(&OsString::from(whole))? {
        Place::Far(far) if far.server.login.is_none() => Ok(Some(far.server)),
        Place::Far(_) | Place::Local(_) | Place::Pipe => Ok(None),
    }
}

/// Lists them.
pub(super) fn list(args: &Args, server: &Server) -> Result<(), Failure> {
    let name = server.to_string();
    let identity = keys::identity(args.identity.as_deref());
    let identity = match identity {
        // Servers that allow any peer will do.
        Err(_) if args.identity.is_none() => Identity::generate().map_err(|e| internal(&e))?,
        identity => identity?,
    };
    let known = Known::load()?.of(&name);
    let asked = Asked {
        name: &name,
        to: bench::resolve(&name).map_err(|e| {
            let call = args.ssh.call(None, (false, false));
            let hint = ssh::alias_hint(&call, &server.host);
            e.fix(hint.unwrap_or_default())
        })?,
        identity,
        peers: if known.is_empty() {
            PeerPolicy::Any
        } else {
            PeerPolicy::Keys(known.clone())
        },
    };
    let wait = (!args.json).then(|| Wait::for_answer(&name));
    let answered = asked.by_any_way(args);
    drop(wait);
    let (key, shares) = answered?;
    if known.is_empty() && !args.trust_any {
        let key = key.ok_or_else(|| internal(&"a server without a key"))?;
        cp::trust(&name, key, true).map_err(|e| Failure::from(&e))?;
    }
    print(args.json, &name, &shares);
    Ok(())
}

fn print(as_object: bool, server: &str, shares: &[Shared]) {
    if as_object {
        let share = |share: &Shared| {
            json!({
                "path": String::from_utf8_lossy(&share.name),
                "kind": "share",
                "access": share.access.word(),
            })
        };
        let entries: Vec<_> = shares.iter().map(share).collect();
        out::json(&json!({ "schema": "farhaul.list/1", "ok": true, "entries": entries }));
        return;
    }
    for share in shares {
        let name = text::shown(&share.name);
        out::line(format!("{:>12}  {server}::{name}/", share.access.word()));
    }
    let noun = if shares.len() == 1 { "share" } else { "shares" };
    errln!("{} {noun} for your key", shares.len());
}

/// A server that is asked.
struct Asked<'a> {
    name: &'a str,
    to: SocketAddr,
    identity: Identity,
    peers: PeerPolicy,
}

type Told = (Option<PublicKey>, Vec<Shared>);

impl Asked<'_> {
    /// By UDP, or over TCP where that is blocked.
    fn by_any_way(&self, args: &Args) -> Result<Told, Failure> {
        let (timeout, tcp) = (args.blocked.udp_timeout(), args.blocked.tcp(self.to));
        let failure = if timeout.is_zero() {
            None
        } else {
            let mut config = self.config();
            config.answer = timeout;
            match self.once(config, None)? {
                Ok(told) => return Ok(told),
                Err(unreached) => Some(unreached.failure("`farhaul serve`", self.to)),
            }
        };
        let Some(tcp) = tcp else {
            return Err(failure.unwrap_or_else(|| Failure::usage("no way to the server is left")));
        };
        match Tunnel::through_tcp(tcp, cp::TCP_ANSWER) {
            Ok(tunnel) => {
                let through = self.once(self.config(), Some(&tunnel))?;
                through.map_err(|unreached| unreached.failure("`farhaul serve --tcp`", tcp))
            }
            Err(e) => Err(failure.unwrap_or_else(|| {
                let text = format!("cannot go through tcp: {tcp}/tcp: {e}");
                Failure::new(Exit::UdpBlocked, text)
                    .fix("leave --udp-timeout out, or have the server there started with --tcp")
            })),
        }
    }

    fn config(&self) -> HaulConfig {
        let mut config = HaulConfig::new(*self.identity.seed());
        config.app = farhaul_transfer::offer();
        config.peers = self.peers.clone();
        config
    }

    /// One session; not reached is no failure yet.
    fn once(
        &self,
        config: HaulConfig,
        tunnel: Option<&Tunnel>,
    ) -> Result<Result<Told, Unreached>, Failure> {
        let haul = Haul::client(config).map_err(|e| internal(&e))?;
        let stop = interrupt::stop().map_err(|e| internal(&e))?;
        let waker = Waker::new().map_err(|e| internal(&e))?;
        let answer = Answer::default();
        let mut options = client::Options::new(tunnel.map_or(self.to, Tunnel::to));
        if let Some(tunnel) = tunnel {
            let socket = tunnel.socket().try_clone().map_err(|e| internal(&e))?;
            options.socket = Some(Arc::new(socket));
        }
        options.stop = Some(stop.clone());
        let probe = Probe::shares(&answer, Some(stop));
        let ended = client::run(&options, Box::new(haul), probe, &waker)
            .map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
        let unreached = Unreached::of(&ended.reason, ended.refused, ended.host.send_error);
        if let Some(unreached) = unreached {
            return Ok(Err(unreached));
        }
        let own = self.identity.public();
        if let Some((text, fix)) = cp::refused_key(&ended.reason, self.name, own) {
            return Err(Failure::new(Exit::Auth, text).fix(fix));
        }
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match answer.transpose().map_err(|e| Failure::from(&e))? {
            Some(Answered::Shares(key, shares)) => {
                let key = key.as_deref().and_then(|key| key.try_into().ok());
                Ok(Ok((key.map(PublicKey::from_bytes), shares)))
            }
            _ => Err(internal(&"the session ended without an answer")),
        }
    }
}

fn internal(e: &dyn Display) -> Failure {
    Failure::new(Exit::Internal, e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_share_is_told_from_its_shares() {
        for (typed, found) in [
            ("h::", Some("h:17992")),
            ("h:5::", Some("h:5")),
            ("[::1]:5::", Some("[::1]:5")),
            ("farhaul://h", Some("h:17992")),
            ("farhaul://h:5/", Some("h:5")),
            ("farhaul://h/s", None),
            ("h::s", None),
            ("h:", None),
            ("here", None),
        ] {
            let server = server(OsStr::new(typed)).unwrap();
            assert_eq!(server.map(|s| s.to_string()).as_deref(), found, "{typed}");
        }
    }
}
