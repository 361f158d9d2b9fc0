//! `farhaul ls HOST::`: lists the shares that a server has for this user. A session that carries
//! nothing else asks it.

use std::net::SocketAddr;

use farhaul_core::text;
use farhaul_transfer::Shared;
use serde_json::{Value, json};

use super::Args;
use crate::{
    app::{console::Console, copy::trust, json::put_path},
    cmd::cp,
    connect::{Visitor, udp_or_tunnel},
    exit::Failure,
    given,
    keys::{self, Known},
    out,
    place::Server,
    ssh,
    wait::Wait,
};

/// Refuses flags that were typed and mean nothing here. Configured flags for other lists stay
/// without effect.
pub(super) fn refuse_needless(args: &Args, server: &Server) -> Result<(), Failure> {
    let is_needless =
        |flag: &str| matches!(flag, "recursive" | "ticket-file") || given::has::<cp::Through>(flag);
    let Some(flag) = args.given.first_typed(is_needless) else {
        return Ok(());
    };
    let (why, fix) = match &*flag {
        "--recursive" => (
            "which lists all shares",
            format!("leave it out, or write {server}::SHARE"),
        ),
        "--ticket-file" => (
            "since a ticket is for one place",
            "write ticket: as the place".into(),
        ),
        _ => {
            let host = &server.host;
            let fix = format!("leave it out, or write {host}:PATH for a host of ssh");
            ("which is not reached through ssh", fix)
        }
    };
    Err(Failure::usage(format!("{flag} means nothing for {server}::, {why}")).fix(fix))
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
        visitor.shares(by).map_err(|e| Failure::from(&e))
    });
    drop(wait);
    let ((key, shares), _) = answered?;
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
