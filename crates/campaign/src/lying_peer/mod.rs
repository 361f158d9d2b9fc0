//! A lying peer that has been let in, against a real, encrypted session of haul in virtual time.
//! The peer has valid keys and sends any message in any order, acknowledges what was never sent,
//! changes keys and addresses, repeats, stalls and leaves.
//!
//! Never to happen: a panic; more than [`HEAP`] of memory; datagrams, feedback or answers beyond
//! what was received and time allow. A session that does not become idle, or does not end.

mod actions;
mod forged;
mod messages;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{ALLOCATED, HEAP, Scale, report::Report, spread::spread};

/// The most memory of one session whose handshake is not.
const HALF_OPEN: usize = 64 << 10;

/// Planted fault of the honest end, so that the oracles are seen to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The app panics at some message.
    Panic,
    /// The app keeps what it is given.
    Leak,
    /// Sends every datagram twice.
    Chatter,
    /// The timers are not served.
    Deaf,
}

impl Planted {
    /// Name of the figure that counts how often the fault was found.
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing planted",
            Self::Panic => "panics found",
            Self::Leak => "leaks found",
            Self::Chatter => "chatter found",
            Self::Deaf => "deafness found",
        }
    }
}

/// Each of them is found by another oracle.
const PLANTED: [Planted; 4] = [
    Planted::Panic,
    Planted::Leak,
    Planted::Chatter,
    Planted::Deaf,
];

/// Runs of the gate and of the documented campaign, and how many a child has.
const GATE: u64 = 200;
const FULL: u64 = 1_000_000;
const LOT: u64 = 10;

/// Runs seeds.
pub(crate) fn run(scale: &Scale) -> Report {
    let runs = scale.runs(GATE, FULL);
    let report = spread("lying-peer", scale, (runs, LOT), seeds);
    let is_missed = |planted: &Planted| report.figure_of(planted.name()) == 0;
    if scale.planted && !scale.lot && PLANTED.iter().any(is_missed) {
        // One that no oracle found makes the part fail.
        return Report::new("lying-peer");
    }
    report
}

fn seeds(scale: &Scale) -> Report {
    let mut report = Report::new("lying-peer");
    // A panic is a finding, with its seed; where it was is asked for by running that seed alone.
    if scale.lot {
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
    for seed in scale.seeds() {
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
        if scale.planted {
            report.sum(planted.name(), u64::from(fault.is_some()));
        }
        note(&mut report, seed, fault);
    }
    // Apart from the above: threads that read and write pipes outlive their copies a little, and allocate.
    let told = if scale.planted { 0..0 } else { scale.seeds() };
    for seed in told {
        let fault = fault_of(|| messages::run(seed, folder.path(), &mut most));
        note(&mut report, seed, fault);
    }
    most.tell(&mut report);
    report
}

/// Fault of a run, if there is one.
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

/// Highest figures over all runs.
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

impl Most {
    fn tell(&self, report: &mut Report) {
        for (name, bytes) in [
            ("most memory of a session, bytes", self.heap),
            ("most memory of a half-open session, bytes", self.half_open),
            (
                "most memory of two ends of any protocol, bytes",
                self.forged,
            ),
            ("most memory of an end of a copy, bytes", self.messages),
        ] {
            report.most(name, bytes as u64);
        }
        report.sum("datagrams heard by honest ends", self.heard);
        report.sum("actions of liars", self.actions);
        report.sum("sessions ended for a violation", self.violations);
    }
}
