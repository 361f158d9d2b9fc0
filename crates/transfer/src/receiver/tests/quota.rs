use super::*;
use crate::{
    confine::open_root,
    digest::BlockDigest,
    quota::Quota,
    wire::{BLOCK, Hash},
};

const MIB: u64 = 1 << 20;

fn moved_on(receiver: &mut Receiver) -> Vec<Message> {
    let mut session = FakeSession::default();
    loop {
        receiver.poll(Instant::EPOCH, &mut session);
        if !receiver.is_waiting() {
            return said(&session);
        }
        std::thread::yield_now();
    }
}

/// Receiver with `f` of 4 MiB, and a listed `f` of time `mtime` that differs in the first block
/// only.
fn reusing(dir: &Path, quota: &Quota, mtime: i64) -> Receiver {
    let size = 4 * BLOCK;
    let bytes = vec![7; usize::try_from(size).unwrap()];
    fs::write(dir.join("f"), &bytes).unwrap();
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::options().write(true).open(dir.join("f")).unwrap();
    file.set_modified(old).unwrap();
    let rules = Rules {
        // A file of this time, too, is compared.
        checksum: mtime == 1_000_000_000,
        ..RULES
    };
    let mut receiver = receiver(dir, rules)
        .unwrap()
        .within(Some(Claim::new(quota.clone())));
    let listed = Entry {
        mtime,
        ..entry("f", size)
    };
    let entries = vec![listed];
    receiver
        .handle(Message::Entries { first: 0, entries })
        .unwrap();
    moved_on(&mut receiver);
    let root = Root {
        file: 0,
        sparse: false,
        hash: [1; 32],
    };
    receiver.handle(Message::Roots(vec![root])).unwrap();
    moved_on(&mut receiver);
    let value = |index| {
        let mut digest = BlockDigest::new(index, size);
        digest.update(&bytes[..usize::try_from(BLOCK).unwrap()]);
        digest.value()
    };
    let mut values: Vec<Hash> = (0..4).map(value).collect();
    values[0] = [2; 32];
    let blocks = Message::Blocks {
        file: 0,
        first: 0,
        values,
    };
    receiver.handle(blocks).unwrap();
    moved_on(&mut receiver);
    receiver
}

fn quota(dir: &Path, limit: u64) -> Quota {
    // The existing file.
    fs::write(dir.join("f"), vec![7; usize::try_from(4 * BLOCK).unwrap()]).unwrap();
    Quota::new(open_root(dir).unwrap(), limit).unwrap()
}

#[test]
fn what_is_copied_from_an_old_file_counts_for_a_quota() {
    let same_time = 1_000_000_000;
    for mtime in [same_time, same_time + 1] {
        let tmp = tempfile::tempdir().unwrap();
        let narrow = quota(tmp.path(), 5 * MIB);
        let receiver = reusing(tmp.path(), &narrow, mtime);
        let error = receiver.entries.core.verdict();
        assert_eq!(error.map(|e| e.code), Some(Exit::NoSpace), "{mtime}");
        assert_eq!(receiver.entries.core.tally.resumed, 0);

        let tmp = tempfile::tempdir().unwrap();
        let wide = quota(tmp.path(), 9 * MIB);
        let receiver = reusing(tmp.path(), &wide, mtime);
        assert_eq!(receiver.entries.core.verdict(), None);
        assert_eq!(receiver.entries.core.tally.resumed, 3 * MIB);
        assert_eq!(wide.room(), MIB, "{mtime}: once");
    }
}
