//! `farhaul lab run|report|check utcp`: TCP over our datagrams beside the kernel's.

use std::env;

use farhaul_core::units::Rate;
use farhaul_emu::wan;
use farhaul_lab::{
    grid::{Backend, RunStore},
    host::Host,
    utcp::{self, ABOUT, Question, Run, SECONDS, System},
};
use serde_json::{Value, json};

pub(super) use farhaul_lab::utcp::NAME;

use super::{Where, disk};
use crate::{
    exit::{Exit, Failure},
    out,
};

/// Whether `place` is this; it runs on real sockets only.
pub(super) fn asked(place: &Where) -> bool {
    place.name == NAME
}

/// Runs what is missing: the latest runs, how many were made, and how many failed.
pub(super) fn run(
    place: &Where,
    seconds: Option<u64>,
    (resume, printed): (bool, bool),
) -> Result<(Vec<Run>, usize, usize), Failure> {
    let store: RunStore<Run> = place.run_store();
    let unkept = |e| disk(store.folder(), &e);
    let done = store.trials().map_err(unkept)?;
    if !done.is_empty() && !resume {
        return Err(Failure::usage(format!(
            "{} has {} runs already: continue with --resume, or choose another --out",
            store.folder().display(),
            done.len()
        )));
    }
    wan::enter_user_namespace().map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
    let host = Host::read();
    if host.debug_build {
        errln!("farhaul: a debug build: these figures are not worth keeping");
    }
    store.prepare(&host).map_err(unkept)?;
    let program = env::current_exe().map_err(|e| Failure::new(Exit::Internal, e.to_string()))?;
    let mut open = utcp::questions(seconds.unwrap_or(SECONDS));
    open.retain(|q| !done.iter().any(|r| r.question == *q && r.invalid.is_none()));
    let mut failed = 0;
    for question in &open {
        let run = utcp::run(*question, &program);
        if printed {
            out::line(line_of(&run));
        }
        failed += usize::from(run.invalid.is_some());
        store.keep(&run).map_err(unkept)?;
    }
    Ok((store.latest().map_err(unkept)?, open.len(), failed))
}

fn line_of(run: &Run) -> String {
    let Question {
        ground,
        mtu,
        system,
        ..
    } = run.question;
    let name = match system {
        System::Kernel => "K-TCP",
        System::User => "U-TCP",
    };
    let invalid = run.invalid.as_deref();
    format!(
        "{:<10} mtu {mtu}, {name}: {}, {:.4} MHz per Mbit/s sending, {:.4} receiving{}",
        ground.name(),
        Rate::from_f64(run.goodput_bits_per_second),
        run.sender.mhz_per_mbps,
        run.receiver.mhz_per_mbps,
        invalid.map_or_else(String::new, |why| format!("  NOT VALID: {why}"))
    )
}

/// The tables, or all data for programs.
pub(super) fn report(place: &Where, csv: bool, json: bool) -> Result<(), Failure> {
    let runs: Vec<Run> = place.latest()?;
    if json {
        out::json(&json!({
            "schema": "farhaul.lab.report/1",
            "ok": true,
            "version": env!("CARGO_PKG_VERSION"),
            "grid": NAME,
            "backend": Backend::Emu.name(),
            "runs": runs,
        }));
    } else if csv {
        out::line("ground,mtu,system,from,to,goodput_bits_per_second");
        for run in &runs {
            let Question {
                ground,
                mtu,
                system,
                ..
            } = run.question;
            for part in &run.intervals {
                out::line(format!(
                    "{},{mtu},{system:?},{},{},{}",
                    ground.name(),
                    part.from,
                    part.to,
                    part.goodput_bits_per_second
                ));
            }
        }
    } else {
        out::line(utcp::tables(&runs).trim_end());
    }
    Ok(())
}

/// As `lab list --json` shows a grid.
pub(super) fn listed() -> Value {
    json!({ "name": NAME, "about": ABOUT, "seconds": SECONDS })
}

/// As `lab list` shows a grid.
pub(super) fn line() -> String {
    format!("{NAME:<12} questions on loopback and at 1 Gbit/s, {SECONDS} s each: {ABOUT}")
}
