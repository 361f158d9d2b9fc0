//! `farhaul ls HOST::`: lists the shares that a server has for this user. A session that carries
//! nothing else asks it.

use std::net::SocketAddr;

use clap::FromArgMatches as _;
use farhaul_core::text;
use farhaul_haul::PublicKey;
use farhaul_transfer::{
    Shared,
    client::{Answered, Probe},
};
use serde_json::{Value, json};

use super::Args;
use crate::{
    app::{console::Console, copy::trust, json::put_path},
    cmd::cp,
    connect::{Visitor, udp_or_tunnel},
    exit::Failure,
    keys::{self, Known},
    line::Line,
    out,
    place::Server,
    ssh,
    wait::Wait,
};

/// Refuses flags that were typed and mean nothing here. Configured flags for other lists stay
/// without effect.
pub(super) fn refuse_needless(server: &Server, line: &Line) -> Result<(), Failure> {
    let Some(typed) = line.typed_flags().ok().and_then(|matches| {
        let list = matches.subcommand_matches("ls")?;
        Args::from_arg_matches(list).ok()
    }) else {
        return Ok(());
    };
    let refused = |flag: &str, why: &str, fix: String| {
        let text = format!("{flag} means nothing for {server}::, {why}");
        Err(Failure::usage(text).fix(fix))
    };
    if typed.recursive {
        let fix = format!("leave it out, or write {server}::SHARE");
        return refused("--recursive", "which lists all shares", fix);
    }
    if typed.ticket_file.is_some() {
        let fix = "write ticket: as the place".into();
        return refused("--ticket-file", "since a ticket is for one place", fix);
    }
    if let Some(flag) = typed.ssh.first_given() {
        let fix = format!(
            "leave it out, or write {}:PATH for a host of ssh",
            server.host
        );
        return refused(&flag, "which is not reached through ssh", fix);
    }
    Ok(())
}

/// Lists the shares, with the flags typed and configured for a copy.
pub(super) fn list(
    copy: &cp::Args,
    server: &Server,
    console: &dyn Console,
) -> Result<Vec<Shared>, Failure> {
    let name = server.to_string();
    let identity = keys::identity_or_new(copy.identity.as_deref(), console)?;
    let known = Known::load(console)?.of(&name);
    let addresses = addresses(copy, server)?;
    let visitor = Visitor {
        server: &name,
        identity: &identity,
        peers: Known::policy(&known),
        udp_timeout: copy.blocked.udp_timeout,
        console,
    };
    let wait = (!copy.json).then(|| Wait::for_answer(&name));
    let answered = udp_or_tunnel(&addresses, None, &copy.blocked.ways()?, |by| {
        let answered = visitor.ask(by, |answer, stop| Probe::shares(answer, Some(stop)));
        KeyAndShares::of(answered.map_err(|e| Failure::from(&e))?)
    });
    drop(wait);
    let (KeyAndShares { key, shares }, _) = answered?;
    if known.is_empty() && !copy.trust_any {
        let key = key.ok_or_else(|| Failure::internal(&"a server without a key"))?;
        trust(&name, key, console).map_err(|e| Failure::from(&e))?;
    }
    Ok(shares)
}

/// Addresses where the server may be.
pub(super) fn addresses(copy: &cp::Args, server: &Server) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = copy.family().resolve(&server.host, server.port);
    addresses.map_err(|e| {
        let hint = ssh::alias_hint(&copy.call(), &server.host);
        let e = Failure::from(&e);
        match hint {
            Some(hint) => e.fix(hint),
            None => e,
        }
    })
}

/// The object of `--json`.
pub(super) fn object(shares: &[Shared]) -> Value {
    let share = |share: &Shared| {
        let mut entry = json!({ "kind": "share", "access": share.access.word() });
        put_path(&mut entry, "path", &share.name);
        entry
    };
    let entries: Vec<_> = shares.iter().map(share).collect();
    json!({ "schema": "farhaul.list/1", "ok": true, "entries": entries })
}

pub(super) fn print(shares: &[Shared]) {
    for share in shares {
        let name = text::shown(&share.name);
        out::line(format!("{:>12}  {name}/", share.access.word()));
    }
    let noun = if shares.len() == 1 { "share" } else { "shares" };
    errln!("{} {noun} for your key", shares.len());
}

/// Answer of a server.
struct KeyAndShares {
    key: Option<PublicKey>,
    shares: Vec<Shared>,
}

impl KeyAndShares {
    fn of(answered: Answered) -> Result<Self, Failure> {
        match answered {
            Answered::Shares {
                server_key: key,
                shares,
            } => {
                let key = key.as_deref().and_then(|key| key.try_into().ok());
                let key = key.map(PublicKey::from_bytes);
                Ok(Self { key, shares })
            }
            _ => Err(Failure::internal(&"an answer to another question")),
        }
    }
}
