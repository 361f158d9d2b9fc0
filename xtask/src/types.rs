//! Sizes of types: how many fields each has, how long its `impl` blocks are, and over how many files they are
//! spread. Types that are larger have a budget, which only falls.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::tidy::Source;

/// Most fields of a type.
const MAX_FIELDS: usize = 20;
/// Most lines of code in the `impl` blocks of a type.
const MAX_LINES: usize = 900;
/// Most files with `impl` blocks of a type.
const MAX_FILES: usize = 3;
/// Larger types: the file that defines each, its name, and its fields, lines and files.
const BUDGET: [(&str, &str, [usize; 3]); 19] = [
    ("crates/cli/src/app/copy/mod.rs", "Run", [20, 900, 4]),
    ("crates/cli/src/cmd/cp/args.rs", "Args", [33, 900, 3]),
    ("crates/cli/src/cmd/serve/mod.rs", "Args", [21, 900, 3]),
    ("crates/congestion/src/daimd.rs", "Daimd", [24, 900, 3]),
    ("crates/congestion/src/haul/mod.rs", "Haul", [35, 900, 3]),
    ("crates/core/src/stats.rs", "Stats", [39, 900, 3]),
    (
        "crates/haul/src/session/mod.rs",
        "HaulSession",
        [20, 1050, 3],
    ),
    ("crates/lab/src/scenario/mod.rs", "File", [20, 900, 4]),
    (
        "crates/lab/src/scenario/outcome.rs",
        "Outcome",
        [23, 900, 3],
    ),
    ("crates/measure/src/bench/report.rs", "Report", [30, 900, 3]),
    (
        "crates/protocols/src/tcp/sender/mod.rs",
        "Sender",
        [25, 900, 4],
    ),
    ("crates/sim/src/report.rs", "SideReport", [26, 900, 3]),
    ("crates/transfer/src/client.rs", "Options", [21, 900, 3]),
    ("crates/transfer/src/hostile.rs", "Victim", [20, 900, 5]),
    ("crates/transfer/src/scan.rs", "Scanner", [20, 900, 4]),
    ("crates/transfer/src/sender/mod.rs", "Sender", [20, 1200, 7]),
    ("crates/transfer/src/server.rs", "Server", [21, 1100, 8]),
    ("crates/transfer/src/summary.rs", "Summary", [32, 900, 3]),
    (
        "crates/transfer/src/wire/message.rs",
        "Message",
        [20, 900, 5],
    ),
];
/// Lines in which a budget is counted.
const STEP: usize = 50;

/// Size of a type: fields, lines of `impl`, and the files that have them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Size {
    fields: usize,
    lines: usize,
    files: BTreeSet<String>,
}

/// Part of a file.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    /// A type with so many named fields.
    Type(String, usize),
    /// A block of so many lines that implements something for a type.
    Impl(String, usize),
}

/// Complaints about types that are too large, and about budgets that are too high.
pub(crate) fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let code = sources.iter().filter(|source| !source.is_test());
    let files = code.map(|source| (source.name(root), items(source.code())));
    complaints(&sizes(files), &BUDGET)
}

fn complaints(
    sizes: &BTreeMap<(String, String), Size>,
    budgets: &[(&str, &str, [usize; 3])],
) -> Vec<String> {
    let most = [MAX_FIELDS, MAX_LINES, MAX_FILES];
    let mut complaints = Vec::new();
    for ((file, name), size) in sizes {
        let has = [size.fields, size.lines, size.files.len()];
        let budget = budgets.iter().find(|(at, of, _)| at == file && of == name);
        let allowed = budget.map_or(most, |(_, _, budget)| *budget);
        if has.iter().zip(allowed).any(|(has, most)| *has > most) {
            complaints.push(format!(
                "{file}: {name} has {} fields and {} lines of impl in {} files, at most {allowed:?}: cut it into parts",
                has[0], has[1], has[2]
            ));
        }
    }
    for (file, name, budget) in budgets {
        let Some(size) = sizes.get(&((*file).to_owned(), (*name).to_owned())) else {
            complaints.push(format!(
                "{file}: a budget for {name}, which is not here: correct xtask/src/types.rs"
            ));
            continue;
        };
        let has = [
            size.fields,
            size.lines.next_multiple_of(STEP),
            size.files.len(),
        ];
        let least: Vec<_> = has
            .iter()
            .zip(most)
            .map(|(has, most)| *has.max(&most))
            .collect();
        if budget
            .iter()
            .zip(&least)
            .any(|(budget, least)| budget > least)
        {
            complaints.push(format!(
                "{file}: {name} is smaller than its budget: lower it to {least:?} in xtask/src/types.rs"
            ));
        }
    }
    complaints
}

