//! Finds the place of a mistake in a file. Values of a TOML document are read through [`Fields`],
//! which knows the place of each: unknown, misspelt or impossible values are refused with file,
//! line and column.
//!
//! Every scalar is read as text, so that `mtu = 1500`, `mtu = "1500"` and `mtu = "{mtu}"` are the same.

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use farhaul_congestion::nearest;
use farhaul_core::units::{Rate, Size};
use regex::Regex;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::cases::OR;

/// A mistake in a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct Problem {
    /// The file as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// Cause and fix.
    pub message: String,
}

/// One choice of what a scenario varies: by name of the variable.
pub type Case = BTreeMap<String, String>;

/// A file's text with the case as which it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    pub(crate) case: &'a Case,
}

impl Source<'_> {
    /// The problem `message` at `span`.
    pub(crate) fn problem(&self, span: &Range<usize>, message: impl fmt::Display) -> Problem {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Problem {
            file: self.file.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.to_string(),
        }
    }

    /// The text with those of its `{names}` replaced that are variables.
    fn fill_known(&self, text: &str) -> String {
        let each = self.case.iter();
        each.fold(text.into(), |text: String, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }

    /// The text with its `{variables}` replaced.
    fn fill(&self, text: &str, span: &Range<usize>) -> Result<String, Problem> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(self.problem(span, format!("'{text}': a {{ without its }}")));
            };
            let value = self.case.get(name).ok_or_else(|| {
                let known = self.case.keys().map(String::as_str);
                self.problem(span, unknown("variable", name, known))
            })?;
            filled.push_str(before);
            filled.push_str(value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

/// "no `what` called ..., did you mean ...; there are ...".
pub(crate) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let guess = nearest(name, known.clone())
        .map_or_else(String::new, |n| format!(" (did you mean '{n}'?)"));
    let known = known.collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none" } else { &known };
    format!("no {what} '{name}'{guess}; there are: {known}")
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// One table of the document.
pub(crate) struct Fields<'a> {
    pub(crate) source: Source<'a>,
    table: &'a DeTable<'a>,
    /// Span of the whole table, for missing keys.
    pub(crate) span: Range<usize>,
    what: String,
}

