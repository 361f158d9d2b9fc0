//! Profiles a flow: where its processor time goes. `perf` samples the sending and the receiving
//! process, and the symbols in which they were are put into the groups of a scenario's
//! `[[profile]]`.

use std::{collections::BTreeMap, io, path::Path, process::Command, sync::OnceLock};

use regex::Regex;

/// Samples a second of each running thread; no divisor of usual timers.
const FREQUENCY: &str = "997";
/// Event sampled: the processor's time, in programs and in the kernel, by a timer that needs no
/// counter of the processor.
const EVENT: &str = "cpu-clock:uk";
/// Fewer samples are no profile.
const ENOUGH: u64 = 200;
/// Group of the samples that are in no other.
const OTHER: &str = "other";
/// Name of the kernel in perf's output, and its name here.
const KERNEL: (&str, &str) = ("[kernel.kallsyms]", "kernel");

/// Symbols that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Part of its metrics' names.
    pub name: String,
    /// Patterns, one of which a file and symbol of the group match, with a space between.
    pub symbols: Vec<Regex>,
    /// True if the group is no part of the protocol: the kernel's, or the application's.
    pub outside: bool,
}

impl Group {
    /// Refuses what cannot be a group, in words.
    pub fn new(name: &str, symbols: Vec<Regex>, outside: bool) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name == OTHER || !name.chars().all(plain) {
            return Err(format!(
                "'{name}' is no name of a group: small letters, digits and '_', and not '{OTHER}', which is the rest"
            ));
        }
        if symbols.is_empty() {
            return Err(format!(
                "group '{name}' needs symbols, as in symbols = [\"^kernel .*udp\"]"
            ));
        }
        Ok(Self {
            name: name.into(),
            symbols,
            outside,
        })
    }
}

/// The groups in their order: the first that matches has a symbol.
#[derive(Clone, Debug)]
pub struct Profile(pub Vec<Group>);

/// Reason why nothing can be sampled here, if so.
pub(crate) fn missing() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(try_it).clone()
}

fn try_it() -> Option<String> {
    let why = match tempfile::tempdir() {
        Ok(folder) => {
            let mut nothing = Command::new("true");
            let made = wrap(&mut nothing, &folder.path().join("try")).output();
            match made {
                Ok(output) if output.status.success() => return None,
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr);
                    let line = said.lines().find(|line| !line.trim().is_empty());
                    let line = line.unwrap_or("without a word").trim();
                    format!(
                        "perf cannot sample here ({line}): run as root, or sysctl kernel.perf_event_paranoid=1"
                    )
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    "perf is not installed: apt-get install linux-perf".into()
                }
                Err(e) => format!("perf cannot be started: {e}"),
            }
        }
        Err(e) => format!("no folder for perf's samples: {e}"),
    };
    Some(why)
}

/// `command` with its samples written to `file`.
pub(super) fn wrap(command: &mut Command, file: &Path) -> Command {
    let mut perf = Command::new("perf");
    // No list of build ids: what is sampled is read on this machine, and soon.
    perf.args(["record", "-q", "-B", "-N", "-e", EVENT, "-F", FREQUENCY]);
    perf.arg("-o").arg(file).arg("--");
    perf.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => perf.env(name, value),
            None => perf.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        perf.current_dir(folder);
    }
    perf
}

