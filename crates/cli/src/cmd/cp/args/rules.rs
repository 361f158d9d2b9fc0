//! Patterns that choose files, in the order of the command line. The first pattern that matches a path decides, as
//! in rsync; in a file of `.gitignore` lines the last one does. What leaves here are lines of `.gitignore`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, FromArgMatches, parser::ValueSource};
use farhaul_transfer::Filter;

use crate::{exit::Failure, given, habit::filter, read};

/// Flags as clap knows them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Which files")]
struct Flags {
    /// Exclude what matches a pattern as in .gitignore; a folder goes with everything in it
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    exclude: Vec<String>,
    /// Read patterns to exclude from FILE: a .gitignore, or rsync's rules with + and -
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Send what matches, even if a later --exclude matches it; with no --exclude, send nothing else
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    include: Vec<String>,
    /// Read patterns to include from FILE, one a line
    #[arg(long, value_name = "FILE")]
    include_from: Vec<PathBuf>,
}

/// Value of such a flag.
#[derive(Clone, Debug)]
enum Given {
    Pattern(String),
    File(PathBuf),
}

/// All of them, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Vec<(&'static str, Given)>);

impl FromArgMatches for Patterns {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Flags {
            exclude,
            exclude_from,
            include,
            include_from,
        } = Flags::from_arg_matches(matches)?;
        let patterns = |all: Vec<String>| all.into_iter().map(Given::Pattern).collect();
        let files = |all: Vec<PathBuf>| all.into_iter().map(Given::File).collect();
        let all: [(&str, &str, Vec<Given>); 4] = [
            ("include", "--include", patterns(include)),
            ("include_from", "--include-from", files(include_from)),
            ("exclude", "--exclude", patterns(exclude)),
            ("exclude_from", "--exclude-from", files(exclude_from)),
        ];
        let mut placed = Vec::new();
        for (id, flag, values) in all {
            // Configured inclusions hold against what is typed, and typed ones against what is configured.
            let typed = matches.value_source(id) == Some(ValueSource::CommandLine);
            let indices = matches.indices_of(id).into_iter().flatten();
            let configured = if includes(flag) { 0 } else { usize::MAX };
            placed.extend(
                indices
                    .zip(values)
                    .map(|(at, value)| (if typed { at } else { configured }, (flag, value))),
            );
        }
        placed.sort_by_key(|(at, _)| *at);
        Ok(Self(placed.into_iter().map(|(_, given)| given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Patterns {
    fn augment_args(command: clap::Command) -> clap::Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Flags::augment_args_for_update(command)
    }
}

/// Rule: a line of `.gitignore` without its `!`.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    excludes: bool,
    line: String,
}

/// The rules of a command line; the first that matches decides.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    all: Vec<Rule>,
    /// Texts about patterns that mean something else to rsync, with the pattern to write.
    pub(super) hints: Vec<String>,
}

impl Patterns {
    /// The rules that the flags make; a pattern that was typed can match something.
    pub(super) fn rules(&self) -> Result<Rules, Failure> {
        let mut rules = Rules::default();
        let mut behind = None;
        for (flag, given) in &self.0 {
            let before = rules.all.len();
            match given {
                Given::Pattern(pattern) => rules.typed(flag, pattern)?,
                Given::File(file) => rules.read(flag, file)?,
            }
            let excludes = rules.all[before..].iter().any(|rule| rule.excludes);
            if excludes {
                behind = None;
            } else if includes(flag) && rules.exclude() {
                behind = behind.or(Some((*flag, given)));
            }
        }
        if let Some((flag, given)) = behind {
            return Err(no_effect(flag, given));
        }
        let nothing = rules.all.is_empty();
        if nothing && self.0.iter().any(|(flag, _)| *flag == "--include-from") {
            let text = "--include-from: there is no pattern in it, which would include everything";
            return Err(
                Failure::usage(text).fix("write a pattern to the file, or leave the flag out")
            );
        }
        if nothing || rules.exclude() {
            return Ok(rules);
        }
        if !self.0.iter().any(|(flag, _)| includes(flag)) {
            // Exceptions to nothing.
            rules.all.clear();
            return Ok(rules);
        }
        let only = "only what is included is copied; to copy the rest too, leave --include out";
        rules.hints.push(only.into());
        Ok(rules)
    }
}

impl Rules {
    fn exclude(&self) -> bool {
        self.all.iter().any(|rule| rule.excludes)
    }