/// Sizes of all types, by the file that defines each, and its name.
fn sizes(files: impl Iterator<Item = (String, Vec<Item>)>) -> BTreeMap<(String, String), Size> {
    let mut sizes: BTreeMap<(String, String), Size> = BTreeMap::new();
    let mut impls = Vec::new();
    for (file, items) in files {
        for item in items {
            match item {
                Item::Type(name, fields) => {
                    sizes.entry((file.clone(), name)).or_default().fields = fields;
                }
                Item::Impl(name, lines) => impls.push((file.clone(), name, lines)),
            }
        }
    }
    for (file, name, lines) in impls {
        // Of several types with this name the nearest is meant.
        let of_name = sizes.keys().filter(|(_, of)| *of == name);
        let near = |at: &str| {
            at.bytes()
                .zip(file.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        let meant = of_name
            .filter(|(at, _)| crate_of(at) == crate_of(&file))
            .max_by_key(|(at, _)| (*at == file, near(at)));
        if let Some(size) = meant.cloned().and_then(|meant| sizes.get_mut(&meant)) {
            size.lines += lines;
            size.files.insert(file);
        }
    }
    sizes
}

fn crate_of(file: &str) -> &str {
    file.split_once("/src/").map_or(file, |(of, _)| of)
}

/// Types and `impl` blocks in lines of formatted code.
fn items<'a>(mut code: impl Iterator<Item = &'a str>) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some(line) = code.next() {
        let is_impl = line.starts_with("impl ") || line.starts_with("impl<");
        let of_type = is_impl.then_some("").or_else(|| defined(line));
        let Some(name) = of_type else { continue };
        let mut header = line.to_owned();
        while !header.ends_with(['{', '}', ';']) {
            let Some(line) = code.next() else { break };
            header = header + " " + line.trim();
        }
        let mut body = Vec::new();
        if header.ends_with('{') {
            body.extend(code.by_ref().take_while(|line| *line != "}"));
        }
        items.extend(if is_impl {
            implemented(&header).map(|name| Item::Impl(name, body.len()))
        } else {
            let fields = body.iter().filter(|line| is_field(line)).count();
            Some(Item::Type(name.to_owned(), fields))
        });
    }
    items
}

/// Name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let words = ["pub ", "pub(crate) ", "pub(super) "];
    let line = words
        .iter()
        .find_map(|word| line.strip_prefix(word))
        .unwrap_or(line);
    let line = line
        .strip_prefix("struct ")
        .or_else(|| line.strip_prefix("enum "))?;
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()
}

/// True for a named field at the first level.
fn is_field(line: &str) -> bool {
    let Some(line) = line.strip_prefix("    ") else {
        return false;
    };
    let words = ["pub ", "pub(crate) ", "pub(super) "];
    let line = words
        .iter()
        .find_map(|word| line.strip_prefix(word))
        .unwrap_or(line);
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    line.split_once(": ").is_some_and(|(name, _)| is_name(name))
}

/// Name of the type that a block is for.
fn implemented(header: &str) -> Option<String> {
    let mut depth = 0;
    // Without what stands in angle brackets, as in `impl Trait for Type where …`.
    let plain: String = header
        .replace("->", "")
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '<');
            let outside = depth == 0;
            depth -= i32::from(*c == '>');
            outside
        })
        .collect();
    let of = plain.strip_prefix("impl")?;
    let of = of.split(" where ").next()?;
    let of = of.rsplit(" for ").next()?.trim_end_matches('{').trim();
    of.rsplit("::").next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "pub(crate) struct A<T> {\n    pub(super) a: usize,\n    b: Vec<\n        T,\n    >,\n}\nstruct B;\nimpl<T: Into<u8>> A<T> {\n    fn f() {\n    }\n}\nimpl<T> Iterator\n    for A<T>\nwhere\n    T: Copy,\n{\n    type Item = T;\n}";

    #[test]
    fn fields_and_lines_of_a_type_are_counted() {
        let type_of = |name: &str, n| Item::Type(name.into(), n);
        let block = |name: &str, n| Item::Impl(name.into(), n);
        let expected = [
            type_of("A", 2),
            type_of("B", 0),
            block("A", 2),
            block("A", 1),
        ];
        assert_eq!(items(CODE.lines()), expected);
    }

    #[test]
    fn blocks_belong_to_the_nearest_type_of_their_name() {
        let file = |name: &str, code: &str| {
            let items = items(code.lines());
            (format!("crates/{name}.rs"), items)
        };
        let found = sizes(
            [
                file("x/src/a", "struct A;\nimpl A {\n    x\n}"),
                file("x/src/b/c", "struct A;"),
                file("x/src/b/d", "impl A {\n    x\n    y\n}"),
                file("y/src/b/d", "impl A {\n    z\n}"),
            ]
            .into_iter(),
        );
        let lines: Vec<_> = found.values().map(|size| size.lines).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn a_budget_only_falls() {
        let key = ("crates/x/src/a.rs".to_owned(), "A".to_owned());
        let large = Size {
            fields: MAX_FIELDS + 1,
            ..Size::default()
        };
        let sizes = BTreeMap::from([(key, large)]);
        let count = |fields| {
            let budget = ("crates/x/src/a.rs", "A", [fields, MAX_LINES, MAX_FILES]);
            complaints(&sizes, &[budget]).len()
        };
        assert_eq!(complaints(&sizes, &[]).len(), 1);
        assert_eq!([22, 21, 20].map(count), [1, 0, 1]);
        assert_eq!(complaints(&sizes, &[("b.rs", "A", [21, 0, 0])]).len(), 2);
    }
}
