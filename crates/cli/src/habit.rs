//! Accepts flags of scp, rsync, iperf3 and netem, or names the replacement. Clap parses all of them; only what clap would
//! take for something else is [rewritten](words) before.

pub(crate) mod filter;
mod rows;
mod words;

pub(crate) use words::meant;

use std::{ffi::OsString, iter, path::Path};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use farhaul_core::text::plain;
use strsim::levenshtein;

use self::rows::{ANYWAY, BENCH, COMMANDS, COMPRESS, CP, LS, NETWORK, TC};
use crate::{exit::Failure, place};

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
pub(crate) fn advice(e: &clap::Error, words: &[OsString]) -> Option<String> {
    let command = words.get(1)?.to_str()?;
    if e.use_stderr()
        && matches!(command, "sim" | "wan")
        && let Some(advice) = word_of_netem(command, words)
    {
        return Some(advice);
    }
    if let Some(ContextValue::String(name)) = e.get(ContextKind::InvalidSubcommand)
        && *name == command
    {
        let row = COMMANDS.iter().find(|(names, _)| names.contains(&&**name));
        return row.map(|(_, advice)| format!("there is no command '{name}': {advice}"));
    }
    if let Some(ContextValue::String(name)) = e.get(ContextKind::InvalidSubcommand)
        && command == "wan"
        && TC.contains(&&**name)
    {
        return Some(format!(
            "wan has no '{name}': a network is made for one command and goes with it; write its flags before that, \
             and --rate-steps, --delay-steps or --blackout for what changes meanwhile"
        ));
    }
    let Some(ContextValue::String(flag)) = e.get(ContextKind::InvalidArg) else {
        return None;
    };
    match e.kind() {
        ErrorKind::UnknownArgument => {
            if let Some(name) = named_so(flag, words) {
                return Some(format!(
                    "{command} has no {flag}; if the file {name} is meant, write ./{name}, or -- before the names"
                ));
            }
            if command == "wan"
                && words
                    .get(2)
                    .is_some_and(|word| word.to_string_lossy().starts_with('-'))
            {
                return Some(format!(
                    "wan has no {flag} before its command: write farhaul wan run {flag} ... -- COMMAND"
                ));
            }
            if matches!(command, "sim" | "wan") && !flag.starts_with('-') {
                return Some(behind_flags(command, flag));
            }
            if let Some(text) = of_client(command, flag, words) {
                return Some(text);
            }
            let advice = other_rule(command, flag, words).or_else(|| instead(command, flag))?;
            Some(format!("{command} has no {flag}: {advice}"))
        }
        _ => None,
    }
}

/// The advice for a rule of rsync's filter that is no pattern.
fn other_rule(command: &str, flag: &str, words: &[OsString]) -> Option<&'static str> {
    if command != "cp" || !matches!(flag, "-f" | "--filter") {
        return None;
    }
    let mut words = words
        .iter()
        .skip(2)
        .map(|word| word.to_str().unwrap_or_default())
        .peekable();
    iter::from_fn(|| Some((words.next()?, words.peek().copied())))
        .filter_map(|(word, next)| filter::given(word, next))
        .find(|(rule, _)| filter::signed(rule).is_none())
        .and_then(|(rule, _)| filter::other(rule))
}

/// The advice for a parameter that netem takes without dashes.
fn word_of_netem(command: &str, words: &[OsString]) -> Option<String> {
    // Words behind flags may be their values.
    let mut words = words
        .iter()
        .skip(2)
        .skip_while(|word| *word == "run" || *word == "relay");
    let word = words.next()?.to_str()?;
    let advice = instead(command, word).filter(|_| !word.starts_with('-'))?;
    Some(format!("{command} takes no word '{word}': {advice}"))
}

/// The advice for a word that no flag takes.
fn behind_flags(command: &str, word: &str) -> String {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return format!(
            "{command} takes no word '{word}': each flag has one value, and nothing is correlated; losses in bursts are \
             --loss ge:MEAN,PACKETS, as in ge:1%,8, and --jitter is uniform"
        );
    }
    format!(
        "{command} takes no word '{word}': write -- before the command, as in wan run --rtt 20ms -- {word}"
    )
}

/// The advice for a flag of a client behind `bench serve`.
fn of_client(command: &str, flag: &str, words: &[OsString]) -> Option<String> {
    let serves = |word: &OsString| ["serve", "-s", "--server"].iter().any(|name| word == name);
    if command != "bench" || !words.iter().skip(2).any(serves) {
        return None;
    }
    match flag {
        "-B" | "--bind" => Some("bench serve has no -B: write --listen ADDR:PORT".into()),
        "-i" | "--interval" | "-u" | "--udp" | "-R" | "--reverse" | "-t" | "--time" | "-n"
        | "--bytes" | "-P" | "--lanes" | "-O" | "--omit" | "-d" | "--bidir" => Some(format!(
            "the client of a bench chooses {flag}: leave it out here"
        )),
        _ => None,
    }
}

