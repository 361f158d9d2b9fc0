//! Checks what no compiler checks: sizes of crates, files and types, names, openings of comments, promises left in
//! comments, and anchors into the protocol pages. It also checks links of documents, quoted
//! results, known attacks, and forgotten snapshots.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{Outcome, attacks, installs, openings, results, run::print_line, types, weight};

/// Most lines of code in one file, tests apart.
const MAX_CODE: usize = 600;
/// Most lines of tests at the bottom of a file; longer ones move to `<module>/tests.rs`.
const MAX_TESTS: usize = 120;
/// Names without meaning.
const EMPTY_NAMES: [&str; 7] = ["mgr", "ctx", "util", "utils", "common", "helper", "misc"];

/// A source file and its text.
pub(crate) struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The path below `root`.
    pub(crate) fn name(&self, root: &Path) -> String {
        let path = self.path.strip_prefix(root).unwrap_or(&self.path);
        path.display().to_string()
    }

    /// Whole text of the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Lines with code in them, before the tests at the bottom.
    pub(crate) fn code(&self) -> impl Iterator<Item = &str> {
        counted(self.split().0)
    }

    /// Code and the tests at the bottom.
    fn split(&self) -> (&str, &str) {
        match self.text.find("\n#[cfg(test)]\nmod tests {") {
            Some(at) => self.text.split_at(at),
            None => (&self.text, ""),
        }
    }

    /// True for a file of tests or benches.
    pub(crate) fn is_test(&self) -> bool {
        self.path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().ends_with("tests.rs"))
            || self
                .path
                .components()
                .any(|c| c.as_os_str() == "tests" || c.as_os_str() == "benches")
    }
}

fn counted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//")
    })
}

/// Every Rust file below `folder`.
pub(crate) fn rust_files(folder: &Path) -> Vec<Source> {
    files(folder)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .filter_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            Some(Source { path, text })
        })
        .collect()
}

/// Every file below `folder`, in order; hidden folders and build output left out.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Runs every check and lists all complaints at once.
pub(crate) fn check(root: &Path) -> Outcome {
    let mut sources = rust_files(&root.join("crates"));
    sources.extend(rust_files(&root.join("xtask")));
    sources.extend(rust_files(&root.join("fuzz")));
    sources.extend(rust_files(&root.join("python")));
    let documents = documents(root);
    let mut complaints = Vec::new();
    for source in &sources {
        let name = source.name(root);
        complaints.extend(size(source, &name));
        complaints.extend(header(source, &name));
        complaints.extend(openings::check(&source.text, &name));
        complaints.extend(promises(&source.text, &name));
        complaints.extend(wording(source, &name));
        complaints.extend(anchors(root, &source.text, &name));
        complaints.extend(checkout(&source.text, &name));
    }
    for source in &documents {
        let name = source.name(root);
        complaints.extend(promises(&source.text, &name));
        complaints.extend(links(source, &name));
    }
    complaints.extend(types::check(root, &sources));
    complaints.extend(weight::check(root, &sources));
    complaints.extend(names(root));
    complaints.extend(manifests(root));
    complaints.extend(results::quoted(root));
    complaints.extend(attacks::check(root));
    complaints.extend(installs::check(root, &sources));
    if complaints.is_empty() {
        print_line(&format!(
            "tidy: {} sources, {} documents, no complaints",
            sources.len(),
            documents.len()
        ));
        Ok(())
    } else {
        Err(complaints)
    }
}

/// Markdown at the top and below `docs`.
fn documents(root: &Path) -> Vec<Source> {
    let top = fs::read_dir(root).into_iter().flatten().flatten();
    top.map(|entry| entry.path())
        .filter(|path| path.is_file())
        .chain(files(&root.join("docs")))
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .filter_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            Some(Source { path, text })
        })
        .collect()
}

