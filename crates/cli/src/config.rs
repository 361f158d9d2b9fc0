//! What does the user always want? Defaults of flags, from two files and the environment: a table per
//! command, a key per flag, as in
//!
//! ```toml
//! [cp]
//! max-rate = "2Gbit"
//! [bench.serve]
//! allow = ["fh-pub1..."]
//! ```
//!
//! - `/etc/farhaul/config.toml` < the user's `config.toml` < `FARHAUL_CP_MAX_RATE=...` < the command line.
//! - A default is the flag's own: what the command line refuses is refused here, with file and line.
//! - What nobody should do without saying so (`--trust-any`, `--force`) cannot be a default.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, error::ErrorKind};
use farhaul_lab::nearest;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    exit::{Exit, Failure},
    keys,
};

const SYSTEM: &str = "/etc/farhaul/config.toml";
/// Decided anew each time.
const NEVER: [&str; 6] = ["json", "trust-any", "force", "help", "version", "i-know"];

/// A flag's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The command, as in `["bench", "serve"]`.
    pub(crate) command: Vec<String>,
    /// The flag without its dashes.
    pub(crate) flag: String,
    pub(crate) values: Vec<String>,
    /// `file:line`, or the variable.
    pub(crate) origin: String,
}

impl Setting {
    /// `bench.serve.allow`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.command.join("."), self.flag)
    }

    fn refused(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(
            Exit::Config,
            format!("{}: {}: {why}", self.origin, self.name()),
        )
    }
}

/// The files that are looked at, the stronger ones last.
pub(crate) fn files() -> Vec<PathBuf> {
    let user = keys::directory().ok().map(|dir| dir.join("config.toml"));
    [Some(PathBuf::from(SYSTEM)), user]
        .into_iter()
        .flatten()
        .collect()
}

/// Every setting that holds now, each checked against `definition`.
pub(crate) fn effective(definition: &Command) -> Result<Vec<Setting>, Failure> {
    let mut all = Vec::new();
    for file in files() {
        all.extend(read(&file)?.into_iter().flatten());
    }
    all.extend(from_environment(definition));
    let mut effective: Vec<Setting> = Vec::new();
    for setting in all {
        check(definition, &setting)?;
        effective.retain(|s| s.name() != setting.name());
        effective.push(setting);
    }
    Ok(effective)
}

/// The settings of one file; none if it does not exist.
pub(crate) fn read(file: &Path) -> Result<Option<Vec<Setting>>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => parse(&text, file).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::new(
            Exit::Config,
            format!("{}: {e}", file.display()),
        )),
    }
}

fn parse(text: &str, file: &Path) -> Result<Vec<Setting>, Failure> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let origin = |at: usize| format!("{}:{}", file.display(), line(at));
    let root = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        Failure::new(Exit::Config, format!("{}: {}", origin(at), e.message()))
    })?;
    let mut found = Vec::new();
    let mut tables = vec![(Vec::new(), root.get_ref())];
    while let Some((command, table)) = tables.pop() {
        for (key, value) in table {
            let mut path: Vec<String> = command.clone();
            if let DeValue::Table(inner) = value.get_ref() {
                path.push(key.get_ref().to_string());
                tables.push((path, inner));
                continue;
            }
            let setting = Setting {
                command: path,
                flag: key.get_ref().replace('_', "-"),
                values: Vec::new(),
                origin: origin(key.span().start),
            };
            let values = strings(value).ok_or_else(|| {
                setting.refused("write a string, a number, true, false, or an array of strings")
            })?;
            found.push(Setting { values, ..setting });
        }
    }
    Ok(found)
}

/// A value as it would be typed.
fn strings(value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(n) => Some(n.as_str().to_string()),
        DeValue::Float(x) => Some(x.as_str().to_string()),
        DeValue::Boolean(b) => Some(b.to_string()),
        _ => None,
    };
    match value.get_ref() {
        DeValue::Array(all) => all.iter().map(one).collect(),
        _ => one(value).map(|text| vec![text]),
    }
}

/// `FARHAUL_BENCH_SERVE_ALLOW` for every flag there is.
fn from_environment(definition: &Command) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut commands: Vec<(Vec<String>, &Command)> = vec![(Vec::new(), definition)];
    while let Some((path, command)) = commands.pop() {
        for below in command.get_subcommands() {
            let mut path = path.clone();
            path.push(below.get_name().to_string());
            commands.push((path, below));
        }
        for flag in command.get_arguments().filter_map(Arg::get_long) {
            let words = path.iter().map(String::as_str).chain([flag]);
            let words = words.map(|w| w.replace('-', "_").to_uppercase());
            let variable = format!("FARHAUL_{}", words.collect::<Vec<_>>().join("_"));
            if let Ok(value) = env::var(&variable) {
                found.push(Setting {
                    command: path.clone(),
                    flag: flag.to_string(),
                    values: vec![value],
                    origin: format!("${variable}"),
                });
            }
        }
    }
    found
}

