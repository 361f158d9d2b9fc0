//! Accepts flags of scp, rsync, iperf3 and netem, or names the replacement. Clap parses all of them; only what clap would
//! take for something else is [rewritten](words) before.

mod rows;
mod words;

pub(crate) use words::words;

use std::{ffi::OsString, path::Path};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use farhaul_core::text::plain;
use farhaul_lab::distance;

use self::rows::{ANYWAY, BENCH, COMMANDS, COMPRESS, CP, LS, NETWORK};
use crate::{embed, exit::Failure, place};

/// Flag to write instead of the flag that `command` does not have.
fn instead(command: &str, flag: &str) -> Option<&'static str> {
    let rows = match command {
        "cp" => CP,
        "bench" => BENCH,
        "ls" => LS,
        "wan" | "sim" => NETWORK,
        _ => return None,
    };
    let row = rows.iter().find(|(flags, _)| flags.contains(&flag));
    row.map(|(_, advice)| *advice)
}

/// The advice for arguments that could not be understood, if it was such a flag.
pub(crate) fn advice(e: &clap::Error) -> Option<String> {
    let command = embed::words().into_iter().nth(1)?.into_string().ok()?;
    if e.use_stderr()
        && matches!(&*command, "sim" | "wan")
        && let Some(advice) = word_of_netem(&command)
    {
        return Some(advice);
    }
    if let Some(ContextValue::String(name)) = e.get(ContextKind::InvalidSubcommand)
        && *name == command
    {
        let row = COMMANDS.iter().find(|(names, _)| names.contains(&&**name));
        return row.map(|(_, advice)| format!("there is no command '{name}': {advice}"));
    }
    let Some(ContextValue::String(flag)) = e.get(ContextKind::InvalidArg) else {
        return None;
    };
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

/// The advice for a parameter that netem takes without dashes.
fn word_of_netem(command: &str) -> Option<String> {
    // Words behind flags may be their values.
    let mut words = embed::words()
        .into_iter()
        .skip(2)
        .skip_while(|word| word == "run" || word == "relay");
    let word = words.next()?.into_string().ok()?;
    let advice = instead(command, &word).filter(|_| !word.starts_with('-'))?;
    Some(format!("{command} takes no word '{word}': {advice}"))
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
    // To pass a flag as a value is never what was meant, and what is not nearly the same is another flag.
    e.remove(ContextKind::Suggested);
    let near = match (
        e.get(ContextKind::InvalidArg),
        e.get(ContextKind::SuggestedArg),
    ) {
        (Some(ContextValue::String(typed)), Some(ContextValue::String(known))) => {
            distance(typed, known) <= 2
        }
        _ => true,
    };
    if !near {
        e.remove(ContextKind::SuggestedArg);
    }
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

/// Refuses `-J HOST`, which means a jump host to scp and an object on stdout here.
pub(crate) fn refuse_jump(matches: &ArgMatches) -> Result<(), Failure> {
    let copy = matches
        .subcommand_matches("cp")
        .filter(|copy| copy.get_flag("json"));
    let places = copy.and_then(|copy| copy.get_many::<OsString>("paths"));
    let places: Vec<_> = places.into_iter().flatten().collect();
    // A host stands before a source and the destination.
    let Some((_, sources)) = places.split_last().filter(|(_, sources)| sources.len() > 1) else {
        return Ok(());
    };
    let words = embed::words();
    let pairs = words.windows(2).take_while(|pair| pair[0] != "--");
    let mut jumps = pairs.filter(|pair| pair[0] == "-J").map(|pair| &pair[1]);
    let jump = jumps.find(|word| sources.contains(word));
    let is_host = |word: &&str| {
        let host = word.starts_with(|c: char| c.is_ascii_alphanumeric());
        host && !word.contains([':', '/'])
            && place::as_ticket(word.as_bytes()).is_none()
            && Path::new(word).symlink_metadata().is_err()
    };
    match jump.and_then(|word| word.to_str()).filter(is_host) {
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

#[cfg(test)]
mod tests {
    use std::iter;

    use super::{words::meant, *};

    #[test]
    fn no_flag_that_exists_is_advised_against() {
        let definition = crate::definition();
        for (command, rows) in [
            ("cp", CP),
            ("bench", BENCH),
            ("sim", NETWORK),
            ("wan", NETWORK),
        ] {
            let known = definition.find_subcommand(command).expect("a command");
            for flag in rows.iter().flat_map(|(flags, _)| *flags) {
                if !flag.starts_with('-') {
                    continue;
                }
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
            ("cp -avP 4 a b", "cp -avP 4 a b"),
            ("cp -oUser=VIP a b", "cp -oUser=VIP a b"),
            ("cp -i/k/KEYP a b", "cp -i/k/KEYP a b"),
            ("cp -hP a b", "cp a b"),
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
            ("bench -c far -p 5201 -R", "bench far:5201 -R"),
            ("bench -t 5 far -p5201", "bench -t 5 far:5201"),
            ("bench -c ::1 --port=9", "bench [::1]:9"),
            ("bench -s", "bench serve"),
            ("bench -s -p 5201 -1", "bench serve -1 --listen=[::]:5201"),
            ("bench serve -p 9", "bench serve --listen=[::]:9"),
            (
                "bench far -C bbr -b 100M",
                "bench far --cc=bbr --rate=100Mbit",
            ),
            ("bench far -b 2.5g", "bench far --rate=2.5Gbit"),
            ("bench far -b 0", "bench far"),
            (
                "bench far -b 500Mbit -n 100M",
                "bench far --rate=500Mbit -n 100M",
            ),
            ("bench far -b fast", "bench far --rate=fast"),
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