impl<'a> Fields<'a> {
    /// The table `what`, which may have the keys `known`.
    pub(crate) fn new(
        source: Source<'a>,
        what: impl Into<String>,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        known: &[&str],
    ) -> Result<Self, Problem> {
        let what = what.into();
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let text = unknown(&format!("key of {what}"), name, known.iter().copied());
                return Err(source.problem(&key.span(), text));
            }
        }
        Ok(Self {
            source,
            table,
            span,
            what,
        })
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table
            .iter()
            .find(|(k, _)| k.get_ref() == key)
            .map(|(_, v)| v)
    }

    /// True if the key is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The problem `message` at the value of `key`, or at the table if there is none.
    pub(crate) fn problem(&self, key: &str, message: impl fmt::Display) -> Problem {
        let span = self
            .get(key)
            .map_or_else(|| self.span.clone(), Spanned::span);
        self.source.problem(&span, message)
    }

    fn scalar(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Placed<String>, Problem> {
        let span = value.span();
        let text = match value.get_ref() {
            DeValue::String(text) => self.source.fill(text, &span)?,
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(b) => b.to_string(),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                let text = format!("{key} of {} is one value", self.what);
                return Err(self.source.problem(&span, text));
            }
        };
        Ok(Placed { value: text, span })
    }

    /// The text of `key`.
    pub(crate) fn text(&self, key: &str) -> Result<Option<Placed<String>>, Problem> {
        self.get(key).map(|v| self.scalar(key, v)).transpose()
    }

    /// The text of `key`, in which only variables of the scenario are replaced.
    pub(crate) fn template(&self, key: &str) -> Result<Option<String>, Problem> {
        match self.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(self.source.fill_known(text))),
            Some(_) => Err(self.problem(key, format!("{key} of {} is a text", self.what))),
        }
    }

    /// Every key of the table `key` with its text, filled as by [`Self::template`].
    pub(crate) fn templates(&self, key: &str) -> Result<BTreeMap<String, String>, Problem> {
        let shape = || {
            self.problem(
                key,
                format!("{key} is a table, as in {{ name = \"value\" }}"),
            )
        };
        let table = match self.get(key).map(Spanned::get_ref) {
            None => return Ok(BTreeMap::new()),
            Some(DeValue::Table(table)) => table,
            Some(_) => return Err(shape()),
        };
        let one = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| match value.get_ref() {
            DeValue::String(text) => {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                Ok((name.to_string(), self.source.fill_known(text)))
            }
            _ => Err(shape()),
        };
        table.iter().map(one).collect()
    }

    /// The text of `key`, which is required; `example` is shown in the error.
    pub(crate) fn needed(&self, key: &str, example: &str) -> Result<Placed<String>, Problem> {
        self.text(key)?.ok_or_else(|| {
            let text = format!("{} needs {key}, as in {key} = {example}", self.what);
            self.source.problem(&self.span, text)
        })
    }

    /// Parses the text of `key` with `parse`.
    pub(crate) fn parse<T, E: fmt::Display>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        match parse(&text.value) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(self.source.problem(&text.span, format!("{key}: {error}"))),
        }
    }

    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>, Problem> {
        self.parse(key, farhaul_link::duration)
    }

    pub(crate) fn share(&self, key: &str) -> Result<Option<f64>, Problem> {
        self.parse(key, farhaul_link::share)
    }

    pub(crate) fn rate(&self, key: &str) -> Result<Option<Rate>, Problem> {
        self.parse(key, rate)
    }

    pub(crate) fn size(&self, key: &str) -> Result<Option<Size>, Problem> {
        self.parse(key, str::parse::<Size>)
    }

    /// A whole number in `range`.
    pub(crate) fn number(&self, key: &str, range: Range<u64>) -> Result<Option<u64>, Problem> {
        self.parse(key, |text| match text.parse() {
            Ok(n) if range.contains(&n) => Ok(n),
            _ => Err(format!(
                "'{text}' is not a whole number from {} to {}",
                range.start,
                range.end - 1
            )),
        })
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, Problem> {
        let read = self.parse(key, |text| {
            text.parse::<bool>()
                .map_err(|_| format!("'{text}' is neither true nor false"))
        })?;
        Ok(read.unwrap_or(false))
    }

    /// The texts of a list.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<Placed<String>>, Problem> {
        match self.get(key).map(Spanned::get_ref) {
            None => Ok(Vec::new()),
            Some(DeValue::Array(items)) => items.iter().map(|i| self.scalar(key, i)).collect(),
            Some(_) => Err(self.problem(key, format!("{key} is a list, as in {key} = [\"...\"]"))),
        }
    }

    /// The regular expressions of a list; only variables of the scenario are replaced in them.
    pub(crate) fn patterns(&self, key: &str) -> Result<Vec<Regex>, Problem> {
        let items = match self.get(key).map(Spanned::get_ref) {
            None => return Ok(Vec::new()),
            Some(DeValue::Array(items)) => items,
            Some(_) => return Err(self.problem(key, format!("{key} is a list of texts"))),
        };
        let read = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => {
                let pattern = Regex::new(&self.source.fill_known(text));
                pattern.map_err(|e| self.source.problem(&item.span(), format!("{key}: {e}")))
            }
            _ => Err(self
                .source
                .problem(&item.span(), format!("{key} is a list of texts"))),
        };
        items.iter().map(read).collect()
    }

    /// Parses every text of a list with `parse`.
    pub(crate) fn each<T, E: fmt::Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Problem> {
        let read = |text: Placed<String>| {
            parse(&text.value).map_err(|e| self.source.problem(&text.span, format!("{key}: {e}")))
        };
        self.list(key)?.into_iter().map(read).collect()
    }

    /// The tables of `[[key]]`.
    pub(crate) fn tables(&self, key: &str, known: &[&str]) -> Result<Vec<Self>, Problem> {
        let shape = || self.problem(key, format!("write each {key} as [[{key}]]"));
        let items = match self.get(key).map(Spanned::get_ref) {
            None => return Ok(Vec::new()),
            Some(DeValue::Array(items)) => items,
            Some(_) => return Err(shape()),
        };
        let table = |item: &'a Spanned<DeValue<'a>>| match item.get_ref() {
            DeValue::Table(table) => {
                Self::new(self.source, format!("[[{key}]]"), table, item.span(), known)
            }
            _ => Err(shape()),
        };
        items.iter().map(table).collect()
    }

    /// The table `key`.
    pub(crate) fn table(&self, key: &str, known: &[&str]) -> Result<Option<Self>, Problem> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => {
                    let what = format!("{key} of {}", self.what);
                    Self::new(self.source, what, table, value.span(), known).map(Some)
                }
                _ => Err(self.problem(key, format!("{key} is a table, as in {{ ... }}"))),
            },
        }
    }

    /// Every key of the table `key` with its text.
    pub(crate) fn pairs(&self, key: &str) -> Result<Vec<(String, Placed<String>)>, Problem> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.problem(
                key,
                format!("{key} is a table, as in {{ name = \"value\" }}"),
            ));
        };
        table
            .iter()
            .map(|(name, value)| {
                let name = name.get_ref().to_string();
                Ok((name.clone(), self.one_of(&name, value)?))
            })
            .collect()
    }

    /// A value, or a list of values, any of which a case may have.
    fn one_of(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Placed<String>, Problem> {
        let DeValue::Array(items) = value.get_ref() else {
            return self.scalar(key, value);
        };
        let texts: Vec<_> = items
            .iter()
            .map(|item| self.scalar(key, item).map(|text| text.value))
            .collect::<Result<_, _>>()?;
        let (value, span) = (texts.join(&OR.to_string()), value.span());
        Ok(Placed { value, span })
    }
}

/// A rate with its unit, or `unlimited`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    if text == "unlimited" {
        return Ok(Rate::UNLIMITED);
    }
    let rate: Rate = text.parse().map_err(|e| format!("{e}"))?;
    if rate == Rate::ZERO {
        return Err("a rate must be more than zero; for a dark link use blackout".into());
    }
    Ok(rate)
}
