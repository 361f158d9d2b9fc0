use std::{
    fs,
    os::{fd::BorrowedFd, unix::fs::symlink},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
};

use rustix::io::Errno;

use super::{lookup::HELD, *};
use crate::{
    disk::{Answer, Call, Disk, Interposer},
    host::Host,
    receiver, state_names,
};

fn walk(sources: Vec<Source>) -> (Vec<(Kind, String, u64)>, Vec<Problem>) {
    let (entries, problems, _) = walk_some(sources, Selection::default());
    (entries, problems)
}

type Walked = (Vec<(Kind, String, u64)>, Vec<Problem>, Vec<String>);

fn walk_some(sources: Vec<Source>, selection: Selection) -> Walked {
    let mut excluded = Vec::new();
    let progress = Arc::new(Progress::default());
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    let listing = start(sources, selection, Arc::clone(&progress), &Host::default()).unwrap();
    for found in listing.channel.unwrap().found.iter().flatten() {
        match found {
            Found::Entry(s) => {
                entries.push((s.entry.kind, path::show(&s.entry.path), s.entry.size));
            }
            Found::Problem(p) => problems.push(p),
            Found::Excluded(path) | Found::Kept(path) => excluded.push(path::show(&path)),
            Found::End(_) => {}
            Found::Broken(why) => panic!("{why}"),
        }
    }
    (entries, problems, excluded)
}

#[test]
fn a_tree_is_listed_by_the_slash_rule() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("src");
    fs::create_dir_all(base.join("b/empty")).unwrap();
    fs::write(base.join("b/2"), "22").unwrap();
    fs::write(base.join("a"), "").unwrap();
    symlink("b/2", base.join("good")).unwrap();
    symlink("/etc", base.join("bad")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        base.join("fifo"),
        FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let (entries, problems) = walk(vec![Source::local(&base, None).unwrap()]);
    let names: Vec<_> = entries.iter().map(|(_, n, s)| (n.as_str(), *s)).collect();
    assert_eq!(
        names,
        [
            ("src", 0),
            ("src/a", 0),
            ("src/good", 0),
            ("src/b", 0),
            ("src/b/2", 2),
            ("src/b/empty", 0)
        ]
    );
    assert_eq!(
        problems.iter().map(|p| p.code).collect::<Vec<_>>(),
        [Exit::Partial, Exit::Ok]
    );
    // The name by which a failure in the middle of the copy is reported, too.
    let told: Vec<_> = problems.iter().map(|p| p.text.as_str()).collect();
    assert!(told[0].starts_with("src/bad: absolute link"), "{told:?}");
    assert!(
        told[1].starts_with("src/fifo: a pipe, socket or device"),
        "{told:?}"
    );
    let slash = tmp.path().join("src/");
    let (contents, problems) = walk(vec![Source::local(&slash, None).unwrap()]);
    assert!(problems[0].text.starts_with("bad: absolute link"));
    assert_eq!(contents[0], (Kind::Dir, String::new(), 0));
    assert_eq!(contents[1].1, "a");
    let (one, _) = walk(vec![Source::local(&base.join("b/2"), None).unwrap()]);
    assert_eq!(one, [(Kind::File, "2".into(), 2)]);
    let root = confine::open_root(tmp.path()).unwrap();
    let (far, _) = walk(vec![Source::beneath(Arc::clone(&root), b"src/b").unwrap()]);
    assert_eq!(far.last().unwrap().1, "b/empty");
    assert!(Source::beneath(Arc::clone(&root), b"src/../../x").is_err());
    assert!(Source::beneath(root, b"src/bad/hostname").is_err());
}

/// A tree with links within it, out of it, to nothing and to folders around them; beside it what they lead to.
fn tree_of_links() -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("src/d/e")).unwrap();
    fs::create_dir_all(tmp.path().join("ref/deep")).unwrap();
    fs::write(tmp.path().join("ref/deep/genome"), "ACGT").unwrap();
    fs::write(tmp.path().join("src/d/f"), "1").unwrap();
    for (target, name) in [
        ("d/f", "to-file"),
        ("../../ref", "d/out"),
        ("nothing", "broken"),
        ("..", "d/up"),
        ("../../..", "d/e/around"),
        ("a", "a"),
    ] {
        symlink(target, tmp.path().join("src").join(name)).unwrap();
    }
    let absolute = tmp.path().join("ref/deep/genome");
    symlink(absolute, tmp.path().join("src/absolute")).unwrap();
    // Two folders with links to each other.
    symlink("../../src/d", tmp.path().join("ref/deep/back")).unwrap();
    tmp
}