fn size(source: &Source, name: &str) -> Vec<String> {
    let (code, tests) = source.split();
    let (code, tests) = (counted(code).count(), counted(tests).count());
    let mut complaints = Vec::new();
    if code > MAX_CODE && !source.is_test() {
        complaints.push(format!(
            "{name}: {code} lines of code, at most {MAX_CODE}: split it"
        ));
    }
    if tests > MAX_TESTS {
        complaints.push(format!(
            "{name}: {tests} lines of tests, at most {MAX_TESTS} here: move them to tests.rs"
        ));
    }
    complaints
}

/// Complaint about a file without a header; `openings` checks how the header begins.
fn header(source: &Source, name: &str) -> Option<String> {
    let headed = source.text.starts_with("//!") || source.is_test();
    (!headed).then(|| format!("{name}: does not begin with //! and what it is or does"))
}

fn promises(text: &str, name: &str) -> Vec<String> {
    // Built from pieces so that this file does not complain of itself.
    let words = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    text.lines()
        .enumerate()
        .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        .map(|(at, _)| format!("{name}:{}: an unkept promise: do it or delete it", at + 1))
        .collect()
}

/// Behaviour hangs on fields of an error, not on its words: those are for people, and change. Files that only tests
/// build may look at them.
fn wording(source: &Source, name: &str) -> Option<String> {
    const LOOKS: [&str; 8] = [
        "contains",
        "starts_with",
        "ends_with",
        "strip_prefix",
        "strip_suffix",
        "split_once",
        "rsplit_once",
        "find",
    ];
    if source.is_test() || name.starts_with("xtask") || name.contains("/hostile") {
        return None;
    }
    let code: String = source.code().map(str::trim).collect();
    let looks = ["text", "fix"]
        .iter()
        .flat_map(|field| LOOKS.map(|look| format!(".{field}.{look}(")));
    let look = looks.into_iter().find(|look| code.contains(look))?;
    Some(format!(
        "{name}: {look}...): no behaviour hangs on the words of an error: give it a field"
    ))
}

/// No program knows the checkout in which it was built: another one uses it, too, as long as its sources are the same.
fn checkout(text: &str, name: &str) -> Vec<String> {
    let built_in = ["env!(\"CARGO_", "MANIFEST_DIR\")"].concat();
    text.lines()
        .enumerate()
        .filter(|(_, line)| line.contains(&built_in))
        .map(|(at, _)| {
            format!(
                "{name}:{}: the path of a checkout is built in: a test runs in its package's folder, write a path from there",
                at + 1
            )
        })
        .collect()
}

/// `spec: NAME §ID` in a comment must be a heading of `docs/protocols/NAME.md`.
fn anchors(root: &Path, text: &str, name: &str) -> Vec<String> {
    // From pieces, as above.
    let mark = ["// ", "spec: "].concat();
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some((_, anchor)) = line.split_once(&mark) else {
            continue;
        };
        let Some((page, id)) = anchor.split_once(" §") else {
            complaints.push(format!("{name}:{}: an anchor is `NAME §ID`", at + 1));
            continue;
        };
        let id = anchor_id(id);
        let path = root.join("docs/protocols").join(format!("{page}.md"));
        let found = fs::read_to_string(path).is_ok_and(|text| headings(&text).contains(id));
        if !found {
            complaints.push(format!(
                "{name}:{}: no §{id} in docs/protocols/{page}.md",
                at + 1
            ));
        }
    }
    complaints
}

/// The leading number or word of what follows `§`.
fn anchor_id(text: &str) -> &str {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '.' || c == '-'))
        .unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// Numbers or words with which the headings of a page begin: `## 4.2 Feedback` gives `4.2`.
fn headings(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor_id(line.trim_start_matches('#').trim().trim_start_matches('§')))
        .collect()
}

/// Relative links of a document lead to a file, and a link to a heading to one that exists.
fn links(source: &Source, name: &str) -> Vec<String> {
    source
        .text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .filter(|target| !target.contains("://") && !target.starts_with('<'))
        .filter(|target| !leads(source, target))
        .map(|target| format!("{name}: the link to {target} leads nowhere"))
        .collect()
}

