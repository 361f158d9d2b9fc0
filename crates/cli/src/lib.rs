//! Command line of farhaul: arguments in, one command run, one exit code out. A program of one's
//! own that calls [`main`] has every command of farhaul. Its [`Extras`] add protocols and
//! congestion laws to all of them. A program that makes a [`calls::Call`] has a single command
//! inside itself; [`copy`] is the copy without the command line.
//!
//! With `--json` stdout carries exactly one valid object, also when the arguments are wrong; text
//! for people then goes to stderr.

#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "they panic when nobody reads"
)]
#[macro_use]
mod out;

mod app;
mod bar;
pub mod calls;
mod child;
mod cmd;
mod config;
mod connect;
mod control;
mod examples;
mod exit;
mod extras;
#[cfg(feature = "lab")]
mod figure;
mod given;
mod habit;
mod interrupt;
mod keys;
mod line;
mod names;
mod paths;
mod place;
mod reach;
mod read;
mod silence;
mod ssh;
mod terminal;
mod ticket;
mod tickets;
mod timetable;
mod typed;
mod wait;
mod when;

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use rustix::process::{Resource, getrlimit, setrlimit};

pub use crate::{
    app::{
        console::{Answer, Cancel, Console, Level},
        copy::{Copied, Request, copy},
    },
    exit::{ExitRow, Failure, exits},
    extras::Extras,
};
use crate::{exit::Exit, line::Line, terminal::Terminal};
/// Files, options and summaries of copies.
pub use farhaul_transfer as transfer;

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
    line::set(words);
    run(extras).number()
}

fn run(extras: Extras) -> Exit {
    farhaul_udp::memory::limit_arenas(ARENAS);
    allow_open_files();
    let line = Line::typed(definition);
    let console: Arc<dyn Console> = Arc::new(Terminal);
    let stream = wanted(&line, "--json-stream") && !is_for_content(&line);
    let json = stream || json_wanted(&line) && !is_for_content(&line);
    let ended = interrupt::survive()
        .map_err(|e| Failure::internal(&e))
        .and_then(|()| extras.add())
        .and_then(|()| line.with_defaults(&*console))
        .and_then(|definition| {
            let parsed = line.matches(definition);
            let parsed = parsed.inspect(habit::warn);
            if let Ok(matches) = &parsed {
                habit::refuse_jump(matches, &line.words)?;
                habit::refuse_swallowed(matches, &line.definition(), &line.words)?;
            }
            match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
                Ok(cli) => cmd::run(cli.command, &line, &console),
                // Help and version are no failure.
                Err(e) if !e.use_stderr() => {
                    out::help(&e);
                    Ok(())
                }
                Err(e) if meant_to_copy(&e, &line) => Err(Failure::usage(
                    "no such command; to copy, write `farhaul cp SRC DST`",
                )),
                Err(e) if let Some(advice) = habit::advice(&e, &line.words) => {
                    Err(Failure::usage(advice))
                }
                Err(e) if !json => e.exit(),
                Err(e) => Err(Failure::usage(line::plain(&e))),
            }
        });
    match ended {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            out::failure(&failure, json, stream);
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
fn meant_to_copy(e: &clap::Error, line: &Line) -> bool {
    let word = line.command();
    e.kind() == clap::error::ErrorKind::InvalidSubcommand
        && (std::path::Path::new(&word).exists() || word.to_string_lossy().contains(':'))
}

/// True if the standard output is where the content of a copy goes, and so nothing else.
fn is_for_content(line: &Line) -> bool {
    line.words.last().is_some_and(|word| word == "-")
}

/// True if this word was given.
fn wanted(line: &Line, flag: &str) -> bool {
    let mut words = line.words.iter().take_while(|a| *a != "--");
    words.any(|a| a == flag)
}

/// True if `--json` was given, for when the arguments cannot be understood.
fn json_wanted(line: &Line) -> bool {
    line.words
        .iter()
        .take_while(|a| *a != "--")
        .any(|a| a == "--json" || a.to_str().is_some_and(is_cluster_with_j))
}

/// True for `-J`, also among others as in `-RJ`.
fn is_cluster_with_j(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    letters.contains('J') && letters.chars().all(|c| c.is_ascii_alphabetic())
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
