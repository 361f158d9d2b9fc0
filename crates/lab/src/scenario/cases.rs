//! Cases of a scenario. `[vary]` names variables with their values; a case is one choice of each. A
//! value is a text, or a table of texts that belong together, read as `{name.key}`.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::{DeTable, DeValue};

use super::source::{Case, Problem, Source};

/// More cases than this are a mistake.
const MAX_CASES: usize = 10_000;

/// One value of a variable: what it sets, by full name.
type Setting = BTreeMap<String, String>;

/// Every case of the document, in the order of writing, the last variable varying fastest.
pub(super) fn cases(file: &str, text: &str, document: &DeTable<'_>) -> Result<Vec<Case>, Problem> {
    let none = Case::new();
    let source = Source {
        file,
        text,
        case: &none,
    };
    let Some((_, vary)) = document.iter().find(|(k, _)| k.get_ref() == "vary") else {
        return Ok(vec![none]);
    };
    let shape = "[vary] holds lists, as in rtt = [\"50ms\", \"200ms\"]";
    let DeValue::Table(table) = vary.get_ref() else {
        return Err(source.problem(&vary.span(), shape));
    };
    let mut variables: Vec<_> = table.iter().collect();
    variables.sort_by_key(|(name, _)| name.span().start);
    let mut cases = vec![Case::new()];
    for (name, values) in variables {
        let DeValue::Array(items) = values.get_ref() else {
            return Err(source.problem(&values.span(), shape));
        };
        let settings = items
            .iter()
            .map(|item| {
                setting(name.get_ref(), item.get_ref())
                    .ok_or_else(|| source.problem(&item.span(), shape))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if settings.is_empty() || cases.len() * settings.len() > MAX_CASES {
            let text = format!("vary over 1 to {MAX_CASES} cases in all");
            return Err(source.problem(&values.span(), text));
        }
        let with = |case: &Case, setting: &Setting| {
            let mut case = case.clone();
            case.extend(setting.clone());
            case
        };
        cases = cases
            .iter()
            .flat_map(|case| settings.iter().map(move |setting| with(case, setting)))
            .collect();
    }
    Ok(cases)
}

fn setting(name: &str, value: &DeValue<'_>) -> Option<Setting> {
    let one = |name: String, value: &DeValue<'_>| Some((name, scalar(value)?));
    match value {
        DeValue::Table(table) => table
            .iter()
            .map(|(key, value)| one(format!("{name}.{}", key.get_ref()), value.get_ref()))
            .collect(),
        _ => Some(Setting::from_iter([one(name.into(), value)?])),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Label of a case: its values, in the order of their names.
pub fn label(case: &Case) -> String {
    if case.is_empty() {
        return "all".into();
    }
    let words: Vec<_> = shown(case).map(|(k, v)| format!("{k}={v}")).collect();
    words.join(" ")
}

/// The variable that `key` is of: `rival` for `rival.rate`.
pub(crate) fn table_of(key: &str) -> &str {
    key.split_once('.').map_or(key, |(table, _)| table)
}

/// Key of the name of a variable whose values are tables: `rival.name` for `rival`.
pub(crate) fn name_of(table: &str) -> String {
    format!("{table}.name")
}

/// Values that a case is shown by: a table that has a name goes by that alone.
pub(crate) fn shown(case: &Case) -> impl Iterator<Item = (&String, &String)> {
    case.iter().filter(|(key, _)| {
        let name = name_of(table_of(key));
        **key == name || !case.contains_key(&name)
    })
}

/// Mark between values, any of which a case may have.
pub(super) const OR: char = '|';

/// True if the case has all these values, or one of those that are listed.
pub(crate) fn fits(case: &Case, when: &Case) -> bool {
    when.iter().all(|(name, values)| {
        let own = case.get(name);
        own.is_some_and(|own| values.split(OR).any(|value| value == own))
    })
}

/// Reason why none of these cases has the values of `when`.
pub(crate) fn none_of<'a>(cases: impl Iterator<Item = &'a Case>, when: &Case) -> String {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in cases.flatten() {
        let of = values.entry(name).or_default();
        if !of.contains(&value.as_str()) {
            of.push(value);
        }
    }
    for (name, wanted) in when {
        let Some(of) = values.get(name.as_str()) else {
            let names: Vec<_> = values.into_keys().collect();
            return format!(
                "no such case: no variable is called '{name}'; there are: {}",
                names.join(", ")
            );
        };
        if !wanted.split(OR).any(|value| of.contains(&value)) {
            return format!(
                "no such case: {name} is never '{wanted}'; it is one of: {}",
                of.join(", ")
            );
        }
    }
    "no such case: there are these values, but no case has all of them".into()
}

/// Count of choices of these variables.
pub(super) fn cells(cases: &[Case], across: &[String]) -> usize {
    let of = |case: &Case| -> Vec<Option<String>> {
        across.iter().map(|name| case.get(name).cloned()).collect()
    };
    cases.iter().map(of).collect::<BTreeSet<_>>().len()
}
