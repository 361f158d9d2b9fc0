use std::{env, ffi::OsString, path::PathBuf, process::Command};

use super::*;

#[test]
fn what_cannot_be_a_name_is_refused() {
    for bad in ["", "1st", "My", "a-b", "a__b", "a_", "type", "../x", "ä"] {
        assert!(camel(bad).is_err(), "{bad}");
    }
    assert_eq!(camel("my_law2"), Ok("MyLaw2".into()));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("a folder can be read") {
        let entry = entry.expect("an entry can be read");
        let name = entry.file_name();
        // Of what a link leads to: packages have files of the workspace by links.
        let kind = fs::metadata(entry.path()).expect("a type");
        if kind.is_dir() && name != "target" {
            copy(&entry.path(), &to.join(name));
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(name)).expect("a file can be copied");
        }
    }
}

/// A copy of the workspace, in the build folder so that nothing is left elsewhere.
fn workspace() -> PathBuf {
    let root = crate::root();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let here = target.join("new-workspace");
    if here.exists() {
        fs::remove_dir_all(&here).expect("the last copy can be removed");
    }
    for folder in ["crates", "examples", "xtask", "docs", "python"] {
        copy(&root.join(folder), &here.join(folder));
    }
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "rust-toolchain.toml",
    ] {
        fs::copy(root.join(file), here.join(file)).expect("a file can be copied");
    }
    here
}

#[test]
fn both_skeletons_compile_and_pass_their_tests() {
    if env::var_os("FARHAUL_SOAK").is_none() {
        eprintln!("skipped: compiles half the workspace, in `cargo xtask soak tests`");
        return;
    }
    let here = workspace();
    law(&here, "novel").expect("a law can be written");
    protocol(&here, "novelty").expect("a protocol can be written");
    assert!(law(&here, "novel").is_err(), "nothing is overwritten");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    for args in [
        ["-p", "farhaul-congestion", "--lib", "novel"],
        ["-p", "farhaul-protocols", "--test", "novelty"],
        ["-p", "farhaul-measure", "--lib", "registry"],
    ] {
        let output = Command::new(&cargo)
            .args(["test", "--locked"])
            .args(args)
            .current_dir(&here)
            .env("CARGO_TARGET_DIR", here.with_file_name("new-target"))
            .output()
            .expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{complained}");
        assert!(!said.contains("running 0 tests"), "{said}");
    }
}
