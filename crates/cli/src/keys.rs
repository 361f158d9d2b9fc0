//! Keys: an ed25519 identity in the user's configuration directory, and the servers whose keys were
//! accepted.
//!
//! - The identity is readable by its owner only, or it is refused, as ssh does.
//! - Files are replaced as a whole: a killed process leaves the old or the new one.
//! - Of processes that make the first identity at once, one does, and the others use it.

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use farhaul_haul::{Identity, KeyError, PeerPolicy, PublicKey};
use farhaul_transfer::read_whole;
use rustix::{
    fs::{CWD, OFlags, RenameFlags},
    io::Errno,
};

use crate::{
    app::console::{Console, Level},
    exit::{Exit, Failure},
    place, read,
};

/// A link in a folder of somebody else's is not followed.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
/// Longest key file, bytes.
const LONGEST: u64 = 4096;

/// Variables of the environment that name folders.
const FOLDERS: [&str; 3] = ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME"];

/// The folder that the environment names so; none if it is no absolute path, or leads to something else.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    absolute(name).filter(|path| !is_no_folder(path))
}

/// Warnings about variables that lead to something else than a folder.
pub(crate) fn unusable() -> impl Iterator<Item = String> {
    FOLDERS.into_iter().filter_map(|name| {
        let path = absolute(name).filter(|path| is_no_folder(path))?;
        Some(format!(
            "{name} is not used: {} is no folder",
            path.display()
        ))
    })
}

fn absolute(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// False for a folder that is not there yet, which can be made.
fn is_no_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_dir())
}

/// The configuration directory.
pub(crate) fn directory() -> Result<PathBuf, Failure> {
    folder("XDG_CONFIG_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".config")))
        .map(|dir| dir.join("farhaul"))
        .ok_or_else(|| {
            let text = "neither XDG_CONFIG_HOME nor HOME names a folder: no directory for keys";
            Failure::new(Exit::Config, text)
        })
}

fn config(path: &Path, e: &io::Error) -> Failure {
    let text = format!(
        "{}: {e}; another key file can be named with --identity, another folder in XDG_CONFIG_HOME",
        path.display()
    );
    Failure::new(Exit::Config, text)
}

/// Path of the identity.
pub(crate) fn identity_path() -> Result<PathBuf, Failure> {
    Ok(directory()?.join("id"))
}

/// The identity at `path`, if there is one.
pub(crate) fn load(path: &Path) -> Result<Option<Identity>, Failure> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(config(path, &e)),
    };
    // A file that is no key needs no other mode, and is not read for ever.
    let identity = if meta.is_file() && meta.len() <= LONGEST {
        Identity::from_seed(&read_whole(path, LONGEST).map_err(|e| config(path, &e))?)
    } else {
        Err(KeyError::Seed)
    };
    let mode = meta.permissions().mode() & 0o777;
    if identity.is_ok() && mode & 0o077 != 0 {
        let text = format!(
            "{} may be read by others (mode {mode:o}): chmod 600 {0}",
            path.display()
        );
        return Err(Failure::new(Exit::Config, text));
    }
    let bad = |e| {
        let text = format!("{}: {e}", path.display());
        Failure::new(Exit::Config, text).fix(instead_of(path, meta.is_file()))
    };
    identity.map(Some).map_err(bad)
}

/// Advice about something at `path` that is no key.
fn instead_of(path: &Path, is_file: bool) -> &'static str {
    match (identity_path().is_ok_and(|own| own == path), is_file) {
        (true, true) => "replace it with `farhaul key gen --force`",
        (true, false) => "move it away, then `farhaul key gen`",
        // `--force` without `--out` would replace the user's own key, which nothing is wrong with.
        (false, _) => "name a key file; `farhaul key gen --out FILE` makes one",
    }
}

/// Makes a new identity at `path`, in place of a file that is there.
pub(crate) fn generate(path: &Path) -> Result<Identity, Failure> {
    let identity = new_for(path)?;
    write(path, identity.seed(), 0o600)?;
    Ok(identity)
}

