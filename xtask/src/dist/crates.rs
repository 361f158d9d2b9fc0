//! Lists the crates in the program: those built into it for the released target, without those of
//! tests. The list becomes a bill of materials, and the texts of their licences, which their
//! authors require to be passed on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{Done, TARGET, output};
use crate::run::cargo;

/// Name of the package that is published.
const OURS: &str = "farhaul";

/// A crate.
struct Crate {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
    /// Hash of the archive that the registry has; none of the crates of the workspace.
    sha256: Option<String>,
    /// Crates that the crate is built with.
    needs: Vec<String>,
    /// True if the crate is built into the program; false if it only runs while the program is built.
    runs: bool,
}

/// All crates, by cargo's identifier.
pub(super) struct Crates(BTreeMap<String, Crate>);

/// Metadata that cargo has of the workspace, for the released target.
pub(super) fn metadata(root: &Path) -> Done<Value> {
    let mut command = cargo(root);
    command.args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        TARGET,
    ]);
    let text = output(command.current_dir(root))?;
    serde_json::from_slice(&text).map_err(|e| format!("cargo metadata: {e}"))
}

impl Crates {
    /// Crates of the workspace at `root`.
    pub(super) fn of(root: &Path) -> Done<Self> {
        let metadata = metadata(root)?;
        let lock = root.join("Cargo.lock");
        let lock = fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
        let sums = checksums(&lock);
        let needs = needs(&metadata);
        let built = reached(&metadata, &needs);
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let found = packages.filter_map(|package| {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_string();
            let id = text("id");
            let runs = *built.get(&id)?;
            let key = (text("name"), text("version"));
            let manifest = PathBuf::from(text("manifest_path"));
            let of = needs.get(&id).into_iter().flatten().map(|n| n.id.clone());
            let found = Crate {
                sha256: sums.get(&key).cloned(),
                licence: text("license").replace('/', " OR "),
                folder: manifest.parent().unwrap_or(&manifest).to_path_buf(),
                needs: of.filter(|id| built.contains_key(id)).collect(),
                name: key.0,
                version: key.1,
                runs,
            };
            Some((id, found))
        });
        let found: BTreeMap<_, _> = found.collect();
        if found.is_empty() {
            return Err(format!("cargo metadata knows no crate {OURS}"));
        }
        Ok(Self(found))
    }

    /// A bill of materials in `CycloneDX` 1.5.
    pub(super) fn bill(&self, version: &str) -> String {
        let components = self.0.values().filter(|c| c.name != OURS).map(|c| {
            let mut component = json!({
                "type": "library",
                "bom-ref": c.url(),
                "name": c.name,
                "version": c.version,
                "scope": if c.runs { "required" } else { "excluded" },
                "purl": c.url(),
                "licenses": [{ "expression": c.licence }],
            });
            if let Some(sha256) = &c.sha256 {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
            }
            component
        });
        let dependencies = self.0.values().map(|c| {
            let on = c.needs.iter().filter_map(|id| self.0.get(id));
            json!({ "ref": c.url(), "dependsOn": on.map(Crate::url).collect::<Vec<_>>() })
        });
        let url = format!("pkg:cargo/{OURS}@{version}");
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": { "component": {
                "type": "application", "bom-ref": url, "name": OURS, "version": version, "purl": url,
            } },
            "components": components.collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        });
        format!("{bill:#}\n")
    }

    /// Names, licences and their texts, each text once.
    pub(super) fn licences(&self) -> Done<String> {
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        // What was not published from here.
        for c in self.0.values().filter(|c| c.runs && c.sha256.is_some()) {
            let title = format!("{} {} ({})", c.name, c.version, c.licence);
            let found = c.texts()?;
            if found.is_empty() {
                texts.entry(String::new()).or_default().push(title);
                continue;
            }
            for text in found {
                texts.entry(text).or_default().push(title.clone());
            }
        }
        let part = |(text, crates): (&String, &Vec<String>)| {
            let text = if text.is_empty() {
                "These have no file with a licence."
            } else {
                text
            };
            format!(
                "{}\n\n{}\n{}\n",
                crates.join("\n"),
                text.trim(),
                "-".repeat(80)
            )
        };
        Ok(texts.iter().map(part).collect())
    }
}

