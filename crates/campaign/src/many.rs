//! Copies ten million files within a bounded memory, in virtual time. A disk at the receiver counts
//! each file when it gets its name, and does not keep it; the sources are names of few files.
//!
//! - It ends, and reports a success and so many files.
//! - Each file got its name once, with its content.
//! - Both ends together hold at most twice what one may.
//! - The same in the other direction.

use std::{
    fs, io,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    ALLOCATED, HEAP, Scale,
    report::Report,
    simulated::{
        self,
        copy::{self, Day, Ran, Task},
        disk::{Count, Faults},
        world::Network,
    },
};

/// Files of the gate and of the documented campaign.
const GATE: usize = 20_000;
const FULL: usize = 10_000_000;
/// Files in a folder.
const FOLDER: usize = 100_000;
/// Contents; the first is empty.
const CONTENTS: usize = 98;
/// File systems allow some 65,000 names of a file.
const NAMES: usize = CONTENTS * 60_000;
/// The longest that a call on a disk takes.
const CALL: Duration = Duration::from_micros(2);
/// Bytes that a planted disk keeps of each file.
const LEAK: usize = 16 << 10;

/// Runs both directions, or as many as are wanted.
pub(crate) fn run(scale: &Scale) -> Report {
    let mut report = Report::new("many");
    let files = if scale.full { FULL } else { GATE };
    // The names are more than a file system in memory has.
    let folders = tempfile::tempdir().and_then(|folder| Ok((folder, simulated::folder()?)));
    let (folder, destination) = match folders {
        Ok(folders) => folders,
        Err(e) => {
            report.skip(format!("no folder can be made: {e}"));
            return report;
        }
    };
    let source = folder.path().join("from");
    let expected = match make(folder.path(), &source, files) {
        Ok(expected) => expected,
        Err(e) => {
            report.skip(format!("so many names cannot be made: {e}"));
            return report;
        }
    };
    let mut most = 0;
    for seed in scale.seed..scale.seed + scale.runs(2, 2) {
        let put = seed.is_multiple_of(2);
        let to = destination.path().join(seed.to_string());
        let one = || one(&source, &to, (put, seed), scale.planted);
        report.ran();
        match panic::catch_unwind(AssertUnwindSafe(one)) {
            Ok(Ok((ran, memory))) => {
                most = most.max(memory);
                for fault in faults(&ran, memory, expected) {
                    report.fault(format!("put {put}: {fault}"));
                }
            }
            Ok(Err(fault)) => report.fault(format!("put {put}: {fault}")),
            Err(_) => report.fault(format!("put {put}: panicked")),
        }
    }
    report.figure("files", files);
    report.figure("most memory of both ends, bytes", most);
    report
}

/// The content of file `i`, not that of its neighbours.
fn content(i: usize) -> String {
    match i % CONTENTS {
        0 => String::new(),
        i => i.to_string(),
    }
}

/// Makes so many files below `source`; their count.
fn make(folder: &Path, source: &Path, files: usize) -> io::Result<Count> {
    let mut count = Count::default();
    let (mut contents, mut dir) = (Vec::new(), PathBuf::new());
    for i in 0..files {
        if i.is_multiple_of(NAMES) {
            contents.clear();
            for kind in 0..CONTENTS {
                let path = folder.join(format!("content-{i}-{kind}"));
                fs::write(&path, content(kind))?;
                contents.push(path);
            }
        }
        if i.is_multiple_of(FOLDER) {
            dir = source.join((i / FOLDER).to_string());
            fs::create_dir_all(&dir)?;
        }
        let name = i.to_string();
        fs::hard_link(&contents[i % CONTENTS], dir.join(&name))?;
        count.add(name.as_bytes(), content(i).as_bytes());
    }
    Ok(count)
}

/// A copy, and the most memory it took.
fn one(
    source: &Path,
    to: &Path,
    (put, seed): (bool, u64),
    planted: bool,
) -> Result<(Ran, usize), String> {
    fs::create_dir(to).map_err(|e| format!("cannot prepare: {e}"))?;
    let task = Task {
        put,
        from: source.to_path_buf(),
        to: to.to_path_buf(),
    };
    let faults = Faults {
        slow: CALL,
        forgets: true,
        leaks: if planted { LEAK } else { 0 },
        ..Faults::default()
    };
    let day = Day {
        disks: [faults; 2],
        network: Some(Network {
            delay: Duration::from_millis(1),
            jitter: Duration::ZERO,
            loss: 0,
            rate: 10_000_000_000,
        }),
        ..Day::default()
    };
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let ran = copy::run(&task, &day, seed)?;
    Ok((ran, ALLOCATED.peak_usage().saturating_sub(before)))
}

/// Faults of a run.
fn faults(ran: &Ran, memory: usize, expected: Count) -> Vec<String> {
    let mut faults = Vec::new();
    if ran.hangs || !ran.is_success() {
        let error = ran.outcome.as_ref().map(|outcome| &outcome.error);
        faults.push(format!("no success, but {error:?}"));
    }
    if ran.forgotten != expected {
        faults.push(format!("{:?} arrived, not {expected:?}", ran.forgotten));
    }
    let files = ran.outcome.as_ref().map(|o| o.summary.files);
    if files.is_none_or(|f| (f.total, f.sent, f.failed) != (expected.files, expected.files, 0)) {
        faults.push(format!("{files:?} were reported"));
    }
    if memory > 2 * HEAP {
        faults.push(format!("{memory} bytes of memory"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(put: bool, planted: bool) -> (Ran, usize, Count) {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("from");
        let expected = make(folder.path(), &source, 2_000).unwrap();
        let to = folder.path().join("to");
        let (ran, memory) = one(&source, &to, (put, 1), planted).unwrap();
        (ran, memory, expected)
    }

    #[test]
    fn each_of_them_arrives_once_with_its_content() {
        for put in [true, false] {
            let (ran, _, expected) = of(put, false);
            // Other tests allocate meanwhile.
            assert_eq!(faults(&ran, 0, expected), Vec::<String>::new());
            assert_eq!(expected.files, 2_000);
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        let (ran, memory, mut expected) = of(true, true);
        expected.add(b"another", b"");
        let found = faults(&ran, memory + 2 * HEAP, expected);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
