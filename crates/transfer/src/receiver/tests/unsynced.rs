//! Small files that a run named and did not live to sync.

use rustix::fs::OFlags;

use super::*;

/// A disk that lost what the page cache still has: a read past the cache returns another file's
/// content.
struct Forgetful;

impl Interposer for Forgetful {
    fn before(&self, fd: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        let direct = || rustix::fs::fcntl_getfl(fd).is_ok_and(|f| f.contains(OFlags::DIRECT));
        match call {
            Call::Read(..) if direct() => Answer::Fail(Errno::IO),
            _ => Answer::Go,
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

/// Names `a` in `dir`, and is killed before the sync at the end.
fn killed(dir: &Path) {
    let mut receiver = receiver(dir, SYNCED).unwrap();
    let entries = vec![entry("a", 5000)];
    let listed = Message::Entries { first: 0, entries };
    receiver.handle(listed).unwrap();
    content(&mut receiver);
    let mut now = Instant::EPOCH;
    while receiver.entries.core.tally.files_ok == 0 {
        receiver.poll(now, &mut FakeSession::default());
        now = later(&receiver, now);
        std::thread::yield_now();
    }
}

fn content(receiver: &mut Receiver) {
    let extent = Extent {
        object: 1,
        offset: 0,
        len: 5000,
        at: 0,
    };
    receiver.place(&[extent], &[7; 5000]).unwrap();
    let root = Root {
        file: 0,
        sparse: false,
        hash: blake3::hash(&[7; 5000]).into(),
    };
    receiver.handle(Message::Roots(vec![root])).unwrap();
}

/// A later run on this disk; how often content was asked for.
fn again(dir: &Path, disk: impl Interposer + 'static, rules: Rules) -> (usize, Receiver) {
    let mut receiver = receiver_on(disk, dir, rules).unwrap();
    let (mut session, mut now, mut asked) = (FakeSession::default(), Instant::EPOCH, 0);
    assert_eq!(send_all(&mut receiver, &[("a", 5000)]), 0, "compared first");
    while !receiver.entries.core.is_finished() {
        receiver.poll(now, &mut session);
        now = later(&receiver, now);
        let repairs = |m: &Message| matches!(m, Message::Repair { .. });
        if said(&session).into_iter().filter(repairs).count() > asked {
            asked += 1;
            content(&mut receiver);
        }
        std::thread::yield_now();
    }
    (asked, receiver)
}

fn reads_directly(dir: &Path) -> bool {
    let file = File::open(dir.join("a")).unwrap();
    rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).is_ok()
}

#[test]
fn what_a_killed_run_named_is_read_past_the_cache_and_sent_again_if_it_is_lost() {
    let keep = Rules {
        existing: Existing::Keep,
        ..SYNCED
    };
    for rules in [SYNCED, keep] {
        let tmp = tempfile::tempdir().unwrap();
        killed(tmp.path());
        if !reads_directly(tmp.path()) {
            return;
        }
        let (asked, receiver) = again(tmp.path(), Forgetful, rules);
        assert_eq!((asked, receiver.entries.core.tally.files_ok), (1, 1));
        assert_eq!(receiver.entries.core.verdict(), None);
        drop(receiver);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1, "no journal");
        // It was synced: whatever the disk says of it later is not asked.
        let (asked, receiver) = again(tmp.path(), Forgetful, SYNCED);
        assert_eq!((asked, receiver.entries.core.tally.files_skipped), (0, 1));
    }
}

#[test]
fn what_a_killed_run_named_and_the_disk_has_is_not_sent_again() {
    let tmp = tempfile::tempdir().unwrap();
    killed(tmp.path());
    let (asked, receiver) = again(tmp.path(), GOOD, SYNCED);
    assert_eq!((asked, receiver.entries.core.tally.files_skipped), (0, 1));
    drop(receiver);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1, "no journal");
}

#[test]
fn what_a_killed_run_lost_and_may_not_be_replaced_is_reported() {
    let tmp = tempfile::tempdir().unwrap();
    killed(tmp.path());
    if !reads_directly(tmp.path()) {
        return;
    }
    let rules = Rules {
        reach: Reach::New,
        ..SYNCED
    };
    let (asked, receiver) = again(tmp.path(), Forgetful, rules);
    assert_eq!(asked, 0);
    let error = receiver.entries.core.verdict().unwrap();
    assert_eq!(error.code, Exit::DestError);
    assert!(error.text.contains("the disk failed"), "{error}");
    drop(receiver);
    assert!(fs::read_dir(tmp.path()).unwrap().count() > 1, "it is noted");
}