#[test]
fn links_are_kept_followed_or_skipped() {
    let tmp = tree_of_links();
    let base = tmp.path().join("src");
    let walk = |symlinks, filter: Filter| {
        let (sources, _) =
            resolve(std::slice::from_ref(&base), symlinks, &Host::default()).unwrap();
        walk_some(
            sources,
            Selection {
                filter,
                symlinks,
                ..Selection::default()
            },
        )
    };
    let links = |walked: &Walked| {
        walked
            .0
            .iter()
            .filter(|(kind, ..)| *kind == Kind::Symlink)
            .count()
    };
    let kept = walk(Symlinks::Keep, Filter::default());
    assert_eq!((links(&kept), &kept.1[..]), (7, &[][..]));
    let skipped = walk(Symlinks::Skip, Filter::default());
    assert_eq!((links(&skipped), &skipped.1[..]), (0, &[][..]));
    let within = walk(Symlinks::Within, Filter::default());
    assert_eq!((links(&within), within.1.len()), (6, 1), "{:?}", within.1);
    let followed = walk(Symlinks::Follow, Filter::default());
    assert_eq!(
        followed
            .0
            .iter()
            .map(|(kind, name, size)| (*kind, name.as_str(), *size))
            .collect::<Vec<_>>(),
        [
            (Kind::Dir, "src", 0),
            (Kind::File, "src/absolute", 4),
            (Kind::File, "src/to-file", 1),
            (Kind::Dir, "src/d", 0),
            (Kind::File, "src/d/f", 1),
            (Kind::Dir, "src/d/e", 0),
            (Kind::Dir, "src/d/out", 0),
            (Kind::Dir, "src/d/out/deep", 0),
            (Kind::File, "src/d/out/deep/genome", 4),
        ]
    );
    let told: Vec<_> = followed
        .1
        .iter()
        .map(|p| p.text.split(':').next().unwrap())
        .collect();
    assert_eq!(
        told,
        [
            "src/a",
            "src/broken",
            "src/d/up",
            "src/d/e/around",
            "src/d/out/deep/back"
        ]
    );
    assert!(followed.1.iter().all(|p| p.code == Exit::Partial));
    // Patterns are of the names in the tree.
    let filter = Filter::new(&["out/".into(), "/broken".into()], &[], (None, None)).unwrap();
    let some = walk(Symlinks::Follow, filter);
    assert!(
        some.0.iter().all(|(_, name, _)| !name.contains("out")),
        "{:?}",
        some.0
    );
    assert_eq!(some.1.len(), 3, "{:?}", some.1);
}

#[test]
fn links_of_a_share_are_followed_within_it_only() {
    let tmp = tree_of_links();
    let root = confine::open_root(&tmp.path().join("src")).unwrap();
    let source = Source::beneath(root, b"").unwrap();
    let symlinks = Symlinks::Follow;
    let walked = walk_some(
        vec![source],
        Selection {
            symlinks,
            ..Selection::default()
        },
    );
    assert_eq!(names_of(&walked), ["", "to-file", "d", "d/f", "d/e"]);
    let out: Vec<_> = walked
        .1
        .iter()
        .filter(|p| p.text.contains("out of the share"))
        .collect();
    assert_eq!(out.len(), 3, "{:?}", walked.1);
}

fn names_of(walked: &Walked) -> Vec<&str> {
    walked.0.iter().map(|(_, n, _)| n.as_str()).collect()
}

