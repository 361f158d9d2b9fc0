//! What do hands type that know scp, rsync or iperf3? Flags that mean here what happens anyway, flags that are called
//! otherwise, and what to write instead. Clap parses all of it; only what it would take for something else is
//! [rewritten](words) before.

use std::{ffi::OsString, iter, path::Path};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use farhaul_core::text::plain;

use crate::{bar::Style, embed, exit::Failure};

/// Spellings, and what to do about them.
type Row = (&'static [&'static str], &'static str);

/// Flags that ask for compression.
const COMPRESS: &[&str] = &["-z", "-C", "--compress"];

/// Flags without a value that are accepted, and change nothing: what they ask for happens anyway. Why that is so.
const ANYWAY: &[Row] = &[
    (&["-S", "--sparse"], "holes remain holes"),
    (
        &["-t", "--times", "--perms"],
        "modes and times are always preserved",
    ),
    (&["--partial"], "interrupted copies always resume"),
    (
        &["--mkpath", "--human-readable"],
        "folders are made, and sizes have units",
    ),
    (COMPRESS, "content is not compressed, and a warning says so"),
];

const CP: &[Row] = &[
    (
        &["-l"],
        "write --max-rate with a unit, as in --max-rate 100Mbit; symbolic links are kept: omit it",
    ),
    (
        &["--compress-level", "--zc"],
        "content is not compressed: omit it",
    ),
    (
        &["--bwlimit"],
        "write --max-rate with a unit, as in --max-rate 100Mbit; numbers of rsync are taken, too",
    ),
    (
        &["--port"],
        "ssh's port is -o Port=22, a server's follows its name, as in host:17992::share/path; interrupted copies always resume",
    ),
    (
        &[
            "--partial-dir",
            "--append",
            "--append-verify",
            "--inplace",
            "--resume",
            "--continue",
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
        &["--link-dest", "--copy-dest", "--compare-dest"],
        "copy into one folder: what is the same there is not sent, and --backup=SUFFIX keeps what is replaced",
    ),
    (
        &["-I", "--ignore-times", "--size-only"],
        "files of the same size and time are taken as unchanged; --checksum compares contents",
    ),
    (
        &["-f", "--filter", "--cvs-exclude"],
        "write --exclude and --include, with patterns as in .gitignore",
    ),
    (
        &["--no-perms", "--no-times"],
        "modes and times are always preserved: omit it",
    ),
    (
        &["--no-owner", "--no-group", "--no-o", "--no-g", "--no-p"],
        "owner and group are preserved only with -p or -a: leave that out",
    ),
    (
        &["--force"],
        "only --delete replaces a folder by a file: else remove the folder there first",
    ),
    (
        &["--log-file"],
        "write 2> FILE, or --json-stream > FILE for programs",
    ),
    (&["-R", "--relative"], "write --files-from FILE"),
    (
        &["--existing"],
        "write --files-from FILE, with the names to update",
    ),
    (
        &["-x", "--one-file-system"],
        "write --exclude for what is mounted below the source",
    ),
    (
        &["-D", "--devices", "--specials", "--copy-devices"],
        "devices, pipes and sockets are never copied: omit it",
    ),
    (
        &["--no-links", "--no-l", "--safe-links"],
        "write --links=skip, which copies no symbolic link",
    ),
    (
        &["-k", "--copy-dirlinks", "--copy-unsafe-links"],
        "write --links=follow, which follows every link",
    ),
    (
        &["--owner", "-g", "--group", "--chown"],
        "write --preserve=ownership, which root at the destination can do",
    ),
    (
        &["-E", "--executability", "--chmod"],
        "permissions are those of the source: omit it",
    ),
    (
        &["-s", "--stats", "--info", "--itemize-changes"],
        "write -v, or -n to see what would be done",
    ),
    (&["--list-only"], "write farhaul ls PLACE"),
    (
        &["--timeout", "--contimeout"],
        "write --udp-timeout or --max-time",
    ),
    (&["-B"], "write -o BatchMode=yes"),
    (
        &["-3"],
        "a copy between two hosts goes from one to the other, or else through here: omit it",
    ),
    (
        &["-T", "-O"],
        "write --ssh PROGRAM, its options with -o, and --remote-bin PROGRAM: farhaul, not scp, runs there",
    ),
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
    let Some(ContextValue::String(flag)) = e.get(ContextKind::InvalidArg) else {
        return None;
    };
    let command = embed::words().into_iter().nth(1)?.into_string().ok()?;
    match e.kind() {
        ErrorKind::UnknownArgument => {
            if let Some(name) = named_so(flag, embed::words()) {
                return Some(format!(
                    "{command} has no {flag}; if the file {name} is meant, write ./{name}, or -- before the names"
                ));
            }
            let advice = instead(&command, flag)?;
            Some(format!("{command} has no {flag}: {advice}"))
        }
        _ => None,
    }
}

/// The word with this flag in it that is also the name of a file here.
fn named_so(flag: &str, words: Vec<OsString>) -> Option<String> {
    let has_it = |word: &str| match flag.strip_prefix('-') {
        Some(letter) if !letter.starts_with('-') => {
            !word.starts_with("--") && word.contains(letter)
        }
        _ => word.split('=').next() == Some(flag),
    };
    let names = words.into_iter().skip(2).take_while(|word| word != "--");
    let mut names = names.filter_map(|word| word.into_string().ok());
    let name = names.find(|word| {
        word.starts_with('-') && has_it(word) && Path::new(word).symlink_metadata().is_ok()
    });
    name.map(|name| plain(&name))
}

/// The error without suggestions that no help has; copying is what was meant first.
pub(crate) fn visible(mut e: clap::Error) -> clap::Error {
    let suggested = ContextKind::SuggestedSubcommand;
    let Some(ContextValue::Strings(names)) = e.remove(suggested) else {
        return e;
    };
    let mut names: Vec<_> = names.into_iter().filter(|n| !n.starts_with('_')).collect();
    names.sort_by_key(|name| name != "cp");
    if !names.is_empty() {
        e.insert(suggested, ContextValue::Strings(names));
    }
    e
}

/// The definition with the flags that change nothing, which no help shows.
pub(crate) fn accepted(definition: Command) -> Command {
    definition.mut_subcommand("cp", |mut cp| {
        for flag in ANYWAY.iter().flat_map(|(flags, _)| *flags) {
            let arg = Arg::new(*flag).hide(true).action(ArgAction::Count);
            cp = cp.arg(match (flag.strip_prefix("--"), flag.chars().nth(1)) {
                (None, Some(letter)) => arg.short(letter),
                (long, _) => arg.long(long),
            });
        }
        cp
    })
}

/// The command line, with what clap would take for something else written as it is meant: an `h` among other letters, as
/// in rsync's `-avh`, is not the help; `--progress` without a value shows progress; `-P` without a number is rsync's, which
/// asks for what happens anyway; `--bwlimit` is a `--max-rate`.
pub(crate) fn words(definition: &Command) -> Vec<OsString> {
    meant(definition, embed::words())
}

/// Refuses `-J HOST`, which means a jump host to scp and an object on stdout here.
pub(crate) fn refuse_jump(definition: &Command) -> Result<(), Failure> {
    let words = words(definition);
    let is_copy = words.get(1).is_some_and(|word| word == "cp");
    let mut pairs = words.windows(2).take_while(|pair| pair[0] != "--");
    let jump = pairs
        .find(|pair| pair[0] == "-J")
        .and_then(|pair| pair[1].to_str());
    let is_host = |word: &&str| {
        let host = word.starts_with(|c: char| c.is_ascii_alphanumeric());
        host && !word.contains([':', '/']) && Path::new(word).symlink_metadata().is_err()
    };
    match jump.filter(|_| is_copy).filter(is_host) {
        None => Ok(()),
        Some(host) => {
            let text = format!("there is no file '{host}', and -J prints one JSON object");
            Err(Failure::usage(text)
                .fix(format!("for a jump host of ssh write -o ProxyJump={host}")))
        }
    }
}

/// Says that content is not compressed, where it was asked for.
pub(crate) fn warn(matches: &ArgMatches) {
    let copy = matches.subcommand_matches("cp");
    let asked = copy.filter(|copy| COMPRESS.iter().any(|flag| copy.get_count(flag) > 0));
    if asked.is_some_and(|copy| !copy.get_flag("quiet")) {
        errln!("farhaul: warning: farhaul does not compress content");
    }
}

/// What `--bwlimit` of rsync limits, as a value of `--max-rate`: KiB/s unless it has a suffix; 0 is no limit.
fn bwlimit(value: &str) -> Option<String> {
    let letters = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = value[..value.len() - letters.len()].parse().ok()?;
    let unit = match &*letters.to_ascii_lowercase() {
        "b" => 1.0,
        "" | "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1_048_576.0,
        "mb" => 1e6,
        "g" | "gib" => 1_073_741_824.0,
        "gb" => 1e9,
        _ => return None,
    };
    let bits = number * unit * 8.0;
    Some(if bits > 0.0 {
        format!("{bits:.0}bit")
    } else {
        "off".into()
    })
}

fn meant(definition: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let command = words.get(1).and_then(|word| word.to_str());
    let command = command.filter(|name| matches!(*name, "cp" | "ls"));
    let copies = command == Some("cp");
    let Some(command) = command.and_then(|name| definition.find_subcommand(name)) else {
        return words;
    };
    let mut words = words.into_iter().peekable();
    let mut meant: Vec<_> = words.by_ref().take(2).collect();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|text| text.starts_with('-')) else {
            meant.push(word);
            continue;
        };
        if text == "--" {
            meant.extend(iter::once(word).chain(words));
            break;
        }
        let how = words.peek().and_then(|next| next.to_str());
        if text == "--progress" && !how.is_some_and(is_style) {
            meant.push("--progress=auto".into());
            continue;
        }
        if let Some(limit) = text.strip_prefix("--bwlimit").filter(|_| copies) {
            let value = limit.strip_prefix('=').or(how.filter(|_| limit.is_empty()));
            if let Some(rate) = value.and_then(bwlimit) {
                words.next_if(|_| limit.is_empty());
                if rate != "off" {
                    meant.push(format!("--max-rate={rate}").into());
                }
                continue;
            }
        }
        let counts = how.is_some_and(|next| next.parse::<u64>().is_ok());
        let text = match text.strip_suffix('P') {
            Some(rest) if copies && !rest.starts_with("--") && !counts => rest,
            _ => text,
        };
        if text == "-" && word != "-" {
            continue;
        }
        let (word, waits) = match text.strip_prefix("--") {
            Some(long) => (word.clone(), long_waits(command, long)),
            None => cluster(command, text),
        };
        meant.extend((word != "-" || text == "-").then_some(word));
        meant.extend(words.next_if(|_| waits));
    }
    meant
}

