//! Reads what `ls` lists, for another program: with the flags of `ls`, in a session that stays
//! until it is closed.

use std::{
    ffi::OsStr,
    path::Path,
    slice,
    sync::{Arc, PoisonError},
};

use farhaul_haul::Identity;
use farhaul_transfer::client::Reads;

use super::{Args, shares};
use crate::{
    app::{
        console::Console,
        copy::{Seen, check_key, unknown},
    },
    connect::{Attempt, Visitor, udp_or_tunnel},
    exit::Failure,
    keys::{self, Known},
    line::Line,
    place::{self, Place, Server},
};

/// Runs the session of `reads` with the server of the place in `args`, until it is closed.
pub(crate) fn read(
    args: &Args,
    reads: &Reads,
    line: &Line,
    console: &dyn Console,
) -> Result<(), Failure> {
    let [typed] = &args.places[..] else {
        return Err(Failure::usage("a session is with one server"));
    };
    let server = server_of(typed)?;
    let copy = args.as_copy(slice::from_ref(typed), Path::new("."), line)?;
    let name = server.to_string();
    let identity = match &server.right {
        Some(right) => Identity::from_seed(&right.seed).map_err(|e| Failure::internal(&e))?,
        None => keys::identity_or_new(copy.identity.as_deref(), console)?,
    };
    let known = match &server.right {
        Some(right) => vec![right.server],
        None => Known::load(console)?.of(&name),
    };
    let is_pinned = !known.is_empty() || copy.trust_any;
    let seen = Seen::default();
    let visitor = Visitor {
        server: &name,
        identity: &identity,
        peers: Known::policy(&known),
        udp_timeout: copy.blocked.udp_timeout,
        console,
    };
    let addresses = shares::addresses(&copy, &server)?;
    let one = |by: &Attempt<'_>| {
        let check = check_key(Arc::clone(&seen), is_pinned);
        visitor
            .read(by, reads, check)
            .map_err(|e| Failure::from(&e))
    };
    let ended = udp_or_tunnel(&addresses, None, &copy.blocked.ways()?, one);
    let key = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match key.filter(|_| !is_pinned) {
        Some(key) => Err(Failure::from(&unknown(&name, key))),
        None => ended.map(drop),
    }
}

/// The server of a place; ssh starts one for a copy only.
fn server_of(typed: &OsStr) -> Result<Server, Failure> {
    if let Some(server) = place::parse_server(typed)? {
        return Ok(server);
    }
    match place::parse(typed)? {
        Place::Far(far) if far.server.login.is_none() => Ok(far.server),
        Place::Far(_) => Err(
            Failure::usage("what is reached through ssh can be copied only")
                .fix("run `farhaul serve` there, and name it as HOST::"),
        ),
        Place::Local(_) | Place::Pipe => {
            Err(Failure::usage("this is no server").fix("name it as HOST::"))
        }
    }
}
