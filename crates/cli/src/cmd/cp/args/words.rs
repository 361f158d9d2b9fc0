//! Selects the flags for another host that copies in this one's place. They say what is copied and
//! how, as they would be typed there. Flags for calling ssh and showing progress stay here.

use std::{
    ffi::{OsStr, OsString},
    time::Duration,
};

use clap::{FromArgMatches as _, ValueEnum as _};
use farhaul_core::units::Size;

use super::{Args, Blocked, Fallback, Through, Which};
use crate::{app::console::Console, connect::UDP_TIMEOUT, exit::Failure, line};

/// Flags as they would be typed.
#[derive(Default)]
pub(crate) struct Words(pub(crate) Vec<OsString>);

impl Words {
    /// A flag without a value, if it was given.
    pub(crate) fn flag(&mut self, flag: &str, given: bool) {
        self.0.extend(given.then(|| flag.into()));
    }

    /// A flag with each of its values, which may look like flags.
    pub(crate) fn values(
        &mut self,
        flag: &str,
        values: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) {
        for value in values {
            let mut word = OsString::from(flag);
            word.push("=");
            word.push(value);
            self.0.push(word);
        }
    }
}

impl Args {
    /// The flags that another host needs that sends to a third one; flags that mean nothing there
    /// are refused.
    pub(crate) fn for_sender(&self, console: &dyn Console) -> Result<Vec<OsString>, Failure> {
        let Self {
            dry_run,
            max_rate,
            policy,
            lanes,
            max_time,
            retry,
            idle,
            ipv4,
            ipv6,
            no_sync,
            verify_disk,
            name,
            quiet,
            verbose,
            json,
            json_stream,
            which,
            there,
            mirror,
            blocked,
            paths,
            // Of this end alone, or refused before.
            recursive: _,
            identity: _,
            ticket_file: _,
            trust_any: _,
            progress: _,
            rtt: _,
            bandwidth: _,
            window: _,
            ssh: _,
            path_memory: _,
            sharding: _,
        } = self;
        if name.is_some() {
            let text = "--name is for the source - (the standard input)";
            return Err(Failure::usage(text));
        }
        let mut words = Words::default();
        for (flag, given) in [
            ("--dry-run", *dry_run),
            ("--ipv4", *ipv4),
            ("--ipv6", *ipv6),
            ("--no-sync", *no_sync),
            ("--verify-disk", *verify_disk),
            ("--quiet", *quiet),
            ("--verbose", *verbose),
            ("--json", *json),
            ("--json-stream", *json_stream),
            ("--ignore-existing", there.ignore_existing),
            ("--update", there.update),
            ("--checksum", there.checksum),
        ] {
            words.flag(flag, given);
        }
        words.values("--max-rate", max_rate.as_ref().map(ToString::to_string));
        words.values("--policy", [policy.to_string()]);
        words.values("--lanes", lanes.map(|n| n.to_string()));
        words.values("--max-time", max_time.map(nanoseconds));
        // Who sends tries again; an older one there need not know of it unless that is wanted.
        words.values("--retry", retry.filter(|t| !t.is_zero()).map(nanoseconds));
        words.values("--idle", idle.map(nanoseconds));
        blocked.typed(&mut words);
        which.for_sender(&mut words, paths, console)?;
        mirror.for_sender(&mut words);
        Ok(words.0)
    }

    /// Parses such flags.
    pub(crate) fn of_sender(flags: &[OsString]) -> Result<Self, Failure> {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("cp"));
        // Sources and destination come apart.
        let command = command.mut_arg("paths", |paths| paths.required(false).num_args(0..));
        let words = [OsString::from("cp")]
            .into_iter()
            .chain(flags.iter().cloned());
        let matches = command.try_get_matches_from(words);
        matches
            .and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|e| Failure::usage(line::plain(&e)))
    }
}

fn nanoseconds(time: Duration) -> String {
    format!("{}ns", time.as_nanos())
}

impl Blocked {
    /// Writes the flags as they would be typed.
    pub(crate) fn typed(&self, words: &mut Words) {
        // Flags that are not given may be configured there.
        let timeout = (self.udp_timeout != UDP_TIMEOUT).then(|| nanoseconds(self.udp_timeout));
        words.values("--udp-timeout", timeout);
        words.values("--tcp-port", self.tcp_port.map(|port| port.to_string()));
        if self.fallback == Fallback::Never {
            words.values("--fallback", ["never"]);
        }
    }
}

