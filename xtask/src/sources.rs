//! Times of unchanged sources. Cargo builds again what is newer than its result, and every file of a fresh clone is; a table
//! in the build folder says which content a path had at which time, and gives the time back to a path that has the same content.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    fmt::Write as _,
    fs::{self, File},
    hash::{Hash as _, Hasher as _},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// In the build folder: when it was written, then the content, the time and the path of each source.
const TABLE: &str = "sources.tsv";

/// What a path held, and when that was written.
type Sources = BTreeMap<PathBuf, (u64, SystemTime)>;

/// Gives unchanged sources the times that they had, and changed ones that seem older the time of now. Nothing is known
/// if anything was built in `built` since the table was written: by another clone, or by a gate that did not end.
pub(crate) fn restore(root: &Path, built: &Path) -> io::Result<()> {
    let Some((written, known)) = read(&built.join(TABLE))? else {
        return Ok(());
    };
    if newest_build(built)? > written {
        return fs::remove_file(built.join(TABLE));
    }
    for (path, (content, time)) in sources(root)? {
        let then = match known.get(&path) {
            Some((was, then)) if *was == content => *then,
            _ if time > written => continue,
            _ => wall_clock(),
        };
        File::open(root.join(path))?.set_modified(then)?;
    }
    Ok(())
}

/// Writes the table, once nothing is built any more.
pub(crate) fn keep(root: &Path, built: &Path) -> io::Result<()> {
    let mut text = format!("{}\n", nanoseconds(wall_clock())?);
    for (path, (content, time)) in sources(root)? {
        let path = path.to_str().filter(|path| !path.contains('\n'));
        let path = path.ok_or_else(|| io::Error::other("a source whose name is not a line"))?;
        let _ = writeln!(text, "{content}\t{}\t{path}", nanoseconds(time)?);
    }
    let new = built.join(format!("{TABLE}.new"));
    fs::write(&new, text)?;
    fs::rename(new, built.join(TABLE))
}

/// The time of files.
#[expect(
    clippy::disallowed_methods,
    reason = "times of files are of this clock"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn nanoseconds(time: SystemTime) -> io::Result<u128> {
    let since = time.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(since.as_nanos())
}

/// The table and when it was written; nothing where there is none.
fn read(table: &Path) -> io::Result<Option<(SystemTime, Sources)>> {
    let text = match fs::read_to_string(table) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let time = |word: &str| Some(UNIX_EPOCH + Duration::from_nanos(word.parse().ok()?));
    let source = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let (content, then) = (fields.next()?.parse().ok()?, time(fields.next()?)?);
        Some((PathBuf::from(fields.next()?), (content, then)))
    };
    let mut lines = text.lines();
    let written = lines.next().and_then(time);
    let known: Option<Sources> = lines.map(source).collect();
    Ok(written.zip(known))
}

