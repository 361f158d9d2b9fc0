use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    host::Host,
    progress::Progress,
    scan::{Found, Selection, Source, start},
    wire::{Entry, Kind},
};

/// Bytes of each shard, and who owns what.
fn assigned(count: u32, windows: &[Vec<Weight>]) -> (Vec<u64>, Vec<Owner>) {
    let mut loads = LeastLoaded::new(count);
    let owners: Vec<_> = windows.iter().flat_map(|w| loads.assign(w)).collect();
    let mut bytes = vec![0; count as usize];
    for (owner, weight) in owners.iter().zip(windows.iter().flatten()) {
        match owner {
            Owner::All => {}
            Owner::One(owner) => bytes[*owner as usize] += weight.size(),
            Owner::Several(parts) => {
                for (owner, size) in parts {
                    bytes[*owner as usize] += size;
                }
            }
        }
    }
    (bytes, owners)
}

/// True if the stripes are of whole blocks, long enough, of shards that differ, and together the
/// file.
fn are_stripes(size: u64, parts: &[(u32, u64)], count: u32) -> bool {
    let (last, before) = parts.split_last().unwrap();
    let mut shards: Vec<_> = parts.iter().map(|p| p.0).collect();
    shards.sort_unstable();
    shards.dedup();
    shards.len() == parts.len()
        && parts.len() >= 2
        && shards.iter().all(|shard| *shard < count)
        && parts.iter().map(|p| p.1).sum::<u64>() == size
        && last.1 >= MIN_STRIPE
        && before
            .iter()
            .all(|p| p.1 >= MIN_STRIPE && p.1.is_multiple_of(BLOCK))
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
    fn each_byte_has_one_owner_and_shards_differ_by_little(
        count in prop_oneof![1..9u32, 9..400u32],
        windows in prop::collection::vec(prop::collection::vec(weight(), 0..40), 1..4),
    ) {
        let (bytes, owners) = assigned(count, &windows);
        let all: Vec<_> = windows.iter().flatten().collect();
        prop_assert_eq!(owners.len(), all.len());
        for (owner, weight) in owners.iter().zip(&all) {
            let fits = match (owner, weight) {
                (Owner::All, weight) => **weight == Weight::Folder,
                (_, Weight::Folder) => false,
                (Owner::One(owner), _) => *owner < count,
                (Owner::Several(parts), weight) => are_stripes(weight.size(), parts, count),
            };
            prop_assert!(fits, "{:?} of {:?}", owner, weight);
        }
        let sum: u64 = all.iter().map(|w| w.size()).sum();
        prop_assert_eq!(bytes.iter().sum::<u64>(), sum);
        // Shards of one window: later windows may have less than what is missing.
        let (one, _) = assigned(count, &windows[..1]);
        let most = one.iter().max().unwrap() - one.iter().min().unwrap();
        prop_assert!(most <= 3 * MIN_STRIPE, "{:?}", one);
        let empty = |shard| {
            let pairs = owners.iter().zip(&all);
            pairs.filter(|(o, w)| **o == Owner::One(shard) && w.size() == 0).count()
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
fn a_large_file_is_divided_by_blocks() {
    let gib = 1 << 30;
    let sizes = vec![Weight::File(10 * gib + 5), Weight::File(gib)];
    let (bytes, owners) = assigned(4, &[sizes]);
    assert!(matches!(&owners[0], Owner::Several(parts) if parts.len() == 4));
    let quarter = 11 * gib / 4;
    assert!(
        bytes.iter().all(|b| b.abs_diff(quarter) <= MIN_STRIPE),
        "{bytes:?}"
    );
    // Of many that fit only those that are left over are.
    let (bytes, owners) = assigned(3, &[vec![Weight::File(gib); 10]]);
    let several = |owner: &&Owner| matches!(owner, Owner::Several(_));
    assert_eq!(owners.iter().filter(several).count(), 1);
    assert!(
        bytes.iter().all(|b| b.abs_diff(10 * gib / 3) <= MIN_STRIPE),
        "{bytes:?}"
    );
}

#[test]
fn many_shards_differ_by_less_than_100_mib() {
    for count in [2, 100, 256, 1_000, 10_000] {
        let (bytes, _) = assigned(
            count,
            &[vec![Weight::File(1009 * BLOCK / 10 * u64::from(count))]],
        );
        let most = bytes.iter().max().unwrap() - bytes.iter().min().unwrap();
        assert!(most < 100 * BLOCK, "{count}: {most}");
    }
}

#[test]
fn shards_of_a_large_file_send_stripes_of_it() {
    let tmp = tempfile::tempdir().unwrap();
    let size = 200 * BLOCK + 7;
    let file = fs::File::create(tmp.path().join("large")).unwrap();
    file.set_len(size).unwrap();
    let parts: Vec<_> = (1..=3).map(|index| stripes(tmp.path(), index, 3)).collect();
    let mut at = 0;
    for (index, (entry, partition)) in (0..).zip(&parts) {
        let stripe = entry.stripe.as_ref().unwrap();
        assert_eq!((stripe.offset, stripe.index, stripe.count), (at, index, 3));
        assert_eq!((stripe.file_size, entry.file_size()), (size, size));
        at += entry.size;
        assert_eq!(
            (partition.divided, partition.own.files),
            (1, u64::from(index == 0))
        );
        assert_eq!(partition.own.bytes, entry.size);
        assert!(entry.allocated < entry.size, "it is all holes");
    }
    assert_eq!(at, size);
    let id = |parts: &[(Entry, Partition)]| parts[0].0.stripe.as_ref().unwrap().id;
    assert!(
        parts
            .iter()
            .all(|part| id(std::slice::from_ref(part)) == id(&parts))
    );
    // Another state of it has stripes of its own.
    let time = std::time::SystemTime::UNIX_EPOCH;
    file.set_modified(time).unwrap();
    let again: Vec<_> = (1..=1).map(|index| stripes(tmp.path(), index, 3)).collect();
    assert_ne!(id(&again), id(&parts));
    assert_ne!(again[0].1.listing, parts[0].1.listing);
}

#[test]
fn there_is_no_shard_beside_those_that_count() {
    for (index, count) in [(0, 4), (5, 4), (1, 0), (0, 0), (1, Shard::MOST + 1)] {
        assert_eq!(Shard::new(index, count), None, "{index}/{count}");
    }
    let last = Shard::new(Shard::MOST, Shard::MOST).unwrap();
    assert_eq!(last.to_string(), "10000/10000");
}

/// The only file that shard `index` lists.
fn stripes(source: &Path, index: u32, count: u32) -> (Entry, Partition) {
    let (entries, _, partition) = found(source, index, count);
    let mut files = entries.into_iter().filter(|e| e.kind == Kind::File);
    (files.next().unwrap(), partition)
}

/// Entries that shard `index` of `count` lists of a source, and the partition.
fn listed(source: &Path, index: u32, count: u32) -> (Vec<(Kind, String)>, Vec<String>, Partition) {
    let (entries, problems, partition) = found(source, index, count);
    let name = |e: Entry| (e.kind, path::show(&e.path));
    (entries.into_iter().map(name).collect(), problems, partition)
}

fn found(source: &Path, index: u32, count: u32) -> (Vec<Entry>, Vec<String>, Partition) {
    let selection = Selection {
        shard: Shard::new(index, count).map(|shard| (shard, [7; 8])),
        ..Selection::default()
    };
    let sources = vec![Source::local(source, None).unwrap()];
    let listing = start(
        sources,
        selection,
        Arc::<Progress>::default(),
        &Host::default(),
    );
    let (mut entries, mut problems, mut end) = (Vec::new(), Vec::new(), None);
    let channel = listing.unwrap().channel.unwrap();
    for found in channel.found.iter().flatten() {
        match found {
            Found::Entry(s) => entries.push(s.entry),
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
        // Folders around a file are listed before it.
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