#[test]
fn what_is_left_out_is_not_opened() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("src");
    fs::create_dir_all(base.join("a/deep/er")).unwrap();
    fs::create_dir_all(base.join("b")).unwrap();
    for file in ["a/1.tmp", "a/deep/er/2.bam", "b/3.bam", "b/4"] {
        fs::write(base.join(file), file).unwrap();
    }
    // The order in which a name sorts must not hide that "a" is around "a/deep" and not "a.x".
    fs::create_dir(base.join("a.x")).unwrap();
    let select = |exclude: &[&str], include: &[&str]| {
        let owned = |p: &[&str]| p.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        let filter = Filter::new(&owned(exclude), &owned(include), (None, None)).unwrap();
        let selection = Selection {
            filter,
            tell: true,
            ..Selection::default()
        };
        walk_some(vec![Source::local(&base, None).unwrap()], selection)
    };
    let walked = select(&["*.tmp", "deep"], &[]);
    assert_eq!(
        names_of(&walked),
        ["src", "src/a", "src/a.x", "src/b", "src/b/3.bam", "src/b/4"]
    );
    assert_eq!(walked.2, ["a/1.tmp", "a/deep"]);
    let walked = select(&[], &["*.bam"]);
    assert_eq!(
        names_of(&walked),
        [
            "src",
            "src/a",
            "src/a/deep",
            "src/a/deep/er",
            "src/a/deep/er/2.bam",
            "src/b",
            "src/b/3.bam"
        ]
    );
    assert_eq!(names_of(&select(&[], &["nothing"])), [""; 0]);
}

#[test]
fn a_list_takes_the_place_of_the_walk() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("src");
    fs::create_dir_all(base.join("a/b")).unwrap();
    fs::write(base.join("a/b/1"), "1").unwrap();
    fs::write(base.join("a/2"), "2").unwrap();
    symlink("b", base.join("a/link")).unwrap();
    let list = [
        "a/b/1", "a/b/1", "a/link", "a/link/1", "../x", "none", "a/b",
    ];
    let list = list.map(|p| p.as_bytes().to_vec()).to_vec();
    let selection = Selection {
        list: Some(Arc::new(list)),
        ..Selection::default()
    };
    let walked = walk_some(vec![Source::local(&base, None).unwrap()], selection);
    assert_eq!(
        names_of(&walked),
        ["src", "src/a", "src/a/b", "src/a/b/1", "src/a/link"]
    );
    let texts: Vec<_> = walked.1.iter().map(|p| p.text.as_str()).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].starts_with("src/a/link/1"), "{texts:?}");
    assert!(texts[1].starts_with("../x"), "{texts:?}");
    assert!(texts[2].starts_with("src/none"), "{texts:?}");
}

#[test]
fn missing_sources_are_named() {
    let e = resolve(
        &["/nonexistent/a".into(), "/nonexistent/b".into()],
        Symlinks::Keep,
        &Host::default(),
    )
    .unwrap_err();
    assert_eq!(e.code, Exit::SourceMissing);
    assert!(e.text.contains("/nonexistent/a") && e.text.contains("/nonexistent/b"));
    let tmp = tempfile::tempdir().unwrap();
    let (sources, problems) = resolve(
        &[tmp.path().into(), "/nonexistent/b".into()],
        Symlinks::Keep,
        &Host::default(),
    )
    .unwrap();
    assert_eq!((sources.len(), problems.len()), (1, 1));
}

