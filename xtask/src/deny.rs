//! Licences, sources and banned or doubled crates of what is built in, by deny.toml.

use std::process::Command;

use crate::{Outcome, run::Runner, tools::DENY};

/// Runs `cargo deny`.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let tool = DENY.path(run);
    let tool = tool.map_err(|why| {
        vec![format!(
            "licences, sources and bans were not checked: {why}"
        )]
    })?;
    let mut check = Command::new(tool);
    check
        .args(["--log-level", "error", "--locked", "check"])
        .args(["bans", "licenses", "sources"])
        .current_dir(run.root);
    run.run(&mut check)
}
