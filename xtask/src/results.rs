//! The quoted tables of `docs/results.md`: copied from one file under `lab/results` between two
//! markers by [`run`]. [`quoted`] compares them with the file, so that they cannot drift apart.

use std::{env, ffi::OsString, fs, path::Path, process::Command};

use crate::Outcome;

/// The page that quotes.
const PAGE: &str = "docs/results.md";
const BEGIN: &str = "<!-- results:begin ";
const END: &str = "<!-- results:end -->";
/// Parts of the study `cells` that are run, and their backends.
const EXPERIMENTS: [(&str, &str); 3] = [
    ("cells/bench", "emu"),
    ("cells/copy", "emu"),
    ("cells/agreement", "sim,emu"),
];

/// Builds the release binary, runs the fixed cells into the folder, and quotes their tables in [`PAGE`].
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let (folder, quick) = match args {
        [folder] => (folder, None),
        [folder, "--quick"] => (folder, Some("--quick")),
        _ => {
            let usage = "usage: cargo xtask results FOLDER [--quick], as lab/results/DATE-MACHINE";
            return Err(vec![usage.into()]);
        }
    };
    let below = root.join("lab/results");
    let out = root.join(folder);
    let Ok(name) = out.strip_prefix(&below) else {
        return Err(vec![format!("{folder}: it is not below lab/results")]);
    };
    let lab = |words: [&str; 4]| -> Result<(), Vec<String>> {
        let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let status = Command::new(program)
            .args(["run", "--release", "-p", "farhaul", "--", "lab"])
            .args(words)
            .arg("--out")
            .arg(&out)
            .args(quick)
            .current_dir(root)
            .status()
            .map_err(|e| vec![e.to_string()])?;
        if status.success() {
            return Ok(());
        }
        Err(vec![format!("farhaul lab {}: {status}", words.join(" "))])
    };
    for (experiment, backends) in EXPERIMENTS {
        lab(["run", experiment, "--backend", backends])?;
    }
    // The page of all of them.
    lab(["report", "cells", "--backend", "emu"])?;
    let study = quick.map_or("cells", |_| "cells-quick");
    let page = name.join(study).join("report.md");
    quote(root, &page.to_string_lossy()).map_err(|text| vec![text])
}

fn quote(root: &Path, page: &str) -> Result<(), String> {
    let path = root.join(PAGE);
    let quoting = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let text = quotable(root, page)?;
    let (before, _, after) =
        parts(&quoting).ok_or_else(|| format!("{PAGE} has no results markers"))?;
    let text = format!("{before}{BEGIN}{page} -->\n{text}{END}{after}");
    fs::write(path, text).map_err(|e| e.to_string())
}

/// Text that [`PAGE`] has of the file `page`: of a study's page its tables, all of any other.
fn quotable(root: &Path, page: &str) -> Result<String, String> {
    let path = root.join("lab/results").join(page);
    let text = fs::read_to_string(path).map_err(|e| format!("lab/results/{page}: {e}"))?;
    Ok(if page.ends_with("report.md") {
        tables(&text)
    } else {
        text
    })
}

/// The tables that have a caption.
fn tables(page: &str) -> String {
    let blocks: Vec<&str> = page.split("\n\n").collect();
    let table = |pair: &&[&str]| pair[0].ends_with(':') && pair[1].starts_with('|');
    let found = blocks.windows(2).filter(table);
    let texts: Vec<_> = found
        .map(|p| format!("{}\n\n{}\n", p[0], p[1].trim_end()))
        .collect();
    texts.join("\n")
}

/// Text before the markers, what they hold (with the folder's name), and text after.
fn parts(quoting: &str) -> Option<(&str, (&str, &str), &str)> {
    let (before, rest) = quoting.split_once(BEGIN)?;
    let (name, rest) = rest.split_once(" -->\n")?;
    let (inside, after) = rest.split_once(END)?;
    Some((before, (name, inside), after))
}

/// Complains when [`PAGE`] quotes something else than the file it names.
pub(crate) fn quoted(root: &Path) -> Option<String> {
    let quoting = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let Some((_, (page, inside), _)) = parts(&quoting) else {
        return Some(format!("{PAGE}: the results markers are missing"));
    };
    match quotable(root, page) {
        Ok(text) if text == inside => None,
        Ok(_) => Some(format!("{PAGE}: the tables differ from lab/results/{page}")),
        Err(e) => Some(format!("{PAGE}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_markers_split_a_page() {
        let text = "a\n<!-- results:begin d -->\nT\n<!-- results:end -->\nb";
        assert_eq!(parts(text), Some(("a\n", ("d", "T\n"), "\nb")));
        assert_eq!(parts("a"), None);
    }

    #[test]
    fn a_page_is_quoted_by_its_tables() {
        let page = "# T\n\nAbout.\n\nRates (emu):\n\n| a |\n|--:|\n| 1 |\n\n| outcome |\n|---|\n\nB:\n\n| b |\n|--:|\n\nEnd\n";
        let quoted = "Rates (emu):\n\n| a |\n|--:|\n| 1 |\n\nB:\n\n| b |\n|--:|\n";
        assert_eq!(tables(page), quoted);
        assert_eq!(tables("no table"), "");
    }
}
