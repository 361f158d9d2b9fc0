//! `farhaul sim --app cp PATH`: simulates how long a copy would take over a path. Client and server
//! are those of `farhaul cp`, in virtual time; their disks take none.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use farhaul_core::{
    app::App,
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};
use farhaul_sim::{Maker, Scenario, SimReport};
use farhaul_transfer::{
    Disk, Outcome, Simulated,
    client::{Options, Remote, Upload},
    server::{Access, Allow, Policy, Server, Share},
};

use crate::{
    exit::{Exit, Failure},
    interrupt,
};

const SHARE: &str = "copy";

/// Simulates a copy of `source` over the paths of `scenario`, to a folder that is removed afterwards.
pub(super) fn run(
    source: &Path,
    scenario: &Scenario,
    make: Maker<'_>,
) -> Result<(SimReport, Outcome), Failure> {
    let cannot = |e: &dyn std::fmt::Display| {
        Failure::new(Exit::DestError, format!("no folder for the copy: {e}"))
            .fix("it is created in TMPDIR, and takes as much space as the source")
    };
    let folder = tempfile::tempdir().map_err(|e| cannot(&e))?;
    let share = Share::open(SHARE, folder.path(), Access::ReadWrite).map_err(|e| cannot(&e))?;
    let there = machine();
    let share = share.on(&there.disk).map_err(|e| cannot(&e))?;
    let policy = Policy::new(vec![share], Allow::Any, false);
    let server = Server::new(Arc::new(policy), None).simulated(there.clone());
    let here = machine();
    let stop = interrupt::stop()?;
    let options = Options {
        sync: false,
        simulated: Some(here.clone()),
        ..Options::default()
    };
    let cancel = Arc::clone(&options.cancel);
    let remote = Remote {
        share: SHARE.into(),
        path: Vec::new(),
    };
    let upload =
        Upload::new(&[source.to_owned()], &remote, options).map_err(|e| Failure::from(&e))?;
    let handle = upload.handle();
    let mut ends = Some([
        Box::new(Clocked(upload, here, {
            let stop = stop.clone();
            move || {
                if stop.is_set() {
                    cancel.store(Exit::Signal(interrupt::signal()).number(), Relaxed);
                }
            }
        })) as Box<dyn App>,
        Box::new(Clocked(server, there, || ())),
    ]);
    let mut apps = |_| ends.take().expect("there is one flow");
    let report = farhaul_sim::run_apps(scenario, make, &mut apps).map_err(super::failure)?;
    if stop.is_set() {
        return Err(Failure::interrupted());
    }
    let outcome = handle.outcome().ok_or_else(|| {
        let text = format!("it is not over after {} s of virtual time", report.seconds);
        Failure::new(Exit::Limit, text).fix("allow more time with --secs")
    })?;
    Ok((report, outcome))
}

fn machine() -> Simulated {
    Simulated {
        disk: Disk::default(),
        time: Arc::default(),
    }
}

/// An application that has the simulator's time, and a look at each turn.
struct Clocked<A, L>(A, Simulated, L);

impl<A: Store, L> Store for Clocked<A, L> {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.0.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.0.place(extents, batch)
    }

    fn sink(&self) -> Sink {
        self.0.sink()
    }
}

impl<A: App, L: Fn() + Send> App for Clocked<A, L> {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.1.time.set(now);
        self.0.on_event(now, event, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.1.time.set(now);
        (self.2)();
        self.0.poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.0.next_wake()
    }
}
