//! The stage `packages`: builds the static binary without optimisation, makes everything of it, and
//! uses it. It uses the package installed by dpkg into a root that has nothing else, the binary
//! alone as the container has it, and the unit as systemd reads it. What lacks its tool says so.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{Done, TARGET, build, copy, output, ran, release, write};
use crate::{
    Outcome,
    run::{Runner, cargo},
};

/// Tools without which nothing can be made.
const MAKERS: [&str; 7] = [
    "musl-gcc",
    "strip",
    "tar",
    "gzip",
    "sha256sum",
    "md5sum",
    "dpkg-deb",
];

/// Runs the stage.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    packed(run)?;
    if let Some(why) = missing(run.root) {
        run.not_checked(&format!("what is released: {why}"));
        return Ok(());
    }
    let program = build(run, "dev")?;
    check(run, &program).map_err(|e| vec![e])
}

/// Packs every crate as the registry gets it, which fails for a dependency without a version and for a file that is
/// missing. `dist` also builds them from their packages.
fn packed(run: &mut Runner<'_>) -> Outcome {
    let mut package = cargo(run.root);
    package.args(["package", "--workspace", "--locked", "--quiet"]);
    run.run(package.args(["--no-verify", "--allow-dirty"]))
}

/// Reason why nothing can be made.
fn missing(root: &Path) -> Option<String> {
    let tool = MAKERS.into_iter().find(|tool| !has(tool));
    let tool = tool.map(|tool| format!("{tool} is not installed"));
    tool.or_else(|| {
        // Of the toolchain in use here, however that was installed.
        let mut print = Command::new("rustc");
        print
            .args(["--print", "target-libdir", "--target", TARGET])
            .current_dir(root);
        let folder = output(&mut print).unwrap_or_default();
        let folder = PathBuf::from(String::from_utf8_lossy(&folder).trim());
        let there = folder.is_dir();
        (!there).then(|| format!("no target {TARGET} (rustup target add {TARGET})"))
    })
}

fn check(run: &mut Runner<'_>, unstripped: &Path) -> Done<()> {
    let root = run.root;
    let below = tempfile::tempdir().map_err(|e| format!("a folder for roots: {e}"))?;
    let made = below.path().join("dist");
    // What takes long is to compress it for debuggers.
    let program = &below.path().join("farhaul");
    ran(Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .args([program, unstripped]))?;
    release(root, program, &made, 1)?;
    ran(Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(&made))?;

    let fresh = below.path().join("fresh");
    let deb = made.join(format!("farhaul_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
    let mut said = |what: &str, done: Done<Option<&str>>| -> Done<()> {
        match done? {
            None => run.keep(&format!("{what}: ok")),
            Some(why) => run.not_checked(&format!("{what}: {why}")),
        }
        Ok(())
    };
    said(
        "package installed and used in a fresh root",
        package(&deb, &fresh),
    )?;
    said("unit", unit(root, program, below.path()))?;
    let far = below.path().join("far");
    said(
        "binary copied by itself to a host of ssh",
        installed(program, &far),
    )?;
    let alone = below.path().join("alone");
    said(
        "binary used alone in a root, as in the container",
        container(&made, &alone),
    )
}

/// Installs the package by dpkg and copies with it.
fn package(deb: &Path, fresh: &Path) -> Done<Option<&'static str>> {
    if let Some(why) = no_root() {
        return Ok(Some(why));
    }
    if !has("dpkg") {
        return Ok(Some("no dpkg"));
    }
    for file in [
        "var/lib/dpkg/status",
        "var/lib/dpkg/updates/.keep",
        "var/lib/dpkg/info/.keep",
    ] {
        write(&fresh.join(file), b"")?;
    }
    let mut root = "--root=".to_string();
    root.push_str(&fresh.display().to_string());
    ran(privileged("dpkg").args([&root, "--install"]).arg(deb))?;
    let listed = output(Command::new("dpkg-query").args([
        &format!("--admindir={}/var/lib/dpkg", fresh.display()),
        "-L",
        "farhaul",
    ]))?;
    for file in String::from_utf8_lossy(&listed)
        .lines()
        .filter(|f| *f != "/.")
    {
        if !fresh.join(file.trim_start_matches('/')).exists() {
            return Err(format!("{file} is in the package and was not installed"));
        }
    }
    used(fresh, "/usr/bin/farhaul").map(|()| None)
}

/// Runs what the Containerfile copies, in a root that has nothing else.
fn container(made: &Path, alone: &Path) -> Done<Option<&'static str>> {
    let text = fs::read_to_string(made.join("Containerfile")).map_err(|e| e.to_string())?;
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    for line in text
        .lines()
        .map(words)
        .filter(|words| words.first().is_some_and(|w| w == "COPY"))
    {
        let [_, from, to] = line.as_slice() else {
            return Err(format!(
                "Containerfile: {}: write COPY FROM TO",
                line.join(" ")
            ));
        };
        copy(&made.join(from), &alone.join(to.trim_start_matches('/')))?;
    }
    match no_root() {
        Some(why) => Ok(Some(why)),
        None => used(alone, "/farhaul").map(|()| None),
    }
}

