//! Where do the figures in the README come from? From one folder under `lab/results`, copied between
//! two markers by [`run`] and compared by [`quoted`], so that they cannot drift apart.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::Outcome;

const BEGIN: &str = "<!-- results:begin ";
const END: &str = "<!-- results:end -->";

/// Builds the release binary, measures the fixed table of cells, and quotes it in the README.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let fail = |text: String| vec![text];
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(program)
        .args([
            "run",
            "--release",
            "-p",
            "farhaul",
            "--",
            "lab",
            "results",
            "--out",
        ])
        .arg(root.join("lab/results"))
        .args(args)
        .current_dir(root)
        .status()
        .map_err(|e| fail(e.to_string()))?;
    if !status.success() {
        return Err(fail(format!("farhaul lab results: {status}")));
    }
    let folder = newest(root).ok_or_else(|| fail("no folder in lab/results".into()))?;
    quote(root, &folder).map_err(fail)
}

/// The folder whose summary was written last: two machines may have measured on one day.
fn newest(root: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(root.join("lab/results")).ok()?.flatten();
    let written = |path: &PathBuf| {
        let summary = path.join("summary.md").metadata().ok()?;
        summary.modified().ok()
    };
    folders
        .map(|entry| entry.path())
        .filter_map(|path| Some((written(&path)?, path)))
        .max()
        .map(|(_, path)| path)
}

fn quote(root: &Path, folder: &Path) -> Result<(), String> {
    let path = root.join("README.md");
    let readme = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let summary = fs::read_to_string(folder.join("summary.md")).map_err(|e| e.to_string())?;
    let (before, _, after) = parts(&readme).ok_or("README.md has no results markers")?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let text = format!("{before}{BEGIN}{name} -->\n{summary}{END}{after}");
    fs::write(path, text).map_err(|e| e.to_string())
}

/// What is before the markers, what they hold (with the folder's name), and what is after.
fn parts(readme: &str) -> Option<(&str, (&str, &str), &str)> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (name, rest) = rest.split_once(" -->\n")?;
    let (inside, after) = rest.split_once(END)?;
    Some((before, (name, inside), after))
}

/// Complains when the README quotes something else than the folder it names.
pub(crate) fn quoted(root: &Path) -> Option<String> {
    let readme = fs::read_to_string(root.join("README.md")).unwrap_or_default();
    let Some((_, (name, inside), _)) = parts(&readme) else {
        return Some("README.md: the results markers are missing".into());
    };
    if name == "none" {
        return newest(root).map(|_| "README.md: there are results, but none are quoted".into());
    }
    let path = root.join("lab/results").join(name).join("summary.md");
    match fs::read_to_string(&path) {
        Ok(summary) if summary == inside => None,
        Ok(_) => Some(format!(
            "README.md: the table differs from lab/results/{name}/summary.md"
        )),
        Err(e) => Some(format!("README.md: lab/results/{name}/summary.md: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_markers_split_a_readme() {
        let text = "a\n<!-- results:begin d -->\nT\n<!-- results:end -->\nb";
        assert_eq!(parts(text), Some(("a\n", ("d", "T\n"), "\nb")));
        assert_eq!(parts("a"), None);
    }
}
