//! Makes the release. `cargo xtask dist [FOLDER]` builds the static binary and puts into a folder
//! (`target/packages` if none is named) all that can be installed, with checksums:
//!
//! - a tarball to be unpacked in /usr/local: binary, manual pages, completions, unit, licences
//! - the same as a Debian package, below /usr
//! - the binary and the Containerfile of an image that has nothing else
//! - the bill of materials (`CycloneDX`)
//!
//! The same source gives the same bytes: times are that of the last commit.

mod check;
mod crates;

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    run::{Runner, cargo, print_line, target},
};

pub(crate) use check::stage;

/// Target of the release: any Linux on this architecture.
const TARGET: &str = "x86_64-unknown-linux-musl";
/// Name of the architecture in Debian.
const DEBIAN: &str = "amd64";
/// Shells, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/farhaul"),
    ("zsh", "share/zsh/vendor-completions/_farhaul"),
    ("fish", "share/fish/vendor_completions.d/farhaul.fish"),
];
/// Files of the repository, and where they are installed.
const FILES: [(&str, &str); 5] = [
    (
        "packaging/farhaul-serve.service",
        "lib/systemd/system/farhaul-serve.service",
    ),
    (
        "packaging/serve.toml",
        "share/doc/farhaul/examples/serve.toml",
    ),
    (
        "packaging/sysctl.conf",
        "share/doc/farhaul/examples/sysctl.conf",
    ),
    ("README.md", "share/doc/farhaul/README.md"),
    ("CHANGELOG.md", "share/doc/farhaul/CHANGELOG.md"),
];

type Done<T> = Result<T, String>;

/// Builds everything.
pub(crate) fn run(run: &mut Runner<'_>, args: &[&str]) -> Outcome {
    let root = run.root;
    let into = match args {
        [] => root.join("target/packages"),
        [folder] => env::current_dir().unwrap_or_default().join(folder),
        _ => return Err(vec!["usage: cargo xtask dist [FOLDER]".into()]),
    };
    let program = build(run, "dist")?;
    release(root, &program, &into, 9).map_err(|e| vec![e])
}

/// The static binary, by a profile of Cargo.toml.
fn build(run: &mut Runner<'_>, profile: &str) -> Result<PathBuf, Vec<String>> {
    let mut build = cargo(run.root);
    build
        .args(["build", "--locked", "-p", "farhaul", "--target", TARGET])
        .args(["--profile", profile]);
    if profile == "dev" {
        // Nobody debugs it.
        build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
    run.run(&mut build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target(run.root)?.join(TARGET).join(folder).join("farhaul"))
}

/// Puts into `into` all that is made of `program`, compressed with this effort (1 to 9).
fn release(root: &Path, program: &Path, into: &Path, effort: u8) -> Done<()> {
    let version = env!("CARGO_PKG_VERSION");
    let crates = crates::Crates::of(root)?;
    fs::create_dir_all(into).map_err(|e| format!("{}: {e}", into.display()))?;
    let stage = tempfile::tempdir().map_err(|e| format!("a folder for files: {e}"))?;
    let when = last_commit(root)?;

    let name = format!("farhaul-{version}-x86_64-linux");
    let tree = stage.path().join(&name);
    install(root, program, &crates, &tree, "/usr/local")?;
    let tarball = format!("{name}.tar.gz");
    archive(&tree, (&when, effort), &into.join(&tarball))?;

    let tree = stage.path().join("deb");
    install(root, program, &crates, &tree.join("usr"), "/usr")?;
    let deb = format!("farhaul_{version}_{DEBIAN}.deb");
    debian(root, &tree, version, (&when, effort), &into.join(&deb))?;

    let bill = format!("farhaul-{version}.cdx.json");
    write(&into.join(&bill), crates.bill(version).as_bytes())?;
    copy(program, &into.join("farhaul"))?;
    copy(
        &root.join("packaging/Containerfile"),
        &into.join("Containerfile"),
    )?;

    let mut sums = Command::new("sha256sum");
    sums.args([&tarball, &deb, &bill, "farhaul", "Containerfile"]);
    write(&into.join("SHA256SUMS"), &output(sums.current_dir(into))?)?;
    print_line(&format!("dist: {} in {}", tarball, into.display()));
    Ok(())
}

/// Installs what belongs below `prefix`, at `tree`.
fn install(
    root: &Path,
    program: &Path,
    crates: &crates::Crates,
    tree: &Path,
    prefix: &str,
) -> Done<()> {
    let at = |below: &str| tree.join(below);
    copy(program, &at("bin/farhaul"))?;
    for (shell, below) in COMPLETIONS {
        let script = output(Command::new(program).args(["completions", shell]))?;
        write(&at(below), &script)?;
    }
    for (from, below) in FILES {
        let text = fs::read_to_string(root.join(from)).map_err(|e| format!("{from}: {e}"))?;
        write(
            &at(below),
            text.replace("/usr/bin/", &format!("{prefix}/bin/"))
                .as_bytes(),
        )?;
    }
    let mut licences = b"Either of these two licences, at your choice.\n\n".to_vec();
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        licences.extend(fs::read(root.join(file)).map_err(|e| format!("{file}: {e}"))?);
    }
    write(&at("share/doc/farhaul/copyright"), &licences)?;
    write(
        &at("share/doc/farhaul/third-party.txt"),
        crates.licences()?.as_bytes(),
    )?;
    let pages = at("share/man/man1");
    fs::create_dir_all(&pages).map_err(|e| format!("{}: {e}", pages.display()))?;
    ran(Command::new(program).arg("_man").arg(&pages))?;
    // -n: without names and times, which would differ.
    let zipped = ["-9n", "-r"];
    ran(Command::new("gzip").args(zipped).arg(&pages))?;
    ran(Command::new("gzip")
        .arg("-9n")
        .arg(at("share/doc/farhaul/third-party.txt")))
}

