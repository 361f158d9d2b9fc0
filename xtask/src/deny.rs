//! Licences, sources and banned or doubled crates of what is built in, by deny.toml. Known vulnerabilities too, where a database
//! of advisories is: it changes from day to day, so its absence fails nothing.

use std::process::Command;

use crate::{
    Outcome,
    run::Runner,
    tools::{DENY, cargo_home},
};

/// Runs `cargo deny`.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let tool = DENY.path(run);
    let tool = tool.map_err(|why| {
        vec![format!(
            "licences, sources and bans were not checked: {why}"
        )]
    })?;
    let check = |run: &mut Runner<'_>, what: &[&str]| {
        let mut check = Command::new(&tool);
        check
            .args(["--log-level", "error", "--locked", "check"])
            .args(what)
            .current_dir(run.root);
        run.run(&mut check)
    };
    check(run, &["bans", "licenses", "sources"])?;
    let databases = cargo_home().join("advisory-dbs");
    if databases.exists() {
        return check(run, &["--disable-fetch", "advisories"]);
    }
    run.keep(&format!(
        "advisories: not looked up, there is no database in {} (cargo deny fetch db)",
        databases.display()
    ));
    Ok(())
}
