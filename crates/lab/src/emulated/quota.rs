//! Makes an end a slow device: its programs run in a control group with a share of one core. The
//! `cpu` controller of cgroup v1 or v2 bounds the group, whichever this machine has.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// Period in which the share is given, µs: a group that has used its part waits for the next
/// period.
const PERIOD: u32 = 20_000;
/// Prefix of the names of our groups; the process that made the group follows.
const PREFIX: &str = "farhaul-lab-";

/// A control group with a bound; removed when dropped, with whatever still runs in it.
#[derive(Debug)]
pub(super) struct Quota(PathBuf);

/// Place where groups can be made, and the version by which bounds are written there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    path: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Quota {
    /// A group called after `name` with this share of one core.
    pub(super) fn new(name: &str, share: f64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let mut why = String::from("no cpu controller is mounted");
        for parent in parents(&mounts, &own) {
            let path = &parent.path;
            sweep(path);
            match parent.group(name, share) {
                Ok(group) => return Ok(group),
                Err(e) => why = format!("{}: {e}", path.display()),
            }
        }
        Err(format!(
            "no control group with a share of a core can be made ({why}): run as root on a machine with the cpu \
             controller of cgroup v1 or v2, or leave cpu out of [emu]"
        ))
    }

    /// `command`, which enters the group before it is anything else, and the input that it needs for that.
    pub(super) fn around(&self, command: &Command) -> io::Result<(Command, Stdio)> {
        // An open file, as a host may not see the control groups; 0 is the writer, in any process
        // namespace.
        let entry = File::options()
            .write(true)
            .open(self.0.join("cgroup.procs"))?;
        let mut around = Command::new("/bin/sh");
        around
            .args(["-c", "echo 0 >&0 && exec \"$@\" </dev/null", "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => around.env(name, value),
                None => around.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            around.current_dir(folder);
        }
        Ok((around, entry.into()))
    }

    /// Ends the programs left in the group, and removes the group.
    pub(super) fn end(&self) -> io::Result<()> {
        loop {
            let left = match fs::read_to_string(self.0.join("cgroup.procs")) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                left => left?,
            };
            let pids = left.lines().filter_map(|line| line.parse().ok());
            let pids: Vec<Pid> = pids.filter_map(Pid::from_raw).collect();
            if pids.is_empty() {
                return fs::remove_dir(&self.0);
            }
            for pid in pids {
                match pidfd_open(pid, PidfdFlags::empty()) {
                    Ok(ended) => {
                        kill_process(pid, Signal::KILL)?;
                        poll(&mut [PollFd::new(&ended, PollFlags::IN)], None)?;
                    }
                    // It ended by itself.
                    Err(Errno::SRCH) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // What cannot be removed now is by the next run.
        let _ = self.end();
    }
}

impl Parent {
    fn group(&self, name: &str, share: f64) -> io::Result<Quota> {
        let path = self.path.join(format!("{PREFIX}{}-{name}", process::id()));
        if self.version == Version::Two {
            let delegated = fs::read_to_string(self.path.join("cgroup.subtree_control"))?;
            if !delegated.split_whitespace().any(|c| c == "cpu") {
                fs::write(self.path.join("cgroup.subtree_control"), "+cpu")?;
            }
        }
        fs::create_dir(&path)?;
        let group = Quota(path);
        for (file, text) in self.version.bound(share) {
            fs::write(group.0.join(file), text)?;
        }
        Ok(group)
    }
}

impl Version {
    /// Files and texts to write for a bound.
    fn bound(self, share: f64) -> Vec<(&'static str, String)> {
        // The kernel takes no less than a millisecond.
        let quota = (share * f64::from(PERIOD)).max(1_000.0).round();
        match self {
            Self::One => vec![
                ("cpu.cfs_period_us", PERIOD.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            Self::Two => vec![("cpu.max", format!("{quota} {PERIOD}"))],
        }
    }
}

/// Removes the groups of those that were killed before they could.
fn sweep(parent: &Path) {
    let Ok(all) = fs::read_dir(parent) else {
        return;
    };
    for entry in all.filter_map(Result::ok) {
        let name = entry.file_name();
        let maker = |name: &OsString| {
            let (pid, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
            pid.parse::<u32>().ok()
        };
        if maker(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another run may be doing the same.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Places where groups may be made, best first: beside this process, or above it up to the root of
/// the hierarchy.
fn parents(mounts: &str, own: &str) -> Vec<Parent> {
    let mut found = Vec::new();
    for mount in mounts.lines() {
        let Some((left, right)) = mount.split_once(" - ") else {
            continue;
        };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let ([_, _, _, root, at, ..], [kind, _, options]) = (&left[..], &right[..]) else {
            continue;
        };
        let version = match *kind {
            "cgroup" if options.split(',').any(|o| o == "cpu") => Version::One,
            "cgroup2" => Version::Two,
            _ => continue,
        };
        let mine = own.lines().find_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let ours = match version {
                Version::One => controllers.split(',').any(|c| c == "cpu"),
                Version::Two => controllers.is_empty(),
            };
            ours.then_some(path)
        });
        // A container may see a part of the hierarchy only.
        let below = mine.and_then(|path| Path::new(path).strip_prefix(root).ok());
        for path in below.unwrap_or(Path::new("")).ancestors() {
            let path = Path::new(at).join(path);
            found.push(Parent { path, version });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_written_as_the_version_has_it() {
        assert_eq!(
            Version::One.bound(0.1),
            [
                ("cpu.cfs_period_us", "20000".to_string()),
                ("cpu.cfs_quota_us", "2000".into())
            ]
        );
        assert_eq!(Version::Two.bound(0.5), [("cpu.max", "10000 20000".into())]);
        assert_eq!(Version::Two.bound(0.01), [("cpu.max", "1000 20000".into())]);
    }

    #[test]
    fn groups_are_made_beside_this_process_or_above_it() {
        let mounts = "33 31 0:30 / /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      34 31 0:31 / /c/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 /box /c/two rw shared:1 - cgroup2 cgroup2 rw\nnonsense\n";
        let own = "4:memory:/m\n1:cpu,cpuacct:/a/b\n0::/box/d\n";
        let found = parents(mounts, own);
        let of = |version| {
            let own = found.iter().filter(move |p| p.version == version);
            own.map(|p| p.path.to_str().unwrap().trim_end_matches('/'))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Version::One), ["/c/cpu/a/b", "/c/cpu/a", "/c/cpu"]);
        assert_eq!(of(Version::Two), ["/c/two/d", "/c/two"]);
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    fn what_runs_in_a_group_ends_with_it_and_the_group_is_gone() {
        let group = match Quota::new("test", 0.5) {
            Ok(group) => group,
            Err(why) => return println!("skipped: {why}"),
        };
        let path = group.0.clone();
        let mut command = Command::new("sh");
        command.args(["-c", "cat /proc/self/cgroup; exec tail -f /dev/null"]);
        let (mut inside, entry) = group.around(&command).unwrap();
        inside.stdin(entry).stdout(Stdio::piped());
        let mut child = inside.spawn().unwrap();
        let mut printed = String::new();
        let mut out = io::BufReader::new(child.stdout.take().unwrap());
        let name = path.file_name().unwrap().to_str().unwrap();
        while !printed.contains(name) {
            let read = io::BufRead::read_line(&mut out, &mut printed).unwrap();
            assert!(read > 0, "not in {name}: {printed}");
        }
        drop(group);
        assert!(!path.exists());
        assert!(!child.wait().unwrap().success());
    }
}
