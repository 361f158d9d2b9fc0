//! Selects the variant in which a file is read. `[quick]`, `[emu]` and `[emu.quick]` hold keys that
//! replace those of the file when it is run in little time, or on real sockets; each variable of
//! their `vary` replaces the file's.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::source::{Problem, Source, unknown};
use crate::run_store::Backend;

/// Variant in which a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// World that runs the file.
    pub backend: Backend,
    /// True with the keys of `[quick]`.
    pub quick: bool,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            backend: Backend::Sim,
            quick: false,
        }
    }
}

/// Keys that a variant may replace.
const KEYS: [&str; 8] = [
    "duration",
    "seeds",
    "sample",
    "series",
    "vary",
    "not_comparable",
    "cpu",
    "quick",
];

/// The document with the keys of the variant in place of its own.
pub(super) fn of<'a>(
    source: Source<'_>,
    document: &DeTable<'a>,
    variant: Variant,
) -> Result<DeTable<'a>, Problem> {
    let mut whole = document.clone();
    let (quick, emu) = (take(&mut whole, "quick"), take(&mut whole, "emu"));
    for (name, table) in [("quick", &quick), ("emu", &emu)] {
        if let Some(table) = table {
            checked(source, name, table, name == "emu")?;
        }
    }
    let nested = match emu.as_ref().map(Spanned::get_ref) {
        Some(DeValue::Table(table)) => find(table, "quick").cloned(),
        _ => None,
    };
    if let Some(nested) = &nested {
        checked(source, "emu.quick", nested, false)?;
    }
    let chosen = match (variant.backend, variant.quick) {
        (Backend::Sim, false) => vec![],
        (Backend::Sim, true) => vec![quick],
        (Backend::Emu, false) => vec![emu],
        (Backend::Emu, true) => vec![emu, nested],
    };
    for table in chosen.into_iter().flatten() {
        replace(&mut whole, table);
    }
    Ok(whole)
}

fn find<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<&'t Spanned<DeValue<'a>>> {
    table
        .iter()
        .find(|(k, _)| k.get_ref() == key)
        .map(|(_, v)| v)
}

fn take<'a>(table: &mut DeTable<'a>, key: &str) -> Option<Spanned<DeValue<'a>>> {
    let name = table.keys().find(|k| k.get_ref() == key)?.clone();
    table.remove(&name)
}

/// Refuses what a variant cannot replace.
fn checked(
    source: Source<'_>,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    nests: bool,
) -> Result<(), Problem> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(source.problem(&value.span(), format!("write it as [{name}]")));
    };
    for key in table.keys() {
        let known = KEYS
            .into_iter()
            .filter(|k| nests || !["quick", "cpu"].contains(k));
        if !known.clone().any(|k| key.get_ref() == k) {
            let text = unknown(&format!("key of [{name}]"), key.get_ref(), known);
            return Err(source.problem(&key.span(), text));
        }
    }
    Ok(())
}

fn replace<'a>(whole: &mut DeTable<'a>, with: Spanned<DeValue<'a>>) {
    let DeValue::Table(with) = with.into_inner() else {
        return;
    };
    for (key, value) in with {
        let merged = match (key.get_ref().as_ref(), value.get_ref()) {
            ("quick", _) => continue,
            ("vary", DeValue::Table(variables)) => vary(take(whole, "vary"), &value, variables),
            _ => value,
        };
        take(whole, key.get_ref());
        whole.insert(key, merged);
    }
}

/// The file's variables, those of `with` in place of theirs.
fn vary<'a>(
    base: Option<Spanned<DeValue<'a>>>,
    value: &Spanned<DeValue<'a>>,
    with: &DeTable<'a>,
) -> Spanned<DeValue<'a>> {
    let Some(DeValue::Table(mut variables)) = base.map(Spanned::into_inner) else {
        return value.clone();
    };
    for (name, values) in with {
        // The place of the file's own name keeps the order of the variables.
        let known = variables.keys().find(|k| k.get_ref() == name.get_ref());
        let name = known.unwrap_or(name).clone();
        variables.insert(name, values.clone());
    }
    Spanned::new(value.span(), DeValue::Table(variables))
}
