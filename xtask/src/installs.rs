//! Checks `.ci/run`, which installs commands. Every command that tests and tasks start has a line
//! there, since a machine that has the command would not miss it.

use std::{collections::BTreeSet, fs, path::Path};

use crate::tidy::Source;

const SCRIPT: &str = ".ci/run";
/// Commands of any Debian with a C compiler, git and a Rust toolchain.
const BASE: [&str; 29] = [
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dpkg",
    "dpkg-deb",
    "dpkg-query",
    "du",
    "false",
    "g++",
    "git",
    "gzip",
    "id",
    "kill",
    "mkfifo",
    "mount",
    "rustc",
    "rustup",
    "sh",
    "sha256sum",
    "sleep",
    "strip",
    "tar",
    "timeout",
    "true",
    "umount",
    "unshare",
    "chroot",
];
/// Commands without which something is left out, and says so.
const OPTIONAL: [&str; 5] = ["lintian", "perf", "rpm", "strace", "systemd-analyze"];
/// Commands that only scripts within tests start.
const IN_SCRIPTS: [&str; 8] = [
    "chromium",
    "munged",
    "musl-gcc",
    "nft",
    "sbatch",
    "slurmctld",
    "slurmd",
    "sshd",
];
/// Text with which a command is started by its name.
const STARTS: &str = "Command::new(\"";

/// Commands that `.ci/run` does not install.
pub(crate) fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let Ok(script) = fs::read_to_string(root.join(SCRIPT)) else {
        return vec![format!("{SCRIPT}: missing")];
    };
    let texts = sources.iter().map(Source::text);
    complaints(&script, texts)
}

fn complaints<'a>(script: &str, texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut needed: BTreeSet<&str> = IN_SCRIPTS.into_iter().collect();
    for text in texts {
        let starts = text.split(STARTS).skip(1);
        needed.extend(starts.filter_map(|rest| rest.split('"').next()));
    }
    let installed: BTreeSet<&str> = script
        .lines()
        .filter_map(|line| line.split_once("need "))
        .filter_map(|(_, rest)| rest.split_whitespace().next())
        .collect();
    let known =
        |name: &&str| BASE.contains(name) || OPTIONAL.contains(name) || installed.contains(name);
    let paths = |name: &&str| name.contains(['/', '{']) || name.len() < 2;
    needed
        .into_iter()
        .filter(|name| !known(name) && !paths(name))
        .map(|name| format!("{SCRIPT}: installs no {name}, which tests or tasks start: add `need {name} PACKAGE`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_nothing_installs_is_named() {
        let all: Vec<_> = IN_SCRIPTS
            .iter()
            .map(|name| format!("need {name} p\n"))
            .collect();
        let script = format!("{}need iperf3 iperf3\n", all.concat());
        let text = "Command::new(\"iperf3\"); Command::new(\"sh\"); Command::new(\"tshark\")";
        let said = complaints(&script, [text].into_iter());
        assert!(
            said.len() == 1 && said[0].contains("installs no tshark"),
            "{said:?}"
        );
        let said = complaints(&script.replace("need nft p\n", ""), [text].into_iter());
        assert!(
            said.len() == 2 && said[0].contains("installs no nft"),
            "{said:?}"
        );
    }
}
