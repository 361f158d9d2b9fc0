//! Tests that applications of one's own have their bytes, events and times. The application is a
//! file that names itself on the ordered stream and closes the session when it was answered and has
//! been delivered.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use farhaul_core::{
    app::App,
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_link::{Loss, PathConfig};
use farhaul_sim::{Scenario, SimReport, run_apps};
use farhaul_testkit::Steady;

const LEN: usize = 300_000;
const LEN_BITS: f64 = 2_400_000.0;
const PAUSE: Duration = Duration::from_millis(700);

fn byte(at: usize) -> u8 {
    u8::try_from(at * 31 % 251).expect("below 251")
}

/// Events seen by both.
#[derive(Debug, Default)]
struct Seen {
    file: Vec<u8>,
    read: Vec<u8>,
    delivered: bool,
    closed: u32,
}

struct File {
    seen: Arc<Mutex<Seen>>,
    sends: bool,
    /// Time at which the sender begins.
    begin: Option<Instant>,
}

impl Store for File {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        for extent in extents {
            let from = usize::try_from(extent.offset).expect("within the file");
            for (i, into) in batch[extent.range()].iter_mut().enumerate() {
                *into = byte(from + i);
            }
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        let file = &mut self.seen.lock().expect("not poisoned").file;
        file.resize(LEN, 0);
        for extent in extents {
            let at = usize::try_from(extent.offset).expect("within the file");
            let data = &batch[extent.range()];
            file[at..at + data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    fn sink(&self) -> Sink {
        Sink::ENDLESS
    }
}

impl App for File {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        let mut seen = self.seen.lock().expect("not poisoned");
        match event {
            Event::Connected { .. } if self.sends => self.begin = Some(now + PAUSE),
            Event::Readable => session.read(&mut seen.read),
            Event::Delivered => seen.delivered = true,
            Event::Closed(_) => seen.closed += 1,
            Event::Connected { .. } => {}
        }
        if self.sends && seen.delivered && seen.read == b"thanks" {
            session.close(now, 0, "done");
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.begin.take_if(|at| *at <= now).is_some() {
            session.write(b"name");
            session.send(1, 0, LEN as u64);
        }
        let mut seen = self.seen.lock().expect("not poisoned");
        let whole = seen.file.iter().enumerate().all(|(i, b)| *b == byte(i));
        if !self.sends && seen.file.len() == LEN && whole && seen.read == b"name" {
            seen.read.clear();
            session.write(b"thanks");
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.begin
    }
}

fn simulate() -> (SimReport, Seen) {
    let scenario = Scenario::over(PathConfig {
        rate: Rate::mbit(100),
        delay: Duration::from_millis(50),
        mtu: Some(1_500),
        loss: Loss::Random(0.02),
        ..PathConfig::default()
    });
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let steady = Steady::new(Rate::mbit(50), 1_500);
    let mut make = |_| {
        let ends = (steady.endpoint(), steady.endpoint());
        (Box::new(ends.0) as _, Box::new(ends.1) as _)
    };
    let mut apps = |_| {
        [true, false].map(|sends| {
            let seen = Arc::clone(&seen);
            let begin = None;
            Box::new(File { seen, sends, begin }) as Box<dyn App>
        })
    };
    let report = run_apps(&scenario, &mut make, &mut apps).expect("the scenario is valid");
    let seen = std::mem::take(&mut *seen.lock().expect("not poisoned"));
    (report, seen)
}

#[test]
fn every_byte_arrives_and_the_run_ends_with_the_session() {
    let (report, seen) = simulate();
    assert_eq!(seen.file.len(), LEN);
    assert!(seen.file.iter().enumerate().all(|(i, b)| *b == byte(i)));
    assert!(seen.delivered && seen.closed == 2, "{seen:?}");
    let flow = &report.flows[0];
    assert_eq!(flow.received_bytes, LEN as u64);
    assert!(flow.sender.repaired > 0, "of 2 % loss");
    let least = 0.1 + PAUSE.as_secs_f64() + LEN_BITS / 50e6 + 0.1;
    assert!(
        (least..least + 1.0).contains(&report.seconds),
        "{} s, not {least} s",
        report.seconds
    );
    assert_eq!(simulate().0.trace_hash, report.trace_hash);
}