impl Profile {
    /// Shares of the samples in `file`, which are of the process called `end`, by names of metrics.
    pub(super) fn read(&self, end: &str, file: &Path) -> Result<BTreeMap<String, f64>, String> {
        let mut perf = Command::new("perf");
        perf.args([
            "report",
            "--stdio",
            "-g",
            "none",
            "--no-children",
            "-t",
            ";",
        ]);
        let made = perf.args(["-F", "sample,dso,sym", "-i"]).arg(file).output();
        let made = made.map_err(|e| format!("perf report cannot be started: {e}"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            let line = said.lines().next_back().unwrap_or("without a word");
            return Err(format!("perf report failed, {}: {line}", made.status));
        }
        self.shares(end, &String::from_utf8_lossy(&made.stdout))
    }

    fn shares(&self, end: &str, report: &str) -> Result<BTreeMap<String, f64>, String> {
        let mut counts: BTreeMap<&str, u64> = self.0.iter().map(|g| (&*g.name, 0)).collect();
        counts.insert(OTHER, 0);
        for (samples, symbol) in report.lines().filter_map(line) {
            let group = self
                .0
                .iter()
                .find(|g| g.symbols.iter().any(|s| s.is_match(&symbol)));
            *counts.entry(group.map_or(OTHER, |g| &g.name)).or_default() += samples;
        }
        let outside = |name: &str| self.0.iter().any(|g| g.outside && g.name == name);
        let all: u64 = counts.values().sum();
        let inner = counts.iter().filter(|(name, _)| !outside(name));
        let inner: u64 = inner.map(|(_, samples)| samples).sum();
        if inner < ENOUGH {
            return Err(format!(
                "perf has {all} samples of the {end}, {inner} of the protocol, less than {ENOUGH}: let it run longer"
            ));
        }
        let mut shares = BTreeMap::from([(format!("{end}_samples"), float(all))]);
        for (name, samples) in counts {
            let samples = float(samples);
            shares.insert(format!("{end}_{name}_share"), samples / float(all));
            if !outside(name) {
                shares.insert(
                    format!("{end}_{name}_of_protocol_share"),
                    samples / float(inner),
                );
            }
        }
        Ok(shares)
    }
}

/// Samples, and file and symbol of a line of perf's report.
fn line(text: &str) -> Option<(u64, String)> {
    let (samples, rest) = text.split_once(';')?;
    // A symbol may contain the sign.
    let (file, symbol) = rest.split_once(';')?;
    let samples = samples.trim().parse().ok()?;
    let file = match file.trim() {
        file if file == KERNEL.0 => KERNEL.1,
        file => file,
    };
    // The mode stands before it in brackets.
    let symbol = symbol.split_once(']').map_or(symbol, |(_, symbol)| symbol);
    Some((samples, format!("{file} {}", symbol.trim())))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, symbol: &str, outside: bool) -> Group {
        Group::new(name, vec![Regex::new(symbol).unwrap()], outside).unwrap()
    }

    fn profile() -> Profile {
        Profile(vec![
            group("udp_io", "^kernel .*udp", true),
            group("kernel", "^kernel ", true),
            group("control", "congestion::", false),
        ])
    }

    const REPORT: &str = "# Samples: 1K\n\n 300        ;[kernel.kallsyms];[k] udp_sendmsg\n\
        100 ;[kernel.kallsyms];[k] schedule\n50;farhaul;[.] <farhaul_congestion::x<[u8; 4]> as Law>::on_ack\n\
        150;libc.so.6;[.] __memmove_avx\n";

    #[test]
    fn the_first_group_that_matches_has_the_symbol_and_the_rest_is_other() {
        let shares = profile().shares("sender", REPORT).unwrap();
        let of = |name: &str| format!("{:.4}", shares[name]);
        assert_eq!(of("sender_samples"), "600.0000");
        assert_eq!(of("sender_udp_io_share"), "0.5000");
        assert_eq!(of("sender_kernel_share"), "0.1667");
        assert_eq!(of("sender_control_share"), "0.0833");
        assert_eq!(of("sender_other_share"), "0.2500");
        assert_eq!(of("sender_control_of_protocol_share"), "0.2500");
        assert_eq!(of("sender_other_of_protocol_share"), "0.7500");
        assert!(!shares.contains_key("sender_kernel_of_protocol_share"));
    }

    #[test]
    fn symbols_may_contain_the_separator() {
        let (samples, symbol) = line(" 50 ;farhaul ;[.] <x<[u8; 4]> as Law>::on_ack").unwrap();
        assert_eq!(
            (samples, &*symbol),
            (50, "farhaul <x<[u8; 4]> as Law>::on_ack")
        );
        assert_eq!(line("# Total Lost Samples: 0"), None);
    }

    #[test]
    fn a_few_samples_are_no_profile() {
        let said = profile().shares("sender", "7;a;[.] b\n").unwrap_err();
        assert!(said.contains("7 samples of the sender"), "{said}");
    }

    #[test]
    fn what_is_no_group_is_refused() {
        let any = || vec![Regex::new("x").unwrap()];
        for name in ["", "other", "A", "a b"] {
            let said = Group::new(name, any(), false).unwrap_err();
            assert!(said.contains("is no name of a group"), "{said}");
        }
        assert!(
            Group::new("a", Vec::new(), false)
                .unwrap_err()
                .contains("needs symbols")
        );
    }

    #[test]
    fn a_wrapped_command_keeps_its_words_folder_and_environment() {
        let mut command = Command::new("a");
        command
            .args(["b c", "-d"])
            .env("E", "f")
            .current_dir("/tmp");
        let perf = wrap(&mut command, Path::new("/x/y"));
        let words: Vec<_> = perf.get_args().map(|w| w.to_string_lossy()).collect();
        assert!(words.ends_with(&[
            "/x/y".into(),
            "--".into(),
            "a".into(),
            "b c".into(),
            "-d".into()
        ]));
        assert_eq!(perf.get_current_dir(), Some(Path::new("/tmp")));
        assert_eq!(perf.get_envs().count(), 1);
    }
}
