//! Runs a command inside another program. The program gives the words and a [`Console`], and gets what
//! `--json` would print, or why there is nothing. Commands, flags, defaults and failures are the same.
//!
//! A command whose console has a [`Cancel`] handles no signals, asks nothing, prints nothing and ends no
//! process.

use std::{ffi::OsString, sync::Arc};

use clap::FromArgMatches as _;
use farhaul_transfer::Exit;
use serde_json::Value;

use crate::app::console::Console;
use crate::{
    Cli, cmd, config,
    exit::Failure,
    habit,
    line::{self, Line},
};
pub use farhaul_transfer::{
    Change, TransferError,
    client::{Found, Listed, MOST_READ, Question, Reads, Remote},
};

#[cfg(feature = "lab")]
pub use crate::cmd::{Simulation, cells, simulate};

/// The commands that can be run so.
pub const COMMANDS: [&str; 6] = ["bench", "cp", "doctor", "ls", "protocols", "serve"];

/// A flag of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Name without dashes before it, as `max-rate`.
    pub name: String,
    /// True if the flag takes a value, and if it may go without one.
    pub value: (bool, bool),
    /// True if the flag may be given several times.
    pub repeated: bool,
    /// Values that there are, if they are few.
    pub choices: Vec<String>,
    /// True if help leaves the flag out.
    pub hidden: bool,
}

/// Flags of the command that these words are, as `bench` and `serve`; none if there is no such command.
pub fn flags(words: &[String]) -> Vec<Flag> {
    let mut definition = crate::definition();
    definition.build();
    let below = |command: &clap::Command, word: &String| command.find_subcommand(word).cloned();
    let found = words
        .iter()
        .try_fold(definition, |at, word| below(&at, word));
    let flag = |arg: &clap::Arg| {
        let values = arg.get_num_args().unwrap_or_default();
        // Of a list of words in one value none is the value.
        let is_list = arg.get_value_delimiter().is_some();
        let choices = arg.get_possible_values();
        let choices = choices.iter().filter(|_| !is_list);
        Some(Flag {
            name: arg.get_long()?.into(),
            value: (values.takes_values(), values.min_values() == 0),
            repeated: matches!(arg.get_action(), clap::ArgAction::Append),
            choices: choices.map(|c| c.get_name().into()).collect(),
            hidden: arg.is_hide_set(),
        })
    };
    let all = found.iter().flat_map(clap::Command::get_arguments);
    all.filter_map(flag).collect()
}

/// Runs the command `words`, the first one of [`COMMANDS`], on this thread; returns what its
/// `--json` would print. Of servers that is nothing: they run until they are cancelled. A switch
/// that is configured is off if it is given as `--delete=false`.
///
/// # Errors
/// As the command fails. Copies from and to pipes are refused: the standard input and output are this program's.
pub fn run(words: &[OsString], console: &Arc<dyn Console>) -> Result<Value, Failure> {
    let line = without_those_off(words);
    let command = command(&line, &**console)?;
    cmd::object(command, &line, console)
}

/// Runs the session of `reads` with the server of the place that the words of an `ls` name, by its flags, until it is closed.
/// Its answers end with it.
///
/// # Errors
/// As the command fails.
pub fn read(words: &[OsString], console: &dyn Console, reads: &Reads) -> Result<(), Failure> {
    let line = without_those_off(words);
    let ended = command(&line, console).and_then(|command| match command {
        cmd::Command::Ls(args) => cmd::read(&args, reads, &line, console),
        _ => Err(Failure::usage("a session that reads has the flags of ls")),
    });
    reads.end(match &ended {
        Ok(()) => TransferError::new(Exit::ConnectionLost, "the session was closed"),
        Err(failed) => TransferError::new(failed.exit, failed.to_string()).fix(failed.advice()),
    });
    ended
}

/// The command line of these words, in which some say that a switch is off.
fn without_those_off(words: &[OsString]) -> Line {
    let definition = crate::definition();
    let mut command = &definition;
    let (mut kept, mut off) = (vec![OsString::from("farhaul")], Vec::new());
    let mut flags = true;
    for word in words {
        flags &= word != "--";
        let text = word.to_str().filter(|_| flags).unwrap_or_default();
        if let Some(below) = command.find_subcommand(text) {
            command = below;
        }
        let name = text
            .strip_prefix("--")
            .and_then(|t| t.strip_suffix("=false"));
        match name.filter(|name| config::has_switch(command, name)) {
            Some(name) => off.push(name.to_string()),
            None => kept.push(word.clone()),
        }
    }
    Line {
        words: kept,
        off,
        definition: crate::definition,
    }
}

/// The command of this line.
fn command(line: &Line, console: &dyn Console) -> Result<cmd::Command, Failure> {
    let name = line.command();
    let name = name.to_str().unwrap_or_default();
    if !COMMANDS.contains(&name) {
        let known = COMMANDS.join(", ");
        let text = format!("'{name}' cannot be run inside another program; there are: {known}");
        return Err(Failure::usage(text));
    }
    let of_flag = |word: &[u8]| word.starts_with(b"--") && word.ends_with(b"=-");
    let is_pipe = |word: &OsString| word == "-" || of_flag(word.as_encoded_bytes());
    if name == "cp" && line.words.iter().any(is_pipe) {
        let text = "- is the standard input or output, which belongs to this program";
        return Err(Failure::usage(text).fix("name a file, or run the command `farhaul cp`"));
    }
    let parsed = line.matches(line.with_defaults(console)?);
    match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(cli.command),
        Err(e) => Err(Failure::usage(
            habit::advice(&e, &line.words).unwrap_or_else(|| line::plain(&e)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;

    fn run_words(words: &[&str]) -> Result<Value, Failure> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let console: Arc<dyn Console> = Arc::new(Cancel::new());
        run(&words, &console)
    }

    #[test]
    fn a_command_gives_what_it_would_print() {
        let object = run_words(&["protocols", "--json"]).unwrap();
        assert_eq!(object["ok"], true, "{object}");
    }

    #[test]
    fn what_is_wrong_has_its_code() {
        for (words, code, text) in [
            (&["cp", "a"][..], 2, "destination"),
            (&["cp", "--nosuch", "a", "b"], 2, "--nosuch"),
            (&["cp", "-", "h::s/x"], 2, "standard input"),
            (
                &["cp", "--files-from=-", "a", "h::s/x"],
                2,
                "standard input",
            ),
            (&["cp", "--nosuch=false", "a", "b"], 2, "--nosuch"),
            (&["wan"], 2, "cannot be run inside"),
            (&[], 2, "cannot be run inside"),
            (&["cp", "/nonexistent", "h::s/x"], 3, "/nonexistent"),
        ] {
            let failed = run_words(words).unwrap_err();
            assert_eq!(failed.exit.number(), code, "{words:?}: {}", failed.text);
            assert!(failed.text.contains(text), "{words:?}: {}", failed.text);
        }
    }

    #[test]
    fn switches_may_be_off() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            let line = without_those_off(&words);
            (line.words.len() - 1, line.off.join(" "))
        };
        assert_eq!(
            of(&["cp", "--delete=false", "a", "b"]),
            (3, "delete".into())
        );
        assert_eq!(of(&["bench", "serve", "--json=false"]), (2, "json".into()));
        assert_eq!(of(&["cp", "--backup=false", "--", "--delete=false"]).0, 4);
    }
}
