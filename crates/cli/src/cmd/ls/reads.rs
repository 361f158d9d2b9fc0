//! Reads what `ls` lists, for another program: with the flags of `ls`, in a session that stays
//! until it is closed.

use std::{
    ffi::OsStr,
    path::Path,
    slice,
    sync::{Arc, Mutex, PoisonError},
};

use farhaul_haul::{Identity, PublicKey};
use farhaul_transfer::{
    Code, TransferError,
    client::{PeerCheck, Reads},
};

use super::{Args, shares};
use crate::{
    cmd::cp,
    connect::{Attempt, Visitor, udp_or_tunnel},
    exit::Failure,
    keys::{self, Known},
    place::{self, Place, Server},
};

/// Runs the session of `reads` with the server of the place in `args`, until it is closed.
pub(crate) fn read(args: &Args, reads: &Reads) -> Result<(), Failure> {
    let [typed] = &args.places[..] else {
        return Err(Failure::usage("a session is with one server"));
    };
    let server = server_of(typed)?;
    let copy = args.as_copy(slice::from_ref(typed), Path::new("."))?;
    let name = server.to_string();
    let identity = match &server.right {
        Some(right) => Identity::from_seed(&right.seed).map_err(|e| Failure::internal(&e))?,
        None => keys::identity_or_new(copy.identity.as_deref())?,
    };
    let known = match &server.right {
        Some(right) => vec![right.server],
        None => Known::load()?.of(&name),
    };
    let is_pinned = !known.is_empty() || copy.trust_any;
    let seen = Seen::default();
    let visitor = Visitor {
        server: &name,
        identity: &identity,
        peers: Known::policy(&known),
        udp_timeout: copy.blocked.udp_timeout(),
    };
    let addresses = shares::addresses(&copy, &server)?;
    let one = |by: &Attempt<'_>| {
        let check = check_key(Arc::clone(&seen), is_pinned);
        visitor
            .read(by, reads, check)
            .map_err(|e| Failure::from(&e))
    };
    let ended = udp_or_tunnel(&addresses, None, &copy.blocked, one);
    let key = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match key.filter(|_| !is_pinned) {
        Some(key) => Err(Failure::from(&cp::unknown(&name, key))),
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

type Seen = Arc<Mutex<Option<PublicKey>>>;

/// Remembers the key of the server, and refuses one that nobody has accepted.
fn check_key(seen: Seen, is_pinned: bool) -> PeerCheck {
    Arc::new(move |key| {
        let key = key.and_then(|key| key.try_into().ok());
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = key.map(PublicKey::from_bytes);
        if is_pinned {
            return Ok(());
        }
        Err(TransferError::new(
            Code::Auth,
            "the server's key is not known",
        ))
    })
}
