//! Import circles within a crate: files that reach each other by what they import. The largest of each crate has a
//! budget, which only falls. A ground imports nothing else of its crate. The tool without its command line imports
//! no command, and prints nothing.
//!
//! - An import is the file that defines what is named, not one that hands it on. What a file hands on without a use of its
//!   own is none.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::Path,
};

use crate::tidy::rust_files;

/// Most files in a circle, but for the crates below.
const MOST: usize = 6;
/// Files in the largest circle of each crate that has a larger one.
const BUDGET: [(&str, usize); 1] = [("lab", 16)];
/// Folders that import nothing else of their crate.
const GROUNDS: [&str; 1] = ["crates/transfer/src/wire"];
/// The tool without its command line.
const APP: &str = "crates/cli/src/app";
/// Files and folders that [`APP`] does not import.
const AROUND_APP: [&str; 7] = [
    "cmd",
    "bar.rs",
    "calls.rs",
    "lib.rs",
    "line.rs",
    "out.rs",
    "terminal.rs",
];
/// Words that files of [`APP`] lack.
const NOT_IN_APP: [&str; 5] = ["clap", "errln", "println", "eprintln", "print"];

/// Path of a module, or of something in it, from the root of its crate on.
type Name = Vec<String>;
/// Files that each file imports.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// The names in one file.
#[derive(Default)]
struct Module {
    file: String,
    /// Imports, each with the name that it has here.
    uses: Vec<(Name, String)>,
    /// Paths outside of imports; single words, too.
    paths: Vec<Name>,
    /// The imports that name something of this crate.
    names: BTreeMap<String, Name>,
}

/// Complaints about circles and grounds, and the files in the largest circle of each crate.
pub(crate) fn check(root: &Path) -> (Vec<String>, Vec<(String, usize)>) {
    let (mut complaints, mut sizes) = (Vec::new(), Vec::new());
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten();
    let names: BTreeSet<_> = crates.flatten().map(|entry| entry.file_name()).collect();
    let gone = GROUNDS
        .iter()
        .filter(|ground| rust_files(&root.join(ground)).is_empty());
    complaints.extend(
        gone.map(|ground| {
            format!("{ground}: this ground has no files: correct xtask/src/circles.rs")
        }),
    );
    let gone = BUDGET
        .iter()
        .filter(|(of, _)| !names.contains(OsStr::new(of)));
    complaints.extend(
        gone.map(|(of, _)| {
            format!("{of}: a budget without its crate: correct xtask/src/circles.rs")
        }),
    );
    for name in names {
        let sources = rust_files(&root.join("crates").join(&name).join("src"));
        let files = sources
            .iter()
            .filter(|source| !source.is_test())
            .map(|source| {
                let code = source.code().collect::<Vec<_>>().join("\n");
                (source.name(root), code)
            });
        let modules = Modules::of(files);
        let edges = modules.edges();
        complaints.extend(grounds(&edges));
        complaints.extend(app(&modules, &edges));
        let (name, circle) = (name.to_string_lossy(), largest(&edges));
        let budget = BUDGET.iter().find(|(of, _)| *of == name);
        let (size, most) = (circle.len(), budget.map_or(MOST, |(_, most)| *most));
        if size > most {
            let files = circle.into_iter().collect::<Vec<_>>().join(", ");
            complaints.push(format!(
                "{name}: {size} files import each other in a circle, at most {most}: {files}"
            ));
        } else if budget.is_some() && size < most {
            complaints.push(format!("{name}: its largest circle has {size} files: lower the budget of {most} in xtask/src/circles.rs"));
        }
        sizes.push((name.into_owned(), size));
    }
    (complaints, sizes)
}

fn grounds(edges: &Edges) -> Vec<String> {
    let is_in = |file: &str, ground: &str| Path::new(file).starts_with(ground);
    let mut complaints = Vec::new();
    for ground in GROUNDS {
        for (file, imports) in edges.iter().filter(|(file, _)| is_in(file, ground)) {
            let outside = imports.iter().filter(|to| !is_in(to, ground));
            complaints.extend(outside.map(|to| {
                format!("{file} imports {to}: {ground} imports nothing else of its crate")
            }));
        }
    }
    complaints
}

