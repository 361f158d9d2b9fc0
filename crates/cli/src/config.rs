//! Defaults of flags, from two files and the environment: a table per command, a key per flag, as
//! in
//!
//! ```toml
//! [cp]
//! max-rate = "2Gbit"
//! [bench.serve]
//! allow = ["fh-pub1..."]
//! ```
//!
//! - `/etc/farhaul/config.toml` < the user's `config.toml` < `[host."..."]` < `FARHAUL_CP_MAX_RATE=...` <
//!   the command line.
//! - `[host."*.example.org"]` holds flags for every command that goes to such a host and has them. As in
//!   ssh's configuration the first matching section that sets a value wins; the user's file is read before
//!   the system's.
//! - A default is the flag's own: what the command line refuses is refused here, with file and line.
//! - What has to be requested explicitly (`--trust-any`, `--force`) cannot be a default.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, error::ErrorKind};
use farhaul_congestion::nearest;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    exit::{Exit, Failure},
    keys,
    place::{self, Place},
    read,
};

const SYSTEM: &str = "/etc/farhaul/config.toml";
/// Decided anew each time.
const NEVER: [&str; 9] = [
    "json",
    "json-stream",
    "trust-any",
    "force",
    "help",
    "version",
    "i-know",
    "shard",
    "merge",
];

/// Commands that have nothing to decide: their work does not depend on the configuration.
const WITHOUT: [&str; 7] = [
    "clean",
    "config",
    "key",
    "completions",
    "protocols",
    "explain",
    "help",
];
/// Variables that are no flag's, or that a flag names in its own definition.
const VARIABLES: [&str; 3] = ["FARHAUL_SSH", "FARHAUL_REMOTE_BIN", "FARHAUL_TICKET"];

/// True if defaults of `command` are refused, and none are read for it; hidden ones take none
/// either.
pub(crate) fn takes_none(command: &str) -> bool {
    WITHOUT.contains(&command) || command.starts_with('_')
}

/// A flag's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The command, as in `["bench", "serve"]`; `["host", PATTERN]` for those that go to such hosts.
    pub(crate) command: Vec<String>,
    /// The flag without its dashes.
    pub(crate) flag: String,
    pub(crate) values: Vec<String>,
    /// `file:line`, or the variable.
    pub(crate) origin: String,
}

impl Setting {
    /// Name of the setting, as `bench.serve.allow`.
    pub(crate) fn name(&self) -> String {
        let mut words: Vec<_> = self.command.iter().map(String::as_str).collect();
        words.push(&self.flag);
        words.join(".")
    }

    pub(crate) fn refused(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(
            Exit::Config,
            format!("{}: {}: {why}", self.origin, self.name()),
        )
    }
}

/// The files that are looked at, the stronger ones last.
pub(crate) fn files() -> Vec<PathBuf> {
    // Unit tests do not read the files of the user who runs them.
    if cfg!(test) {
        return Vec::new();
    }
    let user = keys::directory().ok().map(|dir| dir.join("config.toml"));
    [Some(PathBuf::from(SYSTEM)), user]
        .into_iter()
        .flatten()
        .collect()
}

/// Every effective setting of commands that connect to `host`, each checked against `definition`.
pub(crate) fn effective(definition: &Command, host: Option<&str>) -> Result<Vec<Setting>, Failure> {
    let (mut all, mut sections) = (Vec::new(), Vec::new());
    for file in files() {
        let found = read(&file)?.unwrap_or_default();
        let (of_hosts, of_commands): (Vec<_>, Vec<_>) =
            found.into_iter().partition(Setting::is_of_host);
        all.extend(of_commands);
        sections.splice(..0, of_hosts);
    }
    for setting in all.iter().chain(&sections) {
        check(definition, setting)?;
    }
    if let Some(host) = host {
        // The first that matches is put last, where it is the strongest.
        let matching = sections.iter().filter(|s| s.is_for(host));
        let matching: Vec<_> = matching.flat_map(|s| s.spread(definition)).collect();
        all.extend(matching.into_iter().rev());
    }
    let from_environment = from_environment(definition)?;
    for setting in &from_environment {
        check(definition, setting)?;
    }
    all.extend(from_environment);
    let mut effective: Vec<Setting> = Vec::new();
    for setting in all {
        effective.retain(|s| s.name() != setting.name());
        effective.push(setting);
    }
    Ok(effective)
}

