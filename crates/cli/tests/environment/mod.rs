//! The environment of programs that tests start. They have a home and configuration in the folder
//! of the test, none of the caller's variables, and a PATH without any `farhaul`.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// A program in `place`, the folder of one test.
pub(crate) fn command(program: impl AsRef<OsStr>, place: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(place)
        .env_clear()
        .env("PATH", path(place))
        .env("HOME", place.join("home"))
        .env("XDG_CACHE_HOME", place.join("cache"))
        .env("XDG_CONFIG_HOME", place.join("config"))
        .env("XDG_RUNTIME_DIR", place.join("run"));
    // Where tests have their folders.
    if let Some(temporary) = env::var_os("TMPDIR") {
        command.env("TMPDIR", temporary);
    }
    command
}

/// The caller's PATH without the program under test.
pub(crate) fn path(place: &Path) -> OsString {
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let folders = env::split_paths(&folders).filter(|folder| folder.is_absolute());
    let folders = folders.map(|folder| {
        let has_one = folder.join("farhaul").symlink_metadata().is_ok();
        if has_one {
            without(&folder, place).expect("a folder of links")
        } else {
            folder
        }
    });
    env::join_paths(folders).expect("it was one")
}

/// A folder of links to all else in `folder`, in which there may be a shell, too.
fn without(folder: &Path, place: &Path) -> io::Result<PathBuf> {
    let name = folder.to_string_lossy().replace('/', "%");
    let links = place.join(".path").join(name);
    if links.exists() {
        return Ok(links);
    }
    fs::create_dir_all(place.join(".path"))?;
    let made = tempfile::tempdir_in(place.join(".path"))?;
    for entry in folder.read_dir()? {
        let name = entry?.file_name();
        if name != "farhaul" {
            symlink(folder.join(&name), made.path().join(&name))?;
        }
    }
    // Another thread may have been quicker.
    match fs::rename(made.path(), &links) {
        Err(_) if links.exists() => {}
        moved => moved?,
    }
    // Others may look for programs, too.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&links, open)?;
    Ok(links)
}