/// Refuses what the command line would refuse.
pub(crate) fn check(definition: &Command, setting: &Setting) -> Result<(), Failure> {
    let mut command = definition;
    for word in &setting.command {
        command = command.find_subcommand(word).ok_or_else(|| {
            let names = command.get_subcommands().filter(|c| !c.is_hide_set());
            setting.refused(unknown("command", word, names.map(Command::get_name)))
        })?;
    }
    let flags = || {
        let long = command.get_arguments().filter(|a| !a.is_hide_set());
        long.filter_map(Arg::get_long)
            .filter(|f| !NEVER.contains(f))
    };
    if NEVER.contains(&setting.flag.as_str()) {
        return Err(setting.refused("it can only be said on the command line"));
    }
    let argument = argument(command, &setting.flag)
        .ok_or_else(|| setting.refused(unknown("flag", &setting.flag, flags())))?;
    if is_switch(argument) {
        return match setting.values.as_slice() {
            [one] if one == "true" || one == "false" => Ok(()),
            _ => Err(setting.refused("write true or false")),
        };
    }
    if setting.values.is_empty() {
        return Err(setting.refused("an empty array says nothing: leave the line out"));
    }
    let mut line = vec!["farhaul".to_string()];
    line.extend(setting.command.iter().cloned());
    line.extend(
        setting
            .values
            .iter()
            .map(|v| format!("--{}={v}", setting.flag)),
    );
    match definition.clone().try_get_matches_from(line) {
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::ValueValidation
                    | ErrorKind::InvalidValue
                    | ErrorKind::TooManyValues
                    | ErrorKind::ArgumentConflict
            ) =>
        {
            let text = e.to_string();
            let text = text.lines().next().unwrap_or_default();
            Err(setting.refused(text.trim_start_matches("error: ")))
        }
        // What else is missing will be on the command line.
        _ => Ok(()),
    }
}

fn argument<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|a| a.get_long() == Some(flag))
}

fn is_switch(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

fn unknown<'a>(what: &str, word: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let meant = nearest(word, names.iter().copied());
    let meant = meant.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"));
    format!("no {what} '{word}'{meant}; there are: {}", names.join(", "))
}

/// The definition with the settings as its defaults.
pub(crate) fn apply(mut definition: Command, settings: &[Setting]) -> Command {
    for setting in settings {
        definition = with(definition, &setting.command, setting);
    }
    definition
}

fn with(command: Command, path: &[String], setting: &Setting) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(first, |below| with(below, rest, setting));
    }
    let Some(id) = argument(&command, &setting.flag).map(|a| a.get_id().clone()) else {
        return command;
    };
    command.mut_arg(id, |arg| {
        if is_switch(&arg) && setting.values != ["true"] {
            return arg;
        }
        arg.required(false).default_values(setting.values.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Vec<Setting>, Failure> {
        let found = parse(text, Path::new("c"))?;
        for setting in &found {
            check(&crate::definition(), setting)?;
        }
        Ok(found)
    }

    #[test]
    fn a_setting_becomes_the_flags_default() {
        let found =
            settings("[cp]\nmax-rate = '2Gbit'\nquiet = true\n[bench.serve]\nallow = ['any']\n");
        let definition = apply(crate::definition(), &found.unwrap());
        let parsed = |words: &[&str]| definition.clone().try_get_matches_from(words).unwrap();
        let matches = parsed(&["farhaul", "cp", "a", "h::s"]);
        let cp = matches.subcommand().unwrap().1;
        assert!(cp.get_flag("quiet"));
        let rate = cp.get_one::<farhaul_core::units::Rate>("max_rate");
        assert_eq!(rate.map(|r| r.bps()), Some(2_000_000_000));
        // The command line is stronger.
        let matches = parsed(&["farhaul", "cp", "--max-rate", "1Gbit", "a", "h::s"]);
        let cp = matches.subcommand().unwrap().1;
        let rate = cp.get_one::<farhaul_core::units::Rate>("max_rate");
        assert_eq!(rate.map(|r| r.bps()), Some(1_000_000_000));
    }

    #[test]
    fn a_required_flag_may_come_from_the_file() {
        let found = settings("[serve]\nshare = ['a=/tmp', 'b=/tmp:rw']\n").unwrap();
        let definition = apply(crate::definition(), &found);
        let matches = definition
            .try_get_matches_from(["farhaul", "serve"])
            .unwrap();
        let serve = matches.subcommand().unwrap().1;
        assert_eq!(
            serve.get_many::<std::ffi::OsString>("share").unwrap().len(),
            2
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            (
                "[cp]\n\nmax-rat = '1Gbit'",
                "c:3: cp.max-rat: no flag 'max-rat' (did you mean 'max-rate'?)",
            ),
            ("[cpp]\nquiet = true", "c:2: cpp.quiet: no command 'cpp'"),
            ("[cp]\nmax-rate = 100", "100Mbit or 100MB"),
            ("[cp]\nquiet = 'yes'", "write true or false"),
            ("[cp]\ntrust-any = true", "only be said on the command line"),
            ("[cp]\nmax-rate = { a = 1 }", "no command 'max-rate'"),
            ("[cp\n", "c:1: "),
            ("[cp]\nmax-rate = []", "an empty array"),
            (
                "[cp]\nmax-rate = ['1Gbit', '2Gbit']",
                "cannot be used multiple times",
            ),
        ] {
            let e = settings(text).unwrap_err();
            assert_eq!(e.exit, Exit::Config);
            assert!(e.text.contains(expected), "{text}: {}", e.text);
        }
    }
}