/// Commands that go to a host.
const TO_HOSTS: [&str; 3] = ["cp", "bench", "doctor"];

impl Setting {
    fn is_of_host(&self) -> bool {
        self.command.first().is_some_and(|word| word == HOST)
    }

    /// True if its section is for `host`.
    fn is_for(&self, host: &str) -> bool {
        self.command.get(1).is_some_and(|p| matches(p, host))
    }

    /// Setting of each command that has the flag.
    fn spread(&self, definition: &Command) -> Vec<Self> {
        let has = |name: &str| {
            let command = definition.find_subcommand(name);
            command.is_some_and(|c| argument(c, &self.flag).is_some())
        };
        let commands = TO_HOSTS.iter().filter(|name| has(name));
        let setting = |name: &&str| Self {
            command: vec![(*name).to_string()],
            ..self.clone()
        };
        commands.map(setting).collect()
    }
}

/// The table of hosts.
const HOST: &str = "host";

/// True if a host's name fits a pattern with `*` and `?`, whatever the case.
fn matches(pattern: &str, host: &str) -> bool {
    let (pattern, host) = (pattern.as_bytes(), host.as_bytes());
    // Where to go on when what follows a `*` does not fit: that much more is the star's.
    let mut back = None;
    let (mut p, mut h) = (0, 0);
    while h < host.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p + 1, h + 1));
                p += 1;
            }
            Some(c) if *c == b'?' || c.eq_ignore_ascii_case(&host[h]) => (p, h) = (p + 1, h + 1),
            _ => match back {
                Some((after, taken)) => {
                    (p, h) = (after, taken);
                    back = Some((after, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// The host of the command line, as it was typed.
pub(crate) fn host_of(matches: &ArgMatches) -> Option<String> {
    let (name, command) = matches.subcommand()?;
    match name {
        "cp" => {
            let mut paths = command.get_many::<OsString>("paths")?;
            paths.find_map(|p| match place::parse_server(p) {
                // As `ls` takes it.
                Ok(Some(server)) => Some(server.host),
                _ => match place::parse(p).ok()? {
                    Place::Far(far) => Some(far.server.host),
                    Place::Local(_) | Place::Pipe => None,
                },
            })
        }
        "bench" | "doctor" => {
            let host = command.get_one::<String>("host")?;
            let of_share = place::host_of(host);
            Some(of_share.unwrap_or_else(|| without_port(host).to_string()))
        }
        _ => None,
    }
}

fn without_port(host: &str) -> &str {
    match (host.strip_prefix('['), host.rsplit_once(':')) {
        (Some(rest), _) => rest.split(']').next().unwrap_or(rest),
        (None, Some((name, _))) if !name.contains(':') => name,
        _ => host,
    }
}

/// The settings of one file; none if it does not exist.
pub(crate) fn read(file: &Path) -> Result<Option<Vec<Setting>>, Failure> {
    match read::settings(file) {
        Ok(text) => parse(&text, file).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::new(
            Exit::Config,
            format!("{}: {e}", file.display()),
        )),
    }
}

fn parse(text: &str, file: &Path) -> Result<Vec<Setting>, Failure> {
    parse_with(text, file, &[]).map(|(found, _)| found)
}

/// A `[[name]]` of a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Origin as `file:line`.
    pub(crate) origin: String,
    /// The name is their command.
    pub(crate) settings: Vec<Setting>,
}

/// The settings of a file that also has lists of tables, by these names; of each name its tables in order.
pub(crate) fn parse_with(
    text: &str,
    file: &Path,
    lists: &[&str],
) -> Result<(Vec<Setting>, Vec<Vec<Entry>>), Failure> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let origin = |at: usize| format!("{}:{}", file.display(), line(at));
    let root = DeTable::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        Failure::new(Exit::Config, format!("{}: {}", origin(at), e.message()))
    })?;
    let mut found = Vec::new();
    let mut listed = vec![Vec::new(); lists.len()];
    let mut tables = vec![(Vec::new(), root.get_ref())];
    while let Some((command, table)) = tables.pop() {
        for (key, value) in table {
            let mut path: Vec<String> = command.clone();
            let name = key.get_ref().to_string();
            if let DeValue::Table(inner) = value.get_ref() {
                path.push(name);
                tables.push((path, inner));
                continue;
            }
            let list = lists.iter().position(|l| path.is_empty() && *l == name);
            if let (Some(list), Some(entries)) = (list, entries(value)) {
                for (at, table) in entries {
                    let command = vec![name.clone()];
                    let settings = table.iter().map(|(k, v)| setting(&command, k, v, &origin));
                    listed[list].push(Entry {
                        origin: origin(at),
                        settings: settings.collect::<Result<_, _>>()?,
                    });
                }
                continue;
            }
            if !lists.is_empty() && path.is_empty() && entries(value).is_some_and(|e| !e.is_empty())
            {
                let why = unknown("list of tables", &name, lists.iter().copied());
                let text = format!("{}: {why}", origin(key.span().start));
                return Err(Failure::new(Exit::Config, text));
            }
            found.push(setting(&path, key, value, &origin)?);
        }
    }
    Ok((found, listed))
}

