//! What do measurements over `farhaul wan run` share? The release binary, a folder for what they leave, and
//! a path of 10 Gbit/s at MTU 9000 between two ends on this machine.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// What the command printed.
pub(crate) fn succeed(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status))
}

pub(crate) fn object(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("{e}: {}", String::from_utf8_lossy(bytes)))
}

pub(crate) fn number(value: &Value, what: &str) -> Result<f64, String> {
    value
        .as_f64()
        .ok_or_else(|| format!("no {what} was reported"))
}

pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2])
}

pub(crate) struct Emulated {
    pub(crate) farhaul: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Emulated {
    /// Builds farhaul; files go to a folder `name` beside what cargo builds.
    pub(crate) fn build(root: &Path, name: &str) -> Result<Self, String> {
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join(name);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let build = ["build", "--release", "-p", "farhaul"];
        succeed(Command::new(cargo).current_dir(root).args(build))?;
        Ok(Self {
            farhaul: target.join("release/farhaul"),
            folder,
        })
    }

    /// What the near program printed, and whether the emulator was late.
    pub(crate) fn run(
        &self,
        rtt: &str,
        loss: &str,
        far: &str,
        near: &str,
    ) -> Result<(Vec<u8>, bool), String> {
        let report = self.folder.join("wan.json");
        let out = succeed(
            Command::new(&self.farhaul)
                .args(["wan", "run", "--rtt", rtt, "--loss", loss])
                .args(["--rate", "10Gbit", "--mtu", "9000", "--queue", "18MB"])
                .args(["--json", "--report"])
                .arg(&report)
                .args(["--far", far, "--", "sh", "-c", near]),
        )?;
        let report = object(&fs::read(&report).map_err(|e| format!("{}: {e}", report.display()))?)?;
        let valid = report["health"]["valid"]
            .as_bool()
            .ok_or("the emulator's report has no health data")?;
        Ok((out, !valid))
    }
}
