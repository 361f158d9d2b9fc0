//! Checks of what is released. The stage `packages` packs the crates and uses the static binary, built without optimisation: as
//! the container has it, as ssh installs it, as systemd reads its unit. `dist` does the same with what it has made, and also
//! installs the Debian package, the RPM, the wheel and the source distribution, and runs the binary for aarch64. What lacks
//! its tool says so.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{ARCHES, Done, MAKERS, VERSION, copy, image, output, prepared, ran, wheels, write};
use crate::{
    Outcome,
    python::environment,
    run::{Runner, cargo, target},
    tools::{self, cargo_home},
};

/// Tools without which the binary cannot be built and used.
const TOOLS: [&str; 3] = ["musl-gcc", "strip", "python3"];
/// Most bytes of the binary without the laboratory.
const MOST_SLIM: u64 = 12_000_000;

/// Runs the stage.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    packed(run)?;
    if let Some(why) = missing(run.root) {
        run.not_checked(&format!("what is released: {why}"));
        return Ok(());
    }
    other(run)?;
    let unstripped = build(run)?;
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder for roots: {e}")])?;
    let made = below.path().join("made");
    let prepared = || -> Done<()> {
        let program = made.join(format!("farhaul-{}", ARCHES[0].debian));
        fs::create_dir_all(&made).map_err(|e| format!("{}: {e}", made.display()))?;
        ran(Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .args([&program, &unstripped]))?;
        // The release has the licences of the crates here.
        write(&made.join("third-party.txt.gz"), b"")?;
        image(run.root, &made)
    };
    prepared().map_err(|e| vec![e])?;
    common(run, &made, below.path()).map_err(|e| vec![e])
}

/// Packs every crate as the registry gets it, which fails for a dependency without a version and for a file that is
/// missing. `dist` also builds them from their packages.
fn packed(run: &mut Runner<'_>) -> Outcome {
    let mut package = cargo(run.root);
    package.args(["package", "--workspace", "--locked", "--quiet"]);
    run.run(package.args(["--no-verify", "--allow-dirty"]))
}

/// The static binary, quick to build.
fn build(run: &mut Runner<'_>) -> Result<PathBuf, Vec<String>> {
    let mut build = cargo(run.root);
    build
        .args(["build", "--locked", "-p", "farhaul", "--target"])
        .arg(ARCHES[0].target)
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    run.run(&mut build)?;
    let built = target(run.root)?.join(ARCHES[0].target);
    Ok(built.join("debug/farhaul"))
}

/// Compiles for the other architecture, and at the same time without the laboratory.
fn other(run: &mut Runner<'_>) -> Outcome {
    let makers = environment(run, &MAKERS)?;
    let zigbuild = Command::new(makers.join("bin/cargo-zigbuild"));
    let mut check = prepared(run.root, &makers, zigbuild);
    check.args(["check", "--locked", "-p", "farhaul"]);
    check.args(["--no-default-features", "--target", ARCHES[1].target]);
    run.run(&mut check)
}

/// Reason why nothing can be made.
fn missing(root: &Path) -> Option<String> {
    let tool = TOOLS.into_iter().find(|tool| !has(tool));
    let tool = tool.map(|tool| format!("{tool} is not installed"));
    tool.or_else(|| {
        ARCHES
            .into_iter()
            .find_map(|arch| tools::lacks_target(root, arch.target))
    })
}

/// Checks the size of the binary without the laboratory, and what it answers for a command that it lacks.
pub(super) fn slim(program: &Path) -> Done<()> {
    let size = fs::metadata(program).map_err(|e| format!("{}: {e}", program.display()))?;
    if size.len() > MOST_SLIM {
        let (size, name) = (size.len(), program.display());
        return Err(format!("{name}: {size} bytes, at most {MOST_SLIM}"));
    }
    let ended = Command::new(program)
        .args(["sim", "--rate", "1Gbit"])
        .output();
    let ended = ended.map_err(|e| format!("{}: {e}", program.display()))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() == Some(2) && said.contains("built without the laboratory") {
        Ok(())
    } else {
        Err(format!(
            "farhaul sim without the laboratory: {}: {said}",
            ended.status
        ))
    }
}

/// Reports a check, which may lack what it needs.
fn said(run: &mut Runner<'_>, what: &str, done: Done<Option<&str>>) -> Done<()> {
    match done? {
        None => run.keep(&format!("{what}: ok")),
        Some(why) => run.not_checked(&format!("{what}: {why}")),
    }
    Ok(())
}

/// Checks of the binary of this machine in `made`, which needs no package.
fn common(run: &mut Runner<'_>, made: &Path, below: &Path) -> Done<()> {
    let program = made.join(format!("farhaul-{}", ARCHES[0].debian));
    said(run, "unit", unit(run.root, &program, below))?;
    let far = below.join("far");
    let what = "binary copied by itself to a host of ssh";
    said(run, what, installed(&program, &far))?;
    let what = "binary used alone in a root, as in the container";
    said(run, what, container(made, &below.join("alone")))
}

