//! Command line of farhaul: arguments in, one command run, one exit code out. A program of one's
//! own that calls [`main`] has every command of farhaul. Its [`Extras`] add protocols and
//! congestion laws to all of them. A program that calls [`embed::run`] has single commands inside
//! itself.
//!
//! With `--json` stdout carries exactly one valid object, also when the arguments are wrong; text
//! for people then goes to stderr.

#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "they panic when nobody reads"
)]
#![cfg_attr(
    not(feature = "lab"),
    allow(dead_code, reason = "parts that only the laboratory uses")
)]

#[macro_use]
mod out;

mod bar;
mod child;
mod cmd;
mod config;
mod connect;
mod control;
pub mod embed;
mod examples;
mod exit;
mod extras;
mod figure;
mod habit;
mod interrupt;
mod keys;
mod names;
mod paths;
mod place;
mod question;
mod reach;
mod read;
mod silence;
mod ssh;
mod ticket;
mod tickets;
mod timetable;
mod typed;
mod wait;
mod when;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::exit::{Exit, Failure};
pub use crate::extras::Extras;

/// Moves bulk data over long fat networks at the speed of the link.
#[derive(Debug, Parser)]
#[command(
    name = "farhaul",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

/// Arenas of the allocator. Nothing allocates per packet, so that threads hardly wait for each other.
const ARENAS: u8 = 2;

/// Runs the command line with what `extras` adds to it; called first in a program's `main`.
pub fn main(extras: Extras) -> ExitCode {
    run(extras).number().into()
}

/// Runs the command line `words`, the first of which is a program that runs the same, and returns the exit code. For a
/// program that an interpreter runs: the arguments of the process are the interpreter's. Called once, on the main thread.
pub fn main_of(words: Vec<OsString>, extras: Extras) -> u8 {
    embed::set_words(words);
    run(extras).number()
}

fn run(extras: Extras) -> Exit {
    farhaul_udp::memory::limit_arenas(ARENAS);
    allow_open_files();
    let stream = wanted("--json-stream") && !is_for_content();
    let json = stream || json_wanted() && !is_for_content();
    let ended = interrupt::survive()
        .map_err(|e| Failure::internal(&e))
        .and_then(|()| extras.add())
        .and_then(|()| with_defaults())
        .and_then(|definition| {
            let parsed = matches_of(definition);
            let parsed = parsed.inspect(habit::warn);
            if let Ok(matches) = &parsed {
                habit::refuse_jump(matches)?;
                habit::refuse_swallowed(matches)?;
            }
            match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
                Ok(cli) => cmd::run(cli.command),
                // Help and version are no failure.
                Err(e) if !e.use_stderr() => {
                    out::help(&e);
                    Ok(())
                }
                Err(e) if meant_to_copy(&e) => Err(Failure::usage(
                    "no such command; to copy, write `farhaul cp SRC DST`",
                )),
                Err(e) if let Some(advice) = habit::advice(&e) => Err(Failure::usage(advice)),
                Err(e) if !json => e.exit(),
                Err(e) => Err(Failure::usage(plain(&e.to_string()))),
            }
        });
    match ended {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            failure.print_object(json, stream);
            if !failure.text.is_empty() {
                errln!("farhaul: {failure}");
            }
            failure.exit
        }
    }
}

/// Raises the soft limit of open files to the hard one: a session may have about two hundred.
fn allow_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If refused, the limit stays, and everything bounded by it follows it.
    let _refused = setrlimit(Resource::Nofile, limit);
}

/// True if the word in place of a command is something to copy.
fn meant_to_copy(e: &clap::Error) -> bool {
    let word = embed::words().into_iter().nth(1).unwrap_or_default();
    e.kind() == clap::error::ErrorKind::InvalidSubcommand
        && (std::path::Path::new(&word).exists() || word.to_string_lossy().contains(':'))
}

/// True if the standard output is where the content of a copy goes, and so nothing else.
fn is_for_content() -> bool {
    embed::words().last().is_some_and(|word| word == "-")
}

/// True if this word was given.
fn wanted(flag: &str) -> bool {
    let mut words = embed::words().into_iter().take_while(|a| a != "--");
    words.any(|a| a == flag)
}

/// True if `--json` was given, for when the arguments cannot be understood.
fn json_wanted() -> bool {
    embed::words()
        .into_iter()
        .take_while(|a| a != "--")
        .any(|a| a == "--json" || a.to_str().is_some_and(is_cluster_with_j))
}

/// True for `-J`, also among others as in `-RJ`.
fn is_cluster_with_j(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    letters.contains('J') && letters.chars().all(|c| c.is_ascii_alphabetic())
}

/// The complaint without what surrounds it on a terminal.
fn plain(text: &str) -> String {
    let text = text.trim().trim_start_matches("error: ");
    let end = text.find("\n\nFor more information").unwrap_or(text.len());
    text[..end].to_string()
}

/// The definition with the user's defaults in it. What prints help or the version, and the commands that take no
/// defaults, must work where these are broken.
pub(crate) fn with_defaults() -> Result<clap::Command, Failure> {
    let command = embed::words().into_iter().nth(1).unwrap_or_default();
    if command.to_str().is_some_and(config::takes_none) {
        return Ok(definition());
    }
    defaults().or_else(|failure| match matches_of(definition()) {
        Err(e) if !e.use_stderr() => Ok(definition()),
        _ => Err(failure),
    })
}

fn matches_of(definition: clap::Command) -> Result<clap::ArgMatches, clap::Error> {
    let words = habit::words(&definition);
    // Of a flag that is given twice the last one counts, as in rsync: aliases have flags of their own.
    definition
        .args_override_self(true)
        .try_get_matches_from(words)
        .map_err(habit::visible)
}

/// Command that was typed, without the defaults that are configured.
pub(crate) fn typed() -> Option<cmd::Command> {
    let matches = matches_of(definition()).ok()?;
    let cli = Cli::from_arg_matches(&matches).ok()?;
    Some(cli.command)
}

fn defaults() -> Result<clap::Command, Failure> {
    let settings = config::effective(&definition(), None)?;
    config::strangers(&definition()).for_each(|text| errln!("warning: {text}"));
    let with = config::apply(definition(), &settings);
    // Which sections for hosts hold is known once the host is.
    let host = matches_of(with.clone());
    match host.ok().and_then(|matches| config::host_of(&matches)) {
        None => Ok(with),
        Some(host) => {
            let settings = config::effective(&definition(), Some(&host))?;
            Ok(config::apply(definition(), &settings))
        }
    }
}

/// The definition of the whole command line, for completions and manual pages.
pub(crate) fn definition() -> clap::Command {
    habit::accepted(examples::shown(Cli::command()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        definition().debug_assert();
    }
}
