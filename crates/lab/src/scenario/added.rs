//! Adds cases with values that a file does not have, beside its own, of the same keys; nothing is
//! expected of them.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;

use super::{
    File,
    cases::{fits, name_of, table_of},
    parse, read_case,
    source::{Case, Problem, Source, unknown},
    variant,
};

/// More than this are a mistake.
const MAX_CASES: usize = 10_000;

/// Values to try in place of a file's, by variable.
pub type Vary = BTreeMap<String, Vec<String>>;

impl File {
    /// The file's cases of `among` with the values of `vary`, each once.
    ///
    /// # Errors
    /// If it does not have the variable; the text lists what there is.
    pub(crate) fn varied(&self, among: &Case, vary: &Vary) -> Result<Vec<Case>, String> {
        let own = || self.plans.iter().map(|plan| &plan.case);
        let known: BTreeSet<String> = own().flat_map(|c| c.keys().cloned()).collect();
        let mut cases: Vec<Case> = own().filter(|case| fits(case, among)).cloned().collect();
        for (name, values) in vary {
            if !known.contains(name) {
                let what = format!("variable of {}", self.name);
                return Err(unknown(&what, name, known.iter().map(String::as_str)));
            }
            let with = |value: &String| {
                let cases = cases.iter().filter(|case| case.contains_key(name));
                cases.map(|case| set(case, name, value)).collect::<Vec<_>>()
            };
            let mut found = BTreeSet::new();
            let all = values.iter().flat_map(with);
            cases = all.filter(|case| found.insert(case.clone())).collect();
            if cases.len() > MAX_CASES {
                return Err(format!("vary over at most {MAX_CASES} cases in all"));
            }
        }
        Ok(cases)
    }

    /// Adds those of `cases` that it does not have; `text` is that of the file called `file`. Those that cannot be
    /// of it, with why.
    pub(crate) fn add(
        &mut self,
        file: &str,
        text: &str,
        cases: impl IntoIterator<Item = Case>,
    ) -> Result<Vec<Problem>, Problem> {
        let none = Case::new();
        let source = Source {
            file,
            text,
            case: &none,
        };
        let document = parse(source)?;
        let span = document.span();
        let document = variant::of(source, document.get_ref(), self.variant)?;
        let document = Spanned::new(span, document);
        let keys = |case: &Case| case.keys().cloned().collect::<Vec<_>>();
        let shapes: BTreeSet<_> = self.plans.iter().map(|plan| keys(&plan.case)).collect();
        let mut refused = Vec::new();
        for case in cases {
            let known = self.plans.iter().any(|plan| plan.case == case);
            if known || !shapes.contains(&keys(&case)) {
                continue;
            }
            let of = Source {
                case: &case,
                ..source
            };
            match read_case(of, &document, self.variant) {
                Ok((plan, _)) => {
                    self.plans.push(plan);
                    self.added.insert(case);
                }
                Err(problem) => refused.push(problem),
            }
        }
        Ok(refused)
    }
}

/// The case with that value; a table that has a name gets another, as it is shown by that.
fn set(case: &Case, name: &str, value: &str) -> Case {
    let mut case = case.clone();
    let before = case.insert(name.into(), value.into());
    let table = table_of(name);
    let own = name_of(table);
    if let Some(key) = name[table.len()..].strip_prefix('.')
        && name != own
        && before.is_some_and(|before| before != value)
        && let Some(shown) = case.get_mut(&own)
    {
        *shown = format!("{shown} {key}={value}");
    }
    case
}
