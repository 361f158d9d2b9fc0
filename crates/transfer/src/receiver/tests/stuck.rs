//! Bounds the wait for a disk that takes nothing.

use std::sync::{Condvar, Mutex};

use super::*;

/// Calls that no worker gets an answer to.
#[derive(Clone, Copy)]
enum Hangs {
    Writes,
    Syncs,
}

#[derive(Clone, Copy, Default)]
struct Held {
    /// True if a worker waits.
    some: bool,
    /// True if the test is over.
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

/// Time after which the transfer ends that hangs so, and its error.
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
        if let Some(fault) = receiver.entries.core.fault.take() {
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
        // A worker that is not held has time to answer, and hardly any passes before one is.
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
        assert_eq!(fault.code, Exit::DestError);
        assert!(fault.text.contains("has made no progress"), "{fault}");
        assert!(!fault.fix.is_empty());
        let most = watch::STUCK + Duration::from_secs(10);
        assert!((watch::STUCK..most).contains(&after), "{size}: {after:?}");
    }
}

#[test]
fn a_sync_has_more_time_and_not_all_of_it() {
    let (after, fault) = ends_after(Hangs::Syncs, 500_000);
    assert_eq!(fault.code, Exit::DestError);
    let most = watch::SYNCING + Duration::from_secs(10);
    assert!((watch::SYNCING..most).contains(&after), "{after:?}");
}

#[test]
fn what_was_given_up_with_a_worker_does_not_land_after_what_was_listed_again() {
    let tmp = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = Hanging(Hangs::Writes, Arc::clone(&gate));
    let mut receiver = receiver_on(disk, tmp.path(), RULES).unwrap();
    let mut session = FakeSession::default();
    let arrives = |receiver: &mut Receiver, file, offset, bytes: &[u8]| {
        let len = u32::try_from(bytes.len()).unwrap();
        let extent = Extent {
            object: 1,
            offset,
            len,
            at: 0,
        };
        receiver.place(&[extent], bytes).unwrap();
        let hash = blake3::hash(bytes).into();
        let sparse = false;
        let root = Root { file, sparse, hash };
        receiver.handle(Message::Roots(vec![root])).unwrap();
    };
    let entries = vec![entry("a", 5)];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    arrives(&mut receiver, 0, 0, b"older");
    receiver.poll(Instant::EPOCH, &mut session);
    while !gate.0.lock().unwrap().some {
        std::thread::yield_now();
    }
    let changed = Message::Failed {
        file: 0,
        code: Exit::SourceChanged,
        again: true,
        text: b"a: changed".to_vec(),
    };
    receiver.handle(changed).unwrap();
    let entries = vec![entry("a", 7)];
    let listed = Message::Entries { first: 1, entries };
    receiver.handle(listed).unwrap();
    receiver.handle(Message::End { entries: 2 }).unwrap();
    receiver.poll(Instant::EPOCH, &mut session);
    assert!(
        receiver.entries.content.missing.is_empty(),
        "it waits for the worker"
    );
    gate.open();
    while receiver.entries.content.missing.is_empty() {
        receiver.poll(Instant::EPOCH, &mut session);
        std::thread::yield_now();
    }
    arrives(&mut receiver, 1, 5, b"younger");
    finish(&mut receiver);
    assert_eq!(receiver.entries.core.verdict(), None);
    assert_eq!(fs::read(tmp.path().join("a")).unwrap(), b"younger");
    let wants = said(&session).into_iter();
    let wants = wants.filter(
        |m| matches!(m, Message::Want { upto: 2, ranges } if ranges.first() == Some(&(5..12))),
    );
    assert_eq!(wants.count(), 1);
}

#[test]
fn what_gets_on_is_waited_for() {
    let tmp = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = Hanging(Hangs::Writes, Arc::clone(&gate));
    let mut receiver = receiver_on(disk, tmp.path(), RULES).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    let look = |receiver: &mut Receiver, now, answered| {
        let (watch, pool) = (&mut receiver.reports.watch, &receiver.entries.workers.pool);
        (watch.look(pool, now, answered), watch.stuck_at(pool))
    };
    let idle = look(&mut receiver, start, false);
    assert_eq!(idle, (false, None), "there is nothing to do");
    send_all(&mut receiver, &[("f", 500_000)]);
    let mut session = FakeSession::default();
    receiver.poll(start, &mut session);
    let first = start + watch::STUCK;
    assert_eq!(look(&mut receiver, start, true), (false, Some(first)));
    // Something was written at last.
    let second = first + watch::STUCK;
    assert_eq!(look(&mut receiver, first, true), (false, Some(second)));
    // A job that lasts has read a block.
    receiver.entries.workers.pool.stop().step();
    let third = second + watch::STUCK;
    assert_eq!(look(&mut receiver, second, false), (false, Some(third)));
    assert!(look(&mut receiver, third, false).0);
    receiver.poll(third, &mut session);
    let code = receiver.entries.core.fault.as_ref().map(|e| e.code);
    assert_eq!(code, Some(Exit::DestError));
    gate.open();
}
