//! Checks the crates that compile for systems other than Linux, and tests here the socket that those have.
//! docs/platforms.md lists what they lack.

use crate::{
    Outcome, built,
    run::{Runner, cargo},
    tools::lacks_target,
};

/// Systems other than Linux.
const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];
/// Crates that compile for each of them without a compiler of C.
const CRATES: [&str; 7] = [
    "farhaul-core",
    "farhaul-congestion",
    "farhaul-link",
    "farhaul-protocols",
    "farhaul-sim",
    "farhaul-udp",
    "farhaul-io",
];

/// Runs the checks; a target whose library is missing is reported.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let mut test = cargo(run.root);
    test.args(["test", "--profile", built::PROFILE, "--locked"]);
    run.run(test.args(["--package", "farhaul-udp", "--features", "portable"]))?;
    for target in TARGETS {
        if let Some(why) = lacks_target(run.root, target) {
            run.not_checked(&why);
            continue;
        }
        let mut check = cargo(run.root);
        check.args(["clippy", "--profile", built::PROFILE, "--locked"]);
        check.args(["--target", target]);
        check.args(CRATES.iter().flat_map(|name| ["--package", name]));
        run.run(check.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
