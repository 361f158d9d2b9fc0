//! `farhaul protocols`: the honest index of what can be run, and of how each is known.

use farhaul_congestion::{Law, Parameter, laws, nearest};
use farhaul_measure::registry::{Entry, protocols};
use farhaul_transfer::levels;
use serde_json::{Value, json};

use crate::{exit::Failure, out};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these protocols and laws
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|n| n == name)
    }

    /// Entries that were asked for; a name that is none is refused.
    fn chosen(&self) -> Result<(Vec<&'static Entry>, Vec<&'static Law>), Failure> {
        let known = || {
            let protocols = protocols().iter().map(|e| e.descriptor.name);
            protocols.chain(laws().iter().map(|law| law.name))
        };
        if let Some(name) = self.names.iter().find(|n| known().all(|k| k != n.as_str())) {
            let meant = nearest(name, known());
            let meant = meant.map_or_else(String::new, |m| format!(" (did you mean '{m}'?)"));
            let text = format!("no protocol or law '{name}'{meant}; `farhaul protocols` lists all");
            return Err(Failure::usage(text));
        }
        let protocols = protocols().iter().filter(|e| self.wants(e.descriptor.name));
        let laws = laws().iter().filter(|law| self.wants(law.name));
        Ok((protocols.collect(), laws.collect()))
    }
}

/// Lists protocols and laws.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.json {
        out::json(&object(args)?);
        return Ok(());
    }
    let (protocols, laws) = args.chosen()?;
    if !protocols.is_empty() {
        out::line("protocols (--protocol NAME or NAME:PARAMETER=VALUE,...)");
    }
    for entry in &protocols {
        let d = entry.descriptor;
        let sealed = if d.sealed { "sealed" } else { "in clear" };
        let lanes = match (entry.lanes, d.control_lane) {
            (true, _) => "any number of UDP lanes",
            (false, false) => "one UDP lane",
            (false, true) => "one UDP lane and a TCP control lane",
        };
        out::line(format!("  {:<10} {}", d.name, d.summary));
        out::line(format!(
            "  {:<10} {sealed}, {lanes}, law {} by default",
            "", entry.default_law
        ));
        out::line(format!(
            "  {:<10} known from: {} ({})",
            "",
            d.provenance.name(),
            d.citation
        ));
        parameters(entry.parameters);
    }
    if !laws.is_empty() {
        let gap = if protocols.is_empty() { "" } else { "\n" };
        out::line(format!("{gap}laws (--cc NAME or NAME:PARAMETER=VALUE,...)"));
    }
    for law in &laws {
        out::line(format!(
            "  {:<10} {} ({})",
            law.name, law.summary, law.citation
        ));
        parameters(law.parameters);
    }
    if args.names.is_empty() {
        let (oldest, newest, features) = levels();
        out::line("\nversions (docs/protocols/transfer.md#6-versions-and-features)");
        out::line(format!("  {:<10} {}", "haul", haul_versions().join(", ")));
        out::line(format!(
            "  {:<10} {oldest} to {newest}; features: {}",
            "transfer",
            features.join(", ")
        ));
    }
    Ok(())
}

/// The versions of the flagship's datagrams, the preferred one first.
fn haul_versions() -> Vec<String> {
    let versions = farhaul_haul::wire::VERSIONS.iter();
    versions.map(|version| format!("{version:#010x}")).collect()
}

fn parameters(all: &[Parameter]) {
    for p in all {
        out::line(format!(
            "  {:<10}   {}: {}; {} [{}]",
            "", p.name, p.about, p.kind, p.default
        ));
    }
}

fn parameter_list(all: &[Parameter]) -> Vec<Value> {
    all.iter()
        .map(|p| {
            json!({
                "name": p.name,
                "about": p.about,
                "takes": p.kind.to_string(),
                "default": p.default,
            })
        })
        .collect()
}

/// The object of `--json`.
pub(crate) fn object(args: &Args) -> Result<Value, Failure> {
    let (protocols, laws) = args.chosen()?;
    let protocols: Vec<_> = protocols
        .iter()
        .map(|entry| {
            let d = entry.descriptor;
            json!({
                "name": d.name,
                "summary": d.summary,
                "provenance": d.provenance.name(),
                "citation": d.citation,
                "sealed": d.sealed,
                "control_lane": d.control_lane,
                "lanes": entry.lanes,
                "default_law": entry.default_law,
                "parameters": parameter_list(entry.parameters),
            })
        })
        .collect();
    let laws: Vec<_> = laws
        .iter()
        .map(|law| {
            json!({
                "name": law.name,
                "summary": law.summary,
                "citation": law.citation,
                "parameters": parameter_list(law.parameters),
            })
        })
        .collect();
    let (oldest, newest, features) = levels();
    Ok(json!({
        "schema": "farhaul.protocols/1",
        "ok": true,
        "protocols": protocols,
        "laws": laws,
        "versions": {
            "haul": haul_versions(),
            "transfer": { "oldest": oldest, "newest": newest, "features": features },
        },
    }))
}
