//! Finds kernel settings that this machine lacks, and where they belong: in a file of `sysctl.d`,
//! which is ours from its first line on. Another's file is not touched.

use std::{fmt, fs, io, path::Path};

use serde::Serialize;

use super::wanted;
use crate::{disk, host};

/// The first words of a file that is ours.
const OURS: &str = "# Written by farhaul doctor --fix-sysctl";

/// A kernel setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Key, as `sysctl` names it.
    pub key: &'static str,
    /// Present value; none if this system has no such setting, or a network namespace of its own
    /// that lacks it.
    pub now: Option<u64>,
    /// Value that it should have at least.
    pub value: u64,
}

impl Setting {
    /// True if the setting is lower than it should be.
    pub fn is_low(&self) -> bool {
        self.now.is_some_and(|now| now < self.value)
    }
}

impl fmt::Display for Setting {
    /// Writes the setting as in a file of `sysctl.d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}

/// The settings that matter here, at least as they are.
pub fn settings() -> Vec<Setting> {
    let wanted = wanted();
    [
        ("net.core.rmem_max", wanted.receive_buffer),
        ("net.core.wmem_max", wanted.send_buffer),
    ]
    .into_iter()
    .map(|(key, wanted)| {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let now = host::line(&path).and_then(|text| text.parse().ok());
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let value = now.map_or(wanted, |now| wanted.max(now));
        Setting { key, now, value }
    })
    .collect()
}

/// Reason why settings were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is a file that somebody else wrote.
    #[error("{0} was not written by farhaul doctor, and is left as it is")]
    Foreign(String),
    /// The file cannot be read or written.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

/// Writes `settings` to `file`, at once or not at all, in place of one of ours.
pub fn write_settings(file: &Path, settings: &[Setting]) -> Result<(), SettingsError> {
    let name = || file.display().to_string();
    let failed = |e| SettingsError::Io(name(), e);
    let before = disk::read(file).map_err(failed)?;
    if before.is_some_and(|bytes| !bytes.starts_with(OURS.as_bytes())) {
        return Err(SettingsError::Foreign(name()));
    }
    let first = format!("{OURS}, farhaul {}", env!("CARGO_PKG_VERSION"));
    let rest = settings.iter().map(Setting::to_string);
    let text = [first].into_iter().chain(rest).map(|line| line + "\n");
    let text: String = text.collect();
    // A link would be replaced; `read` follows none.
    if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::metadata(folder).map_err(failed)?;
    }
    disk::replace(file, text.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_is_lowered() {
        for setting in settings() {
            assert!(setting.now.is_none_or(|now| setting.value >= now));
            assert_eq!(
                setting.is_low(),
                setting.now.is_some_and(|n| n != setting.value)
            );
        }
    }

    #[test]
    fn a_file_of_ours_is_replaced_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("20-farhaul.conf");
        let setting = |value| Setting {
            key: "net.core.rmem_max",
            now: Some(1),
            value,
        };
        write_settings(&file, &[setting(5)]).unwrap();
        write_settings(&file, &[setting(7)]).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(OURS) && text.ends_with("\nnet.core.rmem_max = 7\n"));
        fs::write(&file, "net.core.rmem_max = 3\n").unwrap();
        let e = write_settings(&file, &[setting(9)]).unwrap_err();
        assert!(matches!(e, SettingsError::Foreign(_)), "{e}");
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "net.core.rmem_max = 3\n"
        );
        for odd in [place.path().join("none/x.conf"), place.path().to_path_buf()] {
            let e = write_settings(&odd, &[setting(9)]).unwrap_err();
            assert!(matches!(e, SettingsError::Io(..)), "{e}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
