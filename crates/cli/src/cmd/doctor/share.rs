//! Is there the share that was named? The server says which the key may use.

use std::{fmt::Display, sync::PoisonError};

use farhaul_haul::{Haul, HaulConfig, Identity};
use farhaul_io::{Waker, client};
use farhaul_lab::doctor::{Finding, Grade};
use farhaul_transfer::{
    Code, Shared, TransferError,
    client::{Answer, Answered, Probe},
};

use super::{Report, target::Target};
use crate::{
    exit::{Exit, Failure},
    interrupt,
};

const NAME: &str = "share";

/// Looks for `share`; one that is not there is an error, as it is for `cp`, and false.
pub(super) fn examine(
    target: &Target,
    share: &str,
    identity: &Identity,
    report: &mut Report,
) -> bool {
    let place = format!("{}::{share}", target.name);
    let shares = match ask(target, identity) {
        Ok(shares) => shares,
        Err(_) if interrupt::is_signalled() => {
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
    report.add(Finding::new(NAME, Grade::Bad, text.clone()).fix(fix.clone()));
    report.failure = Some(Failure::new(Exit::Auth, text).fix(fix));
    false
}

fn ask(target: &Target, identity: &Identity) -> Result<Vec<Shared>, TransferError> {
    let internal = |e: &dyn Display| TransferError::new(Code::Internal, e.to_string());
    let mut config = HaulConfig::new(*identity.seed());
    config.app = farhaul_transfer::offer();
    let haul = Haul::client(config).map_err(|e| internal(&e))?;
    let stop = interrupt::stop().map_err(|e| internal(&e))?;
    let waker = Waker::new().map_err(|e| internal(&e))?;
    let answer = Answer::default();
    let probe = Probe::shares(&answer, Some(stop.clone()));
    let mut options = client::Options::new(target.to());
    options.stop = Some(stop);
    client::run(&options, Box::new(haul), probe, &waker)
        .map_err(|e| TransferError::new(Code::NetSetup, e.to_string()))?;
    let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    match answer.transpose()? {
        Some(Answered::Shares(_, shares)) => Ok(shares),
        _ => Err(internal(&"the session ended without an answer")),
    }
}
