//! A command line: the words of the process, or those that another program gives, and what they mean by the definition of
//! the commands and the user's defaults.

use std::{env, ffi::OsString, sync::OnceLock};

use clap::{ArgMatches, Command};

use crate::{
    app::console::{Console, Level},
    config,
    exit::Failure,
    habit, keys,
};

/// Words of the process's command line, where they are not the process's arguments.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the words of the process's command line, once.
pub(crate) fn set(words: Vec<OsString>) {
    let _set = WORDS.set(words);
}

/// Words of the process's command line.
pub(crate) fn words() -> Vec<OsString> {
    let words = WORDS.get().cloned();
    words.unwrap_or_else(|| env::args_os().collect())
}

/// A program that runs this command line.
#[cfg(feature = "lab")]
pub(crate) fn program() -> std::io::Result<std::path::PathBuf> {
    match WORDS.get().and_then(|words| words.first()) {
        Some(program) => Ok(program.into()),
        None => env::current_exe(),
    }
}

/// A command line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The program, its command, and what follows.
    pub(crate) words: Vec<OsString>,
    /// Switches that are off, whatever is configured.
    pub(crate) off: Vec<String>,
    /// Definition of all commands.
    pub(crate) definition: fn() -> Command,
}

impl Line {
    /// The command line of the process.
    pub(crate) fn typed(definition: fn() -> Command) -> Self {
        Self {
            words: words(),
            off: Vec::new(),
            definition,
        }
    }

    /// Name of the command.
    pub(crate) fn command(&self) -> OsString {
        self.words.get(1).cloned().unwrap_or_default()
    }

    /// Definition of all commands.
    pub(crate) fn definition(&self) -> Command {
        (self.definition)()
    }

    /// The definition with the user's defaults in it. What prints help or the version, and the commands that take no
    /// defaults, must work where these are broken.
    pub(crate) fn with_defaults(&self, console: &dyn Console) -> Result<Command, Failure> {
        for text in keys::unusable() {
            console.message(Level::Important, &format!("farhaul: warning: {text}"));
        }
        if self.command().to_str().is_some_and(config::takes_none) {
            return Ok(self.definition());
        }
        self.defaults(console)
            .or_else(|failure| match self.typed_flags() {
                Err(e) if !e.use_stderr() => Ok(self.definition()),
                _ => Err(failure),
            })
    }

    fn defaults(&self, console: &dyn Console) -> Result<Command, Failure> {
        let definition = self.definition();
        let settings = config::effective(&definition, None)?;
        let strangers = config::strangers(&definition);
        strangers.for_each(|text| console.message(Level::Important, &format!("warning: {text}")));
        let with = config::apply(definition.clone(), &settings, &self.off);
        // Which sections for hosts hold is known once the host is.
        let host = self.matches(with.clone());
        match host.ok().and_then(|matches| config::host_of(&matches)) {
            None => Ok(with),
            Some(host) => {
                let settings = config::effective(&definition, Some(&host))?;
                Ok(config::apply(definition, &settings, &self.off))
            }
        }
    }

    /// Meaning of the words by this definition.
    pub(crate) fn matches(&self, definition: Command) -> Result<ArgMatches, clap::Error> {
        let words = habit::meant(&definition, self.words.clone());
        // Of a flag that is given twice the last one counts, as in rsync: aliases have flags of their own.
        definition
            .args_override_self(true)
            .try_get_matches_from(words)
            .map_err(habit::visible)
    }

    /// Meaning of the words without the defaults that are configured.
    pub(crate) fn typed_flags(&self) -> Result<ArgMatches, clap::Error> {
        self.matches(self.definition())
    }
}

/// The complaint without what surrounds it on a terminal.
pub(crate) fn plain(e: &clap::Error) -> String {
    let text = e.to_string();
    let text = text.trim().trim_start_matches("error: ");
    let end = text.find("\n\nFor more information").unwrap_or(text.len());
    text[..end].to_string()
}
