//! Programs that a user adds. A [`Program`] is a pair of shell commands with placeholders, and the
//! way to read its result from what it prints.

use std::{collections::BTreeMap, fmt::Write as _};

use farhaul_congestion::nearest;
use serde::Deserialize;

use super::reading::{Reading, ReadingError, SERVER};

/// Placeholders that a command may contain: `{host}`, ...
pub const PLACEHOLDERS: [&str; 9] = [
    "host", "port", "seconds", "bytes", "mtu", "rate", "farhaul", "dir", "udt_peer",
];

/// An external program, as a `[[program]]` of a scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Selected as `program:NAME`.
    pub name: String,
    /// Shell command on the sending host before the others, in no measured time.
    #[serde(default)]
    pub prepare: Option<String>,
    /// Shell command on the receiving host; ended after the client.
    #[serde(default)]
    pub server: Option<String>,
    /// Shell command on the sending host.
    pub client: String,
    /// Text that the server prints when it can be reached; by default its port is waited for.
    #[serde(default)]
    pub ready: Option<String>,
    /// Way to read the goodput: `json:/POINTER`, `regex:PATTERN` or `bytes`; see [`Reading`].
    pub goodput: String,
    /// Ways to read further figures.
    #[serde(default)]
    pub metrics: BTreeMap<String, String>,
    /// Shell command on the sending host after the others; the run is valid if it succeeds.
    #[serde(default)]
    pub verify: Option<String>,
}

/// Reason to refuse a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The name cannot be selected.
    #[error("'{0}' is not a valid program name: letters, digits, '-', '_' and '.'")]
    Name(String),
    /// A placeholder that there is not.
    #[error("program '{program}': there is no placeholder {{{name}}}{hint}; there are {known}", known = known())]
    Placeholder {
        /// The program.
        program: String,
        /// Name as written.
        name: String,
        /// Nearest valid placeholder.
        hint: String,
    },
    /// A brace without its partner.
    #[error("program '{program}': '{{' without '}}' in: {command}; write {{{{ for the sign itself")]
    Brace {
        /// The program.
        program: String,
        /// Command with the brace.
        command: String,
    },
    /// The way to read the result is not valid.
    #[error("program '{program}', {key}: {cause}")]
    Reading {
        /// The program.
        program: String,
        /// `goodput`, or the metric.
        key: String,
        /// Reason.
        cause: ReadingError,
    },
}

fn known() -> String {
    PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ")
}

impl Program {
    /// Refuses what could not be run or read.
    pub fn check(&self) -> Result<(), ProgramError> {
        if !farhaul_congestion::is_name(&self.name) {
            return Err(ProgramError::Name(self.name.clone()));
        }
        for command in self.commands() {
            self.fill(command, &|_| String::new())?;
        }
        let goodput = Reading::parse(&self.goodput, true);
        goodput.map_err(|cause| self.reading("goodput", cause))?;
        for (name, how) in &self.metrics {
            Reading::parse(how, false).map_err(|cause| self.reading(name, cause))?;
        }
        Ok(())
    }

    /// Every command of the program.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &str> {
        let all = [&self.prepare, &self.server, &self.verify];
        let optional = all.into_iter().filter_map(|command| command.as_deref());
        optional.chain([self.client.as_str()])
    }

    /// True if a command contains this placeholder.
    pub(super) fn uses(&self, placeholder: &str) -> bool {
        let placeholder = format!("{{{placeholder}}}");
        self.commands()
            .any(|command| command.contains(&placeholder))
    }

    /// True if a part of the result is read from what the server prints.
    pub(super) fn server_reports(&self) -> bool {
        let mut all = self.metrics.values().chain([&self.goodput]);
        all.any(|how| how.starts_with(SERVER))
    }

    fn reading(&self, key: &str, cause: ReadingError) -> ProgramError {
        ProgramError::Reading {
            program: self.name.clone(),
            key: key.into(),
            cause,
        }
    }

    /// `command` with every placeholder replaced by what `value` makes of its name; `{{` and `}}` are braces.
    pub(super) fn fill(
        &self,
        command: &str,
        value: &dyn Fn(&str) -> String,
    ) -> Result<String, ProgramError> {
        let unclosed = || ProgramError::Brace {
            program: self.name.clone(),
            command: command.into(),
        };
        let mut filled = String::new();
        let mut rest = command;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            filled += before;
            if let Some(after) = from.strip_prefix("{{").or(from.strip_prefix("}}")) {
                filled += &from[..1];
                rest = after;
                continue;
            }
            let inner = from.strip_prefix('{').ok_or_else(unclosed)?;
            let (name, after) = inner.split_once('}').ok_or_else(unclosed)?;
            if !PLACEHOLDERS.contains(&name) {
                return Err(self.unknown(name));
            }
            filled += &value(name);
            rest = after;
        }
        Ok(filled + rest)
    }

    fn unknown(&self, name: &str) -> ProgramError {
        let mut hint = String::new();
        if let Some(near) = nearest(name, PLACEHOLDERS) {
            // Writing to a string cannot fail.
            let _ = write!(hint, " (did you mean {{{near}}}?)");
        }
        ProgramError::Placeholder {
            program: self.name.clone(),
            name: name.into(),
            hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(client: &str) -> Program {
        Program {
            name: "p".into(),
            client: client.into(),
            goodput: "json:/rate".into(),
            ..Program::default()
        }
    }

    #[test]
    fn placeholders_are_replaced_and_doubled_braces_are_braces() {
        let value = |name: &str| format!("<{name}>");
        let filled = |command: &str| program("x").fill(command, &value).unwrap();
        assert_eq!(
            filled("a {host}:{port} -t {seconds}"),
            "a <host>:<port> -t <seconds>"
        );
        assert_eq!(filled("awk '{{print $1}}' {dir}"), "awk '{print $1}' <dir>");
        assert_eq!(filled("{{{host}}}"), "{<host>}");
        assert_eq!(filled(""), "");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |program: &Program| program.check().unwrap_err().to_string();
        let said = refused(&program("run {hosts}"));
        assert!(said.contains("did you mean {host}?"), "{said}");
        for open in ["run {host", "run host}", "a }b{ c"] {
            let said = refused(&program(open));
            assert!(said.contains("'{' without '}'"), "{open}: {said}");
        }
        let mut bad = program("x");
        bad.server = Some("serve {prt}".into());
        assert!(refused(&bad).contains("{port}"));
        bad = program("x");
        bad.name = "a b".into();
        assert!(refused(&bad).contains("'a b' is not a valid program name"));
        bad = program("x");
        bad.goodput = "regx:(.)".into();
        let said = refused(&bad);
        assert!(said.contains("program 'p', goodput: 'regx:(.)'"), "{said}");
        bad = program("x");
        bad.metrics.insert("delay".into(), "json:x".into());
        assert!(refused(&bad).contains("program 'p', delay: 'x' is no JSON pointer"));
        assert_eq!(program("x").check(), Ok(()));
    }

    #[test]
    fn it_is_a_table_of_a_file() {
        let text =
            "name = \"p\"\nclient = \"c\"\ngoodput = \"bytes\"\n\n[metrics]\na = \"json:/a\"\n";
        let read: Program = toml::from_str(text).unwrap();
        assert_eq!((read.server, read.metrics.len()), (None, 1));
        assert!(toml::from_str::<Program>("nam = \"p\"").is_err());
    }
}