/// The unit, with the program where it is here.
fn unit(root: &Path, program: &Path, below: &Path) -> Done<Option<&'static str>> {
    if !has("systemd-analyze") {
        return Ok(Some("no systemd-analyze"));
    }
    let text = fs::read_to_string(root.join("packaging/farhaul-serve.service"));
    let text = text.map_err(|e| format!("packaging/farhaul-serve.service: {e}"))?;
    let here = below.join("farhaul-serve.service");
    let text = text.replace("/usr/bin/farhaul", &program.display().to_string());
    write(&here, text.as_bytes())?;
    let mut verify = Command::new("systemd-analyze");
    let verify = verify.args(["verify", "--man=no"]).arg(&here).output();
    let verify = verify.map_err(|e| format!("systemd-analyze: {e}"))?;
    // A setting that it does not know is only a warning. Other units of this machine are not ours.
    let said = String::from_utf8_lossy(&verify.stderr);
    let ours: Vec<_> = said
        .lines()
        .filter(|line| line.contains("farhaul-serve"))
        .collect();
    if verify.status.success() && ours.is_empty() {
        Ok(None)
    } else {
        Err(format!(
            "systemd-analyze: {}: {}",
            verify.status,
            ours.join("; ")
        ))
    }
}

/// The program copies itself, and then a file, to the host of an ssh that runs commands here, in
/// another home. There is no program there at first, and then an old one.
fn installed(program: &Path, far: &Path) -> Done<Option<&'static str>> {
    let home = far.join("home");
    let place = home.join(".local/bin/farhaul");
    let ssh = far.join("ssh");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -G ] && {{ echo hostname 127.0.0.1; exit; }}\n\
         cd {home} && exec env -i HOME={home} PATH=/usr/bin:/bin sh -c \"$3\"\n",
        home = home.display()
    );
    write(&ssh, script.as_bytes())?;
    write(&far.join("file"), b"content")?;
    let old = "#!/bin/sh\necho 'farhaul-ssh/1 {}'\n";
    for (name, there) in [("first", None), ("second", Some(old))] {
        if let Some(old) = there {
            write(&place, old.as_bytes())?;
        } else {
            fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        }
        ran(Command::new("chmod")
            .args(["755"])
            .arg(&ssh)
            .args(there.map(|_| &place)))?;
        let mut cp = Command::new(program);
        cp.args(["cp", "--quiet", "--install-remote=yes", "--ssh"])
            .arg(&ssh);
        cp.arg("file").arg(format!("far:{name}")).current_dir(far);
        ran(cp
            .env("XDG_CONFIG_HOME", far.join("config"))
            .env_remove("FARHAUL_REMOTE_BIN"))?;
        for (copied, like) in [
            (&home.join(name), &far.join("file")),
            (&place, &program.to_path_buf()),
        ] {
            let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
            if read(copied)? != read(like)? {
                return Err(format!(
                    "{} differs from {}",
                    copied.display(),
                    like.display()
                ));
            }
        }
    }
    Ok(None)
}

/// A server and a client in `root`, whose program is `program`, with keys that know each other.
fn used(root: &Path, program: &str) -> Done<()> {
    let inside = |home: &str| {
        let mut command = privileged("chroot");
        command.arg(root).arg(program).env_clear().env("HOME", home);
        command.env("TMPDIR", "/tmp");
        // Where chroot itself is looked for.
        command.envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command
    };
    let version = output(inside("/root").arg("--version"))?;
    let expected = format!("farhaul {}\n", env!("CARGO_PKG_VERSION"));
    if version != expected.as_bytes() {
        return Err(format!("--version: {}", String::from_utf8_lossy(&version)));
    }
    for folder in ["in", "tmp", "root", "server"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let content: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_000).collect();
    write(&root.join("file"), &content)?;
    let key = output(inside("/root").args(["key", "gen"]))?;
    let key = String::from_utf8_lossy(&key);
    let mut serve = inside("/server");
    serve.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--share",
        "in=/in:rw",
        "--allow",
    ]);
    let serve = serve
        .arg(key.trim())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut serve = Ended(serve.spawn().map_err(|e| format!("chroot: {e}"))?);
    let (port, key) = serve.listening()?;
    let server = format!("127.0.0.1:{port}");
    ran(inside("/root").args(["key", "trust", &server, &key]))?;
    ran(inside("/root").args(["cp", "--quiet", "/file", &format!("farhaul://{server}/in/")]))?;
    let arrived = root.join("in/file");
    let arrived = fs::read(&arrived).map_err(|e| format!("{}: {e}", arrived.display()))?;
    if arrived == content {
        Ok(())
    } else {
        Err("the copy differs".into())
    }
}

/// A server, which ends with its test.
struct Ended(Child);

impl Ended {
    /// Port and key of the server, as soon as it prints them.
    fn listening(&mut self) -> Done<(String, String)> {
        let said = self.0.stderr.take().ok_or("the server has no stderr")?;
        let mut all = String::new();
        for line in BufReader::new(said).lines() {
            let line = line.map_err(|e| format!("the server's stderr: {e}"))?;
            let listening = line.strip_prefix("listening on 127.0.0.1:");
            if let Some((port, key)) = listening.and_then(|rest| rest.split_once("/udp, key ")) {
                return Ok((port.into(), key.into()));
            }
            all += &line;
        }
        Err(format!("the server ended: {all}"))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself, which the copy has found out.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// `program` as root, of this user's own namespace if need be.
fn privileged(program: &str) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", program]);
    command
}

/// Reason why there is no root.
fn no_root() -> Option<&'static str> {
    let runs = |command: &mut Command| output(command).is_ok();
    let can = is_root() || has("unshare") && runs(privileged("true").stderr(Stdio::null()));
    (!can).then_some("not root, and no user namespaces")
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id == b"0\n")
}

/// True if a command can be run.
fn has(tool: &str) -> bool {
    let mut which = Command::new("sh");
    let found = which
        .args(["-c", "command -v \"$0\" >/dev/null", tool])
        .status();
    found.is_ok_and(|status| status.success())
}