fn leads(source: &Source, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = source.path.parent().unwrap_or(Path::new("."));
    let file = folder.join(path);
    if anchor.is_empty() {
        return file.exists();
    }
    let has = |text: &str| heading_anchors(text).contains(anchor);
    if path.is_empty() {
        return has(&source.text);
    }
    fs::read_to_string(file).is_ok_and(|text| has(&text))
}

/// Anchors that GitHub and mdBook make of the headings of a page: lower case, hyphens for spaces,
/// no punctuation.
fn heading_anchors(text: &str) -> BTreeSet<String> {
    let outside_code = text.split("\n```").step_by(2).flat_map(str::lines);
    let headings = outside_code.filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// Files with empty names, and unreviewed snapshots.
fn names(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in ["crates", "xtask", "docs", "lab", "python"]
        .iter()
        .flat_map(|folder| files(&root.join(folder)))
    {
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if EMPTY_NAMES.contains(&stem.as_ref()) {
            complaints.push(format!("{shown}: a name without meaning"));
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        if file.ends_with(".snap.new") || file.ends_with(".pending-snap") {
            complaints.push(format!("{shown}: a snapshot nobody has accepted"));
        }
    }
    complaints
}

/// Every crate takes the workspace's lints (`udp`, which has its own, names them) and has a line in
/// ARCHITECTURE.md.
fn manifests(root: &Path) -> Vec<String> {
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    let mut complaints = Vec::new();
    for entry in fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let folder = entry.file_name();
        let folder = folder.to_string_lossy();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else {
            continue;
        };
        if !manifest.contains("[lints]\nworkspace = true") && !manifest.contains("[lints.clippy]") {
            complaints.push(format!("crates/{folder}: takes no lints"));
        }
        if !map.contains(&format!("crates/{folder}")) {
            complaints.push(format!(
                "crates/{folder}: ARCHITECTURE.md does not mention it"
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "crates/x/src/lib.rs".into(),
            text: text.into(),
        }
    }

    #[test]
    fn comments_blanks_and_tests_are_not_code() {
        let s = source(
            "//! Header.\n\nfn a() {}\n// why\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n",
        );
        assert_eq!(s.code().count(), 1);
        assert!(size(&s, "x").is_empty());
        let long = "fn a() {}\n".repeat(MAX_CODE + 1);
        assert_eq!(size(&source(&long), "x").len(), 1);
    }

    #[test]
    fn promises_are_found_with_their_line() {
        let text = ["fine", &["TO", "DO later"].concat()].join("\n");
        assert_eq!(
            promises(&text, "x"),
            ["x:2: an unkept promise: do it or delete it"]
        );
    }

    #[test]
    fn no_code_looks_at_the_words_of_an_error() {
        let complaints = |code: &str| wording(&source(code), "crates/x/src/lib.rs").is_some();
        let look = ["if e\n    .text\n    .", "contains(\"again\") {}"].concat();
        assert!(complaints(&look));
        let asserted = format!("\n#[cfg(test)]\nmod tests {{\n{look}\n}}\n");
        assert!(!complaints(&asserted) && !complaints("if e.code == Code::Ok {}"));
    }

    #[test]
    fn anchors_are_the_numbers_of_headings() {
        let page = "# haul\n## 4 Frames\n### §4.2 Feedback\ntext 9\n";
        let found = headings(page);
        assert!(found.contains("4") && found.contains("4.2") && !found.contains("9"));
        assert_eq!(anchor_id("4.2. and more"), "4.2");
    }

    #[test]
    fn links_lead_to_headings() {
        let page = source("## 4.2 Idle states, `2026-11-28`\n\n```sh\n# code\n```\n");
        assert!(leads(&page, "#42-idle-states-2026-11-28"));
        assert!(!leads(&page, "#code") && !leads(&page, "#idle-states"));
    }
}
