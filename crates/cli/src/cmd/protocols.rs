//! `farhaul protocols`: the honest index of what can be run, and of how each is known.

use farhaul_congestion::{Parameter, laws};
use farhaul_lab::registry::protocols;
use serde_json::{Value, json};

use crate::{exit::Failure, out};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

/// Lists protocols and laws.
#[expect(clippy::unnecessary_wraps, reason = "every command may fail")]
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.json {
        out::json(&object());
        return Ok(());
    }
    out::line("protocols (--protocol NAME or NAME:PARAMETER=VALUE,...)");
    for entry in protocols() {
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
    out::line("\nlaws (--cc NAME or NAME:PARAMETER=VALUE,...)");
    for law in laws() {
        out::line(format!(
            "  {:<10} {} ({})",
            law.name, law.summary, law.citation
        ));
        parameters(law.parameters);
    }
    Ok(())
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

fn object() -> Value {
    let protocols: Vec<_> = protocols()
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
    let laws: Vec<_> = laws()
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
    json!({ "schema": "farhaul.protocols/1", "ok": true, "protocols": protocols, "laws": laws })
}
