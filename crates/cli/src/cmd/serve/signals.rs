//! Handles signals to a server: SIGHUP reads its file again, SIGTERM waits for the sessions under
//! way, SIGINT does not.

use std::sync::Arc;

use farhaul_io::{Controls, Stop};
use farhaul_transfer::TransferError;
use sd_notify::NotifyState;

use super::{Serving, log};
use crate::interrupt::{self, SIGHUP, SIGINT, SIGTERM, SIGXCPU};

/// Handles them from now on.
pub(super) fn handle(
    serving: &Arc<Serving>,
    controls: &Controls,
    stop: &Stop,
) -> Result<(), TransferError> {
    let asked = stop.clone();
    interrupt::on(SIGINT, move || interrupt::stop_or_exit(&asked))?;
    for signal in [SIGTERM, SIGXCPU] {
        let (serving, controls, stop) = (Arc::clone(serving), controls.clone(), stop.clone());
        interrupt::on(signal, move || {
            // The kernel repeats this one, which is not impatience.
            if signal != SIGXCPU || !controls.is_draining() {
                drain(&serving, &controls, &stop);
            }
        })?;
    }
    if serving.given.config.is_none() {
        let stop = stop.clone();
        return interrupt::on(SIGHUP, move || interrupt::stop_or_exit(&stop));
    }
    let (serving, controls) = (Arc::clone(serving), controls.clone());
    interrupt::on_any(SIGHUP, move || reload(&serving, &controls))
}

/// Ends the sessions under way: at the first call they may go on for a while, at the second they
/// end.
fn drain(serving: &Serving, controls: &Controls, stop: &Stop) {
    if controls.is_draining() {
        return interrupt::stop_or_exit(stop);
    }
    // What is said below is true by then, and the process goes on until it is said.
    controls.close();
    tell(&[NotifyState::Stopping]);
    let flags = &serving.setup().flags;
    let time = flags.drain;
    if !flags.quiet {
        let text = format!("stopping: no new sessions; those under way may go on for {time:?}");
        log::note("stopping", &text);
    }
    // Those that read end with what they have asked for.
    serving.setup().policy.retire();
    controls.drain(time);
}

fn reload(serving: &Serving, controls: &Controls) {
    let now = NotifyState::monotonic_usec_now();
    match now {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(e) => log::note(
            "warning",
            &format!("no monotonic clock for the service manager: {e}"),
        ),
    }
    match serving.reload(controls) {
        Ok(setup) => {
            if !setup.flags.quiet {
                setup.describe();
                let shares = setup.policy.shares().len();
                let text =
                    format!("reloaded: {shares} shares, for sessions that begin from now on");
                log::note("reloaded", &text);
            }
        }
        Err(e) => {
            let text = format!("not reloaded, everything stays as it was: {e}");
            log::note("warning", &text);
        }
    }
    tell(&[NotifyState::Ready]);
}

/// Notifies the service manager, if there is one.
pub(super) fn tell(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        log::note(
            "warning",
            &format!("the service manager cannot be told: {e}"),
        );
    }
}
