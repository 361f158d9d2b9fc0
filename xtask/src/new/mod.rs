//! Makes the skeleton of something new, which compiles, is tested and can be chosen. That is a
//! congestion law beside the others, or a protocol with a wire format of its own.

use std::{fs, path::Path};

use crate::{Outcome, run::print_line};

const LAW: &str = include_str!("law.txt");
const EXAMPLE: &str = "examples/my-protocol";

/// Writes a congestion law called `name` and declares it.
pub(crate) fn law(root: &Path, name: &str) -> Outcome {
    let camel = camel(name)?;
    let folder = root.join("crates/congestion/src");
    let source = LAW.replace("CAMEL", &camel).replace("NAME", name);
    let page = format!(
        "# {name}\n\nWhat it is for.\n\n- **Grows** by one datagram per round.\n- **Keeps** half on a loss.\n\nSource: \
         paper or RFC. Provenance: from the specification, or what else.\n"
    );
    create(&folder.join(format!("{name}.rs")), &source)?;
    create(&root.join(format!("docs/laws/{name}.md")), &page)?;
    let lib = folder.join("lib.rs");
    insert(&lib, "mod registry;\n", &format!("mod {name};\n"))?;
    insert(
        &lib,
        "pub use registry::",
        &format!("pub use {name}::{camel};\n"),
    )?;
    let registry = folder.join("registry.rs");
    insert(
        &registry,
        "    fixed::LAW,\n",
        &format!("    crate::{name}::LAW,\n"),
    )?;
    print_line(&format!(
        "wrote crates/congestion/src/{name}.rs and docs/laws/{name}.md, and named the law in lib.rs and registry.rs.\n\
         Try: cargo fmt && cargo test -p farhaul-congestion {name} && cargo run --release -- sim --cc {name}"
    ));
    Ok(())
}

/// Writes a protocol called `name`, after the example, and declares it.
pub(crate) fn protocol(root: &Path, name: &str) -> Outcome {
    let camel = camel(name)?;
    let adapt = |file: &str| -> Result<String, Vec<String>> {
        let text = read(&root.join(EXAMPLE).join(file))?;
        Ok(text
            .replace("my_protocol::{", &format!("farhaul_protocols::{name}::{{"))
            .replace("use crate::wire", "use super::wire")
            .replace(EXAMPLE, &format!("docs/protocols/{name}.md"))
            .replace("Tiny", &camel)
            .replace("tiny", name))
    };
    let folder = root.join("crates/protocols");
    let module = format!(
        "//! {camel}: what it is, in one line.\n\nmod entry;\nmod protocol;\nmod wire;\n\n\
         pub(crate) use entry::entry;\npub use protocol::{{{camel}, {name}}};\npub use wire::{camel}Wire;\n"
    );
    let page = format!(
        "# {name}\n\nWhat it is for, and where its facts are from.\n\n## 1. On the wire\n\nEvery datagram, field by field.\n"
    );
    create(&folder.join(format!("src/{name}/mod.rs")), &module)?;
    create(
        &folder.join(format!("src/{name}/protocol.rs")),
        &adapt("src/tiny.rs")?,
    )?;
    create(
        &folder.join(format!("src/{name}/wire.rs")),
        &adapt("src/wire.rs")?,
    )?;
    create(
        &folder.join(format!("tests/{name}.rs")),
        &adapt("tests/tiny.rs")?,
    )?;
    create(&root.join(format!("docs/protocols/{name}.md")), &page)?;
    let entry = adapt("src/entry.rs")?
        .replace("pub fn entry", "pub(crate) fn entry")
        .replace("use crate::", "use super::")
        .replace("use farhaul_measure::registry::", "use crate::entry::");
    create(&folder.join(format!("src/{name}/entry.rs")), &entry)?;
    let list = folder.join("src/lib.rs");
    insert(
        &list,
        "#[cfg(feature = \"published\")]\npub mod ",
        &format!("#[cfg(feature = \"published\")]\npub mod {name};\n"),
    )?;
    insert(
        &list,
        "        .collect()",
        &format!("        .chain([{name}::entry()])\n"),
    )?;
    print_line(&format!(
        "wrote crates/protocols/src/{name}/, its test and docs/protocols/{name}.md, and named the protocol in lib.rs.\n\
         Try: cargo fmt && cargo test -p farhaul-protocols --test {name} && cargo run --release -- sim --protocol {name}"
    ));
    Ok(())
}

/// `my_law` as `MyLaw`, if it can be a name at all.
fn camel(name: &str) -> Result<String, Vec<String>> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || !name.chars().all(good) || name.contains("__") || name.ends_with('_') {
        return Err(vec![format!(
            "'{name}' is not a valid name: lower-case letters, digits and single underscores, a letter first"
        )]);
    }
    if KEYWORDS.contains(&name) {
        return Err(vec![format!(
            "'{name}' is a keyword of Rust: choose another name"
        )]);
    }
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    Ok(name.split('_').map(part).collect())
}

const KEYWORDS: [&str; 40] = [
    "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "match", "mod", "move", "mut", "pub", "ref", "return", "self", "static", "struct", "super",
    "trait", "true", "type", "unsafe", "use", "where",
];

fn create(path: &Path, text: &str) -> Outcome {
    if path.exists() {
        return Err(vec![format!("{} is there already", path.display())]);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| complaint(folder, &e))?;
    }
    fs::write(path, text).map_err(|e| complaint(path, &e))
}

/// Puts `line` before the first line that starts with `before`.
fn insert(path: &Path, before: &str, line: &str) -> Outcome {
    let text = read(path)?;
    let at = if text.starts_with(before) {
        Some(0)
    } else {
        text.find(&format!("\n{before}")).map(|at| at + 1)
    };
    let at = at.ok_or_else(|| {
        vec![format!(
            "{}: no line starts with '{before}'",
            path.display()
        )]
    })?;
    fs::write(path, format!("{}{line}{}", &text[..at], &text[at..]))
        .map_err(|e| complaint(path, &e))
}

fn read(path: &Path) -> Result<String, Vec<String>> {
    fs::read_to_string(path).map_err(|e| complaint(path, &e))
}

fn complaint(path: &Path, error: &std::io::Error) -> Vec<String> {
    vec![format!("{}: {error}", path.display())]
}

#[cfg(test)]
mod tests;