/// A Debian package of `tree`, whatever the user and the time.
fn debian(
    root: &Path,
    tree: &Path,
    version: &str,
    (when, effort): (&str, u8),
    to: &Path,
) -> Done<()> {
    let size = output(
        Command::new("du")
            .args(["-sk", "--apparent-size"])
            .arg(tree.join("usr")),
    )?;
    let size = String::from_utf8_lossy(&size);
    let size = size.split_whitespace().next().unwrap_or("0");
    let control = format!(
        "Package: farhaul\nVersion: {version}\nArchitecture: {DEBIAN}\nMaintainer: The farhaul authors\n\
         Installed-Size: {size}\nSection: net\nPriority: optional\nSuggests: openssh-client\n\
         Description: bulk data over long fat networks\n \
         Copies files and measures paths at the speed of the link, over one UDP port,\n \
         encrypted and verified, with nothing to tune. Also a laboratory of transports.\n"
    );
    write(&tree.join("DEBIAN/control"), control.as_bytes())?;
    copy(&root.join("packaging/prerm"), &tree.join("DEBIAN/prerm"))?;
    executable(&tree.join("DEBIAN/prerm"))?;
    let sums = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum";
    let sums = output(Command::new("sh").args(["-c", sums]).current_dir(tree))?;
    write(&tree.join("DEBIAN/md5sums"), &sums)?;
    modes(tree)?;
    let mut build = Command::new("dpkg-deb");
    build
        .args([
            "--root-owner-group",
            "-Zxz",
            &format!("-z{effort}"),
            "--build",
        ])
        .args([tree, to]);
    ran(build.env("SOURCE_DATE_EPOCH", when))
}

/// `tree` as a tarball, whatever the user and the time.
fn archive(tree: &Path, (when, effort): (&str, u8), to: &Path) -> Done<()> {
    modes(tree)?;
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime",
    ]);
    tar.arg(format!("@{when}"))
        .arg("-C")
        .arg(tree.parent().unwrap_or(tree));
    let zip = ["-I", &format!("gzip -{effort}n"), "-cf"];
    ran(tar
        .args(zip)
        .arg(to)
        .arg(tree.file_name().unwrap_or_default()))
}

/// Seconds since 1970, of the last commit or of `SOURCE_DATE_EPOCH`.
fn last_commit(root: &Path) -> Done<String> {
    if let Ok(given) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let mut log = Command::new("git");
    let when = output(log.args(["log", "-1", "--format=%ct"]).current_dir(root))?;
    Ok(String::from_utf8_lossy(&when).trim().to_string())
}

fn write(path: &Path, content: &[u8]) -> Done<()> {
    let folder = path.parent().unwrap_or(path);
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::File::create(path)?.write_all(content));
    written.map_err(|e| format!("{}: {e}", path.display()))
}

/// Copies a file with its mode.
fn copy(from: &Path, to: &Path) -> Done<()> {
    let folder = to.parent().unwrap_or(to);
    let copied = fs::create_dir_all(folder).and_then(|()| fs::copy(from, to));
    copied
        .map(drop)
        .map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// Modes that do not depend on the user that builds.
fn modes(tree: &Path) -> Done<()> {
    ran(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree))
}

fn executable(path: &Path) -> Done<()> {
    let changed = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    changed.map_err(|e| format!("{}: {e}", path.display()))
}

/// Runs `command` to its end.
fn ran(command: &mut Command) -> Done<()> {
    let what = format!("{command:?}");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: {status}")),
        Err(e) => Err(format!("{what}: {e}")),
    }
}

/// Output of `command`.
fn output(command: &mut Command) -> Done<Vec<u8>> {
    let what = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(format!("{what}: {}", output.status)),
        Err(e) => Err(format!("{what}: {e}")),
    }
}
