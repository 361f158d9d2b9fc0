//! `farhaul config`: which defaults are in effect, and the source of each.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    config,
    exit::{Exit, Failure},
    line::Line,
    out,
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example of a file:\n  [cp]\n  max-rate = \"2Gbit\"\n  [bench.serve]\n  allow = [\"fh-pub1...\"]\n  [host.\"*.example.org\"]\n  policy = \"low\""
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Effective defaults, with the file and line or the variable of each
    Show {
        /// Include the sections for this host
        #[arg(value_name = "HOST")]
        host: Option<String>,
        /// One JSON object instead of text
        #[arg(long, short = 'J')]
        json: bool,
    },
    /// Check the files, or one FILE; exit code 10 if it is invalid
    Check {
        /// File to check instead of those of `config path`
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print the files that are read, in increasing priority
    Path,
}

/// Prints the settings.
pub(crate) fn run(args: &Args, line: &Line) -> Result<(), Failure> {
    let definition = line.definition();
    match &args.verb {
        Verb::Show { host, json } => {
            let mut settings = config::effective(&definition, host.as_deref())?;
            settings.sort_by_key(config::Setting::name);
            if *json {
                let objects: Vec<_> = settings
                    .iter()
                    .map(|s| json!({ "name": s.name(), "values": s.values, "origin": s.origin }))
                    .collect();
                out::json(
                    &json!({ "schema": "farhaul.config/1", "ok": true, "settings": objects }),
                );
            } else if settings.is_empty() {
                out::line("nothing is set: every flag has its own default");
            } else {
                for s in &settings {
                    out::line(format!(
                        "{} = {}   # {}",
                        s.name(),
                        s.values.join(", "),
                        s.origin
                    ));
                }
            }
        }
        Verb::Check { file: Some(file) } => {
            let missing = || {
                let text = format!("{}: no such file", file.display());
                Failure::new(Exit::Config, text)
            };
            let settings = config::read(file)?.ok_or_else(missing)?;
            for setting in &settings {
                config::check(&definition, setting)?;
            }
            out::line(format!(
                "{}: {} settings, all fine",
                file.display(),
                settings.len()
            ));
        }
        Verb::Check { file: None } => {
            let n = config::effective(&definition, None)?.len();
            out::line(format!("{n} settings, all fine"));
        }
        Verb::Path => {
            for file in config::files() {
                let there = if file.exists() { "" } else { "   # not there" };
                out::line(format!("{}{there}", file.display()));
            }
        }
    }
    Ok(())
}
