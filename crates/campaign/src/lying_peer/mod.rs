//! What can a peer do that has been let in and lies? A real session of haul, sealed, in virtual time; at
//! its peer has valid keys and sends any message in any order, acknowledges what was
//! never sent, changes keys and addresses, repeats, stalls and leaves.
//!
//! What must never happen: a panic; more than [`HEAP`] of memory; datagrams, feedback or answers beyond
//! what was received and time allow; a session that does not become idle, or does not end.

mod actions;
mod forged;
mod messages;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{ALLOCATED, HEAP, Scale, report::Report};

/// The most memory of one session whose handshake is not.
const HALF_OPEN: usize = 64 << 10;

/// What is wrong with the honest end, so that the oracles are seen to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Its app panics at some message.
    Panic,
    /// Its app keeps what it is given.
    Leak,
    /// Its datagrams are sent twice.
    Chatter,
    /// Its timers are not served.
    Deaf,
}

/// Each of them is found by another oracle.
const PLANTED: [Planted; 4] = [
    Planted::Panic,
    Planted::Leak,
    Planted::Chatter,
    Planted::Deaf,
];

/// Runs seeds.
pub(crate) fn run(scale: Scale) -> Report {
    let mut report = Report::new("lying-peer");
    let (runs, first) = (scale.runs(2_000, 1_000_000), scale.seed);
    // A panic is a finding, with its seed; where it was is asked for by running that seed alone.
    if runs > 1 {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let folder = match crate::simulated::folder() {
        Ok(folder) => folder,
        Err(error) => {
            report.fault(format!("no folder: {error}"));
            return report;
        }
    };
    let mut most = Most::default();
    let mut found = [0_u64; PLANTED.len()];
    for seed in first..first + runs {
        let index = usize::try_from(seed).unwrap_or_default() % PLANTED.len();
        let planted = if scale.planted {
            PLANTED[index]
        } else {
            Planted::Nothing
        };
        report.ran();
        let fault = fault_of(|| {
            world::run(seed, planted, &mut most)?;
            if scale.planted {
                return Ok(());
            }
            forged::run(seed, &mut most)
        });
        found[index] += u64::from(fault.is_some());
        note(&mut report, seed, fault);
    }
    // Apart from the above: threads that read and write pipes outlive their copies a little, and allocate.
    for seed in first..first + if scale.planted { 0 } else { runs } {
        let fault = fault_of(|| messages::run(seed, folder.path(), &mut most));
        note(&mut report, seed, fault);
    }
    if scale.planted && found.contains(&0) {
        // One that no oracle found makes the part fail.
        return Report::new("lying-peer");
    }
    report.figure("most memory of a session, bytes", most.heap);
    report.figure("most memory of a half-open session, bytes", most.half_open);
    report.figure(
        "most memory of two ends of any protocol, bytes",
        most.forged,
    );
    report.figure("most memory of an end of a copy, bytes", most.messages);
    report.figure("datagrams heard by honest ends", most.heard);
    report.figure("actions of liars", most.actions);
    report.figure("sessions ended for a violation", most.violations);
    report
}

/// What is wrong, if anything is.
fn fault_of(run: impl FnOnce() -> Result<(), String>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => ended.err(),
        Err(_) => Some("panic".into()),
    }
}

fn note(report: &mut Report, seed: u64, fault: Option<String>) {
    if let Some(fault) = fault {
        report.fault(format!(
            "{fault} (again: campaign lying-peer --runs 1 --seed {seed})"
        ));
    }
}

/// What was seen over all runs.
#[derive(Debug, Default)]
struct Most {
    heap: usize,
    half_open: usize,
    forged: usize,
    messages: usize,
    heard: u64,
    actions: u64,
    violations: u64,
}
