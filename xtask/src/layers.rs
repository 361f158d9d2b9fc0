//! Checks which crate may depend on which: the table below, and three sentences that stay true:
//! 1. A protocol does not know which world it runs in.
//! 2. A world does not know which protocol it runs.
//! 3. The link model is written once.
//!
//! Tests may reach further down and sideways (dev-dependencies are held to the sentences by their
//! sources only), code may not.

use std::{collections::BTreeMap, env, ffi::OsString, path::Path, process::Command};

use serde_json::Value;

use crate::{Outcome, circles, run::print_line, tidy::rust_files};

/// Each crate and what it may use; `*` is every crate of the workspace.
const TABLE: [(&str, &[&str]); 19] = [
    ("core", &[]),
    ("congestion", &["core"]),
    ("link", &["core"]),
    ("udp", &["core"]),
    ("protocols", &["core", "congestion"]),
    ("haul", &["core", "congestion"]),
    ("testkit", &["core", "link"]),
    ("sim", &["core", "link"]),
    ("io", &["core", "udp"]),
    ("emu", &["core", "link", "udp", "io"]),
    ("transfer", &["core", "io"]),
    (
        "measure",
        &[
            "core",
            "congestion",
            "link",
            "haul",
            "protocols",
            "udp",
            "io",
        ],
    ),
    (
        "lab",
        &[
            "measure",
            "core",
            "congestion",
            "link",
            "haul",
            "protocols",
            "sim",
            "udp",
            "io",
            "emu",
        ],
    ),
    ("cli", &["*"]),
    ("campaign", &["*"]),
    ("python", &["*"]),
    ("fuzz", &["*"]),
    (
        "my-law",
        &["cli", "core", "congestion", "haul", "link", "sim"],
    ),
    ("my-protocol", &["cli", "core", "congestion", "measure"]),
];

/// Packages that a program without the laboratory lacks.
const NOT_SLIM: [&str; 6] = [
    "farhaul-lab ",
    "farhaul-sim ",
    "farhaul-emu ",
    "plotters ",
    "png ",
    // Of a published protocol.
    "md-5 ",
];

const PROTOCOLS: [&str; 3] = ["congestion", "protocols", "haul"];
const WORLDS: [&str; 4] = ["io", "udp", "sim", "emu"];

/// A crate's own short name and the short names of what it depends on.
type Graph = BTreeMap<String, Vec<String>>;

/// Compares the workspace with the table and the sentences.
pub(crate) fn check(root: &Path) -> Outcome {
    let graph = graph(root).map_err(|e| vec![e])?;
    let mut complaints = against_table(&graph);
    complaints.extend(sentences(&graph));
    complaints.extend(sources(root));
    complaints.extend(slim(root).map_err(|e| vec![e])?);
    let (more, largest) = circles::check(root);
    complaints.extend(more);
    if complaints.is_empty() {
        let largest: Vec<_> = largest
            .iter()
            .map(|(name, size)| format!("{name} {size}"))
            .collect();
        print_line(&format!(
            "layers: {} crates, 3 sentences, all true; files in the largest import circle: {}",
            graph.len(),
            largest.join(", ")
        ));
        Ok(())
    } else {
        Err(complaints)
    }
}

