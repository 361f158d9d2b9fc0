use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    host::Host,
    message::Kind,
    progress::Progress,
    scan::{Found, Selection, Source, start},
};

/// Bytes of each shard, and who owns what.
fn assigned(count: u32, windows: &[Vec<Weight>]) -> (Vec<u64>, Vec<Option<u32>>) {
    let mut loads = LeastLoaded::new(count);
    let owners: Vec<_> = windows.iter().flat_map(|w| loads.assign(w)).collect();
    let mut bytes = vec![0; count as usize];
    for (owner, weight) in owners.iter().zip(windows.iter().flatten()) {
        if let Some(owner) = owner {
            bytes[*owner as usize] += weight.size();
        }
    }
    (bytes, owners)
}

fn weight() -> impl Strategy<Value = Weight> {
    prop_oneof![
        Just(Weight::Folder),
        Just(Weight::Other),
        Just(Weight::File(0)),
        (1..100u64).prop_map(Weight::File),
        (1..1u64 << 40).prop_map(Weight::File),
    ]
}

proptest! {
    #[test]
    fn each_entry_has_one_owner_and_shards_differ_by_a_file_at_most(
        count in 1..9u32,
        windows in prop::collection::vec(prop::collection::vec(weight(), 0..40), 0..4),
    ) {
        let (bytes, owners) = assigned(count, &windows);
        let all: Vec<_> = windows.iter().flatten().collect();
        prop_assert_eq!(owners.len(), all.len());
        for (owner, weight) in owners.iter().zip(&all) {
            let shared = **weight == Weight::Folder;
            prop_assert!(owner.map_or(shared, |owner| !shared && owner < count));
        }
        let sum: u64 = all.iter().map(|w| w.size()).sum();
        prop_assert_eq!(bytes.iter().sum::<u64>(), sum);
        let largest = all.iter().map(|w| w.size()).max().unwrap_or(0);
        let (most, least) = (bytes.iter().max(), bytes.iter().min());
        prop_assert!(most.unwrap() - least.unwrap() <= largest, "{:?}", bytes);
        let empty = |shard| {
            let pairs = owners.iter().zip(&all);
            pairs.filter(|(o, w)| **o == Some(shard) && w.size() == 0).count()
        };
        let empties: Vec<_> = (0..count).map(empty).collect();
        prop_assert!(empties.iter().max().unwrap() - empties.iter().min().unwrap() <= 1);
        prop_assert_eq!(assigned(count, &windows).1, owners, "the same again");
    }
}

#[test]
fn the_largest_of_a_window_go_first() {
    let sizes = [3, 3, 2, 4, 2, 4].map(Weight::File).to_vec();
    assert_eq!(assigned(3, &[sizes]).0, [6, 6, 6]);
    // In two windows what came late cannot be weighed against what came before.
    let windows = [[2, 2], [1, 9]].map(|w| w.map(Weight::File).to_vec());
    assert_eq!(assigned(2, &windows).0, [11, 3]);
}

#[test]
fn there_is_no_shard_beside_those_that_count() {
    for (index, count) in [(0, 4), (5, 4), (1, 0), (0, 0), (1, Shard::MOST + 1)] {
        assert_eq!(Shard::new(index, count), None, "{index}/{count}");
    }
    let last = Shard::new(Shard::MOST, Shard::MOST).unwrap();
    assert_eq!(last.to_string(), "10000/10000");
}

/// What shard `index` of `count` lists of a source, and how it was partitioned.
fn listed(source: &Path, index: u32, count: u32) -> (Vec<(Kind, String)>, Vec<String>, Partition) {
    let selection = Selection {
        shard: Shard::new(index, count),
        ..Selection::default()
    };
    let sources = vec![Source::local(source).unwrap()];
    let listing = start(
        sources,
        selection,
        Arc::<Progress>::default(),
        &Host::default(),
    );
    let (mut entries, mut problems, mut end) = (Vec::new(), Vec::new(), None);
    for found in listing.unwrap().found.iter().flatten() {
        match found {
            Found::Entry(s) => entries.push((s.entry.kind, path::show(&s.entry.path))),
            Found::Problem(problem) => problems.push(problem.text),
            Found::End(partition) => end = partition,
            _ => {}
        }
    }
    (entries, problems, end.unwrap())
}

#[test]
fn shards_of_a_tree_have_it_all_once_and_every_folder() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("src");
    fs::create_dir_all(base.join("a/deep")).unwrap();
    fs::create_dir_all(base.join("empty")).unwrap();
    for i in 0..40_usize {
        let folder = ["", "a", "a/deep"][i % 3];
        fs::write(base.join(folder).join(format!("f{i}")), vec![0; i * 100]).unwrap();
    }
    symlink("a/f1", base.join("link")).unwrap();
    symlink("/etc", base.join("out")).unwrap();
    let (mut files, mut folders, mut told) = (Vec::new(), Vec::new(), Vec::new());
    let mut own = Content::default();
    let (_, _, first) = listed(&base, 1, 3);
    for index in 1..=3 {
        let (entries, problems, found) = listed(&base, index, 3);
        assert_eq!((&found.listing, found.whole), (&first.listing, first.whole));
        own.files += found.own.files;
        own.bytes += found.own.bytes;
        assert!(found.own.bytes.abs_diff(first.whole.bytes / 3) < 200);
        // What is around a file is listed before it.
        for (at, (_, path)) in entries.iter().enumerate() {
            let (above, _) = path.rsplit_once('/').unwrap_or(("", ""));
            let before = entries[..at].iter().any(|(_, p)| p == above);
            assert!(before || above.is_empty(), "{path}");
        }
        let (dirs, others): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .partition(|(kind, _)| *kind == Kind::Dir);
        folders.push(dirs);
        files.extend(others.into_iter().map(|(_, path)| path));
        told.extend(problems);
    }
    assert_eq!(own, first.whole);
    assert_eq!((files.len(), first.whole.files), (41, 40));
    files.sort();
    files.dedup();
    assert_eq!(files.len(), 41, "each is in one shard");
    assert_eq!(folders[0].len(), 4);
    assert!(folders.iter().all(|f| *f == folders[0]));
    assert_eq!(told.len(), 1, "one shard says what is left out: {told:?}");
    fs::write(base.join("f0"), "longer").unwrap();
    assert_ne!(listed(&base, 1, 3).2.listing, first.listing);
}
