//! The command line as it is meant: flags of rsync and iperf3 that clap would take for something else are rewritten.

use std::{
    ffi::OsString,
    iter::{self, Peekable},
    path::Path,
};

use clap::{Arg, Command};

use super::filter;
use crate::bar::Style;

/// The command line, rewritten where clap would take a word for something else. An `h` among other
/// letters, as in rsync's `-avh`, is not the help. `--progress` without a value shows progress.
/// `-P` without a number is rsync's, which asks for what happens anyway. `--bwlimit` is a
/// `--max-rate`.
pub(crate) fn meant(definition: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let command = words.get(1).and_then(|word| word.to_str());
    let command = command.filter(|name| matches!(*name, "cp" | "ls" | "bench"));
    let copies = command == Some("cp");
    if command == Some("bench") {
        return bench(definition, words);
    }
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
        if copies && let Some(size) = size_limit(text, how) {
            words.next_if(|_| !text.contains('='));
            meant.push(size.into());
            continue;
        }
        if copies
            && let Some((rule, attached)) = filter::given(text, how)
            && let Some(pattern) = filter::signed(rule)
        {
            words.next_if(|_| !attached);
            meant.push(format!("--exclude={pattern}").into());
            continue;
        }
        if let Some(ssh) = shell(text, how) {
            words.next_if(|_| matches!(text, "-e" | "--rsh"));
            meant.extend(ssh);
            continue;
        }
        // A number behind other letters is a file's name if there is one; alone, the flag takes any.
        let counts = how.is_some_and(|next| {
            let is_file = text != "-P" && Path::new(next).symlink_metadata().is_ok();
            next.parse::<u64>().is_ok() && !is_file
        });
        let (word, waits) = match text.strip_prefix("--") {
            Some(long) => (word.clone(), long_waits(command, long)),
            None => cluster(command, text, copies && !counts),
        };
        meant.extend((word != "-" || text == "-").then_some(word));
        meant.extend(words.next_if(|_| waits));
    }
    meant
}

/// Converts a value of rsync's `--bwlimit` to one of `--max-rate`: KiB/s unless it has a suffix; 0
/// is no limit.
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

/// A size of rsync and iperf3, whose bare letters are binary.
fn binary(value: &str) -> Option<String> {
    let digits = value.trim_end_matches(|c: char| "kKmMgGtT".contains(c));
    let letter = value[digits.len()..].to_uppercase();
    let is_number =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.parse::<f64>().is_ok();
    (is_number && letter.len() == 1).then(|| format!("{digits}{letter}iB"))
}

/// Rsync's limits of size, in one word or two.
fn size_limit(word: &str, next: Option<&str>) -> Option<String> {
    let (flag, value) = match word.split_once('=') {
        Some((flag, value)) => (flag, value),
        None => (word, next?),
    };
    matches!(flag, "--min-size" | "--max-size").then_some(())?;
    Some(format!("{flag}={}", binary(value)?))
}

/// Rsync's `-e 'ssh -p 22'`: the program of ssh, and its options as ours.
fn shell(word: &str, next: Option<&str>) -> Option<Vec<OsString>> {
    let command = match word {
        "-e" | "--rsh" => next?,
        _ => word.strip_prefix("--rsh=")?,
    };
    let mut parts = command.split_whitespace();
    let program = parts
        .next()
        .filter(|_| command.contains(char::is_whitespace))?;
    let mut ours = vec![format!("--ssh={program}").into()];
    while let Some(part) = parts.next() {
        let (flag, attached) = part.split_at_checked(2)?;
        let value = if attached.is_empty() {
            parts.next()?
        } else {
            attached
        };
        ours.push(match flag {
            "-p" => format!("-oPort={value}").into(),
            "-i" => format!("-oIdentityFile={value}").into(),
            "-l" => format!("-oUser={value}").into(),
            "-J" => format!("-oProxyJump={value}").into(),
            "-o" => format!("-o{value}").into(),
            // Others are said to be no program.
            _ => return None,
        });
    }
    Some(ours)
}

