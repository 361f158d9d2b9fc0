use std::path::PathBuf;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{confine, wire::Exit};

const ID: Identity = Identity {
    size: 5 << 20,
    mtime: -3,
    mtime_nanos: 7,
};

/// Parts are not looked at.
const ANY: Room<'_> = &|_, _| usize::MAX;

#[test]
fn claims_survive_and_damage_only_loses_what_follows() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let mut j = Journal::open_with(&dir, [1; 8], ANY).unwrap();
    let a = j.begin(b"dir/a", ID);
    let b = j.begin(b"b", ID);
    j.block(a, 0, &[1; 32]);
    j.block(b, 4, &[2; 32]);
    j.forget(b);
    j.block(a, 3, &[3; 32]);
    j.flush().unwrap();
    let locked = Journal::open_with(&dir, [1; 8], ANY).unwrap_err();
    assert_eq!(locked.code, Exit::Locked);
    assert!(
        locked.text.contains(&format!("pid {}", std::process::id())),
        "{locked}"
    );
    assert!(
        Journal::open(&dir, [2; 8]).is_ok(),
        "another transfer is not in the way"
    );
    drop(j);
    let file = tmp
        .path()
        .join(path::show(&state_names::journal_name([1; 8])));
    let mut bytes = std::fs::read(&file).unwrap();
    let mut j = Journal::open_with(&dir, [1; 8], ANY).unwrap();
    let expected = BTreeMap::from([(0, [1; 32]), (3, [3; 32])]);
    assert_eq!(j.claim(b"b", ID), None);
    assert_eq!(j.claim(b"dir/a", ID), Some(expected));
    drop(j);
    let n = bytes.len();
    bytes[n - 10] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let mut j = Journal::open_with(&dir, [1; 8], ANY).unwrap();
    let other = Identity { mtime: 5, ..ID };
    assert_eq!(j.claims[&b"dir/a"[..]].blocks.len(), 1);
    assert_eq!(
        j.claim(b"dir/a", other),
        None,
        "another file of the same name"
    );
    drop(j);
    assert!(!file.exists(), "an empty journal is removed");
}

#[test]
fn what_took_the_name_of_a_journal_is_not_waited_for_and_not_touched() {
    use std::os::unix::fs::symlink;
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let name = path::show(&state_names::journal_name([1; 8]));
    let there = tmp.path().join(&name);
    let other = tmp.path().join("other");
    let node = |kind, device| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &there, kind, mode, device)
    };
    let refused = |why: &str| {
        let e = Journal::open_with(&dir, [1; 8], ANY).unwrap_err();
        assert_eq!(e.code, Exit::DestError, "{e}");
        assert!(e.text.contains(&name) && e.text.contains(why), "{e}");
        assert!(e.fix.contains("remove it"), "{e:?}");
    };
    node(rustix::fs::FileType::Fifo, 0).unwrap();
    refused("not a regular file");
    std::fs::remove_file(&there).unwrap();
    std::fs::create_dir(&there).unwrap();
    refused("not a regular file");
    std::fs::remove_dir(&there).unwrap();
    std::fs::write(&other, "mine").unwrap();
    symlink(&other, &there).unwrap();
    refused("not a regular file");
    std::fs::remove_file(&there).unwrap();
    std::fs::hard_link(&other, &there).unwrap();
    refused("hard link");
    std::fs::remove_file(&there).unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    std::fs::write(&there, "").unwrap();
    if std::os::unix::fs::chown(&there, Some(54_321), None).is_ok() {
        refused("another user");
    }
    std::fs::remove_file(&there).unwrap();
    // Long, and no journal: nothing of it is kept.
    std::fs::File::create(&there)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    drop(Journal::open_with(&dir, [1; 8], ANY).unwrap());
    assert!(!there.exists());
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
}

