//! How fast is the disk of a share? The server measures it.

use std::{fmt::Display, sync::PoisonError};

use farhaul_haul::{Haul, HaulConfig, Identity};
use farhaul_io::{Waker, client};
use farhaul_lab::doctor::{DiskSpeed, Finding, Grade};
use farhaul_transfer::{
    Code, TransferError,
    client::{Answer, Answered, Probe},
};
use serde_json::json;

use super::{Report, capacity::refused, target::Target};
use crate::{
    exit::{Exit, Failure},
    interrupt,
    wait::Wait,
};

const NAME: &str = "disk there";

/// Has it measured.
pub(super) fn examine(target: &Target, share: &str, identity: &Identity, report: &mut Report) {
    let wait = (!report.json).then(|| Wait::start(|_| "measuring the disk there".into()));
    let measured = ask(target, share, identity);
    drop(wait);
    match measured {
        Ok(speed) => {
            let text = format!("{}::{share}: {speed}", target.name);
            report.add(Finding::new(NAME, Grade::Good, text));
            report.path["disk"] = json!(speed);
        }
        Err(_) if interrupt::is_signalled() => {
            let exit = Exit::Signal(interrupt::signal());
            report.failure = Some(Failure::new(exit, "interrupted"));
        }
        Err(e) => report.add(refused(NAME, &e)),
    }
}

fn ask(target: &Target, share: &str, identity: &Identity) -> Result<DiskSpeed, TransferError> {
    let internal = |e: &dyn Display| TransferError::new(Code::Internal, e.to_string());
    let mut config = HaulConfig::new(*identity.seed());
    config.app = farhaul_transfer::offer();
    let haul = Haul::client(config).map_err(|e| internal(&e))?;
    let stop = interrupt::stop().map_err(|e| internal(&e))?;
    let waker = Waker::new().map_err(|e| internal(&e))?;
    let answer = Answer::default();
    let probe = Probe::disk(share, &answer, Some(stop.clone()));
    let mut options = client::Options::new(target.to());
    options.stop = Some(stop);
    client::run(&options, Box::new(haul), probe, &waker)
        .map_err(|e| TransferError::new(Code::NetSetup, e.to_string()))?;
    let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    match answer.transpose()? {
        Some(Answered::Disk(speed)) => Ok(DiskSpeed {
            bytes: speed.bytes,
            write_bits_per_second: speed.write.bps(),
            read_bits_per_second: speed.read.bps(),
        }),
        Some(Answered::Lent(_) | Answered::Shares { .. }) | None => {
            Err(internal(&"the session ended without an answer"))
        }
    }
}