/// Beginning of each table of a list, and its content; none if the value is no such list.
fn entries<'a, 'b>(value: &'a Spanned<DeValue<'b>>) -> Option<Vec<(usize, &'a DeTable<'b>)>> {
    let DeValue::Array(all) = value.get_ref() else {
        return None;
    };
    let entry = |value: &'a Spanned<DeValue<'b>>| match value.get_ref() {
        DeValue::Table(table) => Some((value.span().start, table)),
        _ => None,
    };
    all.iter().map(entry).collect()
}

fn setting(
    command: &[String],
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    origin: &dyn Fn(usize) -> String,
) -> Result<Setting, Failure> {
    let setting = Setting {
        command: command.to_vec(),
        flag: key.get_ref().replace('_', "-"),
        values: Vec::new(),
        origin: origin(key.span().start),
    };
    let values = strings(value).ok_or_else(|| {
        setting.refused("write a string, a number, true, false, or an array of strings")
    })?;
    Ok(Setting { values, ..setting })
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

/// The variables that begin with `FARHAUL_`.
fn variables() -> Vec<(String, OsString)> {
    if cfg!(test) {
        return Vec::new();
    }
    let variables = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with("FARHAUL_").then_some((name, value))
    });
    let mut variables: Vec<_> = variables.collect();
    variables.sort();
    variables
}

/// Warnings about variables that begin with `FARHAUL_` and with no command: they may be somebody
/// else's.
pub(crate) fn strangers(definition: &Command) -> impl Iterator<Item = String> {
    let strange = |name: &String| {
        meant_by(definition, &name["FARHAUL_".len()..]).is_none()
            && !VARIABLES.contains(&name.as_str())
    };
    variables().into_iter().map(|(name, _)| name).filter(strange).map(|name| {
        format!("${name} is ignored: defaults of flags are FARHAUL_COMMAND_FLAG, as in FARHAUL_CP_MAX_RATE")
    })
}

/// Settings from variables, as `FARHAUL_BENCH_SERVE_ALLOW`, for every flag. A variable that begins
/// as those of a command and names none of its flags is refused.
fn from_environment(definition: &Command) -> Result<Vec<Setting>, Failure> {
    let mut found = Vec::new();
    for (variable, value) in variables() {
        let Some((command, flag)) = meant_by(definition, &variable["FARHAUL_".len()..]) else {
            continue;
        };
        let setting = Setting {
            command,
            flag,
            values: Vec::new(),
            origin: format!("${variable}"),
        };
        let text = value
            .into_string()
            .map_err(|_| setting.refused("it is not text in UTF-8"))?;
        found.push(Setting {
            values: vec![text],
            ..setting
        });
    }
    Ok(found)
}