    /// Adds a hint if a pattern begins with the name of a source, as rsync's do for a source without a `/` at its end.
    pub(super) fn hint_of_source(&mut self, source: &[u8]) {
        let name = source.rsplit(|byte| matches!(byte, b'/' | b':')).next();
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return;
        };
        let inside = |rule: &Rule| {
            let rest = rule.line.strip_prefix('/')?.strip_prefix(name)?;
            rest.starts_with('/').then(|| rest.to_owned())
        };
        if let Some(rest) = self.all.iter().find_map(inside).filter(|rest| rest != "/") {
            self.hints.push(format!(
                "the pattern /{name}{rest} begins inside {name}; for {name}{rest} itself write {rest}"
            ));
        }
    }

    /// Lines that exclude and, with a `!`, make exceptions: the last that matches decides. Else lines that include.
    pub(super) fn lines(&self) -> (Vec<String>, Vec<String>) {
        if !self.exclude() {
            return (
                Vec::new(),
                self.all.iter().map(|r| r.line.clone()).collect(),
            );
        }
        let lines = self.all.iter().rev().map(|rule| {
            let exception = if rule.excludes { "" } else { "!" };
            format!("{exception}{}", rule.line)
        });
        (lines.collect(), Vec::new())
    }

    /// The rules as they would be typed.
    pub(super) fn typed_there(&self) -> Vec<OsString> {
        let last = self.all.iter().rposition(|rule| rule.excludes);
        // Inclusions behind the last exclusion change nothing, and are refused there.
        let effective = last.map_or(self.all.len(), |at| at + 1);
        let typed = self.all.iter().take(effective).flat_map(|rule| {
            let flag = if rule.excludes { "exclude" } else { "include" };
            given::words(flag, &[rule.line.clone().into()])
        });
        typed.collect()
    }

    fn typed(&mut self, flag: &'static str, pattern: &str) -> Result<(), Failure> {
        let (excludes, bare, rsyncs) = of_rsync(pattern, !includes(flag));
        let refused = |why: &str, fix: &str| {
            Err(Failure::usage(format!("{flag}: pattern '{pattern}' {why}")).fix(fix))
        };
        if let Some((why, fix)) = is_nothing(bare) {
            return refused(why, fix);
        }
        if bare.starts_with('!') {
            let fix = "write --include for it before the --exclude that it makes an exception to, or \\! for the character itself; --exclude is for what is not wanted";
            return refused("begins with !", fix);
        }
        if let Some(why) = Filter::fault(bare) {
            return refused(why, AS_ONE_CHARACTER);
        }
        let hint = self
            .push(excludes, &as_typed(bare), rsyncs)
            .or_else(|(why, fix)| refused(why, fix).map(|()| None))?;
        self.hints.extend(hint.map(|text| format!("{flag} {text}")));
        Ok(())
    }

    /// Appends the lines of a file: rsync's if one begins with `+` or `-` and a blank, else those of a `.gitignore`.
    fn read(&mut self, flag: &'static str, file: &Path) -> Result<(), Failure> {
        let text = read::list_of_lines(file)
            .map_err(|e| Failure::usage(format!("{flag} {}: {e}", file.display())))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        // Without a pattern in it a line must not count as one.
        let lines = || {
            let all = text.lines().enumerate();
            all.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        };
        let rsyncs = lines().any(|(_, line)| of_rsync(line, true).2);
        let mut found = Self::default();
        for (at, line) in lines().filter(|(_, line)| !(rsyncs && line.starts_with(';'))) {
            let refused = |(why, fix): (&str, &str)| {
                let at = format!("{flag} {}:{}", file.display(), at + 1);
                Failure::usage(format!("{at}: pattern '{line}' {why}")).fix(fix)
            };
            let (mut excludes, mut bare, signed) = of_rsync(line, !includes(flag));
            bare = without_blanks(bare);
            if let Some(fix) = filter::other(line).filter(|_| rsyncs && !signed) {
                let fix = format!("{fix}; a name of this kind is - NAME");
                return Err(refused(("is a rule of another kind to rsync", &fix)));
            }
            if let Some(pattern) = bare.strip_prefix('!') {
                if rsyncs || includes(flag) {
                    let fix = "write + GLOB before the line that it makes an exception to";
                    return Err(refused(("begins with !", fix)));
                }
                (excludes, bare) = (false, pattern);
            }
            if let Some(why) = Filter::fault(bare) {
                return Err(refused((why, AS_ONE_CHARACTER)));
            }
            if is_nothing(bare).is_some() && !(signed && bare.starts_with('#')) {
                continue;
            }
            let hint = found.push(excludes, bare, rsyncs).map_err(refused)?;
            let at = format!("{flag} {}:{}", file.display(), at + 1);
            found.hints.extend(hint.map(|text| format!("{at}: {text}")));
        }
        if !rsyncs {
            found.all.reverse();
        }
        self.all.append(&mut found.all);
        self.hints.extend(found.hints.into_iter().take(1));
        Ok(())
    }

