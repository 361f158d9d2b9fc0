//! May an unknown server be trusted? A person decides, on a terminal.

use farhaul_haul::PublicKey;
use farhaul_transfer::{Code, TransferError};

use super::config;
use crate::{
    keys::Known,
    question::{self, Answer},
};

/// Asks whether to trust an unknown key, where there is a terminal.
pub(crate) fn trust(server: &str, key: PublicKey) -> Result<PublicKey, TransferError> {
    let ended = |code| {
        let text = format!("{server} is not known, and the question about its key was interrupted");
        Err(TransferError::new(code, text).fix("run the same command again"))
    };
    let question = format!("{server} is not known. Its key is\n  {key}\nTrust it from now on?");
    match question::ask(&question) {
        Answer::Yes => {}
        Answer::Interrupted => return ended(Code::Interrupted),
        Answer::HungUp => return ended(Code::HungUp),
        Answer::No | Answer::NotAsked => return Err(unknown(server, key)),
    }
    Known::change(|known| known.trust(server, key)).map_err(|e| config(&e))?;
    Ok(key)
}

/// Nobody has accepted the key of `server`.
pub(crate) fn unknown(server: &str, key: PublicKey) -> TransferError {
    let text = format!("{server} is not known; its key is {key}");
    TransferError::new(Code::Auth, text).fix(format!(
        "compare it with the server's administrator, then run: farhaul key trust {server} {key}"
    ))
}