/// Complaints about the tool without its command line.
fn app(modules: &Modules, edges: &Edges) -> Vec<String> {
    let in_app = |file: &str| Path::new(file).starts_with(APP);
    let around = |file: &str| {
        let inside = file.strip_prefix("crates/cli/src/");
        inside.is_some_and(|file| AROUND_APP.iter().any(|on| Path::new(file).starts_with(on)))
    };
    let mut complaints = Vec::new();
    for (file, imports) in edges.iter().filter(|(file, _)| in_app(file)) {
        let outside = imports.iter().filter(|to| around(to));
        complaints.extend(outside.map(|to| {
            format!(
                "{file} imports {to}: {APP} knows nothing of the command line and prints nothing"
            )
        }));
    }
    for module in modules.0.values().filter(|module| in_app(&module.file)) {
        let uses = module.uses.iter().map(|(path, _)| path);
        let mut words = uses.chain(&module.paths).map(|path| path[0].as_str());
        if let Some(word) = words.find(|word| NOT_IN_APP.contains(word)) {
            complaints.push(format!(
                "{} has the word {word}, which {APP} does not have",
                module.file
            ));
        }
    }
    complaints
}

/// Files that `from` imports, and what they import, and so on.
fn reached<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let imports = |file: &str| edges.get(file).into_iter().flatten().map(String::as_str);
    let mut found: BTreeSet<_> = imports(from).collect();
    let mut open: Vec<_> = found.iter().copied().collect();
    while let Some(at) = open.pop() {
        open.extend(imports(at).filter(|to| found.insert(to)));
    }
    found
}

/// The largest set of files that reach each other.
fn largest(edges: &Edges) -> BTreeSet<&str> {
    let reach: BTreeMap<_, _> = edges
        .keys()
        .map(|file| (file.as_str(), reached(edges, file)))
        .collect();
    let circles = reach.iter().map(|(file, found)| {
        let back = found.iter().copied();
        back.filter(|to| reach.get(to).is_some_and(|back| back.contains(file)))
            .collect()
    });
    circles.max_by_key(BTreeSet::len).unwrap_or_default()
}

/// The modules of one crate.
struct Modules(BTreeMap<Name, Module>);

impl Modules {
    /// Reads files, each with its path and its code.
    fn of(files: impl Iterator<Item = (String, String)>) -> Self {
        let named = files.map(|(file, code)| {
            let inside = file.split_once("/src/").map_or("", |(_, inside)| inside);
            let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
            let name = inside
                .split('/')
                .filter(|word| *word != "lib")
                .map(str::to_owned);
            (name.collect(), Module::read(&file, &code))
        });
        let mut modules = Self(named.collect());
        let resolved = |(at, module): (&Name, &Module)| {
            let uses = module.uses.iter().cloned();
            uses.filter_map(|(path, name)| Some((name, modules.absolute(at, &path)?)))
                .collect()
        };
        let names: Vec<_> = modules.0.iter().map(resolved).collect();
        for (module, names) in modules.0.values_mut().zip(names) {
            module.names = names;
        }
        modules
    }

    /// The path from the root of the crate on, of `path` in the module `at`; nothing if it leads to another crate.
    fn absolute(&self, at: &Name, path: &[String]) -> Option<Name> {
        let up = path.iter().take_while(|word| *word == "super").count();
        let child = [at, &path[..1]].concat();
        let (base, rest) = match path[0].as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (&at[..], &path[1..]),
            _ if up > 0 => (&at[..at.len().saturating_sub(up)], &path[up..]),
            _ if self.0.contains_key(&child) => (&at[..], path),
            _ => return None,
        };
        Some([base, rest].concat())
    }

    /// The file that defines what `path` names; none for a module itself.
    fn definer(&self, path: &[String], depth: usize) -> Option<&str> {
        let inner = (0..=path.len())
            .rev()
            .find(|i| self.0.contains_key(&path[..*i]))?;
        let (module, name) = (&self.0[&path[..inner]], path.get(inner)?);
        match module.names.get(name) {
            Some(handed_on) if depth < 9 => {
                self.definer(&[handed_on, &path[inner + 1..]].concat(), depth + 1)
            }
            _ => Some(&module.file),
        }
    }

    fn edges(&self) -> Edges {
        let imports = |(at, module): (&Name, &Module)| {
            let named = module
                .paths
                .iter()
                .filter_map(|path| match module.names.get(&path[0]) {
                    Some(import) => Some([import, &path[1..]].concat()),
                    None if path.len() > 1 => self.absolute(at, path),
                    None => None,
                });
            let files = named
                .filter_map(|path| self.definer(&path, 0))
                .filter(|to| *to != module.file);
            (module.file.clone(), files.map(str::to_owned).collect())
        };
        self.0.iter().map(imports).collect()
    }
}

