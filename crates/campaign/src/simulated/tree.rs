//! Trees to copy: small ones of everything that a tree may hold, and the entries at the destination
//! before.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use farhaul_core::rng::Rng;

use super::pick;

/// Entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    File {
        mode: u32,
        time: (i64, i64),
        bytes: Vec<u8>,
    },
    Dir {
        mode: u32,
        time: (i64, i64),
    },
    Link(Vec<u8>),
}

/// Entries below a folder.
pub(crate) type Tree = BTreeMap<Vec<u8>, Thing>;

/// Reads everything below `root`.
pub(crate) fn read(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at)? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            let (mode, time) = (meta.mode() & 0o7777, (meta.mtime(), meta.mtime_nsec()));
            let thing = if meta.is_dir() {
                stack.push(path.clone());
                Thing::Dir { mode, time }
            } else if meta.is_symlink() {
                Thing::Link(fs::read_link(&path)?.into_os_string().into_vec())
            } else {
                let bytes = fs::read(&path)?;
                Thing::File { mode, time, bytes }
            };
            let rel = path.strip_prefix(root).unwrap_or(&path);
            tree.insert(rel.as_os_str().as_bytes().to_vec(), thing);
        }
    }
    Ok(tree)
}

/// True for what a transfer keeps for itself.
pub(crate) fn is_state(path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    name.starts_with(b".farhaul-journal-") || name.ends_with(b".farhaul-part")
}

fn sizes(rng: &mut Rng) -> usize {
    let odd = rng.below(900);
    let size = *pick(
        rng,
        &[
            0,
            1,
            300,
            4_096,
            20_000,
            65_537,
            200_000,
            1 << 20,
            (1 << 20) + 1,
            1_500_000,
        ],
    );
    // Most are small.
    let size = if size > 100_000 && rng.below(2) == 0 {
        700
    } else {
        size
    };
    size + usize::try_from(odd).unwrap_or_default() * usize::from(size > 1 && rng.chance(0.5))
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

fn name(rng: &mut Rng, n: u64) -> Vec<u8> {
    match rng.below(12) {
        0 => format!("-{n} spaced  name").into_bytes(),
        1 => format!("new\nline{n}").into_bytes(),
        2 => [b"raw\xff\xfe", n.to_string().as_bytes()].concat(),
        3 => format!("\u{e4}\u{1f4be}{n}").into_bytes(),
        4 => [vec![b'l'; 250], n.to_string().into_bytes()].concat(),
        5 => format!(".hidden{n}").into_bytes(),
        _ => format!("f{n}").into_bytes(),
    }
}

fn set(path: &Path, rng: &mut Rng, mode: u32) -> io::Result<()> {
    let time = UNIX_EPOCH + Duration::new(1_000_000_000 + rng.below(1 << 20), 123_000_000);
    File::open(path)?.set_modified(time)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn write(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let len = sizes(rng);
    let file = File::create(path)?;
    if len > 4_096 && rng.below(6) == 0 {
        // Holes and data.
        file.set_len(len as u64 + (2 << 20))?;
        let block = bytes(rng, 5_000);
        file.write_all_at(&block, rng.below(len as u64))?;
    } else {
        file.write_all_at(&bytes(rng, len), 0)?;
    }
    let mode = *pick(rng, &[0o644, 0o644, 0o600, 0o755, 0o444, 0o400]);
    set(path, rng, mode)
}

/// Makes a tree below `root`, which is there.
pub(crate) fn make(root: &Path, rng: &mut Rng) -> io::Result<()> {
    let mut dirs = vec![root.to_path_buf()];
    let count = 2 + rng.below(9);
    for n in 0..count {
        let dir: PathBuf = pick(rng, &dirs).clone();
        let name = name(rng, n);
        let path = dir.join(OsStr::from_bytes(&name));
        match rng.below(8) {
            0 | 1 => {
                fs::create_dir(&path)?;
                dirs.push(path);
            }
            2 => symlink(format!("f{}", rng.below(count)), &path)?,
            _ => write(&path, rng)?,
        }
    }
    for dir in dirs.iter().skip(1).rev() {
        let mode = *pick(rng, &[0o755, 0o755, 0o700, 0o555]);
        set(dir, rng, mode)?;
    }
    Ok(())
}

/// Puts into `to`, which is empty, what an earlier time left of `from`: the same, older, other,
/// nothing. Entries that have nothing to do with it are added.
pub(crate) fn age(from: &Path, to: &Path, rng: &mut Rng) -> io::Result<()> {
    fs::write(to.join("unrelated"), bytes(rng, 1_000))?;
    for (path, thing) in read(from)? {
        let there = to.join(OsStr::from_bytes(&path));
        if there.parent().is_none_or(|p| !p.is_dir()) || rng.below(3) == 0 {
            continue;
        }
        match thing {
            Thing::Dir { .. } => fs::create_dir(&there)?,
            Thing::Link(_) => symlink("elsewhere", &there)?,
            Thing::File {
                bytes: content,
                time,
                ..
            } => match rng.below(3) {
                0 => {
                    fs::write(&there, content)?;
                    let secs = u64::try_from(time.0).unwrap_or_default();
                    let nanos = u32::try_from(time.1).unwrap_or_default();
                    File::open(&there)?.set_modified(UNIX_EPOCH + Duration::new(secs, nanos))?;
                }
                1 => write(&there, rng)?,
                _ => fs::write(&there, bytes(rng, 500))?,
            },
        }
    }
    Ok(())
}

/// Sets permissions and times of a tree to nothing, so that only the content is compared.
pub(crate) fn content(mut tree: Tree) -> Tree {
    for thing in tree.values_mut() {
        if let Thing::File { mode, time, .. } | Thing::Dir { mode, time } = thing {
            (*mode, *time) = (0, (0, 0));
        }
    }
    tree
}

/// Returns what of `wanted` is not in `there`, or what else is: a copy keeps what existed `before`.
pub(crate) fn differs(wanted: &Tree, there: &Tree, before: &Tree) -> Option<String> {
    let show = |path: &[u8]| String::from_utf8_lossy(path).escape_debug().to_string();
    for (path, thing) in wanted {
        match there.get(path) {
            None => return Some(format!("{} is missing", show(path))),
            Some(found) if found != thing => {
                return Some(format!(
                    "{} is {}, not {}",
                    show(path),
                    brief(found),
                    brief(thing)
                ));
            }
            Some(_) => {}
        }
    }
    let stray = there
        .iter()
        .find(|(path, thing)| !wanted.contains_key(*path) && before.get(*path) != Some(thing));
    stray.map(|(path, thing)| format!("{} is there, {}", show(path), brief(thing)))
}

/// A short description.
pub(crate) fn brief(thing: &Thing) -> String {
    match thing {
        Thing::File { mode, time, bytes } => {
            let sum = bytes
                .iter()
                .fold(0, |sum, b| super::disk::mix(sum, u64::from(*b)));
            format!(
                "a file of {} bytes {sum:x}, {mode:o}, {time:?}",
                bytes.len()
            )
        }
        Thing::Dir { mode, time } => format!("a folder, {mode:o}, {time:?}"),
        Thing::Link(text) => format!("a link to {}", String::from_utf8_lossy(text)),
    }
}