#[test]
fn after_a_failed_sync_nothing_from_before_is_trusted() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let open = || Journal::open_with(&dir, [1; 8], ANY).unwrap();
    let is_there = || std::fs::read_dir(tmp.path()).unwrap().count() > 0;
    let names = [&b"x"[..], b"d/y"];
    let mut j = open();
    j.named(names.into_iter()).unwrap();
    let a = j.begin(b"a", ID);
    j.block(a, 0, &[1; 32]);
    drop(j);
    // A kill: no error was reported to anybody who noted it.
    let mut j = open();
    assert!(names.iter().all(|n| !j.is_suspect(n) && j.is_unsure(n)));
    assert!(!j.is_unsure(b"z"));
    assert!(j.claim(b"a", ID).is_some());
    j.sync_failed().unwrap();
    let b = j.begin(b"b", ID);
    j.block(b, 1, &[2; 32]);
    drop(j);
    let mut j = open();
    assert!(names.iter().all(|n| j.is_suspect(n)) && !j.is_suspect(b"z"));
    assert_eq!(j.claim(b"a", ID), None);
    assert!(j.claim(b"b", ID).is_some(), "what came after it");
    // One of them is sent again, and synced.
    j.named(std::iter::once(names[0])).unwrap();
    j.synced(true).unwrap();
    drop(j);
    let mut j = open();
    assert!(!j.is_suspect(names[0]) && j.is_suspect(names[1]));
    assert_eq!(j.unclaimed().count(), 2, "their parts are to be removed");
    j.drop_unclaimed(&[]);
    j.named(std::iter::once(names[1])).unwrap();
    j.synced(true).unwrap();
    drop(j);
    assert!(!is_there(), "it has nothing more to say");
}

#[test]
fn what_a_killed_run_named_is_unsure_until_a_run_has_checked_it() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let open = || Journal::open(&dir, [1; 8]).unwrap();
    let is_there = || std::fs::read_dir(tmp.path()).unwrap().count() > 0;
    let names = [&b"x"[..], b"y", b"z"];
    open().named(names.into_iter()).unwrap();
    let mut j = open();
    j.found(b"x");
    j.named(std::iter::once(&b"y"[..])).unwrap();
    assert!(!j.is_unsure(b"x") && !j.is_unsure(b"y") && j.is_unsure(b"z"));
    drop(j);
    let mut j = open();
    assert!(names.iter().all(|n| j.is_unsure(n)), "it was killed too");
    j.found(b"x");
    j.found(b"y");
    j.synced(false).unwrap();
    drop(j);
    let mut j = open();
    assert!(!j.is_unsure(b"x") && !j.is_unsure(b"y"));
    assert!(j.is_unsure(b"z"), "it may be listed next time");
    j.synced(true).unwrap();
    drop(j);
    assert!(!is_there());
}

#[test]
fn too_many_names_select_all() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let open = || Journal::open(&dir, [1; 8]).unwrap();
    let names: Vec<[u8; 8]> = (0..=bounds::NAMED as u64).map(u64::to_be_bytes).collect();
    let all = || names.iter().map(|n| &n[..]);
    open().named(all()).unwrap();
    let mut j = open();
    assert!(j.unsure.some.len() <= bounds::NAMED && j.is_unsure(b"another"));
    j.named(all()).unwrap();
    j.synced(false).unwrap();
    drop(j);
    let mut j = open();
    assert!(j.is_unsure(b"another"), "something failed");
    j.sync_failed().unwrap();
    drop(j);
    let mut j = open();
    assert!(j.is_suspect(b"another") && !j.is_unsure(b"another"));
    assert!(j.suspects.some.len() <= bounds::NAMED);
    j.named(all()).unwrap();
    j.synced(true).unwrap();
    drop(j);
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn no_more_is_claimed_of_a_part_than_it_may_store() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let open = || Journal::open(&dir, [1; 8]).unwrap();
    let size = 1 << 40;
    let id = Identity { size, ..ID };
    let part = tmp
        .path()
        .join(path::show(&state_names::part_name(b"a", [1; 8])));
    let file = std::fs::File::create(&part).unwrap();
    file.set_len(size).unwrap();
    let mut j = open();
    for name in [&b"a"[..], b"gone"] {
        let n = j.begin(name, id);
        (0..1000).for_each(|index| j.block(n, index, &[1; 32]));
    }
    drop(j);
    let claimed = |name: &[u8]| open().claims[name].blocks.len();
    assert!((1..100).contains(&claimed(b"a")), "{}", claimed(b"a"));
    assert_eq!(claimed(b"gone"), 0);
    file.set_len(size - 1).unwrap();
    assert_eq!(claimed(b"a"), 0);
}