/// Makes a new identity at `path`, where none was; false if another process has made one meanwhile, which it is then.
pub(crate) fn generate_first(path: &Path) -> Result<(Identity, bool), Failure> {
    let identity = new_for(path)?;
    if write_first(path, &identity).map_err(|e| config(path, &e))? {
        return Ok((identity, true));
    }
    let gone = || {
        let text = format!("{} is a link that leads nowhere", path.display());
        Failure::new(Exit::Config, text).fix("remove it, and run the same command again")
    };
    Ok((load(path)?.ok_or_else(gone)?, false))
}

fn new_for(path: &Path) -> Result<Identity, Failure> {
    // A name that leads to a folder, a pipe or a device is not one to be given to a key.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let text = format!("{} is there and is not a regular file", path.display());
        return Err(Failure::new(Exit::Config, text).fix("name another with --out FILE"));
    }
    Identity::generate().map_err(|e| Failure::internal(&e))
}

/// Writes the identity, which takes its name when it is whole and on the disk; false if the name is taken.
fn write_first(path: &Path, identity: &Identity) -> io::Result<bool> {
    let dir = folder_of(path);
    fs::create_dir_all(dir)?;
    // Processes of several machines may share the folder, so that their numbers do not distinguish
    // them.
    let public = identity.public().to_string();
    let new = path.with_extension(format!("new-{}", &public[public.len() - 16..]));
    let written = write_new(&new, identity.seed(), 0o600).and_then(|file| file.sync_all());
    let named = written.and_then(|()| take_name(&new, path));
    let removed = match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    let named = named?;
    removed?;
    fs::File::open(dir)?.sync_all()?;
    Ok(named)
}

/// Gives the file `new` the name `path`, unless that is taken.
fn take_name(new: &Path, path: &Path) -> io::Result<bool> {
    let linked = match fs::hard_link(new, path) {
        Ok(()) => return Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(e) => e,
    };
    // Not all file systems have second names for files.
    match rustix::fs::renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(_) => Err(linked),
    }
}

/// The identity. Where there is no place to keep one, a new one for this run, which is said:
/// servers that allow any peer accept it.
pub(crate) fn identity_or_new(
    given: Option<&Path>,
    console: &dyn Console,
) -> Result<Identity, Failure> {
    identity(given, console).or_else(|e| {
        let is_broken = e.exit == Exit::Config && identity_path().is_ok_and(|p| p.exists());
        // Without a directory no server is known either.
        if given.is_some() || is_broken || directory().is_err() {
            return Err(e);
        }
        console.message(Level::Important, &format!(
            "farhaul: warning: this run has a key of its own, which only servers that allow any key accept, and no \
             later run continues what it leaves: {}",
            e.text
        ));
        Identity::generate().map_err(|e| Failure::internal(&e))
    })
}

/// Keeps the file at `path`, if there is one that is no link, with `.old` behind its name; which that is.
pub(crate) fn set_aside(path: &Path) -> Result<Option<PathBuf>, Failure> {
    if !path.is_file() {
        return Ok(None);
    }
    let mut old = path.as_os_str().to_os_string();
    old.push(".old");
    let old = PathBuf::from(old);
    // A second name where the file system has those, so that there is a key at any time; the new one takes the first.
    match fs::remove_file(&old) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(config(&old, &e)),
        _ => {}
    }
    fs::hard_link(path, &old)
        .or_else(|_| fs::rename(path, &old))
        .map_err(|e| config(&old, &e))?;
    Ok(Some(old))
}

/// The identity, made now if there is none, which is said.
pub(crate) fn identity(given: Option<&Path>, console: &dyn Console) -> Result<Identity, Failure> {
    let (identity, made) = load_or_generate(given)?;
    if let Some(path) = made {
        let (public, path) = (identity.public(), place::local(&path));
        console.message(
            Level::Important,
            &format!("farhaul: made a key for you in {path}: {public}"),
        );
    }
    Ok(identity)
}