/// Refuses scp's `-P 22`, which would be 22 sessions. Refuses letters of rsync that have no value there, and would take
/// one here: `i`, `o` and `F`.
pub(crate) fn refuse_swallowed(
    matches: &ArgMatches,
    definition: &Command,
    words: &[OsString],
) -> Result<(), Failure> {
    if matches.subcommand_matches("cp").is_none() {
        return Ok(());
    }
    let copy = definition.find_subcommand("cp");
    let takes = |letter: char| {
        let mut args = copy.into_iter().flat_map(Command::get_arguments);
        args.any(|arg| arg.get_short() == Some(letter) && words::takes_next(arg))
    };
    // As clap reads them: -rlptgoD of rsync is -a by then.
    let words: Vec<String> = meant(definition, words.to_vec())
        .into_iter()
        .skip(2)
        .map(|word| word.to_string_lossy().into_owned())
        .take_while(|word| word != "--")
        .collect();
    let port = |pair: &[String]| pair[0] == "-P" && pair[1] == "22";
    if words.windows(2).any(port) || words.iter().any(|word| word == "-P22") {
        let text = "-P 22 is 22 parallel sessions here, and ssh's port to scp";
        return Err(Failure::usage(text).fix("write -o Port=22, or --lanes 22 for sessions"));
    }
    let mut is_value = false;
    for (at, word) in words.iter().enumerate() {
        let after_flag = is_value;
        is_value = !after_flag && copy.is_some_and(|copy| words::waits(copy, word));
        let word = if after_flag { "" } else { word };
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            continue;
        };
        let Some((before, letter)) = letters.char_indices().find(|(_, letter)| takes(*letter))
        else {
            continue;
        };
        let attached = &letters[before + letter.len_utf8()..];
        let next = words.get(at + 1).map_or("", String::as_str);
        let value = if attached.is_empty() { next } else { attached };
        let fits = |value: &str| match letter {
            'o' => value.contains(['=', ' ']),
            // The copy itself says of other keys what is wrong with them.
            'F' if Path::new(value).is_dir() => false,
            _ => attached.is_empty() || Path::new(value).exists(),
        };
        if !"ioF".contains(letter) || before == 0 && fits(value) {
            continue;
        }
        let (what, instead) = match letter {
            'i' => (
                "a key file",
                "write -v for rsync's -i, and -i FILE alone for a key",
            ),
            'o' => (
                "an option of ssh",
                "write -a for rsync's -o, and -o NAME=VALUE alone for ssh",
            ),
            _ => (
                "a configuration of ssh",
                "write --exclude-from for rsync's -F, and -F FILE alone for ssh",
            ),
        };
        let text = format!("{} takes '{}' as {what} here", plain(word), plain(value));
        return Err(Failure::usage(text).fix(instead));
    }
    Ok(())
}

/// The word with this flag in it that is also the name of a file here.
fn named_so(flag: &str, words: &[OsString]) -> Option<String> {
    let has_it = |word: &str| match flag.strip_prefix('-') {
        Some(letter) if !letter.starts_with('-') => {
            !word.starts_with("--") && word.contains(letter)
        }
        _ => word.split('=').next() == Some(flag),
    };
    let names = words.iter().skip(2).take_while(|word| *word != "--");
    let mut names = names.filter_map(|word| word.to_str());
    let name = names.find(|word| {
        word.starts_with('-') && has_it(word) && Path::new(word).symlink_metadata().is_ok()
    });
    name.map(plain)
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
            levenshtein(typed, known) <= 2
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
pub(crate) fn refuse_jump(matches: &ArgMatches, words: &[OsString]) -> Result<(), Failure> {
    let copy = matches
        .subcommand_matches("cp")
        .filter(|copy| copy.get_flag("json"));
    let places = copy.and_then(|copy| copy.get_many::<OsString>("paths"));
    let places: Vec<_> = places.into_iter().flatten().collect();
    // A host stands before a source and the destination.
    let Some((_, sources)) = places.split_last().filter(|(_, sources)| sources.len() > 1) else {
        return Ok(());
    };
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
    let Some(copy) = asked.filter(|copy| !copy.get_flag("quiet")) else {
        return;
    };
    let of_rsync = if copy.get_count("-C") > 0 {
        "; -C is scp's here: for rsync's write --exclude GLOB for each name"
    } else {
        ""
    };
    errln!("farhaul: warning: farhaul does not compress content{of_rsync}");
}

#[cfg(test)]
mod tests;