/// Checks of everything that was made.
pub(super) fn all(run: &mut Runner<'_>, made: &Path) -> Outcome {
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder for roots: {e}")])?;
    let below = below.path();
    let packages = |run: &mut Runner<'_>| -> Done<()> {
        common(run, made, below)?;
        for arch in ARCHES {
            let deb = made.join(format!("farhaul_{VERSION}_{}.deb", arch.debian));
            let what = format!("lintian of {}", arch.debian);
            said(run, &what, lintian(&deb))?;
        }
        let deb = made.join(format!("farhaul_{VERSION}_{}.deb", ARCHES[0].debian));
        let what = "Debian package installed, upgraded and used in a fresh root";
        said(run, what, debian(&deb, &below.join("debian")))?;
        let rpm = made.join(format!("farhaul-{VERSION}-1.{}.rpm", ARCHES[0].name));
        let what = "RPM installed and used in a fresh root";
        said(run, what, redhat(&rpm, &below.join("redhat")))?;
        let program = made.join(format!("farhaul-{}", ARCHES[1].debian));
        let what = "aarch64 binary used by an emulator of the processor";
        said(run, what, emulated(&program, &below.join("emulated")))
    };
    packages(run).map_err(|e| vec![e])?;
    wheels::check(run, made, below)
}

/// Refuses a binary with a path of the machine that built it.
pub(super) fn no_path_of_the_builder(root: &Path, program: &Path) -> Done<()> {
    let bytes = fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    let root = fs::canonicalize(root).map_err(|e| format!("{}: {e}", root.display()))?;
    for path in [cargo_home(), root] {
        let text = path.as_os_str().as_encoded_bytes();
        let count = bytes.windows(text.len()).filter(|w| *w == text).count();
        if count > 0 {
            let (program, path) = (program.display(), path.display());
            return Err(format!("{program}: has {count} paths below {path}"));
        }
    }
    Ok(())
}

/// Errors that Debian's checker has about the package.
fn lintian(deb: &Path) -> Done<Option<&'static str>> {
    if !has("lintian") {
        return Ok(Some("no lintian"));
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error", "--allow-root"]);
    ran(lintian.arg("--tag-display-limit=0").arg(deb)).map(|()| None)
}

/// Installs the package by dpkg, upgrades it, and copies with it.
fn debian(deb: &Path, fresh: &Path) -> Done<Option<&'static str>> {
    if let Some(why) = no_root() {
        return Ok(Some(why));
    }
    if !has("dpkg") {
        return Ok(Some("no dpkg"));
    }
    for file in ["status", "updates/.keep", "info/.keep"] {
        write(&fresh.join("var/lib/dpkg").join(file), b"")?;
    }
    let root = format!("--root={}", fresh.display());
    // There is no shell in the root: scripts run here, for that root. The second time it is an upgrade.
    for _ in 0..2 {
        let mut dpkg = privileged("dpkg");
        dpkg.args([&root, "--force-script-chrootless", "--force-depends"]);
        ran(dpkg.arg("--install").arg(deb))?;
    }
    let admin = format!("--admindir={}/var/lib/dpkg", fresh.display());
    let listed = output(Command::new("dpkg-query").args([&admin, "-L", "farhaul"]))?;
    installed_all(&listed, fresh)?;
    let script = output(Command::new("dpkg-deb").arg("-I").arg(deb).arg("postinst"))?;
    restarts(&script, &["restart", "deb-systemd-invoke"])?;
    used(&Place::root(fresh, "/usr/bin/farhaul")).map(|()| None)
}

/// Installs the package by rpm, and copies with it.
fn redhat(rpm: &Path, fresh: &Path) -> Done<Option<&'static str>> {
    if let Some(why) = no_root() {
        return Ok(Some(why));
    }
    if !has("rpm") {
        return Ok(Some("no rpm"));
    }
    fs::create_dir_all(fresh).map_err(|e| format!("{}: {e}", fresh.display()))?;
    let root = format!("--root={}", fresh.display());
    ran(privileged("rpm").args([&root, "--initdb"]))?;
    // There is no shell in the root, so neither scripts nor what they depend on.
    let mut install = privileged("rpm");
    install.args([&root, "--install", "--noscripts", "--nodeps"]);
    ran(install.arg(rpm))?;
    let listed = output(privileged("rpm").args([&root, "--query", "--list", "farhaul"]))?;
    installed_all(&listed, fresh)?;
    let script = output(Command::new("rpm").args(["-qp", "--scripts"]).arg(rpm))?;
    restarts(&script, &["try-restart"])?;
    used(&Place::root(fresh, "/usr/bin/farhaul")).map(|()| None)
}

