//! Asks the server to measure how fast the disk of a share is.

use std::net::SocketAddr;

use farhaul_measure::doctor::{DiskSpeed, Finding, Grade};
use farhaul_transfer::{
    TransferError,
    client::{Answer, Answered, Probe},
};
use serde_json::json;

use super::{capacity::refused, report::Report, target::Target};
use crate::{
    connect::{Attempt, Visitor, internal},
    exit::Failure,
    wait::Wait,
};

const NAME: &str = "disk there";

/// Lets the server measure the disk.
pub(super) fn examine(target: &Target, share: &str, visitor: &Visitor<'_>, report: &mut Report) {
    let wait = (!report.json).then(|| Wait::start(|_| "measuring the disk there".into()));
    let measured = ask(visitor, target.to(), share);
    drop(wait);
    match measured {
        Ok(speed) => {
            let text = format!("{}::{share}: {speed}", target.name);
            report.add(Finding::new(NAME, Grade::Good, text));
            report.path["disk"] = json!(speed);
        }
        Err(_) if visitor.console.is_interrupted() => {
            report.failure = Some(Failure::interrupted());
        }
        Err(e) => report.add(refused(NAME, &e)),
    }
}

fn ask(visitor: &Visitor<'_>, to: SocketAddr, share: &str) -> Result<DiskSpeed, TransferError> {
    let probe = |answer: &Answer, stop| Probe::disk(share, answer, Some(stop));
    match visitor.ask(&Attempt::At(to), probe)? {
        Answered::Disk(speed) => Ok(DiskSpeed {
            bytes: speed.bytes,
            write_bits_per_second: speed.write.bps(),
            read_bits_per_second: speed.read.bps(),
        }),
        Answered::Lent(_) | Answered::Shares { .. } => {
            Err(internal(&"an answer to another question"))
        }
    }
}
