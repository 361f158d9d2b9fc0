//! How long is a disk waited for that takes nothing?

use std::sync::{Condvar, Mutex};

use super::*;

/// What no worker gets an answer to.
#[derive(Clone, Copy)]
enum Hangs {
    Writes,
    Syncs,
}

#[derive(Clone, Copy, Default)]
struct Held {
    /// A worker waits.
    some: bool,
    /// The test is over.
    open: bool,
}

#[derive(Default)]
struct Gate(Mutex<Held>, Condvar);

impl Gate {
    fn hold(&self) {
        let mut held = self.0.lock().unwrap();
        held.some = true;
        drop(self.1.wait_while(held, |held| !held.open).unwrap());
    }

    fn open(&self) {
        self.0.lock().unwrap().open = true;
        self.1.notify_all();
    }
}

struct Hanging(Hangs, Arc<Gate>);

impl Interposer for Hanging {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        let hangs = match self.0 {
            Hangs::Writes => matches!(call, Call::Write(..)),
            Hangs::Syncs => matches!(call, Call::SyncAll),
        };
        let current = std::thread::current();
        if hangs
            && current
                .name()
                .is_some_and(|name| name.starts_with("farhaul-write"))
        {
            self.1.hold();
        }
        Answer::Go
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

/// After how long the transfer ends that hangs so, and with what.
fn ends_after(hangs: Hangs, size: u64) -> (Duration, TransferError) {
    let tmp = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = Hanging(hangs, Arc::clone(&gate));
    let mut receiver = receiver_on(disk, tmp.path(), SYNCED).unwrap();
    send_all(&mut receiver, &[("f", size)]);
    let mut session = FakeSession::default();
    let start = Instant::from_nanos(1_000_000_000);
    let mut now = start;
    let fault = loop {
        receiver.poll(now, &mut session);
        if let Some(fault) = receiver.take_fault() {
            break fault;
        }
        assert!(
            receiver.sink().free > 0,
            "the sender is not the one who waits"
        );
        assert!(
            now.since(start) < Duration::from_hours(1),
            "it waits for ever"
        );
        // Whoever is not held has time to answer, and hardly any passes before one is.
        let held = gate.0.lock().unwrap();
        let step = if held.some { 1_000 } else { 1 };
        drop(gate.1.wait_timeout(held, Duration::from_millis(2)));
        now += Duration::from_millis(step);
    };
    gate.open();
    (now.since(start), fault)
}

#[test]
fn a_disk_that_hangs_ends_the_copy_though_there_is_room() {
    for size in [500_000, 3 << 20] {
        let (after, fault) = ends_after(Hangs::Writes, size);
        assert_eq!(fault.code, Code::DestError);
        assert!(fault.text.contains("has made no progress"), "{fault}");
        assert!(!fault.fix.is_empty());
        let most = watch::STUCK + Duration::from_secs(10);
        assert!((watch::STUCK..most).contains(&after), "{size}: {after:?}");
    }
}

#[test]
fn a_sync_has_more_time_and_not_all_of_it() {
    let (after, fault) = ends_after(Hangs::Syncs, 500_000);
    assert_eq!(fault.code, Code::DestError);
    let most = watch::SYNCING + Duration::from_secs(10);
    assert!((watch::SYNCING..most).contains(&after), "{after:?}");
}

#[test]
fn what_gets_on_is_waited_for() {
    let tmp = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = Hanging(Hangs::Writes, Arc::clone(&gate));
    let mut receiver = receiver_on(disk, tmp.path(), RULES).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    receiver.watch_disk(start, false);
    assert_eq!(receiver.stuck_at(), None, "there is nothing to do");
    send_all(&mut receiver, &[("f", 500_000)]);
    let mut session = FakeSession::default();
    receiver.poll(start, &mut session);
    receiver.watch_disk(start, true);
    let first = start + watch::STUCK;
    assert_eq!(receiver.stuck_at(), Some(first));
    // Something was written at last.
    receiver.watch_disk(first, true);
    let second = first + watch::STUCK;
    assert_eq!(
        (receiver.fault.is_none(), receiver.stuck_at()),
        (true, Some(second))
    );
    // A job that lasts has read a block.
    receiver.pool.stop().step();
    receiver.watch_disk(second, false);
    assert!(receiver.fault.is_none());
    receiver.watch_disk(second + watch::STUCK, false);
    assert_eq!(
        receiver.fault.as_ref().map(|e| e.code),
        Some(Code::DestError)
    );
    gate.open();
}
