//! May an unknown server be trusted? A person decides, on a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use farhaul_haul::PublicKey;
use farhaul_transfer::{Code, TransferError};

use super::config;
use crate::{embed, keys::Known};

/// Asks whether to trust an unknown key, where a person `may_answer` on the terminal.
pub(crate) fn trust(
    server: &str,
    key: PublicKey,
    may_answer: bool,
) -> Result<PublicKey, TransferError> {
    let unknown = || {
        TransferError::new(
            Code::Auth,
            format!("{server} is not known; its key is {key}"),
        )
        .fix(format!(
            "compare it with the server's administrator, then run: farhaul key trust {server} {key}"
        ))
    };
    let mut terminal = io::stderr();
    if !may_answer || embed::is_inside() || !terminal.is_terminal() || !io::stdin().is_terminal() {
        return Err(unknown());
    }
    let mut answer = String::new();
    let asked = write!(
        terminal,
        "{server} is not known. Its key is\n  {key}\nTrust it from now on? [y/N] "
    )
    .and_then(|()| terminal.flush())
    .and_then(|()| io::stdin().lock().read_line(&mut answer));
    if asked.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
        return Err(unknown());
    }
    Known::load()
        .and_then(|mut known| known.trust(server, key))
        .map_err(|e| config(&e))?;
    Ok(key)
}