/// Loads the identity, or makes one; also returns where it was made.
pub(crate) fn load_or_generate(
    given: Option<&Path>,
) -> Result<(Identity, Option<PathBuf>), Failure> {
    if let Some(path) = given {
        let missing = || {
            let text = format!("{}: no such key file", path.display());
            Failure::new(Exit::Config, text)
                .fix("name one that is there; `farhaul key gen --out FILE` makes one")
        };
        return Ok((load(path)?.ok_or_else(missing)?, None));
    }
    let path = identity_path()?;
    if let Some(identity) = load(&path)? {
        return Ok((identity, None));
    }
    let (identity, made) = generate_first(&path)?;
    Ok((identity, made.then_some(path)))
}

/// Replaces `path` as a whole, on the disk, too.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let synced = |file: &fs::File| file.sync_all();
    let written = replace(path, bytes, mode, synced)
        .and_then(|()| fs::File::open(folder_of(path))?.sync_all());
    written.map_err(|e| config(path, &e))
}

/// Replaces `path` as a whole; the new file is `checked` before it takes its name.
pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    checked: impl FnOnce(&fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let dir = folder_of(path);
    fs::create_dir_all(dir)?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    // One that a run left that was killed.
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    checked(&write_new(&new, bytes, mode)?)?;
    fs::rename(&new, path)
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    give_to_owner_of(folder_of(path), &file)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    }
}

/// A file that root makes in somebody else's folder is theirs, as with a service's folder of state.
pub(crate) fn give_to_owner_of(dir: &Path, file: &fs::File) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = fs::metadata(dir)?;
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}

/// Locks the file at `path` against other processes that change it, until the lock is dropped.
pub(crate) fn lock(path: &Path) -> Result<fs::File, Failure> {
    let path = path.with_extension("lock");
    let dir = folder_of(&path);
    let open = || {
        let mut how = fs::OpenOptions::new();
        how.write(true).mode(0o600).custom_flags(NOFOLLOW);
        match how.clone().create_new(true).open(&path) {
            Ok(file) => give_to_owner_of(dir, &file).map(|()| file),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => how.open(&path),
            Err(e) => Err(e),
        }
    };
    let file = fs::create_dir_all(dir).and_then(|()| open());
    let locked = file.and_then(|file| match file.lock() {
        // A file system without locks: as good as it can be.
        Err(e) if has_no_locks(&e) => Ok(file),
        locked => locked.map(|()| file),
    });
    locked.map_err(|e| Failure::new(Exit::Config, format!("{}: {e}", path.display())))
}

/// True for the answer of a file system that knows no locks.
fn has_no_locks(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let answers = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP];
    Errno::from_io_error(e).is_some_and(|e| answers.contains(&e))
}

/// Servers and their keys: one `server key` per line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) servers: Vec<(String, PublicKey)>,
    /// All lines, those that cannot be used too.
    lines: Vec<String>,
}

impl Known {
    /// Reads the user's file. A line that cannot be used is named in a warning, and the others hold.
    pub(crate) fn load(console: &dyn Console) -> Result<Self, Failure> {
        let path = Self::path()?;
        let (known, bad) = Self::read(&path)?;
        for number in bad {
            let path = path.display();
            console.message(Level::Important, &format!(
                "farhaul: warning: {path}:{number} is not used: it is not 'host:port fh-pub1...'"
            ));
        }
        Ok(known)
    }

    /// Changes the user's file alone.
    pub(crate) fn change<T>(change: impl FnOnce(&mut Self) -> T) -> Result<T, Failure> {
        let path = Self::path()?;
        let _alone = lock(&path)?;
        let (mut known, _) = Self::read(&path)?;
        let answer = change(&mut known);
        let text: String = known.lines.iter().flat_map(|line| [line, "\n"]).collect();
        write(&path, text.as_bytes(), 0o644)?;
        Ok(answer)
    }

    fn path() -> Result<PathBuf, Failure> {
        Ok(directory()?.join("known_servers"))
    }

    fn read(path: &Path) -> Result<(Self, Vec<usize>), Failure> {
        match read::settings(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(<(Self, Vec<usize>)>::default()),
            Err(e) => Err(config(path, &e)),
        }
    }

