//! Asks the server whether the key may use the share that was named.

use std::net::SocketAddr;

use farhaul_measure::doctor::{Finding, Grade};
use farhaul_transfer::{
    Shared, TransferError,
    client::{Answer, Answered, Probe},
};

use super::{report::Report, target::Target};
use crate::{
    connect::{Attempt, Visitor, internal},
    exit::{Exit, Failure},
    interrupt,
};

const NAME: &str = "share";

/// Looks for `share`; one that is not there is an error, as it is for `cp`, and false.
pub(super) fn examine(
    target: &Target,
    share: &str,
    visitor: &Visitor<'_>,
    report: &mut Report,
) -> bool {
    let place = format!("{}::{share}", target.name);
    let shares = match ask(visitor, target.to()) {
        Ok(shares) => shares,
        Err(_) if visitor.console.is_interrupted() => {
            let exit = Exit::Signal(interrupt::signal());
            report.failure = Some(Failure::new(exit, "interrupted"));
            return false;
        }
        Err(e) => {
            let text = format!("{place} is not looked for: {}", e.text);
            report.add(Finding::new(NAME, Grade::Fair, text));
            return true;
        }
    };
    if let Some(found) = shares.iter().find(|s| s.name == share.as_bytes()) {
        let text = format!("{place} is there, {}", found.access.word());
        report.add(Finding::new(NAME, Grade::Good, text));
        return true;
    }
    let text = format!("share '{share}' is unknown or not allowed");
    let fix = format!(
        "`farhaul ls {}::` lists those for your key; ask the server's administrator for others",
        target.name
    );
    report.fail(NAME, Failure::new(Exit::Auth, text).fix(fix));
    false
}

fn ask(visitor: &Visitor<'_>, to: SocketAddr) -> Result<Vec<Shared>, TransferError> {
    let probe = |answer: &Answer, stop| Probe::shares(answer, Some(stop));
    match visitor.ask(&Attempt::At(to), probe)? {
        Answered::Shares { shares, .. } => Ok(shares),
        Answered::Lent(_) | Answered::Disk(_) => Err(internal(&"an answer to another question")),
    }
}
