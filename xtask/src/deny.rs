//! May all this be built in? `cargo deny` checks licences, sources and banned or doubled crates by deny.toml. It takes
//! minutes to build, so it is built once, into a folder beside this user's other caches.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    ci::{pass_through, print_line},
};

/// The version that is built if there is none.
const VERSION: &str = "0.20.2";

/// Runs it; says so if it cannot be had.
pub(crate) fn stage(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let tool = installed().map_or_else(|| install(root), Ok);
    let tool = match tool {
        Ok(tool) => tool,
        Err(why) => {
            let line = format!("WARNING: licences, sources and bans were NOT checked: {why}");
            print_line(&line);
            kept.push(line);
            return Ok(());
        }
    };
    let mut check = Command::new(tool);
    check.args([
        "--log-level",
        "error",
        "--locked",
        "check",
        "bans",
        "licenses",
        "sources",
    ]);
    check.current_dir(root);
    pass_through(
        &mut check,
        "cargo deny --locked check bans licenses sources",
        kept,
    )
}

/// That of the machine, or the one that was built here before.
fn installed() -> Option<PathBuf> {
    let runs = |tool: &PathBuf| {
        let mut version = Command::new(tool);
        let version = version
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let own = folder().map(|folder| folder.join("bin/cargo-deny"));
    [Some(PathBuf::from("cargo-deny")), own]
        .into_iter()
        .flatten()
        .find(runs)
}

/// Outside of the clone, by version.
fn folder() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|p| p.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(
        cache
            .join("farhaul-ci-tools")
            .join(format!("cargo-deny-{VERSION}")),
    )
}

fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = folder().ok_or("neither HOME nor XDG_CACHE_HOME is set")?;
    print_line(&format!(
        "cargo-deny is built once, in {}",
        folder.display()
    ));
    // Not optimised, which takes a third of the time; without what fetches advisories.
    let args = [
        "install",
        "cargo-deny",
        "--version",
        VERSION,
        "--locked",
        "--debug",
        "--no-default-features",
    ];
    let mut install = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install
        .args(args)
        .arg("--root")
        .arg(&folder)
        .env_remove("CARGO_TARGET_DIR");
    let status = install.current_dir(root).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(folder.join("bin/cargo-deny")),
        Ok(status) => Err(format!("cargo install cargo-deny: {status}")),
        Err(e) => Err(format!("cargo install cargo-deny: {e}")),
    }
}
