//! `farhaul doctor`: is this machine fit, and if not, which line mends it?

use farhaul_lab::{
    doctor::{self, Finding, Grade},
    host::Host,
};
use serde::Serialize;

use crate::{exit::Failure, out};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say it as one JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    ok: bool,
    host: &'a Host,
    findings: &'a [Finding],
}

/// Looks and tells. A machine that could be better is no failure.
#[expect(clippy::unnecessary_wraps, reason = "every command may fail")]
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let host = Host::read();
    let findings = doctor::examine(&host);
    if args.json {
        out::json(&Object {
            schema: "farhaul.doctor/1",
            ok: true,
            host: &host,
            findings: &findings,
        });
        return Ok(());
    }
    out::line(format!("{host}\n"));
    for finding in &findings {
        let sign = match finding.grade {
            Grade::Good => "ok  ",
            Grade::Fair => "note",
            Grade::Bad => "BAD ",
        };
        out::line(format!("{sign} {:<15} {}", finding.name, finding.text));
        if let Some(fix) = &finding.fix {
            out::line(format!("     {:<15} mend it with: {fix}", ""));
        }
    }
    let notes = findings.iter().filter(|f| f.grade > Grade::Good).count();
    out::line(match notes {
        0 => "\nnothing to mend".to_string(),
        1 => "\n1 thing could be better".to_string(),
        n => format!("\n{n} things could be better"),
    });
    Ok(())
}