/// Every listed path is there, and at least the program, its page and the unit are listed.
fn installed_all(listed: &[u8], fresh: &Path) -> Done<()> {
    let listed = String::from_utf8_lossy(listed);
    for expected in [
        "/usr/bin/farhaul",
        "/usr/share/man/man1/farhaul-cp.1.gz",
        "/usr/lib/systemd/system/farhaul-serve.service",
        "/usr/share/doc/farhaul/copyright",
        "/usr/share/doc/farhaul/third-party.txt.gz",
    ] {
        if !listed.lines().any(|line| line == expected) {
            return Err(format!("{expected} is not in the package"));
        }
    }
    for file in listed.lines().filter(|f| *f != "/.") {
        if !fresh.join(file.trim_start_matches('/')).exists() {
            return Err(format!("{file} is in the package and was not installed"));
        }
    }
    Ok(())
}

/// Refuses a script of a package after which a running server is still the old one.
fn restarts(script: &[u8], words: &[&str]) -> Done<()> {
    let script = String::from_utf8_lossy(script);
    let has = |word: &&&str| script.contains(**word);
    if words.iter().all(|word| has(&word)) && script.contains("farhaul-serve.service") {
        return Ok(());
    }
    Err(format!("an upgrade does not restart the server: {script}"))
}

/// Copies with the binary of another architecture.
fn emulated(program: &Path, folder: &Path) -> Done<Option<&'static str>> {
    if !has(EMULATOR) {
        return Ok(Some(
            "no qemu-aarch64-static (apt-get install qemu-user-static)",
        ));
    }
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let start = || {
        let mut command = Command::new(EMULATOR);
        command.arg(program).current_dir(folder);
        command
    };
    used(&Place {
        root: folder,
        view: folder.display().to_string(),
        start: Box::new(start),
    })
    .map(|()| None)
}

/// Runs programs of another processor.
const EMULATOR: &str = "qemu-aarch64-static";

/// Runs what the Containerfile copies, in a root that has nothing else, as its user.
fn container(made: &Path, alone: &Path) -> Done<Option<&'static str>> {
    let text = fs::read_to_string(made.join("Containerfile")).map_err(|e| e.to_string())?;
    let text = text.replace("${TARGETARCH}", ARCHES[0].debian);
    for line in text.lines().filter(|line| line.starts_with("COPY ")) {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        let words = words.iter().filter(|word| !word.starts_with("--"));
        let [from, to] = words.collect::<Vec<_>>()[..] else {
            return Err(format!("Containerfile: {line}: write COPY FROM TO"));
        };
        let (from, to) = (made.join(from), alone.join(to.trim_start_matches('/')));
        if from.is_dir() {
            fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
        } else {
            copy(&from, &to)?;
        }
    }
    match no_root() {
        Some(why) => Ok(Some(why)),
        None => used(&Place::root(alone, "/farhaul")).map(|()| None),
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

/// A folder in which a program runs, and how the program sees it and is started there.
struct Place<'a> {
    root: &'a Path,
    /// The path of the folder, as the program sees it.
    view: String,
    start: Box<dyn Fn() -> Command + 'a>,
}

impl<'a> Place<'a> {
    /// The folder as the root, in which `program` is.
    fn root(root: &'a Path, program: &'a str) -> Self {
        let start = move || {
            let mut command = privileged("chroot");
            command.arg(root).arg(program);
            command
        };
        Self {
            root,
            view: String::new(),
            start: Box::new(start),
        }
    }
}

/// A server and a client in `place`, with keys that know each other.
fn used(place: &Place<'_>) -> Done<()> {
    let seen = |path: &str| format!("{}/{path}", place.view);
    let inside = |home: &str| {
        let mut command = (place.start)();
        command.env_clear().env("HOME", seen(home));
        command.env("TMPDIR", seen("tmp"));
        // Where chroot itself is looked for.
        command.envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command
    };
    let version = output(inside("client").arg("--version"))?;
    if version != format!("farhaul {VERSION}\n").as_bytes() {
        return Err(format!("--version: {}", String::from_utf8_lossy(&version)));
    }
    for folder in ["in", "tmp", "client", "server"] {
        let folder = place.root.join(folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let content: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_000).collect();
    write(&place.root.join("file"), &content)?;
    let key = output(inside("client").args(["key", "gen"]))?;
    let key = String::from_utf8_lossy(&key);
    let mut serve = inside("server");
    let share = format!("in={}:rw", seen("in"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--share", &share]);
    let serve = serve
        .args(["--allow", key.trim()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut serve = Ended(serve.spawn().map_err(|e| format!("{serve:?}: {e}"))?);
    let (port, key) = serve.listening()?;
    let server = format!("127.0.0.1:{port}");
    ran(inside("client").args(["key", "trust", &server, &key]))?;
    let to = format!("farhaul://{server}/in/");
    ran(inside("client").args(["cp", "--quiet", &seen("file"), &to]))?;
    let arrived = place.root.join("in/file");
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
