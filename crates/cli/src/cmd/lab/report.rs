//! `farhaul lab report`: what was kept, as a table for people, CSV for spreadsheets or JSON for
//! programs.

use farhaul_lab::grid::Trial;
use serde_json::json;

use super::{Where, fairness, study};
use crate::{exit::Failure, out};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    #[command(flatten)]
    place: Where,
    /// Comma-separated values, base units, one line per run
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// One JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

impl Report {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let Some(study) = self.place.study() {
            let how = study::How {
                backends: self.place.backend.clone(),
                ..study::How::default()
            };
            return study::report(&study, &how, self.csv, self.json);
        }
        self.place.no_study()?;
        if fairness::asked(&self.place)? {
            return fairness::report(&self.place, self.csv, self.json);
        }
        let trials = self.place.kept()?;
        if self.json {
            out::json(&json!({
                "schema": "farhaul.lab.report/1",
                "ok": true,
                "version": env!("CARGO_PKG_VERSION"),
                "grid": self.place.name,
                "backend": self.place.backend().name(),
                "runs": trials,
            }));
        } else if self.csv {
            out::line(HEAD.join(","));
            for trial in &trials {
                out::line(csv(trial));
            }
        } else {
            table(&trials);
        }
        Ok(())
    }
}

const HEAD: [&str; 16] = [
    "backend",
    "protocol",
    "cc",
    "rate_bits_per_second",
    "mtu",
    "rtt_ms",
    "loss_percent",
    "seed",
    "seconds",
    "goodput_bits_per_second",
    "feedback_kib_per_gib",
    "wire_over_goodput",
    "repaired_bytes",
    "sender_cpu_percent_per_gbps",
    "receiver_cpu_percent_per_gbps",
    "invalid",
];

/// One line; what is not known is empty.
fn csv(t: &Trial) -> String {
    let number = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
    let fields: [String; HEAD.len()] = [
        t.backend.name().into(),
        quoted(&t.system.protocol),
        quoted(&t.system.cc),
        t.rate_bits_per_second.to_string(),
        t.cell.mtu.to_string(),
        t.cell.rtt_ms.to_string(),
        t.cell.loss_percent.to_string(),
        t.seed.to_string(),
        t.seconds.to_string(),
        t.goodput_bits_per_second.to_string(),
        number(t.feedback_kib_per_gib),
        number(t.wire_over_goodput),
        t.repaired_bytes.to_string(),
        number(t.sender_cpu_percent_per_gbps),
        number(t.receiver_cpu_percent_per_gbps),
        quoted(t.invalid.as_deref().unwrap_or_default()),
    ];
    fields.join(",")
}

/// As RFC 4180 has it.
pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

fn table(trials: &[Trial]) {
    out::line(format!(
        "{:<12} {:>5} {:>6} {:>6} {:>8} {:>12} {:>10} {:>16}  limited by",
        "system", "mtu", "rtt ms", "loss %", "Gbit/s", "feedback", "wire", "CPU %/Gbps"
    ));
    out::line(format!(
        "{:<12} {:>5} {:>6} {:>6} {:>8} {:>12} {:>10} {:>16}",
        "", "", "", "", "", "KiB/GiB", "/goodput", "send / recv"
    ));
    for t in trials {
        let number = |x: Option<f64>, digits: usize| {
            x.map_or_else(|| "-".into(), |x| format!("{x:.digits$}"))
        };
        let cpu = format!(
            "{} / {}",
            number(t.sender_cpu_percent_per_gbps, 1),
            number(t.receiver_cpu_percent_per_gbps, 1)
        );
        out::line(format!(
            "{:<12} {:>5} {:>6} {:>6} {:>8} {:>12} {:>10} {cpu:>16}  {}",
            t.system.to_string(),
            t.cell.mtu,
            t.cell.rtt_ms,
            t.cell.loss_percent,
            gbps(t),
            number(t.feedback_kib_per_gib, 1),
            number(t.wire_over_goodput, 4),
            limits(t)
        ));
    }
    if trials.iter().any(|t| t.invalid.is_some()) {
        out::line("in brackets: not valid; --json has the reason");
    }
}

fn gbps(t: &Trial) -> String {
    let figure = format!("{:.3}", t.goodput_bits_per_second / 1e9);
    if t.invalid.is_some() {
        format!("({figure})")
    } else {
        figure
    }
}

/// The largest shares.
fn limits(t: &Trial) -> String {
    let mut shares: Vec<_> = t.limited_by.iter().filter(|(_, s)| **s >= 0.05).collect();
    shares.sort_by(|a, b| b.1.total_cmp(a.1));
    let words = shares
        .iter()
        .map(|(why, s)| format!("{why} {:.0} %", *s * 100.0));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_quotes_survive_a_spreadsheet() {
        assert_eq!(quoted("cubic:beta=0.8,c=0.4"), "\"cubic:beta=0.8,c=0.4\"");
        assert_eq!(quoted("said \"no\""), "\"said \"\"no\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
