//! What do hands type that know scp, rsync or iperf3? Flags that are not needed here or are called
//! otherwise, and what to write instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Spellings, and what to do about them.
type Row = (&'static [&'static str], &'static str);

const CP: &[Row] = &[
    (
        &["-l", "--bwlimit"],
        "write --max-rate with a unit, as in --max-rate 100Mbit",
    ),
    (
        &["-z", "--compress", "-C"],
        "content is not compressed: omit it",
    ),
    (
        &["--port"],
        "ssh's port is -o Port=22, a server's follows its name, as in host:17992::share/path; interrupted copies always resume",
    ),
    (
        &[
            "--partial",
            "--partial-dir",
            "--append",
            "--inplace",
            "--resume",
        ],
        "interrupted copies always resume: omit it",
    ),
    (
        &[
            "--del",
            "--delete-before",
            "--delete-during",
            "--delete-delay",
            "--delete-after",
        ],
        "write --delete: it deletes once everything is in place",
    ),
    (
        &["--remove-source-files"],
        "nothing is ever deleted at the source",
    ),
    (&["--suffix"], "write --backup=SUFFIX"),
    (
        &["--backup-dir"],
        "backups stay beside the file: write --backup=SUFFIX",
    ),
    (
        &["-e", "--rsh", "-S"],
        "write --ssh PROGRAM, and its options with -o",
    ),
    (
        &["-t", "--times", "--perms", "--links"],
        "modes, times and links within the tree are always preserved: omit it",
    ),
    (
        &["-L", "--copy-links"],
        "links are copied as links, or skipped with a warning; only what is typed is followed",
    ),
    (
        &["--owner", "-g", "--group"],
        "write --preserve=ownership, which root at the destination can do",
    ),
    (&["-s", "--stats", "--info"], "write -v"),
    (&["--rsync-path"], "write --remote-bin PROGRAM"),
];

const BENCH: &[Row] = &[
    (
        &["-c", "--client"],
        "the host is an argument, as in farhaul bench HOST",
    ),
    (&["-s", "--server"], "write farhaul bench serve"),
    (
        &["-p", "--port"],
        "write farhaul bench HOST:PORT, and there farhaul bench serve --listen ADDR:PORT",
    ),
    (&["-u", "--udp"], "UDP is always used: omit it"),
    (&["-C", "--congestion"], "write --cc LAW"),
    (
        &[
            "-w",
            "--window",
            "-l",
            "--length",
            "-N",
            "--no-delay",
            "-Z",
            "--zerocopy",
            "-M",
            "--set-mss",
        ],
        "farhaul determines this itself: omit it",
    ),
    (
        &["-4", "-6", "--version4", "--version6"],
        "write the address itself",
    ),
    (
        &["-d", "--bidir"],
        "one direction at a time: run a second one with -R",
    ),
    (&["--bitrate", "--bandwidth"], "write --rate"),
    (&["--parallel"], "write --lanes"),
    (&["--num"], "write --bytes"),
];

/// What to write instead of the flag that `command` does not have.
fn instead(command: &str, flag: &str) -> Option<&'static str> {
    let rows = match command {
        "cp" => CP,
        "bench" => BENCH,
        _ => return None,
    };
    let row = rows.iter().find(|(flags, _)| flags.contains(&flag));
    row.map(|(_, advice)| *advice)
}

/// The advice for arguments that could not be understood, if it was such a flag.
pub(crate) fn advice(e: &clap::Error) -> Option<String> {
    if e.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = e.get(ContextKind::InvalidArg) else {
        return None;
    };
    let command = std::env::args_os().nth(1)?.into_string().ok()?;
    let advice = instead(&command, flag)?;
    Some(format!("{command} has no {flag}: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flag_that_exists_is_advised_against() {
        let definition = crate::definition();
        for (command, rows) in [("cp", CP), ("bench", BENCH)] {
            let known = definition.find_subcommand(command).expect("a command");
            for flag in rows.iter().flat_map(|(flags, _)| *flags) {
                let taken = known.get_arguments().any(|a| {
                    let long = flag.strip_prefix("--");
                    let longs = a.get_long_and_visible_aliases().unwrap_or_default();
                    let shorts = a.get_short_and_visible_aliases().unwrap_or_default();
                    long.map_or_else(
                        || shorts.contains(&flag.chars().nth(1).expect("a letter")),
                        |long| longs.contains(&long),
                    )
                });
                assert!(!taken, "{command} {flag}");
                assert!(instead(command, flag).is_some());
            }
        }
        assert_eq!(instead("sim", "-a"), None);
    }
}