#[test]
fn a_run_without_sync_leaves_no_journal_of_unsynced_names() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = confine::open_root(tmp.path()).unwrap();
    let open = || Journal::open_with(&dir, [1; 8], ANY).unwrap();
    let is_there = || std::fs::read_dir(tmp.path()).unwrap().count() > 0;
    let names = [&b"x"[..], b"y"];
    open().named(names.into_iter()).unwrap();
    assert!(is_there(), "killed before the sync");
    open().settle();
    assert!(!is_there());
    let mut j = open();
    j.named(names.into_iter()).unwrap();
    j.sync_failed().unwrap();
    drop(j);
    // A run that failed takes nothing away; one that sent a part of them again takes that.
    open().named_for_now(names.into_iter());
    let mut j = open();
    assert!(names.iter().all(|n| j.is_suspect(n)));
    j.named_for_now(std::iter::once(names[0]));
    j.settle();
    assert!(!j.is_suspect(names[0]) && j.is_suspect(names[1]));
    drop(j);
    let mut j = open();
    j.named_for_now(names.into_iter());
    j.settle();
    drop(j);
    assert!(!is_there());
}

#[test]
fn what_is_claimed_beyond_the_bounds_is_not_kept() {
    let long = |n: u64| [n.to_string().as_bytes(), &[b'x'; 4_000]].concat();
    let files = 2 * (bounds::CLAIMS / 8_000) as u64;
    let mut bytes = Vec::new();
    for n in 0..files {
        put_file(&mut bytes, n, &long(n), ID);
        put_block(&mut bytes, n, 3, &[1; 32]);
    }
    let mut all = Contents::read(&bytes[..], ANY).unwrap();
    let kept = all.claims.len();
    assert!(all.charged <= bounds::CLAIMS && (100..200).contains(&kept));
    assert_eq!((all.names.len(), all.blocks), (kept, kept));
    assert_eq!(all.claims[&long(0)].blocks.len(), 1, "the first are kept");
    assert_eq!(all.next, files, "no number is used twice");
    // Files that are over make room.
    bytes.clear();
    put_record(&mut bytes, FORGET, |w| w.varint(0).is_ok());
    put_file(&mut bytes, files, &long(files), ID);
    records(&bytes[..], |body| all.apply(body, ANY).is_ok()).unwrap();
    assert!(all.claims.contains_key(&long(files)) && !all.claims.contains_key(&long(0)));
    // Of too many blocks the first are kept.
    all.blocks = bounds::CLAIMED - 1;
    bytes.clear();
    put_block(&mut bytes, files, 7, &[2; 32]);
    put_block(&mut bytes, files, 8, &[2; 32]);
    records(&bytes[..], |body| all.apply(body, ANY).is_ok()).unwrap();
    let blocks = &all.claims[&long(files)].blocks;
    assert!(blocks.contains_key(&7) && !blocks.contains_key(&8));
}

/// Step of a run, as the receiver does it; files by number among [`NAMES`].
#[derive(Clone, Debug)]
enum Step {
    /// The sources have a file of this name and identity, which is not complete.
    Begin(usize, Identity),
    /// The nth file under way has a block more.
    Block(Index, u64, Hash),
    /// The nth file under way is over.
    Forget(Index),
    /// The run ends, another begins.
    Again,
}

const NAMES: [&[u8]; 4] = [b"a", b"dir/b", b"\xff\n", b"dir/sub/c.part"];