impl Module {
    fn read(file: &str, code: &str) -> Self {
        let mut module = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        for statement in code.split(';') {
            let import = statement.rfind("use ").filter(|at| {
                let before = statement[..*at]
                    .rsplit('\n')
                    .next()
                    .unwrap_or_default()
                    .trim();
                before.is_empty() || before.starts_with("pub")
            });
            let (rest, import) = statement.split_at(import.unwrap_or(statement.len()));
            if let Some(tree) = import.strip_prefix("use ") {
                let before = rest.rsplit('\n').next().unwrap_or_default();
                module.import(tree, &[], before.contains("pub"));
            }
            let words = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            let paths = words.map(|word| {
                word.split("::")
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect()
            });
            module
                .paths
                .extend(paths.filter(|path: &Name| !path.is_empty()));
        }
        module
    }

    /// Reads one tree of a `use`.
    fn import(&mut self, tree: &str, before: &[String], is_public: bool) {
        let tree = tree.trim();
        let (path, branches) = tree.split_once('{').unwrap_or((tree, ""));
        let (path, renamed) = path
            .split_once(" as ")
            .map_or((path, None), |(path, name)| (path, Some(name)));
        let words = path
            .split("::")
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let mut path = [before, &words.map(str::to_owned).collect::<Vec<_>>()].concat();
        if branches.is_empty() {
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = renamed
                .or(path.last().map(String::as_str))
                .unwrap_or_default()
                .to_owned();
            if !is_public {
                self.paths.push(vec![name.clone()]);
            }
            self.uses.push((path, name));
            return;
        }
        let (mut depth, mut from) = (0, 0);
        for (at, sign) in branches.char_indices() {
            match sign {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    let branch = branches[from..at].trim();
                    if !branch.is_empty() {
                        self.import(branch, &path, is_public);
                    }
                    from = at + 1;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Edges {
        let files = files
            .iter()
            .map(|(file, code)| (format!("crates/transfer/src/{file}.rs"), (*code).to_owned()));
        Modules::of(files).edges()
    }

    #[test]
    fn what_is_handed_on_is_an_import_of_its_definer() {
        let edges = edges(&[
            ("lib", "mod a; mod b; pub use a::{A, inner::Far as Near};"),
            (
                "a/mod",
                "mod inner; pub(crate) use inner::Far; pub struct A; fn f(_: crate::b::B) {}",
            ),
            ("a/inner", "use super::A; pub struct Far;"),
            (
                "b",
                "use std::fmt; use crate::{Near, a}; pub struct B(Near); fn g() -> a::A { a::Far }",
            ),
        ]);
        let of = |file: &str| {
            let imports = edges[&format!("crates/transfer/src/{file}.rs")].iter();
            imports
                .map(|to| to.trim_start_matches("crates/transfer/src/"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("lib"), [] as [&str; 0]);
        assert_eq!(of("a/mod"), ["b.rs"]);
        assert_eq!(of("a/inner"), ["a/mod.rs"]);
        assert_eq!(of("b"), ["a/inner.rs", "a/mod.rs"]);
        assert_eq!(largest(&edges).len(), 3);
    }

    #[test]
    fn a_ground_imports_nothing_else_of_its_crate() {
        let ground = |code: &str| {
            let files = [
                ("lib", ""),
                ("error", "pub struct E;"),
                ("wire/mod", "pub mod path; pub struct M;"),
                ("wire/path", code),
            ];
            grounds(&edges(&files))
        };
        assert_eq!(
            ground("use crate::wire::M; use farhaul_core::codec::Reader;"),
            [] as [&str; 0]
        );
        for bad in [
            "use crate::error::E;",
            "fn f() { crate::error::E }",
            "use super::{M, super::error};\nfn f() { error::E }",
        ] {
            assert_eq!(ground(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn the_tool_without_its_command_line_neither_imports_it_nor_prints() {
        let complaints = |code: &str| {
            let files = [("lib", ""), ("out", "pub fn line() {}"), ("app/copy", code)];
            let files = files
                .iter()
                .map(|(file, code)| (format!("crates/cli/src/{file}.rs"), (*code).to_owned()));
            let modules = Modules::of(files);
            app(&modules, &modules.edges()).len()
        };
        assert_eq!(complaints("use std::fmt; fn f() { fmt::format() }"), 0);
        for bad in [
            "use crate::out; fn f() { out::line() }",
            "use clap::Parser;",
            "fn f() { println!() }",
        ] {
            assert_eq!(complaints(bad), 1, "{bad}");
        }
    }

    #[test]
    fn files_that_only_follow_each_other_are_no_circle() {
        let edges = edges(&[
            ("lib", ""),
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", ""),
        ]);
        assert_eq!(largest(&edges).len(), 0);
    }
}