#[test]
fn many_typed_sources_are_listed_as_each_alone_and_keep_one_folder_open() {
    let tmp = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for i in 0..=HELD {
        let dir = tmp.path().join(format!("of/{i}/d{i}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), "content").unwrap();
        symlink(format!("f{i}"), dir.join("link")).unwrap();
        paths.push(if i % 2 == 0 {
            dir
        } else {
            dir.join(format!("f{i}"))
        });
    }
    let alone = paths.iter().map(|path| Source::local(path, None).unwrap());
    let (many, problems) = resolve(&paths, Symlinks::Keep, &Host::default()).unwrap();
    assert_eq!(problems, []);
    assert!(many.iter().all(|s| Arc::ptr_eq(&s.root, &many[0].root)));
    assert_eq!(walk(alone.collect()), walk(many));
}

#[test]
fn two_files_do_not_share_a_name() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |rel: &str| tmp.path().join(rel);
    for dir in ["a/deep", "b/deep", "c/a"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    for (file, text) in [
        ("a/x", "1"),
        ("a/deep/y", "22"),
        ("b/x", "333"),
        ("b/deep/y", "4444"),
        ("b/deep/own", "55555"),
        ("c/a/x", "666666"),
        ("c/deep", "7777777"),
    ] {
        fs::write(at(file), text).unwrap();
    }
    let of = |paths: &[&str]| {
        let sources = paths.iter().map(|p| Source::local(&at(p), None).unwrap());
        let (entries, problems) = walk(sources.collect());
        let files = entries.into_iter().filter(|(kind, ..)| *kind == Kind::File);
        let files: Vec<_> = files.map(|(_, name, size)| (name, size)).collect();
        let base = format!("{}/", tmp.path().display());
        let says = |p: &Problem| p.text.replace(&base, "");
        let problems: Vec<_> = problems.iter().map(says).collect();
        (files, problems)
    };
    let file = |name: &str, size| (name.to_string(), size);
    let (files, problems) = of(&["a/x", "b/x", "c/a/x"]);
    assert_eq!(files, [file("x", 1)]);
    assert_eq!(problems.len(), 2);
    assert!(
        problems[0].starts_with("b/x: an earlier source is already sent as x"),
        "{problems:?}"
    );
    let (files, problems) = of(&["a/", "b/"]);
    let expected = [file("x", 1), file("deep/y", 2), file("deep/own", 5)];
    assert_eq!(files, expected, "folders share a name, files do not");
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[1].starts_with("b/deep/y: "), "{problems:?}");
    let (files, problems) = of(&["a", "c/"]);
    assert!(files.contains(&file("a/x", 1)) && !files.contains(&file("a/x", 6)));
    assert_eq!(problems.len(), 1, "a source and the contents of another");
    let (_, problems) = of(&["a/", "c/"]);
    assert!(
        problems.iter().any(|p| p.starts_with("c/deep: ")),
        "a file and a folder: {problems:?}"
    );
    let (files, problems) = of(&["a/x", "a/x", "a", "a"]);
    assert_eq!(files.len(), 3, "the same again is nothing new");
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn a_folder_removed_while_it_is_served_is_not_an_empty_one() {
    let tmp = tempfile::tempdir().unwrap();
    let share = tmp.path().join("share");
    fs::create_dir(&share).unwrap();
    let root = confine::open_root(&share).unwrap();
    assert!(Source::beneath(Arc::clone(&root), b"").is_ok());
    fs::remove_dir(&share).unwrap();
    let gone = Source::beneath(root, b"").unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_scanner_that_panics_is_not_taken_for_one_that_is_done() {
    let last = |scan: fn() -> Result<Option<Partition>, Gone>| {
        let (to, from) = mpsc::sync_channel(1);
        let to: Give = Arc::new(move |batch| to.send(batch).map_err(|_| Gone));
        to_the_end(&to, scan);
        from.try_recv().unwrap().pop().unwrap()
    };
    assert!(matches!(last(|| Ok(None)), Found::End(None)));
    assert!(matches!(last(|| panic!("injected")), Found::Broken(why) if why == "injected"));
}

#[test]
fn state_is_left_out_and_named_and_similar_names_are_sent() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("src");
    fs::create_dir_all(base.join("d/e")).unwrap();
    let name = |name: Vec<u8>| String::from_utf8(name).unwrap();
    let journal = |tag| name(state_names::journal_name([tag; 8]));
    let part = |tag| name(state_names::part_name(b"x", [tag; 8]));
    // Transfer 1 is under way in `d`.
    let dir = confine::open_root(&base.join("d")).unwrap();
    let live = receiver::open_journal(&dir, [1; 8]);
    let ours = [
        format!("d/{}", journal(1)),
        format!("d/{}", part(1)),
        format!("d/e/{}", part(1)),
    ];
    for part in &ours[1..] {
        fs::write(base.join(part), "part").unwrap();
    }
    // These are the user's.
    let mut users = vec![
        part(1),
        format!("d/{}", part(2)),
        format!("d/{}", journal(3)),
        format!("d/{}", journal(4)),
        ".x.farhaul-part".to_string(),
        ".farhaul-journal-mine".to_string(),
    ];
    for file in &users {
        fs::write(base.join(file), "mine").unwrap();
    }
    fs::create_dir(base.join(part(5))).unwrap();
    fs::write(base.join(part(5)).join("f"), "mine").unwrap();
    users.push(format!("{}/f", part(5)));
    let (entries, problems) = walk(vec![Source::local(&tmp.path().join("src/"), None).unwrap()]);
    let files = entries.iter().filter(|(kind, ..)| *kind == Kind::File);
    let mut sent: Vec<_> = files.map(|(_, name, _)| name.clone()).collect();
    sent.sort();
    users.sort();
    assert_eq!(sent, users);
    let reported: Vec<_> = problems.iter().map(|p| &p.text).collect();
    assert_eq!(reported.len(), ours.len(), "{reported:?}");
    for name in &ours {
        assert!(
            reported.iter().any(|text| text.starts_with(name)),
            "{reported:?}"
        );
    }
    drop(live);
}

#[test]
fn a_journal_that_begins_or_ends_meanwhile_is_state() {
    let tmp = tempfile::tempdir().unwrap();
    let root = confine::open_root(tmp.path()).unwrap();
    let name = state_names::journal_name([1; 8]);
    assert!(is_state(&root, &name), "it is gone");
    let file = tmp.path().join(str::from_utf8(&name).unwrap());
    fs::write(&file, "").unwrap();
    assert!(is_state(&root, &name), "nothing is in it yet");
    fs::write(&file, "mine").unwrap();
    assert!(!is_state(&root, &name));
}

#[test]
fn in_virtual_time_no_more_is_looked_up_than_is_waited_for() {
    let tmp = tempfile::tempdir().unwrap();
    for i in 0..3 * BATCH {
        fs::write(tmp.path().join(i.to_string()), "").unwrap();
    }
    let host = Host {
        simulated: Some(crate::Simulated {
            disk: Disk::default(),
            time: Arc::default(),
        }),
        ..Host::default()
    };
    let source = Source::local(tmp.path(), None).unwrap();
    let progress = Arc::new(Progress::default());
    let listing = start(
        vec![source],
        Selection::default(),
        Arc::clone(&progress),
        &host,
    );
    let channel = listing.unwrap().channel.unwrap();
    let first = channel.try_recv().unwrap();
    let files = |progress: &Progress| usize::try_from(progress.files_total()).unwrap();
    assert!(files(&progress) <= first.len() && !progress.is_scanned());
    while !matches!(channel.try_recv().unwrap()[..], [Found::End(None)]) {}
    assert_eq!(files(&progress), 3 * BATCH);
    let over = channel.try_recv().unwrap_err();
    assert_eq!(over, mpsc::TryRecvError::Disconnected);
}

/// A disk on which the listing of every folder breaks off after some names.
struct BreaksOff(Errno, AtomicUsize);

impl Interposer for BreaksOff {
    fn before(&self, _: BorrowedFd<'_>, call: &Call<'_>) -> Answer {
        match call {
            Call::List if self.1.fetch_add(1, Relaxed) > 20 => Answer::Fail(self.0),
            _ => Answer::Go,
        }
    }

    fn after(&self, _: BorrowedFd<'_>, _: &Call<'_>) {}
}

#[test]
fn a_listing_that_breaks_off_is_none() {
    let tmp = tempfile::tempdir().unwrap();
    for n in 0..100 {
        fs::write(tmp.path().join(format!("{n}")), "").unwrap();
    }
    // As of a folder that was removed meanwhile, and of signals without end.
    for e in [Errno::NOENT, Errno::IO, Errno::STALE, Errno::INTR] {
        let disk = Disk(Some(Arc::new(BreaksOff(e, AtomicUsize::new(0)))));
        let root = confine::open_root(tmp.path()).unwrap().on(&disk).unwrap();
        assert_eq!(Cursor::within(&root, 0).err(), Some(e));
    }
    let root = confine::open_root(tmp.path()).unwrap();
    for _ in 0..2 {
        let mut cursor = Cursor::within(&root, 0).unwrap();
        let mut names = 0;
        while cursor.next(&root).unwrap().is_some() {
            names += 1;
        }
        assert_eq!(names, 100);
    }
}

/// Paths of a walk that holds no more than `room`, in its order.
fn paths_within(room: Room, base: &Path, selection: Selection) -> Vec<String> {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&paths);
    let give: Give = Arc::new(move |batch: Vec<Found>| {
        for found in batch {
            match found {
                Found::Entry(s) => to.lock().unwrap().push(path::show(&s.entry.path)),
                Found::End(_) | Found::Excluded(_) => {}
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    });
    let source = Source::beneath(confine::open_root(base).unwrap(), b"").unwrap();
    let progress = Arc::new(Progress::default());
    scan(&give, &[source], selection, progress, room);
    std::mem::take(&mut paths.lock().unwrap())
}

#[test]
fn a_tree_is_the_same_however_little_of_it_is_held() {
    let tmp = tempfile::tempdir().unwrap();
    let mut rng = farhaul_core::rng::Rng::new(3);
    let mut folders = vec![tmp.path().to_path_buf()];
    for i in 0..400_u64 {
        let n = usize::try_from(rng.next_u64()).unwrap_or_default() % folders.len();
        let name = format!("{:x}-{i}", rng.next_u64() % 16);
        let at = folders[n].join(name);
        if i % 3 == 0 {
            fs::create_dir(&at).unwrap();
            folders.push(at);
        } else {
            fs::write(at.with_extension(["a", "b"][n % 2]), "").unwrap();
        }
    }
    let only_a = Selection {
        filter: Filter::new(&[], &["*.a".into()], (None, None)).unwrap(),
        ..Selection::default()
    };
    for selection in [Selection::default(), only_a] {
        let mut whole = paths_within(Room::MOST, tmp.path(), selection.clone());
        whole.sort();
        for (names, folders) in [(0, 0), (60, 0), (0, 900), (400, 2_000), (1 << 20, 700)] {
            let room = Room {
                names,
                folders,
                least: 0,
            };
            let mut paths = paths_within(room, tmp.path(), selection.clone());
            for (i, path) in paths.iter().enumerate() {
                let around = path.rsplit_once('/').map_or("", |(around, _)| around);
                let before = &paths[..i];
                let listed = path.is_empty() || before.iter().any(|p| p == around);
                assert!(listed, "{path} came before {around}");
            }
            paths.sort();
            assert_eq!(paths, whole, "{names} {folders}");
        }
    }
}

#[test]
fn what_is_mounted_below_a_source_is_left_out_if_wanted() {
    let (top, below) = (Path::new("/dev"), "pts");
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev).ok();
    let other = device(&top.join(below));
    if other.is_none() || other == device(top) {
        eprintln!("skipped: nothing is mounted at /dev/pts");
        return;
    }
    for (one_file_system, is_listed) in [(false, true), (true, false)] {
        let selection = Selection {
            one_file_system,
            tell: true,
            ..Selection::default()
        };
        let source = Source::local(top, None).unwrap();
        let (entries, _, left_out) = walk_some(vec![source], selection);
        let has = |name: &str| entries.iter().any(|(_, path, _)| path == name);
        assert!(has("dev"));
        assert_eq!(has("dev/pts"), is_listed);
        assert_eq!(left_out.iter().any(|path| path == below), !is_listed);
    }
}

#[test]
fn a_name_that_moves_between_two_passes_is_not_missed_in_silence() {
    let tmp = tempfile::tempdir().unwrap();
    for i in 0..2 * BATCH {
        fs::write(tmp.path().join(format!("f{i:04}")), "").unwrap();
    }
    fs::write(tmp.path().join("zlast"), "").unwrap();
    for i in 0..50 {
        fs::create_dir(tmp.path().join(format!("e{i:02}"))).unwrap();
    }
    // In one pass, in several over the names, and in a part behind each directory.
    let most = Room::MOST;
    for (names, folders) in [
        (1 << 20, most.folders),
        (2_000, most.folders),
        (1 << 20, 900),
    ] {
        let (base, problems) = (tmp.path().to_owned(), Arc::new(Mutex::new(Vec::new())));
        let to = Arc::clone(&problems);
        let give: Give = Arc::new(move |batch: Vec<Found>| {
            // From behind all that was listed to before it.
            let _moved_before = fs::rename(base.join("zlast"), base.join("a"));
            for found in batch {
                if let Found::Problem(problem) = found {
                    to.lock().unwrap().push(problem.code);
                }
            }
            Ok(())
        });
        let source = Source::beneath(confine::open_root(tmp.path()).unwrap(), b"").unwrap();
        let room = Room {
            names,
            ..Room::MOST
        };
        scan(&give, &[source], Selection::default(), Arc::default(), room);
        // What was held is missed by its name, what was not held by the folder's time.
        let problems = std::mem::take(&mut *problems.lock().unwrap());
        assert_eq!(problems, [Exit::SourceChanged], "{names} {folders}");
        fs::rename(tmp.path().join("a"), tmp.path().join("zlast")).unwrap();
    }
}
