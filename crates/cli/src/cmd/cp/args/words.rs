//! Selects the flags for another host that copies in this one's place. They say what is copied and
//! how, as they would be typed there. Flags for calling ssh and showing progress stay here.

use std::{ffi::OsString, sync::Arc};

use clap::FromArgMatches as _;

use super::{Args, Patterns, Through};
use crate::{
    app::{console::Console, third_party::Request},
    bar::Names,
    exit::Failure,
    given, line,
};

/// Flags of this end alone, besides those for calling ssh.
const OF_THIS_END: &[&str] = &[
    "recursive",
    "path-memory",
    "identity",
    "ticket-file",
    "trust-any",
    "progress",
];

impl Args {
    /// The flags that another host needs that sends to a third one; flags that mean nothing there
    /// are refused.
    pub(crate) fn for_sender(&self, console: &dyn Console) -> Result<Vec<OsString>, Failure> {
        if self.name.is_some() {
            let text = "--name is for the source - (the standard input)";
            return Err(Failure::usage(text));
        }
        if self.which.files_from.is_some() {
            let text = "--files-from is for sending from this machine: name each path, or a folder with --include";
            return Err(Failure::usage(text));
        }
        // Patterns go as the rules that they make: a file of them is on this machine.
        let mut words = self.given.words(|flag| {
            let is_own = OF_THIS_END.contains(&flag) || given::has::<Through>(flag);
            !is_own && !given::has::<Patterns>(flag)
        });
        words.extend(self.which.rules(&self.paths, console)?.typed_there());
        Ok(words)
    }

    /// The request of a copy between two other hosts. Flags that are refused there are refused before anything is
    /// connected.
    pub(crate) fn third_party(&self, console: &dyn Console) -> Result<Request, Failure> {
        let flags = self.for_sender(console)?;
        let mut options = Self::of_sender(&flags)?.options(true, console)?;
        options.plan = self.dry_run.then(|| Arc::new(|_| ()) as _);
        Ok(Request {
            flags,
            options,
            call: self.call(),
            family: self.family(),
            udp_timeout: self.blocked.udp_timeout,
            for_programs: self.for_programs(),
            names_files: self.names() == Names::Sent,
        })
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
