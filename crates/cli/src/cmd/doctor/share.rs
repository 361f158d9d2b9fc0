//! Asks the server whether the key may use the share that was named.

use farhaul_measure::doctor::{Finding, Grade};

use super::{report::Report, target::Target};
use crate::{
    connect::{Attempt, Visitor},
    exit::{Exit, Failure},
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
    let shares = match visitor.shares(&Attempt::At(target.to())) {
        Ok((_, shares)) => shares,
        Err(_) if visitor.console.is_interrupted() => {
            report.failure = Some(Failure::interrupted());
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