impl Through {
    /// The first of its flags that was given.
    pub(crate) fn first_given(&self) -> Option<String> {
        let mut words = Words::default();
        self.typed(&mut words);
        let first = words.0.into_iter().next()?.into_string().ok()?;
        first.split('=').next().map(str::to_owned)
    }

    /// Writes the flags as they would be typed.
    pub(crate) fn typed(&self, words: &mut Words) {
        let Self {
            ssh,
            ssh_config,
            ssh_option,
            remote_bin,
            install_remote,
            remote_port,
        } = self;
        words.values("--ssh", ssh);
        words.values("--ssh-config", ssh_config);
        words.values("--ssh-option", ssh_option);
        words.values("--remote-bin", remote_bin);
        let consent = install_remote.and_then(|consent| consent.to_possible_value());
        words.values(
            "--install-remote",
            consent.map(|value| value.get_name().to_owned()),
        );
        let ports = remote_port.map(|(first, last)| format!("{first}-{last}"));
        words.values("--remote-port", ports);
    }
}

impl Which {
    fn for_sender(
        &self,
        words: &mut Words,
        places: &[OsString],
        console: &dyn Console,
    ) -> Result<(), Failure> {
        if self.files_from.is_some() {
            let text = "--files-from is for sending from this machine: name each path, or a folder with --include";
            return Err(Failure::usage(text));
        }
        self.rules(places, console)?.typed_there(words);
        words.flag("--one-file-system", self.one_file_system);
        let bytes = |size: &Option<Size>| size.map(|size| size.bytes().to_string());
        words.values("--min-size", bytes(&self.min_size));
        words.values("--max-size", bytes(&self.max_size));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::terminal::Terminal;

    fn typed(words: &[&str]) -> Args {
        Args::of_sender(&words.iter().map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    const ALL: &[&str] = &[
        "-n",
        "-4",
        "-P",
        "3",
        "--max-rate",
        "08:00 500Mbit 19:00 off",
        "--policy=low",
        "--max-time=1.5h",
        "--retry=2h",
        "--idle=5s",
        "--verify-disk",
        "-u",
        "-c",
        "-q",
        "--json",
        "-a",
        "--preserve=mode,acl",
        "--delete",
        "--max-delete=7",
        "--delete-excluded",
        "--backup=-old",
        "-W",
        "--numeric-ids",
        "--fallback=never",
        "--udp-timeout=1500ms",
        "--tcp-port=7",
        "--include=y",
        "--exclude=-z",
        "--min-size=1KiB",
        "--max-size=2GB",
        "--remote-bin=x",
        "-i",
        "key",
        "--progress=line",
    ];

    #[test]
    fn flags_mean_the_same_there() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("patterns");
        fs::write(&file, "# comment\n\n*.tmp\n /\n-x\n\\#y\n").unwrap();
        let from = format!("--exclude-from={}", file.display());
        let args = typed(&[ALL, &[&from]].concat());
        let there = Args::of_sender(&args.for_sender(&Terminal).unwrap()).unwrap();
        let meant = |args: &Args| {
            let o = args.options(true, &Terminal).unwrap();
            let all = (
                o.filter,
                o.existing,
                o.checksum,
                o.verify_disk,
                o.mirror,
                o.sharing,
                o.lanes,
            );
            let rest = (
                args.max_rate.clone(),
                args.max_time,
                args.retry,
                args.idle,
                args.dry_run,
                args.quiet,
                args.json,
            );
            (
                all,
                rest,
                args.blocked.ways().unwrap(),
                args.ipv4,
                args.ipv6,
            )
        };
        assert_eq!(meant(&there), meant(&args));
        assert!(there.ssh.remote_bin.is_none() && there.identity.is_none());
        let plain = Args::of_sender(&typed(&[]).for_sender(&Terminal).unwrap()).unwrap();
        assert_eq!(meant(&plain), meant(&typed(&[])));
    }

    #[test]
    fn what_means_nothing_there_is_refused_and_so_is_what_is_not_known() {
        for bad in ["--files-from=x", "--name=x"] {
            assert!(typed(&[bad]).for_sender(&Terminal).is_err(), "{bad}");
        }
        let e = Args::of_sender(&["--newer-flag".into()]).unwrap_err();
        assert!(e.text.contains("--newer-flag"), "{e}");
    }
}