    /// Parses the file; also returns the numbers of lines that cannot be used.
    fn parse(text: &str) -> (Self, Vec<usize>) {
        let (mut known, mut bad) = (Self::default(), Vec::new());
        for (i, line) in text.lines().enumerate() {
            known.lines.push(line.to_owned());
            let words: Vec<_> = words(line).collect();
            match (words.first(), words.get(1).map(|key| key.parse())) {
                (None, _) => {}
                (Some(server), Some(Ok(key))) if words.len() == 2 => {
                    known.servers.push(((*server).to_owned(), key));
                }
                _ => bad.push(i + 1),
            }
        }
        (known, bad)
    }

    /// The keys accepted for `server`.
    pub(crate) fn of(&self, server: &str) -> Vec<PublicKey> {
        self.servers
            .iter()
            .filter(|(s, _)| s == server)
            .map(|(_, k)| *k)
            .collect()
    }

    /// Policy for the key of a server with these known keys: if there are none, its key is judged
    /// once it is seen.
    pub(crate) fn policy(known: &[PublicKey]) -> PeerPolicy {
        if known.is_empty() {
            PeerPolicy::Any
        } else {
            PeerPolicy::Keys(known.to_vec())
        }
    }

    /// Accepts `key` for `server` from now on, in place of what was accepted before.
    pub(crate) fn trust(&mut self, server: &str, key: PublicKey) {
        self.forget(server);
        self.servers.push((server.to_owned(), key));
        self.lines.push(format!("{server} {key}"));
    }

    /// Forgets `server`; true if it was known.
    pub(crate) fn forget(&mut self, server: &str) -> bool {
        let before = self.servers.len();
        self.servers.retain(|(s, _)| s != server);
        self.lines.retain(|line| words(line).next() != Some(server));
        self.servers.len() < before
    }
}

/// Words of a line before its comment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split('#').next().unwrap_or_default();
    line.split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_private_and_survive() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("deep/id");
        assert!(load(&path).unwrap().is_none());
        let made = generate(&path).unwrap();
        assert_eq!(load(&path).unwrap().unwrap().public(), made.public());
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(load(&path).unwrap_err().exit, Exit::Config);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        assert_eq!(load(&path).unwrap_err().exit, Exit::Config);
    }

    #[test]
    fn of_many_who_make_the_first_identity_one_does_and_none_sees_a_part_of_it() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("deep/id");
        let (mut keys, made): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let seen = load(&path).unwrap();
                        let (own, made) = generate_first(&path).unwrap();
                        assert!(seen.is_none_or(|seen| seen.public() == own.public()));
                        (own.public(), made)
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).unzip()
        });
        keys.dedup();
        assert_eq!(keys, [load(&path).unwrap().unwrap().public()]);
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        let left = fs::read_dir(tmp.path().join("deep")).unwrap().count();
        assert_eq!(left, 1);
        let link = tmp.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let why = generate_first(&link).err().unwrap();
        assert!(why.text.contains("leads nowhere: remove it"), "{why}");
    }

    #[test]
    fn a_line_of_known_servers_that_cannot_be_used_is_named_and_others_hold() {
        let key = Identity::from_seed(&[3; 32]).unwrap().public();
        let text = format!("# mine\nhost:17992 {key}\n\nhost fh-pub1x\n[::1]:5 {key} # local");
        let (mut known, bad) = Known::parse(&text);
        assert_eq!(known.of("host:17992"), [key]);
        assert_eq!(known.of("[::1]:5"), [key]);
        assert!(known.of("other:1").is_empty() && known.of("host").is_empty());
        assert_eq!(bad, [4]);
        // A changed file keeps its other lines.
        assert!(known.forget("[::1]:5") && !known.forget("other:1"));
        known.trust("host:17992", key);
        let kept = ["# mine", "", "host fh-pub1x", &format!("host:17992 {key}")];
        assert_eq!(known.lines, kept);
    }
}