/// The command and the flag that the rest of a variable's name stands for. Of the commands that it
/// could be, the one that has the flag counts, or else the longest. None if it begins with no
/// command at all.
fn meant_by(definition: &Command, words: &str) -> Option<(Vec<String>, String)> {
    let mut best = None;
    let mut commands = vec![(Vec::new(), definition, words)];
    while let Some((path, command, rest)) = commands.pop() {
        let flag = command
            .get_arguments()
            .filter_map(Arg::get_long)
            .find(|flag| as_variable(flag) == rest);
        if let Some(flag) = flag {
            return Some((path, flag.to_string()));
        }
        for below in command.get_subcommands() {
            let name = below.get_name();
            let further = rest.strip_prefix(as_variable(name).as_str());
            if let Some(rest) = further.and_then(|rest| rest.strip_prefix('_')) {
                let mut path: Vec<String> = path.clone();
                path.push(name.to_string());
                commands.push((path, below, rest));
            }
        }
        let deeper = |(known, _): &(Vec<String>, String)| path.len() > known.len();
        if !path.is_empty() && best.as_ref().is_none_or(deeper) {
            best = Some((path, rest.to_lowercase().replace('_', "-")));
        }
    }
    best
}

fn as_variable(word: &str) -> String {
    word.replace('-', "_").to_uppercase()
}

/// Refuses what the command line would refuse.
pub(crate) fn check(definition: &Command, setting: &Setting) -> Result<(), Failure> {
    sound(definition, setting).map_err(|why| setting.refused(why))
}

/// The reason that the command line would refuse `setting`, as an error.
fn sound(definition: &Command, setting: &Setting) -> Result<(), String> {
    if setting.is_of_host() {
        return sound_of_host(definition, setting);
    }
    if setting.command.first().is_some_and(|c| takes_none(c)) {
        return Err("this command takes no defaults: remove the line".into());
    }
    let mut command = definition;
    for word in &setting.command {
        command = command.find_subcommand(word).ok_or_else(|| {
            let names = command.get_subcommands().filter(|c| !c.is_hide_set());
            unknown("command", word, names.map(Command::get_name))
        })?;
    }
    let flags = || {
        let long = command.get_arguments().filter(|a| !a.is_hide_set());
        long.filter_map(Arg::get_long)
            .filter(|f| !NEVER.contains(f))
    };
    if NEVER.contains(&setting.flag.as_str()) {
        return Err("it can only be set on the command line".into());
    }
    let argument = argument(command, &setting.flag).ok_or_else(|| match setting.command[..] {
        [] => "write it below its command, as in [cp] or [bench.serve]".into(),
        _ => unknown("flag", &setting.flag, flags()),
    })?;
    if is_switch(argument) {
        return match setting.values.as_slice() {
            [one] if one == "true" || one == "false" => Ok(()),
            _ => Err("write true or false".into()),
        };
    }
    if setting.values.is_empty() {
        return Err("an empty array has no effect: remove the line".into());
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
            Err(text.trim_start_matches("error: ").into())
        }
        // What else is missing will be on the command line.
        _ => Ok(()),
    }
}

/// A flag of a host's section is one of some command that goes to hosts, and each of them takes it.
fn sound_of_host(definition: &Command, setting: &Setting) -> Result<(), String> {
    if setting.command.len() != 2 {
        let why = "write the flags below [host.\"NAME\"], where NAME may have * and ?";
        return Err(why.into());
    }
    let spread = setting.spread(definition);
    if spread.is_empty() {
        let commands = TO_HOSTS
            .iter()
            .filter_map(|c| definition.find_subcommand(c));
        let flags = commands.flat_map(|c| c.get_arguments().filter(|a| !a.is_hide_set()));
        let mut names: Vec<_> = flags.filter_map(Arg::get_long).collect();
        names.retain(|f| !NEVER.contains(f));
        names.sort_unstable();
        names.dedup();
        return Err(unknown("flag", &setting.flag, names.into_iter()));
    }
    spread.iter().try_for_each(|s| sound(definition, s))
}

fn argument<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|a| a.get_long() == Some(flag))
}

/// True if `command` has a flag of this name that takes no value.
pub(crate) fn has_switch(command: &Command, flag: &str) -> bool {
    argument(command, flag).is_some_and(is_switch)
}

fn is_switch(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

pub(crate) fn unknown<'a>(what: &str, word: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let meant = nearest(word, names.iter().copied());
    let meant = meant.map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"));
    format!("no {what} '{word}'{meant}; there are: {}", names.join(", "))
}

/// The definition with the settings as its defaults, but for the switches that are `off`.
pub(crate) fn apply(mut definition: Command, settings: &[Setting], off: &[String]) -> Command {
    for setting in settings.iter().filter(|s| !off.contains(&s.flag)) {
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
mod tests;
