//! Makes the release. `cargo xtask dist [FOLDER]` puts into a folder (`target/packages` if none is named), with checksums:
//!
//! - the static binary for x86-64 and for aarch64: alone, as a tarball for /usr/local, as a Debian package, as an RPM
//! - the static binary for x86-64 without the laboratory
//! - the Containerfile of an image that has nothing else
//! - wheels for both architectures, and the source distribution of the Python package
//! - the bill of materials (`CycloneDX`), and the licences of what is built in
//!
//! Before, it builds every crate from its package, as the registry does. Afterwards it installs and uses what it has made.
//! Times are that of the last commit, and no path of the builder is in a binary.

mod check;
mod licences;
mod wheels;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    Outcome,
    python::environment,
    run::{Runner, cargo, print_line, target},
    tools::{CYCLONEDX, DEB, RPM, cargo_home},
};

pub(crate) use check::stage;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names of an architecture.
#[derive(Clone, Copy, Debug)]
struct Arch {
    name: &'static str,
    debian: &'static str,
    /// Target of the static binary: any Linux.
    target: &'static str,
    /// Target of the wheel.
    gnu: &'static str,
}

/// The released ones, first the one on which this runs.
const ARCHES: [Arch; 2] = [
    Arch {
        name: "x86_64",
        debian: "amd64",
        target: "x86_64-unknown-linux-musl",
        gnu: "x86_64-unknown-linux-gnu",
    },
    Arch {
        name: "aarch64",
        debian: "arm64",
        target: "aarch64-unknown-linux-musl",
        gnu: "aarch64-unknown-linux-gnu",
    },
];
/// Folder below the workspace from which Debian packages and RPMs take all but the binary; their settings in
/// `crates/cli/Cargo.toml` name it.
const TREE: &str = "target/dist-tree";
/// Shells, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/farhaul"),
    ("zsh", "share/zsh/vendor-completions/_farhaul"),
    ("fish", "share/fish/vendor_completions.d/farhaul.fish"),
];
/// Files of the repository, and where they are installed.
const FILES: [(&str, &str); 7] = [
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
    ("packaging/copyright", "share/doc/farhaul/copyright"),
    ("LICENSE-APACHE", "share/doc/farhaul/LICENSE-APACHE"),
    ("README.md", "share/doc/farhaul/README.md"),
    ("CHANGELOG.md", "share/doc/farhaul/CHANGELOG.md"),
];
/// Programs that cross-compile, from the Python package index.
const MAKERS: [&str; 3] = ["cargo-zigbuild", "maturin>=1.7,<2", "ziglang"];

type Done<T> = Result<T, String>;

/// Builds, packs and checks everything.
pub(crate) fn run(run: &mut Runner<'_>, args: &[&str]) -> Outcome {
    let root = run.root;
    let into = match args {
        [] => root.join("target/packages"),
        [folder] => env::current_dir().unwrap_or_default().join(folder),
        _ => return Err(vec!["usage: cargo xtask dist [FOLDER]".into()]),
    };
    let one = |e: String| vec![e];
    // Each crate is built from its package.
    let mut publish = cargo(root);
    publish.args(["publish", "--workspace", "--dry-run", "--locked"]);
    run.run(publish.arg("--allow-dirty"))?;

    if into.exists() {
        fs::remove_dir_all(&into).map_err(|e| one(format!("{}: {e}", into.display())))?;
    }
    fs::create_dir_all(&into).map_err(|e| one(format!("{}: {e}", into.display())))?;
    let makers = environment(run, &MAKERS)?;
    let bill = bill(run, &into)?;
    let licences = licences::texts(root, &bill).map_err(one)?;
    let third = gzip(licences.as_bytes(), &into.join("third-party.txt")).map_err(one)?;
    let mut native = None;
    for arch in ARCHES {
        let program = build(run, arch, &makers, ("dist", &[]))?;
        check::no_path_of_the_builder(root, &program).map_err(one)?;
        let native = native.get_or_insert_with(|| program.clone());
        let made = tarball(root, (native, &program), &third, arch, &into);
        made.map_err(one)?;
        packages(run, arch, (native, &third), &into)?;
        let alone = into.join(format!("farhaul-{}", arch.debian));
        copy(&program, &alone).map_err(one)?;
    }
    image(root, &into).map_err(one)?;
    wheels::build(run, &makers, &licences, &into)?;
    check::all(run, &into)?;
    let slim = build(
        run,
        ARCHES[0],
        &makers,
        ("slim", &["--no-default-features"]),
    )?;
    check::slim(&slim).map_err(one)?;
    let alone = into.join(format!("farhaul-slim-{}", ARCHES[0].debian));
    copy(&slim, &alone).map_err(one)?;
    sums(&into).map_err(one)?;
    print_line(&format!("dist: {}", into.display()));
    Ok(())
}