    /// Appends a pattern of rsync's or of a `.gitignore`; the hint about it, if the two differ.
    fn push(&mut self, excludes: bool, pattern: &str, rsyncs: bool) -> Result<Option<String>, Why> {
        let (whole, with_contents) = match pattern.strip_suffix("/***") {
            Some(folder) if !folder.is_empty() => (folder, true),
            _ => (pattern, false),
        };
        let free = whole.starts_with('/') || whole.starts_with("**/");
        let inner = whole.trim_end_matches('/').contains('/') && !free;
        let glued = whole.split('/').any(|p| p.contains("**") && p != "**");
        if glued && rsyncs {
            return Err((
                "has ** beside other characters",
                "write ** between slashes, as in a/**/b",
            ));
        }
        let mut add = |line: String| {
            // So that the line means the same where it is read again.
            let means_more = ["#", "!", "- ", "+ "].iter().any(|s| line.starts_with(s));
            let line = if means_more {
                format!("\\{line}")
            } else {
                line
            };
            self.all.push(Rule { excludes, line });
        };
        if with_contents {
            let folder = if free {
                whole.to_owned()
            } else {
                format!("**/{whole}")
            };
            if !excludes {
                add(format!("{folder}/**"));
            }
            add(format!("{folder}/"));
            return Ok(None);
        }
        if inner && rsyncs {
            add(format!("**/{whole}"));
        } else if inner {
            add(format!("/{whole}"));
        } else {
            add(whole.to_owned());
        }
        let hint = inner && !rsyncs;
        Ok(hint.then(|| {
            format!("{whole} is at the top of the source only; for any folder, as in rsync, write '**/{whole}', else /{whole}")
        }))
    }
}

/// Reason to refuse a pattern, and what to write.
type Why = (&'static str, &'static str);

const AS_ONE_CHARACTER: &str =
    "write it as in .gitignore, with a backslash before a character that stands for itself";

fn includes(flag: &str) -> bool {
    flag.starts_with("--include")
}

/// Effect of a pattern (true if it excludes), the pattern without rsync's `+` or `-`, and true if one stood before it.
fn of_rsync(pattern: &str, excludes: bool) -> (bool, &str, bool) {
    for (sign, excludes) in [("- ", true), ("+ ", false)] {
        if let Some(bare) = pattern.strip_prefix(sign) {
            return (excludes, bare, true);
        }
    }
    (excludes, pattern, false)
}

fn no_effect(flag: &str, given: &Given) -> Failure {
    let value = match given {
        Given::Pattern(pattern) => format!("'{pattern}'"),
        Given::File(file) => file.display().to_string(),
    };
    let text = format!(
        "{flag} {value} stands behind every exclusion: the first pattern that matches decides, as in rsync, so it changes nothing"
    );
    Failure::usage(text).fix(format!(
        "write {flag} {value} before the --exclude that it makes an exception to"
    ))
}

/// A typed pattern as a line: the blanks at its end were quoted, so they count.
fn as_typed(pattern: &str) -> String {
    let name = pattern.trim_end_matches(' ');
    let escapes = name.len() - name.trim_end_matches('\\').len();
    let blanks = pattern.len() - name.len();
    // The first may have its backslash.
    let bare = (escapes % 2).min(blanks);
    format!("{name}{}{}", &" "[..bare], "\\ ".repeat(blanks - bare))
}

/// A line of a file without the blanks at its end, but one with a backslash before it.
fn without_blanks(line: &str) -> &str {
    let name = line.trim_end_matches(' ');
    let escapes = name.len() - name.trim_end_matches('\\').len();
    let kept = name.len() + escapes % 2;
    line.get(..kept).unwrap_or(line)
}

/// Reason that a pattern matches nothing, with the one to write, if it is so: a file of patterns may have such
/// lines, the command line may not.
fn is_nothing(pattern: &str) -> Option<Why> {
    if pattern.trim_matches(['/', ' ', '\t']).is_empty() {
        Some(("matches nothing", "write a name, or * for every name"))
    } else if pattern.starts_with('#') {
        Some(("is a comment", "write \\# for the character itself"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