fn is_style(word: &str) -> bool {
    <Style as clap::ValueEnum>::from_str(word, false).is_ok()
}

/// True if the next word is the value of this word, or of the last of its letters.
pub(super) fn waits(command: &Command, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => long_waits(command, long),
        None => word.starts_with('-') && cluster(command, word, false).1,
    }
}

/// True if the next word is the value of this flag.
fn long_waits(command: &Command, long: &str) -> bool {
    let mut all = command.get_arguments();
    let arg = all.find(|arg| {
        let mut aliases = arg.get_all_aliases().into_iter().flatten();
        arg.get_long() == Some(long) || aliases.any(|alias| alias == long)
    });
    arg.is_some_and(takes_next)
}

/// Letters without an `h` among others, and without the `P` of rsync at the end if `rsyncs`; whether the next word is the value
/// of the last one.
fn cluster(command: &Command, text: &str, rsyncs: bool) -> (OsString, bool) {
    let of = |letter: char| {
        command.get_arguments().find(|arg| {
            let mut aliases = arg.get_all_short_aliases().into_iter().flatten();
            arg.get_short() == Some(letter) || aliases.any(|alias| alias == letter)
        })
    };
    let alone = text.chars().count() == 2;
    // The letters of rsync that -a stands for.
    let archive = rsyncs_archive(command, text);
    let text = archive.as_deref().unwrap_or(text);
    let mut kept = String::from("-");
    let mut letters = text[1..].chars();
    while let Some(letter) = letters.next() {
        let is_last = letters.as_str().is_empty();
        // Links are kept, and times and modes, too.
        let link = letter == 'l' && !alone && of('l').is_none();
        if letter == 'h' && !alone || link || letter == 'P' && is_last && rsyncs {
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

/// A cluster with all letters of rsync that its `-a` stands for, with `a` in place of them.
fn rsyncs_archive(command: &Command, text: &str) -> Option<String> {
    const ALL: &str = "rlptgoD";
    if command.get_name() != "cp" || !ALL.chars().all(|letter| text[1..].contains(letter)) {
        return None;
    }
    let rest = text[1..].chars().filter(|letter| !ALL.contains(*letter));
    Some(format!("-a{}", rest.collect::<String>()))
}

pub(super) fn takes_next(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Value of a flag of iperf3 in one word or two; the second word is taken.
fn value_of(
    word: &str,
    (short, long): (&str, &[&str]),
    rest: &mut Peekable<impl Iterator<Item = OsString>>,
) -> Option<String> {
    let next = |rest: &mut Peekable<_>| {
        let value: Option<OsString> = rest.next();
        value.and_then(|value| value.into_string().ok())
    };
    if word == short || long.contains(&word) {
        return next(rest);
    }
    if let Some((flag, value)) = word.split_once('=')
        && long.contains(&flag)
    {
        return Some(value.into());
    }
    let attached = word.strip_prefix(short).filter(|_| !word.starts_with("--"));
    attached.map(Into::into)
}

/// A rate of iperf3, whose bare prefixes mean bits; 0 is no limit.
fn bits(value: &str) -> Option<String> {
    let digits = value.trim_end_matches(|c: char| "kKmMgG".contains(c));
    let number: f64 = digits.parse().ok()?;
    let prefix = value.get(digits.len()..).unwrap_or_default();
    let prefix = prefix.to_uppercase().replace('K', "k");
    // Of less than a packet a second a unit was forgotten, which the error about the rate says.
    if prefix.is_empty() && number > 0.0 && number < 10_000.0 {
        return Some(format!("--rate={digits}"));
    }
    (number > 0.0).then(|| format!("--rate={digits}{prefix}bit"))
}

/// The flag for a value of iperf3's `-b`, which other values keep; none for no limit.
fn rate_flag(value: &str) -> Option<String> {
    let digits = value.trim_end_matches(|c: char| "kKmMgG".contains(c));
    if digits.starts_with(|c: char| c.is_ascii_digit()) && digits.parse::<f64>().is_ok() {
        return bits(value);
    }
    Some(format!("--rate={value}"))
}

/// True of iperf3's flag for datagrams at a constant rate, alone or among letters without a value.
fn is_constant(word: &OsString) -> bool {
    let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
    letters.is_some_and(|letters| {
        letters == "-udp"
            || letters
                .split(|c| !"uRdJ1".contains(c))
                .next()
                .is_some_and(|l| l.contains('u'))
    })
}

/// The letters without a value before a `-b` in one word, and the flag of the rate with what follows it.
fn before_rate(word: &str) -> (String, String) {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let parts = letters.and_then(|letters| letters.split_once('b'));
    match parts {
        Some((before, after)) if before.chars().all(|letter| "uRdJ1".contains(letter)) => {
            (before.into(), format!("-b{after}"))
        }
        _ => (String::new(), word.into()),
    }
}

/// The port of a server as an address; beside a typed one a flag that is not known, which is answered.
fn listening(meant: &[OsString], port: &str) -> OsString {
    let mut words = meant.iter().filter_map(|word| word.to_str());
    if words.any(|word| word.starts_with("--listen")) {
        return format!("--port={port}").into();
    }
    format!("--listen=[::]:{port}").into()
}

/// The command line of `bench`, with the flags of iperf3 that name its two ends and its rate.
fn bench(definition: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut rest = words.into_iter().peekable();
    let mut meant: Vec<OsString> = rest.by_ref().take(2).collect();
    let known = definition.find_subcommand("bench");
    let (mut port, mut host, mut serves) = (None, None, false);
    let mut unlimited = false;
    while let Some(word) = rest.next() {
        let Some(text) = word.to_str().map(str::to_owned) else {
            meant.push(word);
            continue;
        };
        let text = text.as_str();
        if text == "--" {
            meant.push(word);
            meant.extend(rest.by_ref());
        } else if text == "-s" || text == "--server" {
            serves = true;
        } else if let Some(value) = value_of(text, ("-c", &["--client"]), &mut rest) {
            host = Some(meant.len());
            meant.push(value.into());
        } else if let Some(value) = value_of(text, ("-p", &["--port"]), &mut rest) {
            port = Some(value);
        } else if let Some(value) = value_of(text, ("--parallel", &["--parallel"]), &mut rest) {
            meant.push(format!("--lanes={value}").into());
        } else if let Some(value) = value_of(text, ("-C", &["--congestion"]), &mut rest) {
            meant.push(format!("--cc={value}").into());
        } else if let (before, rate) = before_rate(text)
            && let Some(value) = value_of(&rate, ("-b", &["--bitrate", "--bandwidth"]), &mut rest)
        {
            meant.extend((!before.is_empty()).then(|| format!("-{before}").into()));
            let rate = rate_flag(&value);
            unlimited |= rate.is_none();
            meant.extend(rate.map(OsString::from));
        } else if let Some(value) = value_of(text, ("-n", &["--bytes", "--num"]), &mut rest) {
            meant.push(format!("--bytes={}", binary(&value).unwrap_or(value)).into());
        } else if text == "serve" && meant.len() == 2 {
            serves = true;
        } else {
            if !text.starts_with('-') {
                host.get_or_insert(meant.len());
            }
            let waits = known.is_some_and(|bench| waits(bench, text));
            meant.push(word);
            meant.extend(rest.next_if(|_| waits));
        }
    }
    // Else a rate without a limit is the default.
    if unlimited && meant.iter().any(is_constant) {
        meant.push("--rate=unlimited".into());
    }
    if serves {
        meant.insert(2, "serve".into());
        let listening = port.map(|port| listening(&meant, &port));
        meant.extend(listening);
    } else if let (Some(port), Some(at)) = (port, host)
        && let Some(host) = meant.get_mut(at)
    {
        let name = host.to_string_lossy();
        let is_bare = name.parse::<std::net::Ipv6Addr>().is_ok();
        *host = if is_bare {
            format!("[{name}]:{port}").into()
        } else {
            format!("{name}:{port}").into()
        };
    }
    meant
}
