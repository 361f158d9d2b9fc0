//! Tools that the gate and the release build once, each into a folder beside this user's other caches, by version.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::run::{Runner, cargo};

/// A program of the package registry.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// The version that is built where none is installed.
    version: &'static str,
}

pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};
pub(crate) const DEB: Tool = Tool {
    name: "cargo-deb",
    version: "3.8.0",
};
pub(crate) const RPM: Tool = Tool {
    name: "cargo-generate-rpm",
    version: "0.21.1",
};
pub(crate) const CYCLONEDX: Tool = Tool {
    name: "cargo-cyclonedx",
    version: "0.5.9",
};
pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    version: "0.9.151",
};

/// Folder for things built or installed once, outside of the clone and of cargo's target folder.
pub(crate) fn cache() -> Result<PathBuf, String> {
    let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
    let cache = named.filter(|p| p.is_absolute()).or_else(home);
    let cache = cache.ok_or("neither HOME nor XDG_CACHE_HOME is set: set one")?;
    Ok(cache.join("farhaul-ci-tools"))
}

/// The folder of cargo's registry and of its tools.
pub(crate) fn cargo_home() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo");
    env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

impl Tool {
    /// The installed one, or the one in the cache, which is built if it is not there.
    pub(crate) fn path(&self, run: &mut Runner<'_>) -> Result<PathBuf, String> {
        let folder = cache()?.join(format!("{}-{}", self.name, self.version));
        let own = folder.join("bin").join(self.name);
        if let Some(found) = [PathBuf::from(self.name), own.clone()]
            .into_iter()
            .find(|p| self.runs(p))
        {
            return Ok(found);
        }
        run.say(&format!(
            "{} is built once, in {}",
            self.name,
            folder.display()
        ));
        // Not optimised, which takes a third of the time; without what fetches from elsewhere.
        let mut install = cargo(run.root);
        install
            .args(["install", self.name, "--version", self.version])
            .args(["--locked", "--debug", "--no-default-features", "--root"])
            .arg(&folder)
            .env_remove("CARGO_TARGET_DIR")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        run.run(&mut install)
            .map_err(|complaints| complaints.join("; "))?;
        Ok(own)
    }

    /// True if the program at `path` starts and has this version.
    fn runs(&self, path: &PathBuf) -> bool {
        let mut version = Command::new(path);
        // A subcommand of cargo has its own name as its first argument.
        let asked = version
            .args([self.name.trim_start_matches("cargo-"), "--version"])
            .stdin(Stdio::null())
            .output();
        asked.is_ok_and(|out| {
            out.status.success() && String::from_utf8_lossy(&out.stdout).contains(self.version)
        })
    }
}
/// Message that the library of `target` is missing in the toolchain in use here, however that was installed.
pub(crate) fn lacks_target(root: &Path, target: &str) -> Option<String> {
    let printed = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root)
        .output();
    let folder = printed.map_or_else(|_| Vec::new(), |printed| printed.stdout);
    let folder = PathBuf::from(String::from_utf8_lossy(&folder).trim());
    (!folder.is_dir()).then(|| format!("no target {target} (rustup target add {target})"))
}