/// A build that leaves no path of the builder in what it makes, and finds the cross-compiler in `makers`.
fn prepared(root: &Path, makers: &Path, mut command: Command) -> Command {
    let home = cargo_home();
    let maps = [(home.as_path(), "/cargo"), (root, "/farhaul")];
    let flags = maps.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    let c = maps.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    let path = env::var_os("PATH").unwrap_or_default();
    let paths = [makers.join("bin")]
        .into_iter()
        .chain(env::split_paths(&path));
    if let Ok(path) = env::join_paths(paths) {
        command.env("PATH", path);
    }
    command
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CFLAGS", c.join(" "))
        .current_dir(root);
    command
}

/// The static binary, by a profile of Cargo.toml.
fn build(
    run: &mut Runner<'_>,
    arch: Arch,
    makers: &Path,
    (profile, features): (&str, &[&str]),
) -> Result<PathBuf, Vec<String>> {
    let zigbuild = Command::new(makers.join("bin/cargo-zigbuild"));
    let mut build = prepared(run.root, makers, zigbuild);
    build.args([
        "zigbuild",
        "--locked",
        "-p",
        "farhaul",
        "--profile",
        profile,
    ]);
    run.run(build.args(["--target", arch.target]).args(features))?;
    let built = target(run.root)?.join(arch.target);
    Ok(built.join(profile).join("farhaul"))
}

/// The bill of materials of the program, into `into`.
fn bill(run: &mut Runner<'_>, into: &Path) -> Result<Value, Vec<String>> {
    let tool = CYCLONEDX.path(run).map_err(|e| vec![e])?;
    let mut make = Command::new(tool);
    make.args(["cyclonedx", "--manifest-path", "crates/cli/Cargo.toml"])
        .args(["--format", "json", "--spec-version", "1.5", "--quiet"])
        .args(["--describe", "binaries", "--target", ARCHES[0].target])
        .env(
            "SOURCE_DATE_EPOCH",
            last_commit(run.root, "%ct").map_err(|e| vec![e])?,
        );
    run.run(make.current_dir(run.root))?;
    let read = || -> Done<Value> {
        let made = run.root.join("crates/cli/farhaul_bin.cdx.json");
        let text = fs::read_to_string(&made).map_err(|e| format!("{}: {e}", made.display()))?;
        // The tool writes one beside every package of the workspace.
        for folder in members(run.root)? {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().ends_with(".cdx.json") {
                    fs::remove_file(entry.path()).map_err(|e| format!("{e}"))?;
                }
            }
        }
        // No path of the builder.
        let text = text.replace(&format!("path+file://{}/", run.root.display()), "path:");
        let to = into.join(format!("farhaul-{VERSION}.cdx.json"));
        write(&to, text.as_bytes())?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", made.display()))
    };
    read().map_err(|e| vec![e])
}

/// Folders of the workspace's packages.
fn members(root: &Path) -> Done<Vec<PathBuf>> {
    let mut command = cargo(root);
    command.args(["metadata", "--locked", "--format-version", "1", "--no-deps"]);
    let text = output(command.current_dir(root))?;
    let metadata: Value =
        serde_json::from_slice(&text).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifests = packages.filter_map(|package| package["manifest_path"].as_str());
    Ok(manifests
        .filter_map(|path| Some(Path::new(path).parent()?.to_path_buf()))
        .collect())
}

/// A tarball for `/usr/local`, whatever the user and the time.
fn tarball(
    root: &Path,
    (native, program): (&Path, &Path),
    third: &Path,
    arch: Arch,
    into: &Path,
) -> Done<()> {
    let name = format!("farhaul-{VERSION}-{}-linux", arch.name);
    let stage = tempfile::tempdir().map_err(|e| format!("a folder for files: {e}"))?;
    let tree = stage.path().join(&name);
    install(root, native, third, &tree, "/usr/local")?;
    copy(program, &tree.join("bin/farhaul"))?;
    ran(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&tree))?;
    let when = last_commit(root, "%ct")?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{when}"))
        .args(["-I", "gzip -9n", "-C"])
        .arg(stage.path())
        .arg("-cf")
        .arg(into.join(format!("{name}.tar.gz")));
    ran(tar.arg(&name))
}

