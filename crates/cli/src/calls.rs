//! Runs a command inside another program, which gives its name, the values of its flags by their names, and a [`Console`].
//! The caller gets the object of `--json`, or the failure. Flags have one definition, that of the command line.
//!
//! A command whose console has a [`Cancel`](crate::Cancel) handles no signals, asks nothing, prints nothing and ends no
//! process.

use std::{ffi::OsString, slice, sync::Arc};

use crate::app::console::Console;
use crate::{
    Cli, cmd, config,
    exit::Failure,
    given, habit,
    line::{self, Line},
};
use clap::FromArgMatches as _;
use farhaul_transfer::Exit;
pub use farhaul_transfer::{
    Change, TransferError,
    client::{Found, Listed, MOST_READ, Question, Reads, Remote},
};

#[cfg(feature = "lab")]
pub use crate::cmd::{Simulation, cells, simulate};

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

/// Flags of the command of this name, as `bench serve`; none if there is no such command.
pub fn flags(command: &str) -> Vec<Flag> {
    let found = definition_of(command);
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

/// A command by its name, and what is given to it.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Name, as `cp` or `bench serve`.
    pub command: String,
    /// Flags by their names without dashes, repeated ones once for each value.
    pub flags: Vec<(String, Value)>,
    /// Arguments that are no flags.
    pub places: Vec<OsString>,
}

/// Value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a flag without a value; false if it must not hold, whatever is configured.
    Switch(bool),
    /// As it would be typed.
    Text(OsString),
}

impl Call {
    /// Runs the command on this thread; returns what its `--json` would print. Of servers that is nothing: they run until
    /// they are cancelled.
    ///
    /// # Errors
    /// As the command fails. Copies from and to pipes are refused: the standard input and output are this program's.
    pub fn run(&self, console: &Arc<dyn Console>) -> Result<serde_json::Value, Failure> {
        let line = self.line();
        let command = self.parsed(&line, &**console)?;
        cmd::object(command, &line, console)
    }

    /// Runs the session of `reads` with the server of the place of this `ls`, by its flags, until it is closed.
    /// Its answers end with it.
    ///
    /// # Errors
    /// As the command fails.
    pub fn read(&self, console: &dyn Console, reads: &Reads) -> Result<(), Failure> {
        let line = self.line();
        let ended = self
            .parsed(&line, console)
            .and_then(|command| match command {
                cmd::Command::Ls(args) => cmd::read(&args, reads, &line, console),
                _ => Err(Failure::usage("a session that reads has the flags of ls")),
            });
        reads.end(match &ended {
            Ok(()) => TransferError::new(Exit::ConnectionLost, "the session was closed"),
            Err(failed) => TransferError::new(failed.exit, failed.to_string()).fix(failed.advice()),
        });
        ended
    }

    /// The command line that means the same.
    fn line(&self) -> Line {
        let command = definition_of(&self.command);
        let (mut words, mut off) = (vec!["farhaul".into()], Vec::new());
        words.extend(self.command.split(' ').map(OsString::from));
        for (flag, value) in &self.flags {
            match value {
                Value::Switch(true) => words.extend(given::words(flag, &[])),
                Value::Text(text) => words.extend(given::words(flag, slice::from_ref(text))),
                Value::Switch(false)
                    if command
                        .as_ref()
                        .is_some_and(|c| config::has_switch(c, flag)) =>
                {
                    off.push(flag.clone());
                }
                Value::Switch(false) => words.extend(given::words(flag, &["false".into()])),
            }
        }
        words.push("--".into());
        words.extend_from_slice(&self.places);
        Line {
            words,
            off,
            definition: crate::definition,
        }
    }

    fn parsed(&self, line: &Line, console: &dyn Console) -> Result<cmd::Command, Failure> {
        let is_pipe = |(_, value): &(String, Value)| *value == Value::Text("-".into());
        let has_pipe = self.places.iter().any(|place| place == "-");
        if self.command == "cp" && (has_pipe || self.flags.iter().any(is_pipe)) {
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
}

/// Definition of a command by its name.
fn definition_of(name: &str) -> Option<clap::Command> {
    let mut definition = crate::definition();
    definition.build();
    let below = |command: clap::Command, word| command.find_subcommand(word).cloned();
    name.split(' ').try_fold(definition, below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancel;

    fn of(command: &str, flags: &[(&str, Value)], places: &[&str]) -> Call {
        let flags = flags.iter().cloned();
        Call {
            command: command.into(),
            flags: flags.map(|(name, value)| (name.into(), value)).collect(),
            places: places.iter().map(Into::into).collect(),
        }
    }

    fn run(call: &Call) -> Result<serde_json::Value, Failure> {
        let console: Arc<dyn Console> = Arc::new(Cancel::new());
        call.run(&console)
    }

    #[test]
    fn a_command_gives_what_it_would_print() {
        let call = of("protocols", &[("json", Value::Switch(true))], &[]);
        let object = run(&call).unwrap();
        assert_eq!(object["ok"], true, "{object}");
    }

    #[test]
    fn what_is_wrong_has_its_code() {
        let stdin = [("files-from", Value::Text("-".into()))];
        let [on, off] = [true, false].map(|is| [("nosuch", Value::Switch(is))]);
        let both = &["a", "b"];
        for (call, code, text) in [
            (of("cp", &[], &["a"]), 2, "destination"),
            (of("cp", &on, both), 2, "--nosuch"),
            (of("cp", &off, both), 2, "--nosuch"),
            (of("cp", &[], &["-", "h::s/x"]), 2, "standard input"),
            (of("cp", &stdin, &["a", "h::s/x"]), 2, "standard input"),
            (of("key list", &[], &[]), 2, "a process of its own"),
            (of("nosuch", &[], &[]), 2, "nosuch"),
            (
                of("cp", &[], &["/nonexistent", "h::s/x"]),
                3,
                "/nonexistent",
            ),
        ] {
            let failed = run(&call).unwrap_err();
            assert_eq!(failed.exit.number(), code, "{call:?}: {failed}");
            assert!(failed.text.contains(text), "{call:?}: {failed}");
        }
    }

    #[test]
    fn switches_may_be_off() {
        for (command, flag, words, off) in [
            ("cp", "delete", "farhaul cp --", "delete"),
            ("bench serve", "json", "farhaul bench serve --", "json"),
            ("cp", "backup", "farhaul cp --backup=false --", ""),
        ] {
            let line = of(command, &[(flag, Value::Switch(false))], &[]).line();
            assert_eq!(line.words.join(" ".as_ref()), words);
            assert_eq!(line.off.join(" "), off);
        }
    }
}
