//! The Python package where it is installed: a wheel around the gate's library, put into a fresh
//! environment and tested there. So the imported package is the installed one.
//!
//! - Tools and libraries come from the package index, as `pip` is configured to reach it, once for each list of them.

use std::{
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    built::{EVERYTHING, PROFILE, built},
    previous,
    run::{Runner, cargo},
    tools::cache,
};

/// Packages that build the wheel, and those that the tests need besides it.
const LIBRARIES: [&str; 17] = [
    "maturin>=1.7,<2",
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
/// An interpreter that can run the package and make environments; its version and place.
const SUITABLE: &str = "import sys, venv, ensurepip; assert sys.version_info >= (3, 10); print(sys.version, sys.prefix)";

/// Makes the wheel, installs it, tests.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let Some(interpreter) = interpreter() else {
        run.not_checked("the Python package: there is no python3 of at least 3.10 with venv (apt-get install python3-venv)");
        return Ok(());
    };
    let libraries = environment_of(run, &interpreter, &LIBRARIES)?;
    let program = built(run)?.program;
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder: {e}")])?;
    let wheel = wheel(run, &libraries, below.path())?;
    let fresh = fresh(run, &libraries, below.path())?;
    let python = fresh.join("bin/python");
    let mut install = Command::new(libraries.join("bin/python"));
    install.args(["-m", "pip", "--python"]).arg(&python).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
    ]);
    run.run(install.arg(&wheel))?;
    // From a folder where there is no package but the installed one.
    let mut types = Command::new(&python);
    types.args(["-m", "mypy", "--strict", "--package", "farhaul"]);
    run.run(types.current_dir(&fresh))?;
    let mut tests = Command::new(&python);
    tests
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"])
        .arg(run.root.join("python/tests"))
        .env("FARHAUL", program)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&fresh);
    if let Some(previous) = previous::known() {
        tests.env("PREVIOUS_FARHAUL", previous);
    }
    run.run(&mut tests)
}

/// Description of this machine's interpreter, in its own words.
fn interpreter() -> Option<String> {
    let mut suits = Command::new("python3");
    suits.args(["-c", SUITABLE]).stderr(Stdio::null());
    let out = suits.output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// An environment with `packages`, for this machine's interpreter.
pub(crate) fn environment(run: &mut Runner<'_>, packages: &[&str]) -> Result<PathBuf, Vec<String>> {
    let none = || {
        vec!["there is no python3 of at least 3.10 with venv (apt-get install python3-venv)".into()]
    };
    let interpreter = interpreter().ok_or_else(none)?;
    environment_of(run, &interpreter, packages)
}

/// An environment with `packages`, made once for each list and interpreter.
fn environment_of(
    run: &mut Runner<'_>,
    interpreter: &str,
    packages: &[&str],
) -> Result<PathBuf, Vec<String>> {
    let mut hash = DefaultHasher::new();
    (packages, interpreter).hash(&mut hash);
    let cache = cache().map_err(|e| vec![e])?;
    let folder = cache.join(format!("python-{:016x}", hash.finish()));
    let whole = folder.join("whole");
    if whole.exists() {
        return Ok(folder);
    }
    let mut make = Command::new("python3");
    run.run(make.args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(packages);
    run.run(&mut install)?;
    fs::write(&whole, "").map_err(|e| vec![format!("{}: {e}", whole.display())])?;
    Ok(folder)
}

/// An environment of its own that also finds the libraries.
fn fresh(run: &mut Runner<'_>, libraries: &Path, below: &Path) -> Result<PathBuf, Vec<String>> {
    let fresh = below.join("fresh");
    let mut make = Command::new("python3");
    run.run(make.args(["-m", "venv", "--without-pip"]).arg(&fresh))?;
    let packages = |environment: &Path| -> Result<PathBuf, Vec<String>> {
        let failed = |e: std::io::Error| vec![format!("{}: {e}", environment.display())];
        let lib = fs::read_dir(environment.join("lib")).map_err(failed)?;
        let mut found = lib
            .flatten()
            .map(|entry| entry.path().join("site-packages"));
        let found = found.find(|path| path.is_dir());
        found.ok_or_else(|| vec![format!("{}: no site-packages", environment.display())])
    };
    let link = packages(&fresh)?.join("libraries.pth");
    let there = packages(libraries)?.display().to_string();
    fs::write(&link, there).map_err(|e| vec![format!("{}: {e}", link.display())])?;
    Ok(fresh)
}

/// The wheel that `maturin` makes of the library that was built with everything else: its cargo is one that builds nothing
/// but that.
fn wheel(run: &mut Runner<'_>, libraries: &Path, below: &Path) -> Result<PathBuf, Vec<String>> {
    let failed = |e: std::io::Error| vec![format!("{}: {e}", below.display())];
    let stand_in = below.join("cargo");
    // Variables of maturin would have what depends on Python compiled again, and it takes a test of the library for the
    // library.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = rustc ] || exec {cargo} \"$@\"\nfor name in $(env | sed -n 's/^\\(PYO3_[A-Z_]*\\)=.*/\\1/p')\n\
         do unset \"$name\"; done\n\
         {cargo} build {everything} --profile {PROFILE} --message-format json-render-diagnostics >\"$0.json\" || exit\n\
         grep -v '\"executable\":\"' \"$0.json\"\n",
        cargo = cargo(run.root).get_program().display(),
        everything = EVERYTHING.join(" "),
    );
    fs::write(&stand_in, script).map_err(failed)?;
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let wheels = below.join("wheels");
    let mut build = Command::new(libraries.join("bin/maturin"));
    build
        .args(["build", "--locked", "--profile", PROFILE])
        .args(["--manifest-path", "python/Cargo.toml", "--out"])
        .arg(&wheels)
        .env("CARGO", &stand_in)
        .current_dir(run.root);
    run.run(&mut build)?;
    let entries = fs::read_dir(&wheels).map_err(failed)?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut made = paths.filter(|path| path.extension() == Some(OsStr::new("whl")));
    match (made.next(), made.next()) {
        (Some(wheel), None) => Ok(wheel),
        _ => Err(vec![format!("{}: not one wheel", wheels.display())]),
    }
}
