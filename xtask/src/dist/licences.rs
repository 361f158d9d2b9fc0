//! Licences of the crates in the program, whose authors require their texts to be passed on: those of the bill of materials,
//! with the texts that each crate's folder has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{Done, output};
use crate::run::cargo;

/// Beginnings of the names of licences and notices.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Names, licences and their texts, each text once, of the crates in `bill` that a registry has.
pub(super) fn texts(root: &Path, bill: &Value) -> Done<String> {
    let folders = folders(root)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in bill["components"].as_array().into_iter().flatten() {
        let text = |key: &str| component[key].as_str().unwrap_or_default().to_string();
        let Some((licence, folder)) = folders.get(&(text("name"), text("version"))) else {
            continue;
        };
        let title = format!("{} {} ({licence})", text("name"), text("version"));
        let mut found = of(folder)?;
        if found.is_empty() {
            found.insert("These have no file with a licence.".into());
        }
        for text in found {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    if texts.is_empty() {
        return Err("the bill of materials has no crate of a registry".into());
    }
    let line = "-".repeat(80);
    let part = |(text, crates): (&String, &Vec<String>)| {
        format!("{}\n\n{}\n{line}\n", crates.join("\n"), text.trim())
    };
    Ok(texts.iter().map(part).collect())
}

/// Licence and folder of each crate of a registry, by name and version.
fn folders(root: &Path) -> Done<BTreeMap<(String, String), (String, PathBuf)>> {
    let mut command = cargo(root);
    command.args(["metadata", "--locked", "--format-version", "1"]);
    let metadata = output(command.current_dir(root))?;
    let metadata: Value =
        serde_json::from_slice(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let published = packages.filter(|package| package["source"].is_string());
    let row = |package: &Value| {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_string();
        let manifest = PathBuf::from(text("manifest_path"));
        let folder = manifest.parent().unwrap_or(&manifest).to_path_buf();
        let licence = text("license").replace('/', " OR ");
        ((text("name"), text("version")), (licence, folder))
    };
    Ok(published.map(row).collect())
}

/// Files at the top of a crate that are licences or notices.
fn of(folder: &Path) -> Done<BTreeSet<String>> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        if path.is_file() && NAMES.iter().any(|n| name.starts_with(n)) {
            found.insert(String::from_utf8_lossy(&fs::read(&path).map_err(failed)?).into());
        }
    }
    Ok(found)
}
