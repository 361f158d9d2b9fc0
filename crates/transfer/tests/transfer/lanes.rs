//! Copies of several sessions: what goes over which differs from run to run; what arrives does not.

use std::{fs, path::Path, sync::Arc};

use farhaul_transfer::{
    Outcome,
    client::{Download, Options, Upload},
    lanes_by_cores,
    server::{Access, Allow, Policy, Server, Share},
};

use crate::pair::{Way, mixed, noise, options, remote, run_lanes, tree};

/// Events that may happen to further parallel sessions.
#[derive(Clone, Copy)]
pub(crate) struct Loss {
    /// Number of the session that ends after `after` bytes of its content have arrived.
    pub(crate) lane: usize,
    pub(crate) after: u64,
}

fn with(lanes: u32) -> Options {
    Options {
        lanes: Some(lanes),
        ..options()
    }
}

fn policy(root: &Path) -> Arc<Policy> {
    let shares = vec![Share::open("s", root, Access::ReadWrite).unwrap()];
    Arc::new(Policy::new(shares, Allow::Any, false).of_one_person())
}

/// Copies `from` to `to`, and returns the outcome and what each further parallel session carried.
fn copy(
    put: bool,
    from: &Path,
    to: &Path,
    mut options: Options,
    lose: Option<Loss>,
    way: &mut Way,
) -> (Outcome, Vec<u64>) {
    let lanes = run_lanes::opener(&mut options);
    let policy = policy(if put { to } else { from });
    let mut server = Server::new(Arc::clone(&policy), None);
    let mut further = || Server::new(Arc::clone(&policy), None);
    if put {
        let mut client = Upload::new(&[from.join("")], &remote(""), options).unwrap();
        let handle = client.handle();
        let carried = run_lanes::run(&mut client, &mut server, &lanes, &mut further, lose, way);
        (handle.outcome().expect("it ended"), carried)
    } else {
        let mut client = Download::new(&[remote("")], to, options).unwrap();
        let handle = client.handle();
        let carried = run_lanes::run(&mut client, &mut server, &lanes, &mut further, lose, way);
        (handle.outcome().expect("it ended"), carried)
    }
}

fn sources(dir: &Path) {
    mixed(dir);
    fs::write(dir.join("many/bigger"), noise(9, 30_000_001)).unwrap();
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &noise(4, 3 << 20), 2 << 20).unwrap();
}

fn check(put: bool, lanes: u32, lose: Option<Loss>, seed: u64) -> Outcome {
    let tmp = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| tmp.path().join(name));
    sources(&from);
    fs::create_dir(&to).unwrap();
    let mut way = Way::new(seed);
    let (outcome, carried) = copy(put, &from, &to, with(lanes), lose, &mut way);
    assert_eq!(outcome.error, None, "put {put}, {lanes} lanes");
    assert!(tree(&from) == tree(&to), "put {put}, {lanes} lanes");
    assert_eq!(
        outcome.summary.lanes, lanes,
        "{:?}",
        outcome.summary.warnings
    );
    assert!(
        carried.iter().all(|bytes| *bytes >= 1 << 20),
        "every lane carries a part: {carried:?}"
    );
    let small: u64 = outcome.summary.bytes_payload;
    assert!(
        carried.iter().sum::<u64>() < small,
        "the first carries some: {carried:?}"
    );
    outcome
}

#[test]
fn a_tree_arrives_over_any_number_of_lanes() {
    for (put, lanes) in [(true, 2), (false, 2), (true, 5), (false, 5)] {
        let outcome = check(put, lanes, None, u64::from(lanes));
        assert_eq!(outcome.summary.warnings, [""; 0]);
    }
}

#[test]
fn a_lane_that_is_lost_leaves_its_part_to_the_others() {
    for (put, lane) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let lose = Loss {
            lane,
            after: 3_000_000,
        };
        let outcome = check(put, 3, Some(lose), 17);
        let lost = |w: &&String| w.contains(&format!("lane {} was lost", lane + 2));
        let warnings = &outcome.summary.warnings;
        assert_eq!(warnings.iter().filter(lost).count(), 1, "{warnings:?}");
    }
}

#[test]
fn one_lane_is_what_is_asked_for_by_default_where_there_are_few_cores() {
    assert!((1..=8).contains(&lanes_by_cores()));
    let tmp = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| tmp.path().join(name));
    sources(&from);
    fs::create_dir(&to).unwrap();
    let (outcome, carried) = copy(true, &from, &to, options(), None, &mut Way::new(3));
    assert_eq!((outcome.summary.lanes, carried.len()), (1, 0));
}
