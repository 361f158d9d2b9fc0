//! Modification times of unchanged sources. Cargo builds again all files newer than their result,
//! as every file of a fresh clone is. A table in the build folder has the content and time of each
//! path; a path with the same content gets that time again.

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

/// File in the build folder: when it was written, then the content, the time and the path of each
/// source.
const TABLE: &str = "sources.tsv";

/// Content of each path, as a number, and when the content was written.
type Sources = BTreeMap<PathBuf, (u64, SystemTime)>;

/// Gives unchanged sources the times that they had, and changed ones the time of now. All count as
/// changed if anything was built in `built` since the table was written, by another clone, or by a
/// gate that did not end.
pub(crate) fn restore(root: &Path, built: &Path) -> io::Result<()> {
    let table = read(&built.join(TABLE))?;
    let newest = newest_build(built)?;
    let valid = table.filter(|(written, _)| newest.is_some_and(|newest| newest <= *written));
    let known = valid.map_or_else(Sources::new, |(_, known)| known);
    for (path, (content, _)) in sources(root)? {
        let then = match known.get(&path) {
            Some((was, then)) if *was == content => *then,
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
    // The gate's own crate was built before the table is read.
    let files = files.filter(|file| !file.starts_with(env!("CARGO_CRATE_NAME")));
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

/// Time at which cargo last built a crate in `built`, but for the gate's own; nothing if that
/// cannot be seen.
fn newest_build(built: &Path) -> io::Result<Option<SystemTime>> {
    let mut newest = None;
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
                Ok(invoked) => newest = newest.max(Some(invoked.modified()?)),
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

    /// Cargo has built this crate there, at this time.
    fn build(built: &Path, crate_: &str, time: SystemTime) {
        let crate_ = built.join("gate/.fingerprint").join(crate_);
        fs::create_dir_all(&crate_).expect("a folder");
        fs::write(crate_.join("invoked.timestamp"), "").expect("a file");
        set(&crate_, "invoked.timestamp", time);
    }

    #[test]
    fn unchanged_sources_get_their_times_and_changed_ones_are_new() {
        let built = tempfile::tempdir().expect("a folder");
        let (first, second) = (clone(), clone());
        let (first, second) = (first.path(), second.path());
        let hour = Duration::from_hours(1);
        let old = wall_clock() - hour;
        build(built.path(), "core-1", old);
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
    fn where_nothing_is_known_every_source_is_new() {
        let (built, root) = (tempfile::tempdir().expect("a folder"), clone());
        let (built, root) = (built.path(), root.path());
        let now = wall_clock();
        let is_old = || {
            restore(root, built).expect("times can be set");
            let old = time(root, "a") == UNIX_EPOCH;
            set(root, "a", UNIX_EPOCH);
            old
        };
        set(root, "a", UNIX_EPOCH);
        assert!(!is_old(), "no table");
        keep(root, built).expect("a table");
        assert!(!is_old(), "no build");
        build(built, "core-1", now);
        keep(root, built).expect("a table");
        assert!(is_old());
        // The gate itself, then another.
        build(built, "xtask-1", now + Duration::from_hours(1));
        assert!(is_old());
        build(built, "haul-1", now + Duration::from_hours(1));
        assert!(!is_old());
    }
}