/// Output of cargo, called so.
fn cargo(root: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output = Command::new(program).args(args).current_dir(root).output();
    let output = output.map_err(|e| format!("cargo {}: {e}", args[0]))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Complaints about the packages of a program without the laboratory.
fn slim(root: &Path) -> Result<Vec<String>, String> {
    let args = "tree --package farhaul --no-default-features --edges normal --prefix none --locked";
    let tree = cargo(root, &args.split(' ').collect::<Vec<_>>())?;
    let tree = String::from_utf8_lossy(&tree);
    let built = |name: &&str| tree.lines().any(|line| line.starts_with(name));
    let wrong = NOT_SLIM.iter().copied().filter(built);
    let complain = |name| format!("farhaul without the feature lab is built with {name}");
    Ok(wrong.map(complain).collect())
}

fn graph(root: &Path) -> Result<Graph, String> {
    let meta = cargo(root, &["metadata", "--format-version", "1", "--no-deps"])?;
    let meta: Value = serde_json::from_slice(&meta).map_err(|e| e.to_string())?;
    let packages = meta["packages"].as_array().ok_or("no packages")?;
    Ok(packages
        .iter()
        .map(|package| (short(&package["name"]), uses(package)))
        .filter(|(name, _)| name != "xtask")
        .collect())
}

/// Normal and build dependencies inside the workspace. The tools for tests may be one behind a feature.
fn uses(package: &Value) -> Vec<String> {
    package["dependencies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|d| d["path"].is_string() && d["kind"].as_str() != Some("dev"))
        .filter(|d| d["optional"] != true || short(&d["name"]) != "testkit")
        .map(|d| short(&d["name"]))
        .collect()
}

fn short(name: &Value) -> String {
    match name.as_str() {
        Some("farhaul") => "cli".into(),
        Some(name) => name.strip_prefix("farhaul-").unwrap_or(name).into(),
        None => String::new(),
    }
}

fn against_table(graph: &Graph) -> Vec<String> {
    let table: BTreeMap<_, _> = TABLE.into_iter().collect();
    let mut complaints = Vec::new();
    for (name, used) in graph {
        match table.get(name.as_str()) {
            None => complaints.push(format!("{name} is not in the table of layers")),
            Some(allowed) if allowed.contains(&"*") => {}
            Some(allowed) => complaints.extend(
                used.iter()
                    .filter(|u| !allowed.contains(&u.as_str()))
                    .map(|u| format!("{name} may not depend on {u}")),
            ),
        }
    }
    complaints
}

fn sentences(graph: &Graph) -> Vec<String> {
    let depends = |from: &str, on: &str| {
        graph
            .get(from)
            .is_some_and(|used| used.iter().any(|u| u == on))
    };
    let mut complaints = Vec::new();
    for protocol in PROTOCOLS {
        for world in WORLDS {
            if depends(protocol, world) {
                complaints.push(format!("sentence 1: {protocol} names the world {world}"));
            }
            if depends(world, protocol) {
                complaints.push(format!("sentence 2: {world} names the protocol {protocol}"));
            }
        }
    }
    for world in ["sim", "emu"] {
        if graph.contains_key(world) && !depends(world, "link") {
            complaints.push(format!("sentence 3: {world} does not use the link model"));
        }
    }
    complaints
}

/// A dev-dependency may be there for tests; code outside them may not name it.
fn sources(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for protocol in PROTOCOLS {
        for file in rust_files(&root.join("crates").join(protocol).join("src")) {
            for world in WORLDS {
                let named = format!("farhaul_{world}::");
                if file.code().any(|line| line.contains(&named)) {
                    complaints.push(format!("sentence 1: {} names {named}", file.name(root)));
                }
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        edges
            .iter()
            .map(|(name, used)| {
                (
                    (*name).to_string(),
                    used.iter().map(ToString::to_string).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn the_table_itself_obeys_the_sentences() {
        let table = graph(&TABLE);
        assert_eq!(sentences(&table), Vec::<String>::new());
        assert_eq!(against_table(&table), Vec::<String>::new());
    }

    #[test]
    fn each_sentence_is_noticed_when_broken() {
        let bad = graph(&[
            ("haul", &["sim"]),
            ("io", &["haul"]),
            ("emu", &["udp"]),
            ("odd", &[]),
        ]);
        let found = [sentences(&bad), against_table(&bad)].concat().join("\n");
        for expected in [
            "sentence 1: haul names the world sim",
            "sentence 2: io names the protocol haul",
            "sentence 3: emu does not use",
            "odd is not in the table",
            "haul may not depend on sim",
        ] {
            assert!(found.contains(expected), "{expected} in\n{found}");
        }
    }
}