/// The Debian package and the RPM of the static binary, which is built.
fn packages(
    run: &mut Runner<'_>,
    arch: Arch,
    (native, third): (&Path, &Path),
    into: &Path,
) -> Outcome {
    let one = |e: String| vec![e];
    let tree = run.root.join(TREE);
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(|e| one(format!("{}: {e}", tree.display())))?;
    }
    install(run.root, native, third, &tree.join("usr"), "/usr").map_err(one)?;
    let overrides = tree.join("usr/share/lintian/overrides/farhaul");
    copy(&run.root.join("packaging/lintian-overrides"), &overrides).map_err(one)?;
    let date = last_commit(run.root, "%aD").map_err(one)?;
    let maintainer = maintainer(run.root).map_err(one)?;
    let changes = format!(
        "farhaul ({VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md has the changes.\n\n -- {maintainer}  {date}\n"
    );
    write(&tree.join("changelog"), changes.as_bytes()).map_err(one)?;
    let when = last_commit(run.root, "%ct").map_err(one)?;
    let mut deb = Command::new(DEB.path(run).map_err(one)?);
    deb.args(["deb", "-p", "farhaul", "--no-build", "--no-strip"])
        .args(["--profile", "dist", "--target", arch.target, "--output"])
        .arg(into.join(format!("farhaul_{VERSION}_{}.deb", arch.debian)))
        .env("SOURCE_DATE_EPOCH", &when);
    run.run(deb.current_dir(run.root))?;
    let mut rpm = Command::new(RPM.path(run).map_err(one)?);
    rpm.args(["generate-rpm", "-p", "crates/cli", "--auto-req", "no"])
        .args(["--profile", "dist", "--target", arch.target, "--output"])
        .arg(into.join(format!("farhaul-{VERSION}-1.{}.rpm", arch.name)))
        .arg("--target-dir")
        .arg(target(run.root)?)
        .env("SOURCE_DATE_EPOCH", &when);
    run.run(rpm.current_dir(run.root))
}

/// Author of the packages, whom the settings in the program's manifest name.
fn maintainer(root: &Path) -> Done<String> {
    let file = root.join("crates/cli/Cargo.toml");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let named = text
        .lines()
        .find_map(|line| line.strip_prefix("maintainer = \"")?.strip_suffix('"'));
    named
        .map(str::to_string)
        .ok_or_else(|| format!("{}: no maintainer", file.display()))
}

/// Writes the parts of the image, beside the binaries.
fn image(root: &Path, into: &Path) -> Done<()> {
    let file = root.join("packaging/Containerfile");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let text = text.replace("VERSION", VERSION);
    write(&into.join("Containerfile"), text.as_bytes())?;
    let state = into.join("state");
    fs::create_dir_all(&state).map_err(|e| format!("{}: {e}", state.display()))
}

/// Installs below `tree` all but the binary that belongs below `prefix`; `native` is a binary that runs here.
fn install(root: &Path, native: &Path, third: &Path, tree: &Path, prefix: &str) -> Done<()> {
    let at = |below: &str| tree.join(below);
    for (shell, below) in COMPLETIONS {
        let script = output(Command::new(native).args(["completions", shell]))?;
        write(&at(below), &script)?;
    }
    for (from, below) in FILES {
        let text = fs::read_to_string(root.join(from)).map_err(|e| format!("{from}: {e}"))?;
        let text = text.replace("/usr/bin/", &format!("{prefix}/bin/"));
        write(&at(below), text.as_bytes())?;
    }
    copy(third, &at("share/doc/farhaul/third-party.txt.gz"))?;
    let pages = at("share/man/man1");
    fs::create_dir_all(&pages).map_err(|e| format!("{}: {e}", pages.display()))?;
    let date = last_commit(root, "%cs")?;
    let mut man = Command::new(native);
    let reference = root.join("docs/reference.md");
    let man = man.arg("_man").arg(&pages).args(["--date", &date]);
    ran(man.arg("--reference").arg(reference))?;
    // -n: without names and times, which would differ.
    ran(Command::new("gzip").args(["-9n", "-r"]).arg(&pages))
}

/// `text` compressed as `path` with `.gz`, which is returned.
fn gzip(text: &[u8], path: &Path) -> Done<PathBuf> {
    write(path, text)?;
    ran(Command::new("gzip").args(["-9nf"]).arg(path))?;
    Ok(path.with_added_extension("gz"))
}

/// Checksums of every file of `into`.
fn sums(into: &Path) -> Done<()> {
    let entries = fs::read_dir(into).map_err(|e| format!("{}: {e}", into.display()))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let mut names: Vec<_> = files.map(|entry| entry.file_name()).collect();
    names.sort();
    let sums = output(Command::new("sha256sum").args(names).current_dir(into))?;
    write(&into.join("SHA256SUMS"), &sums)
}

/// The time of the last commit, in a format of git.
fn last_commit(root: &Path, format: &str) -> Done<String> {
    let mut log = Command::new("git");
    log.args(["log", "-1", &format!("--format={format}")]);
    let when = output(log.env("TZ", "UTC").current_dir(root))?;
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