fn an_identity() -> impl Strategy<Value = Identity> {
    let few = (0_u64..2, -1_i64..1, 0_u32..2);
    let any = (0..1_u64 << 62, any::<i64>(), any::<u32>());
    prop_oneof![few, any].prop_map(|(size, mtime, mtime_nanos)| Identity {
        size,
        mtime,
        mtime_nanos,
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let block = || {
        let index = prop_oneof![0_u64..9, 0..1_u64 << 62];
        (any::<Index>(), index, any::<u8>())
            .prop_map(|(file, index, byte)| Step::Block(file, index, [byte; 32]))
    };
    prop_oneof![
        (0..NAMES.len(), an_identity()).prop_map(|(name, id)| Step::Begin(name, id)),
        block(),
        block(),
        any::<Index>().prop_map(Step::Forget),
        Just(Step::Again),
    ]
}

type Claims = BTreeMap<Vec<u8>, Claim>;

/// A journal in a folder, and a naive twin of its disk.
struct Twin {
    tmp: tempfile::TempDir,
    dir: Dir,
    journal: Option<Journal>,
    under_way: Vec<(u64, usize)>,
    claims: Claims,
}

impl Twin {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let dir = confine::open_root(tmp.path()).unwrap();
        let journal = Some(Journal::open_with(&dir, [1; 8], ANY).unwrap());
        Self {
            tmp,
            dir,
            journal,
            under_way: Vec::new(),
            claims: BTreeMap::new(),
        }
    }

    fn file(&self) -> PathBuf {
        self.tmp
            .path()
            .join(path::show(&state_names::journal_name([1; 8])))
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.journal.as_mut().unwrap().flush().unwrap();
        std::fs::read(self.file()).unwrap()
    }

    fn take(&mut self, step: &Step) {
        let journal = self.journal.as_mut().unwrap();
        match *step {
            Step::Begin(i, identity) => {
                let name = NAMES[i].to_vec();
                if self.under_way.iter().any(|(_, n)| *n == i) {
                    return;
                }
                let left = self.claims.get(&name).filter(|c| c.identity == identity);
                let left = left.map(|c| c.blocks.clone());
                // Only what an earlier run left, and only once.
                if let Some(claimed) = journal.claim(&name, identity) {
                    assert_eq!(Some(claimed), left);
                }
                self.under_way.push((journal.begin(&name, identity), i));
                let blocks = left.unwrap_or_default();
                self.claims.insert(
                    name,
                    Claim {
                        identity,
                        blocks,
                        room: usize::MAX,
                    },
                );
            }
            Step::Block(nth, index, value) if !self.under_way.is_empty() => {
                let (number, i) = self.under_way[nth.index(self.under_way.len())];
                journal.block(number, index, &value);
                let claim = self.claims.get_mut(NAMES[i]).unwrap();
                claim.blocks.insert(index, value);
            }
            Step::Forget(nth) if !self.under_way.is_empty() => {
                let (number, i) = self.under_way.remove(nth.index(self.under_way.len()));
                journal.forget(number);
                self.claims.remove(NAMES[i]);
            }
            Step::Block(..) | Step::Forget(_) => {}
            Step::Again => {
                self.under_way.clear();
                let needed = journal.is_needed();
                drop(self.journal.take());
                assert_eq!(self.file().exists(), needed);
                self.journal = Some(Journal::open_with(&self.dir, [1; 8], ANY).unwrap());
                assert_eq!(self.journal.as_ref().unwrap().claims, self.claims);
            }
        }
    }
}

/// Ends of the records of a journal, as offsets.
fn ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    let read = records(bytes, |body| {
        ends.push(ends.last().unwrap() + 4 + body.len() + CHECK);
        true
    });
    assert_eq!(read.unwrap(), *ends.last().unwrap() as u64);
    ends
}

fn recorded(steps: &[Step]) -> Vec<u8> {
    let mut twin = Twin::new();
    for step in steps {
        twin.take(step);
    }
    twin.bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_recorded_is_claimed_and_nothing_else(steps in vec(a_step(), 0..40)) {
        let mut twin = Twin::new();
        for step in steps {
            twin.take(&step);
            let bytes = twin.bytes();
            let contents = Contents::read(&bytes[..], ANY).unwrap();
            prop_assert_eq!(&contents.claims, &twin.claims);
            prop_assert_eq!(contents.good, bytes.len() as u64);
        }
        twin.take(&Step::Again);
    }

    #[test]
    fn a_journal_cut_or_damaged_says_what_it_said_before(
        steps in vec(a_step(), 0..40),
        at in any::<Index>(),
        bits in any::<u8>(),
    ) {
        let whole = recorded(&steps);
        let at = at.index(whole.len());
        let before = *ends(&whole).iter().rfind(|end| **end <= at).unwrap();
        let expected = Contents::read(&whole[..before], ANY).unwrap();
        prop_assert_eq!(expected.good, before as u64);
        let mut bytes = whole;
        if bits == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= bits;
        }
        prop_assert_eq!(Contents::read(&bytes[..], ANY).unwrap(), expected);
        fuzz_journal(&bytes);
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(prop_oneof![0_u8..40, any::<u8>()], 0..300)) {
        fuzz_journal(&bytes);
        fuzz_journal_records(&bytes);
    }
}
