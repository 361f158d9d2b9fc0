//! The Python package as it is released: a wheel per architecture, for any Linux with glibc 2.28 or newer, and the source
//! distribution. Each is installed into a fresh environment and used.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{ARCHES, Done, VERSION, output, prepared, ran, write};
use crate::{Outcome, run::Runner};

/// The oldest glibc, as wheels name it: RHEL 8, Debian 10, Ubuntu 20.04.
const LIBC: &str = "manylinux_2_28";
/// Most bytes of a wheel.
const MOST: u64 = 10_000_000;

/// Name of the wheel of an architecture.
fn name(arch: &str) -> String {
    format!("farhaul-{VERSION}-cp310-abi3-{LIBC}_{arch}.whl")
}

/// Builds all of them into `into`, with the `licences` of what is built in.
pub(super) fn build(run: &mut Runner<'_>, makers: &Path, licences: &str, into: &Path) -> Outcome {
    let file = run.root.join("python/LICENSE-THIRD-PARTY.txt");
    write(&file, licences.as_bytes()).map_err(|e| vec![e])?;
    let maturin = || {
        let maturin = Command::new(makers.join("bin/maturin"));
        prepared(run.root, makers, maturin)
    };
    let mut builds = Vec::new();
    for arch in ARCHES {
        let mut build = maturin();
        build
            .args(["build", "--locked", "--zig", "--profile", "dist"])
            .args(["--compatibility", LIBC, "--target", arch.gnu])
            .args(["--manifest-path", "python/Cargo.toml", "--out"]);
        build.arg(into);
        builds.push(build);
    }
    let mut sdist = maturin();
    sdist.args(["sdist", "--manifest-path", "python/Cargo.toml", "--out"]);
    sdist.arg(into);
    builds.push(sdist);
    let built = builds.iter_mut().try_for_each(|build| run.run(build));
    let removed = fs::remove_file(&file).map_err(|e| vec![format!("{}: {e}", file.display())]);
    built.and(removed)
}

/// Reads the wheels, and uses the one of this machine and the source distribution.
pub(super) fn check(run: &mut Runner<'_>, into: &Path, below: &Path) -> Outcome {
    let one = |e: String| vec![e];
    for arch in ARCHES {
        contents(&into.join(name(arch.name))).map_err(one)?;
    }
    let sdist = into.join(format!("farhaul-{VERSION}.tar.gz"));
    for (place, package) in [("wheel", into.join(name(ARCHES[0].name))), ("sdist", sdist)] {
        let venv = below.join(place);
        let mut make = Command::new("python3");
        run.run(make.args(["-m", "venv"]).arg(&venv))?;
        let mut install = Command::new(venv.join("bin/pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check"]);
        run.run(install.arg(&package))?;
        used(&venv).map_err(one)?;
        run.keep(&format!(
            "{place}: installed and used in a fresh environment"
        ));
    }
    Ok(())
}

/// Checks the size of a wheel, and that it has what belongs in it.
fn contents(wheel: &Path) -> Done<()> {
    let bytes = fs::metadata(wheel).map_err(|e| format!("{}: {e}", wheel.display()))?;
    if bytes.len() > MOST {
        return Err(format!(
            "{}: {} bytes, at most {MOST}",
            wheel.display(),
            bytes.len()
        ));
    }
    let listed = output(
        Command::new("python3")
            .args(["-m", "zipfile", "-l"])
            .arg(wheel),
    )?;
    let listed = String::from_utf8_lossy(&listed);
    let info = format!("farhaul-{VERSION}.dist-info");
    for file in [
        "farhaul/_farhaul.abi3.so".to_string(),
        "farhaul/__main__.py".into(),
        "farhaul/py.typed".into(),
        format!("{info}/entry_points.txt"),
        format!("{info}/licenses/LICENSE-MIT"),
        format!("{info}/licenses/LICENSE-APACHE"),
        format!("{info}/licenses/LICENSE-THIRD-PARTY.txt"),
    ] {
        if !listed.lines().any(|line| line.starts_with(&file)) {
            return Err(format!("{}: lacks {file}", wheel.display()));
        }
    }
    Ok(())
}

/// Uses the program and the module of an environment.
fn used(venv: &Path) -> Done<()> {
    let bin = |name: &str| -> PathBuf { venv.join("bin").join(name) };
    let expected = format!("farhaul {VERSION}\n");
    let said = output(Command::new(bin("farhaul")).arg("--version"))?;
    if said != expected.as_bytes() {
        return Err(format!("--version: {}", String::from_utf8_lossy(&said)));
    }
    let text = "import farhaul; assert farhaul.protocols()";
    ran(Command::new(bin("python")).args(["-c", text]))
}