fn is_style(word: &str) -> bool {
    <Style as clap::ValueEnum>::from_str(word, false).is_ok()
}

/// Whether the next word is the value of this flag.
fn long_waits(command: &Command, long: &str) -> bool {
    let mut all = command.get_arguments();
    let arg = all.find(|arg| {
        let mut aliases = arg.get_all_aliases().into_iter().flatten();
        arg.get_long() == Some(long) || aliases.any(|alias| alias == long)
    });
    arg.is_some_and(takes_next)
}

/// Letters without an `h` among others, and whether the next word is the value of the last one.
fn cluster(command: &Command, text: &str) -> (OsString, bool) {
    let of = |letter: char| {
        command.get_arguments().find(|arg| {
            let mut aliases = arg.get_all_short_aliases().into_iter().flatten();
            arg.get_short() == Some(letter) || aliases.any(|alias| alias == letter)
        })
    };
    let alone = text.chars().count() == 2;
    let mut kept = String::from("-");
    let mut letters = text[1..].chars();
    while let Some(letter) = letters.next() {
        if letter == 'h' && !alone {
            continue;
        }
        kept.push(letter);
        if let Some(arg) = of(letter).filter(|arg| arg.get_action().takes_values()) {
            let value = letters.as_str();
            kept.push_str(value);
            return (kept.into(), value.is_empty() && takes_next(arg));
        }
    }
    (kept.into(), false)
}