impl Crate {
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    /// Files at its top that are licences or notices.
    fn texts(&self) -> Done<BTreeSet<String>> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.folder.display());
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            let named = [
                "LICENSE",
                "LICENCE",
                "COPYING",
                "COPYRIGHT",
                "NOTICE",
                "UNLICENSE",
            ];
            if path.is_file() && named.iter().any(|n| name.starts_with(n)) {
                found.insert(String::from_utf8_lossy(&fs::read(&path).map_err(failed)?).into());
            }
        }
        Ok(found)
    }
}

/// A crate that another is built with.
struct Need {
    id: String,
    /// True if built into the crate, not only run by its build.
    runs: bool,
}

/// Crates that each crate is built with, by identifier; not those that its tests are built with.
fn needs(metadata: &Value) -> BTreeMap<String, Vec<Need>> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten();
    let of = |node: &Value| {
        let needs = node["deps"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|dep| {
                let kinds = dep["dep_kinds"].as_array()?;
                let kinds: Vec<_> = kinds.iter().map(|k| k["kind"].as_str()).collect();
                let runs = kinds.contains(&None);
                let built = runs || kinds.contains(&Some("build"));
                built.then(|| Need {
                    id: dep["pkg"].as_str().unwrap_or_default().into(),
                    runs,
                })
            });
        needs.collect()
    };
    nodes
        .map(|node| {
            (
                node["id"].as_str().unwrap_or_default().to_string(),
                of(node),
            )
        })
        .collect()
}

/// Crates that the program needs, directly or not, each with whether it is built into the program.
fn reached(metadata: &Value, needs: &BTreeMap<String, Vec<Need>>) -> BTreeMap<String, bool> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let ours = packages
        .filter(|p| p["name"] == OURS)
        .filter_map(|p| p["id"].as_str());
    let macros: BTreeSet<_> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|p| p["targets"][0]["kind"][0] == "proc-macro")
        .filter_map(|p| p["id"].as_str())
        .collect();
    let mut found: BTreeMap<String, bool> = BTreeMap::new();
    let mut next: Vec<_> = ours.map(|id| (id.to_string(), true)).collect();
    while let Some((id, runs)) = next.pop() {
        let runs = runs && !macros.contains(id.as_str());
        if found.get(&id).is_some_and(|before| *before || !runs) {
            continue;
        }
        found.insert(id.clone(), runs);
        let below = needs.get(&id).into_iter().flatten();
        next.extend(below.map(|need| (need.id.clone(), runs && need.runs)));
    }
    found
}

/// Hashes of each crate that a registry has, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |part: &str, key: &str| {
        let line = part
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.map(|text| text.trim_matches('"').to_string())
    };
    let sum = |part: &str| {
        Some((
            (value(part, "name")?, value(part, "version")?),
            value(part, "checksum")?,
        ))
    };
    lock.split("[[package]]").filter_map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_or_tests_is_told_apart() {
        let dep = |pkg: &str, kind: Value| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                { "name": "farhaul", "id": "a", "targets": [{ "kind": ["lib"] }] },
                { "name": "m", "id": "m", "targets": [{ "kind": ["proc-macro"] }] },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [dep("b", Value::Null), dep("c", "build".into()), dep("t", "dev".into()), dep("m", Value::Null)] },
                { "id": "b", "deps": [] },
                { "id": "c", "deps": [dep("b", Value::Null)] },
                { "id": "m", "deps": [dep("q", Value::Null)] },
            ] },
        });
        let found = reached(&metadata, &needs(&metadata));
        let expected = [
            ("a", true),
            ("b", true),
            ("c", false),
            ("m", false),
            ("q", false),
        ];
        assert_eq!(
            found,
            expected.map(|(id, runs)| (id.to_string(), runs)).into()
        );
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("a".into(), "1.0.0".into())], "ff");
    }
}
