//! Asks a person on a terminal whether an unknown server may be trusted.

use std::sync::{Arc, Mutex, PoisonError};

use farhaul_haul::PublicKey;
use farhaul_transfer::{Advice, Exit, TransferError, client::PeerCheck};

use super::config;
use crate::{
    app::console::{Answer, Console},
    keys::Known,
};

/// Asks whether to trust an unknown key, where there is a terminal.
pub(crate) fn trust(
    server: &str,
    key: PublicKey,
    console: &dyn Console,
) -> Result<PublicKey, TransferError> {
    let ended = |code| {
        let text = format!("{server} is not known, and the question about its key was interrupted");
        Err(TransferError::new(code, text).fix(Advice::again("run the same command again")))
    };
    let known = Known::load(console).map_err(|e| config(&e))?.of(server);
    let stranger = match known.first() {
        Some(before) => format!("{server} had another key until now,\n  {before}\nand now shows"),
        None => format!("{server} is not known. Its key is"),
    };
    let question = format!("{stranger}\n  {key}\nTrust it from now on?");
    match console.ask(&question) {
        Answer::Yes => {}
        Answer::Interrupted => return ended(Exit::INTERRUPTED),
        Answer::HungUp => return ended(Exit::HUNG_UP),
        Answer::No | Answer::NotAsked if known.is_empty() => return Err(unknown(server, key)),
        Answer::No | Answer::NotAsked => return Err(changed(server, key)),
    }
    Known::change(|known| known.trust(server, key)).map_err(|e| config(&e))?;
    Ok(key)
}

/// Error for a server that is known by another key than `key`.
fn changed(server: &str, key: PublicKey) -> TransferError {
    let text = format!("{server} had another key until now; its key now is {key}");
    TransferError::new(Exit::Auth, text).fix(format!(
        "ask the server's administrator which key is right; if the new one is, type: farhaul key trust {server} fh-pub1..."
    ))
}

/// Error for a key of `server` that nobody has accepted.
pub(crate) fn unknown(server: &str, key: PublicKey) -> TransferError {
    let text = format!("{server} is not known; its key is {key}");
    TransferError::new(Exit::Auth, text).fix(format!(
        "ask the server's administrator whether the key is right; if so, type: farhaul key trust {server} {key}"
    ))
}

/// The server's key, once the first session is connected.
pub(crate) type Seen = Arc<Mutex<Option<PublicKey>>>;

/// Remembers the server's key; refuses it unless it was `known` before the handshake, or any will do.
pub(crate) fn check_key(seen: Seen, known: bool) -> PeerCheck {
    Arc::new(move |key| {
        let key = key
            .and_then(|k| k.try_into().ok())
            .map(PublicKey::from_bytes);
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = key;
        if known {
            return Ok(());
        }
        Err(TransferError::new(
            Exit::Auth,
            "the server's key is not known",
        ))
    })
}
