//! Kernel settings that are to be changed: named, or written by `--fix-sysctl`.

use std::{io::ErrorKind, path::Path};

use farhaul_measure::doctor::{Finding, Grade, Setting, SettingsError, write_settings};

use super::report::Report;
use crate::exit::{Exit, Failure};

/// File in which settings are written if none is named.
pub(super) const FILE: &str = "/etc/sysctl.d/20-farhaul.conf";

/// Adds the settings that are too low, or writes them to `file`.
pub(super) fn conclude(file: Option<&Path>, report: &mut Report) {
    let low: Vec<&Setting> = report.settings.iter().filter(|s| s.is_low()).collect();
    let Some(file) = file else {
        if !low.is_empty() {
            let finding = too_low(&low);
            report.say("");
            report.add(finding);
        }
        return;
    };
    let why = if report.settings.iter().all(|s| s.now.is_none()) {
        "they cannot be seen here: run it outside of the container or network namespace"
    } else if low.is_empty() {
        "they are high enough"
    } else {
        return write(file, report);
    };
    report.say(&format!("\nkernel settings are not written: {why}"));
}

fn too_low(low: &[&Setting]) -> Finding {
    let each = low.iter().map(|s| {
        let now = s.now.unwrap_or_default();
        format!("{s} (is {now})")
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let text = format!("wanted: {each}; sockets of root are not held to them");
    Finding::new("kernel settings", Grade::Fair, text)
        .fix("farhaul doctor --fix-sysctl writes them to /etc/sysctl.d")
}

fn write(file: &Path, report: &mut Report) {
    match write_settings(file, &report.settings) {
        Ok(()) => {
            let name = file.display();
            report.say(&format!("\nwritten to {name}:"));
            for setting in &report.settings {
                report.say(&format!("  {setting}"));
            }
            report.say(&format!("apply them now with: sysctl -p {name}"));
            report.written = Some(file.to_path_buf());
        }
        Err(e) => report.failure = Some(failure(&e)),
    }
}

fn failure(error: &SettingsError) -> Failure {
    let (exit, fix) = match error {
        SettingsError::Io(_, e) if e.kind() == ErrorKind::PermissionDenied => (
            Exit::DestError,
            "run it as root, or name another file: --fix-sysctl=FILE",
        ),
        SettingsError::Io(_, e) if e.kind() == ErrorKind::StorageFull => (
            Exit::NoSpace,
            "free space there, or name another file: --fix-sysctl=FILE",
        ),
        _ => (Exit::DestError, "name another file: --fix-sysctl=FILE"),
    };
    Failure::new(exit, error.to_string()).fix(fix)
}
