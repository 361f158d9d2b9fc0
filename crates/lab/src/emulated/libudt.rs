//! Builds the peer that speaks for libudt: `udt_peer.cpp`. The peer is compiled when
//! first needed and kept in the cache folder, under a name with the hash of its source.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{EmulatedRunError, system::not_found};
use crate::hash::fnv;

const SOURCE: &str = include_str!("udt_peer.cpp");
const HEADER: &str = "/usr/include/udt/udt.h";

/// Part of libudt that is not installed, if one is missing.
pub(super) fn missing() -> Option<String> {
    if built().is_ok_and(|program| program.exists()) {
        return None;
    }
    if !Path::new(HEADER).exists() {
        return Some("libudt is not installed: apt-get install libudt-dev".into());
    }
    let compiler = not_found("g++")?;
    Some(format!("{compiler} is not installed: apt-get install g++"))
}

/// The program, compiled if that has not been done.
pub(super) fn program() -> Result<PathBuf, EmulatedRunError> {
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |e| EmulatedRunError::Start(what, e)
    };
    let program = built()?;
    if program.exists() {
        return Ok(program);
    }
    let folder = program.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let place = tempfile::tempdir_in(folder).map_err(failed(folder))?;
    let [source, made] = ["udt_peer.cpp", "udt_peer"].map(|name| place.path().join(name));
    fs::write(&source, SOURCE).map_err(failed(&source))?;
    let output = Command::new("g++")
        .args(["-O2", "-o"])
        .args([&made, &source])
        .args(["-ludt", "-lpthread"])
        .output()
        .map_err(failed(Path::new("g++")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(EmulatedRunError::Failed {
            command: "g++ udt_peer.cpp -ludt".into(),
            said: said.lines().take(5).collect::<Vec<_>>().join("; "),
            code: output.status.code(),
        });
    }
    // Another run may have done the same meanwhile.
    fs::rename(&made, &program).map_err(failed(&program))?;
    Ok(program)
}

fn built() -> Result<PathBuf, EmulatedRunError> {
    let folder = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let none = || io::Error::other("no HOME and no XDG_CACHE_HOME to keep a compiled program in");
    let cache = cache.ok_or_else(|| EmulatedRunError::Start("libudt's driver".into(), none()))?;
    Ok(cache.join(format!("farhaul/udt_peer-{:016x}", fnv(SOURCE))))
}
