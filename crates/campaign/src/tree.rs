//! Small trees from a seed: empty, small and larger files, with holes, odd names, links, folders; some of them there already in
//! another version.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Seek as _, SeekFrom, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use farhaul_core::rng::Rng;

/// Entry at a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    Folder,
    File(Vec<u8>),
    Link(PathBuf),
}

pub(crate) type Tree = BTreeMap<PathBuf, Entry>;

const NAMES: [&[u8]; 6] = [
    b"plain",
    b"with space",
    b"\xff\xfe",
    b"line\nbreak",
    b"-dash",
    b".hidden",
];

/// Makes a tree at `root`.
pub(crate) fn make(root: &Path, rng: &mut Rng) -> io::Result<()> {
    fs::create_dir_all(root)?;
    let mut folders = vec![root.to_owned()];
    for i in 0..rng.below(4) {
        let parent = &folders[pick(rng, folders.len())];
        let folder = parent.join(format!("folder {i}"));
        fs::create_dir(&folder)?;
        folders.push(folder);
    }
    for i in 0..3 + rng.below(25) {
        let parent = &folders[pick(rng, folders.len())];
        let mut name = NAMES[pick(rng, NAMES.len())].to_vec();
        name.extend_from_slice(format!("-{i}").as_bytes());
        let path = parent.join(OsStr::from_bytes(&name));
        if rng.chance(0.1) {
            symlink(format!("plain-{}", rng.below(9)), path)?;
        } else {
            file(&path, rng)?;
        }
    }
    Ok(())
}

fn file(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let most = [1, 100, 20_000, 300_000, 3_000_000][pick(rng, 5)];
    let len = rng.below(most);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    rng.fill(&mut bytes);
    let mut file = fs::File::create(path)?;
    if rng.chance(0.1) {
        file.seek(SeekFrom::Start(rng.below(3_000_000)))?;
    }
    file.write_all(&bytes)
}

/// Puts older versions of some of the files of `source` at `target`.
pub(crate) fn age(source: &Path, target: &Path, rng: &mut Rng) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for (path, entry) in read(source)? {
        match entry {
            Entry::Folder => fs::create_dir_all(target.join(path))?,
            Entry::File(_) if rng.chance(0.3) => file(&target.join(path), rng)?,
            _ => {}
        }
    }
    Ok(())
}

/// Reads the tree beneath `root`.
pub(crate) fn read(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?.file_type();
            let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
            let what = if kind.is_dir() {
                open.push(path);
                Entry::Folder
            } else if kind.is_symlink() {
                Entry::Link(fs::read_link(&path)?)
            } else {
                Entry::File(fs::read(&path)?)
            };
            tree.insert(name, what);
        }
    }
    Ok(tree)
}

/// Number of bytes that have been written beneath `root`.
pub(crate) fn bytes(root: &Path) -> io::Result<Option<u64>> {
    let (mut sum, mut open) = (0, vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            // It may have got its name meanwhile.
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            if meta.is_dir() {
                open.push(path);
            } else {
                sum += meta.blocks();
            }
        }
    }
    Ok(Some(sum))
}

/// True for a name that a copy makes for itself.
pub(crate) fn is_state(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b".farhaul-journal-") || name.ends_with(b".farhaul-part")
}

/// Names a difference after a copy has succeeded.
pub(crate) fn differs(wanted: &Tree, there: &Tree) -> Option<String> {
    for (path, entry) in wanted {
        if there.get(path) != Some(entry) {
            return Some(format!("{} is not what was copied", path.display()));
        }
    }
    let more = there
        .keys()
        .find(|path| !wanted.contains_key(*path) && !is_state(path));
    more.map(|path| format!("{} came from nowhere", path.display()))
}

/// Names a torn entry while a copy has not succeeded: a name has its old content or its new one.
pub(crate) fn torn(wanted: &Tree, old: &Tree, there: &Tree) -> Option<String> {
    let bad = there.iter().find(|(path, entry)| {
        !is_state(path) && wanted.get(*path) != Some(*entry) && old.get(*path) != Some(*entry)
    });
    bad.map(|(path, _)| format!("{} is neither old nor new", path.display()))
}

/// One of `n`.
pub(crate) fn pick(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).unwrap_or_default()
}