/// Every file that git knows and every folder with one: what it holds, and its time.
fn sources(root: &Path) -> io::Result<Sources> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z"])
        .output()?;
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr);
        return Err(io::Error::other(format!("git ls-files: {said}")));
    }
    let listed = String::from_utf8(listed.stdout).map_err(io::Error::other)?;
    let files = listed.split_terminator('\0').map(PathBuf::from);
    let mut paths: BTreeSet<PathBuf> = files.collect();
    let folders = paths.iter().flat_map(|file| file.ancestors().skip(1));
    let folders: Vec<_> = folders.map(Path::to_path_buf).collect();
    paths.extend(folders);
    let mut sources = Sources::new();
    for path in paths {
        match source(&root.join(&path)) {
            Ok(source) => drop(sources.insert(path, source)),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(sources)
}

/// A file's bytes or a folder's names, as one number, and its time.
fn source(path: &Path) -> io::Result<(u64, SystemTime)> {
    let found = fs::metadata(path)?;
    let mut content = DefaultHasher::new();
    if found.is_dir() {
        let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
        names
            .collect::<io::Result<BTreeSet<_>>>()?
            .hash(&mut content);
    } else {
        fs::read(path)?.hash(&mut content);
    }
    Ok((content.finish(), found.modified()?))
}

/// When cargo last built a crate in `built`; the gate's own crate, which is built before the table is read, does not count.
fn newest_build(built: &Path) -> io::Result<SystemTime> {
    let mut newest = UNIX_EPOCH;
    let profiles = folders(built)?;
    let of_targets = profiles.iter().map(|folder| folders(folder));
    let of_targets: Vec<_> = of_targets.collect::<io::Result<_>>()?;
    for profile in profiles.into_iter().chain(of_targets.into_iter().flatten()) {
        for crate_ in folders(&profile.join(".fingerprint"))? {
            let own = crate_
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(env!("CARGO_CRATE_NAME")));
            match fs::metadata(crate_.join("invoked.timestamp")) {
                Ok(_) if own => {}
                Ok(invoked) => newest = newest.max(invoked.modified()?),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(newest)
}

/// The folders in `folder`; none if it is not there.
fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clone of one commit with files a and f/b.
    fn clone() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("f")).expect("a folder");
        for (file, text) in [("a", "1"), ("f/b", "2")] {
            fs::write(root.path().join(file), text).expect("a file");
        }
        for arguments in [["init", "-q"], ["add", "."]] {
            let git = Command::new("git")
                .current_dir(root.path())
                .args(arguments)
                .status();
            assert!(git.is_ok_and(|status| status.success()));
        }
        root
    }

    fn time(root: &Path, file: &str) -> SystemTime {
        let found = fs::metadata(root.join(file)).expect("it is there");
        found.modified().expect("a time")
    }

    fn set(root: &Path, file: &str, time: SystemTime) {
        let file = File::open(root.join(file)).expect("it is there");
        file.set_modified(time).expect("its own");
    }

    #[test]
    fn unchanged_sources_get_their_times_and_changed_ones_are_new() {
        let built = tempfile::tempdir().expect("a folder");
        let (first, second) = (clone(), clone());
        let (first, second) = (first.path(), second.path());
        let hour = Duration::from_hours(1);
        let old = wall_clock() - hour;
        for path in ["a", "f", "f/b"] {
            set(first, path, old);
        }
        keep(first, built.path()).expect("a table");
        fs::write(second.join("f/b"), "3").expect("a file");
        set(second, "f/b", old - hour);
        restore(second, built.path()).expect("a table");
        assert_eq!(time(second, "a"), old);
        assert_eq!(time(second, "f"), old);
        assert!(
            time(second, "f/b") > old + hour / 2,
            "older than what was built"
        );
        // The first content again, later.
        keep(second, built.path()).expect("a table");
        restore(first, built.path()).expect("a table");
        assert!(time(first, "f/b") > old + hour / 2);
    }

    #[test]
    fn a_table_that_is_older_than_a_build_tells_nothing() {
        let (built, root) = (tempfile::tempdir().expect("a folder"), clone());
        let root = root.path();
        set(root, "a", UNIX_EPOCH);
        keep(root, built.path()).expect("a table");
        let before = time(root, "f/b");
        for (there, crate_) in [("gate", "xtask-1"), ("triple/gate", "core-1")] {
            let crate_ = built.path().join(there).join(".fingerprint").join(crate_);
            fs::create_dir_all(&crate_).expect("a folder");
            fs::write(crate_.join("invoked.timestamp"), "").expect("a file");
            let later = wall_clock() + Duration::from_hours(1);
            set(&crate_, "invoked.timestamp", later);
            set(root, "a", before);
            restore(root, built.path()).expect("a table or none");
            let own = there == "gate";
            assert_eq!(time(root, "a") == UNIX_EPOCH, own);
            assert_eq!(built.path().join(TABLE).exists(), own);
        }
    }
}
