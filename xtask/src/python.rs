//! Does the Python package work where it is installed? A wheel is built as `pip` builds it, installed into a fresh
//! environment, and tested there: what is imported is the installed one.
//!
//! - The tools and libraries come from the package index, as `pip` is configured to reach it. What cannot be had is told.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    Outcome,
    ci::{pass_through, print_line},
    previous,
};

/// Builds wheels.
const BUILDER: &str = "maturin>=1.7,<2";
/// What the tests need besides the wheel.
const LIBRARIES: [&str; 16] = [
    "pytest>=8",
    "pandas>=2",
    "pandas-stubs",
    "polars>=1",
    "pyarrow>=14",
    "mypy>=1.10",
    "distributed>=2024.1",
    "dask[dataframe]>=2024.1",
    "fsspec>=2023.10",
    "xarray>=2023.1",
    "zarr>=2.16",
    "dask-jobqueue>=0.9",
    "matplotlib>=3.8",
    "nbclient>=0.9",
    "nbformat>=5.4",
    "ipykernel>=6.25",
];
/// An interpreter that can run the package and make environments.
const SUITABLE: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";

/// Builds, installs, tests.
pub(crate) fn stage(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let folder = target(root)?.join("python");
    let (tools, fresh) = (folder.join("tools"), folder.join("fresh"));
    if let Err(why) = prepared(&tools, &fresh) {
        let line = format!("WARNING: the Python package was NOT tested: {why}");
        print_line(&line);
        kept.push(line);
        return Ok(());
    }
    let farhaul = built(root, &folder.join("wheels"), &tools, kept)?;
    let wheel = wheel(&folder.join("wheels")).map_err(|e| vec![e])?;
    let python = fresh.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]);
    pass_through(install.arg(&wheel), "pip install farhaul-*.whl", kept)?;
    // From a folder where there is no package but the installed one.
    let mut types = Command::new(&python);
    types.args(["-m", "mypy", "--strict", "--package", "farhaul"]);
    pass_through(
        types.current_dir(&fresh),
        "mypy --strict --package farhaul",
        kept,
    )?;
    let mut tests = Command::new(&python);
    tests
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"])
        .arg(root.join("python/tests"))
        .env("FARHAUL", farhaul)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&fresh);
    if let Some(previous) = previous::program(root) {
        tests.env("PREVIOUS_FARHAUL", previous);
    }
    pass_through(&mut tests, "pytest -q python/tests", kept)
}

/// Environments with the tools, and a new one with the libraries; or why there are none.
fn prepared(tools: &Path, fresh: &Path) -> Result<(), String> {
    let mut suits = Command::new("python3");
    suits.args(["-c", SUITABLE]).stderr(Stdio::null());
    if !suits.status().is_ok_and(|status| status.success()) {
        return Err("there is no python3 of at least 3.10 with venv".into());
    }
    if !tools.join("bin/maturin").exists() {
        environment(tools, &[BUILDER])?;
    }
    environment(fresh, &LIBRARIES)
}

/// Makes an environment with `packages` anew.
fn environment(folder: &Path, packages: &[&str]) -> Result<(), String> {
    print_line(&format!(
        "$ python3 -m venv; pip install {}",
        packages.join(" ")
    ));
    let mut make = Command::new("python3");
    silent(make.args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    silent(install.args(packages))
}

/// Runs `command`; the last line of what it complained of, if it failed.
fn silent(command: &mut Command) -> Result<(), String> {
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(last.unwrap_or("pip failed").to_string())
}

/// Builds the wheel, and the program that tests compare it with, whose path is returned.
fn built(
    root: &Path,
    wheels: &Path,
    tools: &Path,
    kept: &mut Vec<String>,
) -> Result<PathBuf, Vec<String>> {
    let wrong = |e: std::io::Error| vec![format!("{}: {e}", wheels.display())];
    if wheels.exists() {
        fs::remove_dir_all(wheels).map_err(wrong)?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut program = Command::new(cargo);
    // Together, so that what both are made of is built once.
    program.args(["build", "--locked", "-p", "farhaul", "-p", "farhaul-python"]);
    pass_through(
        program.current_dir(root),
        "cargo build -p farhaul -p farhaul-python",
        kept,
    )?;
    let mut build = Command::new(tools.join("bin/maturin"));
    build
        .args(["build", "--locked", "--profile", "dev", "--manifest-path"])
        .arg("python/Cargo.toml")
        .arg("--out")
        .arg(wheels)
        .current_dir(root);
    pass_through(&mut build, "maturin build --profile dev", kept)?;
    Ok(target(root)?.join("debug/farhaul"))
}

/// The only wheel in a folder.
fn wheel(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut wheels = paths.filter(|path| path.extension() == Some(OsStr::new("whl")));
    match (wheels.next(), wheels.next()) {
        (Some(wheel), None) => Ok(wheel),
        _ => Err(format!("{}: not one wheel", folder.display())),
    }
}

/// Where cargo builds.
fn target(root: &Path) -> Result<PathBuf, Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| vec![format!("cargo metadata: {e}")])?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| vec![format!("cargo metadata: {e}")])?;
    let folder = metadata["target_directory"].as_str().unwrap_or("target");
    Ok(root.join(folder))
}
