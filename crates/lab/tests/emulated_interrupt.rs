//! Tests what an interrupt leaves of flows on the emulated network: in a process of its own, for
//! all threads of a process get its signals.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::{fs, path::Path, process::Command, thread, time::Duration};

use farhaul_emu::wan::{WanConfig, WanError};
use farhaul_lab::emulated::{EmulatedRunError, Flow, Program, System, run_flows};
use rustix::process::{Signal, getpid, kill_process};

#[test]
fn an_interrupt_ends_the_flows_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let program = Program {
        name: "hangs".into(),
        client: format!("pwd > {}; exec tail -f /dev/null", fifo.display()),
        goodput: "bytes".into(),
        ..Program::default()
    };
    let flow = Flow::new("f", System::Program(program), Duration::from_hours(1));
    let interrupter = thread::spawn(move || {
        let place = fs::read_to_string(&fifo).unwrap();
        if !place.is_empty() {
            kill_process(getpid(), Signal::INT).unwrap();
        }
        place
    });
    match run_flows(
        &WanConfig::default(),
        &[flow],
        Path::new("/bin/false"),
        None,
    ) {
        Err(EmulatedRunError::Interrupted(2)) => {}
        Err(EmulatedRunError::Wan(WanError::Setup(error))) => {
            println!("skipped: {error}");
            return;
        }
        other => panic!("{other:?}"),
    }
    let place = interrupter.join().unwrap();
    assert!(place.contains("farhaul-flows-"), "{place}");
    assert!(!Path::new(place.trim()).exists(), "{place}");
}