fn takes_next(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
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

    #[test]
    fn letters_among_others_are_no_help_and_values_stay_as_they_are() {
        let definition = crate::definition();
        for (typed, then) in [
            ("cp -avh a b", "cp -av a b"),
            ("cp -hav a b", "cp -av a b"),
            ("cp -hh a b", "cp a b"),
            ("cp -h", "cp -h"),
            ("cp -avP a b", "cp -av a b"),
            ("cp -P a b", "cp a b"),
            ("cp -P 4 a b", "cp -P 4 a b"),
            ("cp -P4 a b", "cp -P4 a b"),
            ("cp -avhP a b", "cp -av a b"),
            ("bench -P 4 h", "bench -P 4 h"),
            ("cp --bwlimit=10m a b", "cp --max-rate=83886080bit a b"),
            ("cp --bwlimit 1000 a b", "cp --max-rate=8192000bit a b"),
            ("cp --bwlimit=1.5mb a b", "cp --max-rate=12000000bit a b"),
            ("cp --bwlimit=0 a b", "cp a b"),
            ("cp --bwlimit=fast a b", "cp --bwlimit=fast a b"),
            ("cp a -v b", "cp a -v b"),
            ("cp -ohost=x a b", "cp -ohost=x a b"),
            ("cp -vo -avh a b", "cp -vo -avh a b"),
            ("cp --exclude -avh a b", "cp --exclude -avh a b"),
            ("cp --exclude=-avh -vh a b", "cp --exclude=-avh -v a b"),
            ("cp --backup -vh a", "cp --backup -v a"),
            ("cp -- -avh b", "cp -- -avh b"),
            ("cp --progress a b", "cp --progress=auto a b"),
            ("cp --progress line a b", "cp --progress line a b"),
            ("cp --progress=none a b", "cp --progress=none a b"),
            ("cp - h::s/x", "cp - h::s/x"),
            ("cp h::s/x -", "cp h::s/x -"),
            ("ls -lh h::s", "ls -l h::s"),
            ("bench -Rh", "bench -Rh"),
            ("cp", "cp"),
            ("", ""),
        ] {
            let words = |line: &str| {
                let words = iter::once("farhaul").chain(line.split_whitespace());
                words.map(OsString::from).collect::<Vec<_>>()
            };
            assert_eq!(meant(&definition, words(typed)), words(then), "{typed}");
        }
    }

    #[test]
    fn the_documented_table_is_the_one_that_is_used() {
        let page = include_str!("../../../docs/reference.md");
        let shown: Vec<_> = page
            .lines()
            .skip_while(|line| !line.starts_with("| typed | here |"))
            .skip(2)
            .take_while(|line| line.starts_with("| "))
            .collect();
        let quoted = |flag: &&str| format!("`{flag}`");
        let rows = ANYWAY.iter().chain(CP).map(|(flags, text)| {
            let flags: Vec<_> = flags.iter().map(quoted).collect();
            format!("| {} | {text} |", flags.join(", "))
        });
        assert_eq!(shown, rows.collect::<Vec<_>>());
    }
}
