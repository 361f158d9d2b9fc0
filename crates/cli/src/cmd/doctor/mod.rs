//! `farhaul doctor`: checks this machine and the way to a server, and names the command that mends
//! a fault.

use std::{io::ErrorKind, path::PathBuf, sync::Arc, time::Duration};

use farhaul_measure::{
    doctor::{self, Grade},
    host::Host,
};
use serde_json::{Value, json};

use crate::{
    app::console::Console,
    cmd::cp,
    exit::{self, Exit, Failure},
    out,
    typed::bare_seconds,
    wait::Wait,
};

mod capacity;
mod far_disk;
mod path;
mod report;
mod settings;
mod share;
mod target;

use report::Report;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Host to try as well: HOST or HOST:PORT of a `farhaul serve` or `farhaul bench serve`, a
    /// share as for `cp`, or [USER@]HOST: (with the colon) through ssh
    host: Option<String>,
    /// Your key file
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Also measure the disk of DIR: write and read at most 1 GiB or a tenth of the free space,
    /// about 2 s each. If HOST names a writable share, the server measures that disk, too
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Time to load the path to the host in each direction: seconds, or with a unit; 0 skips that
    #[arg(short = 't', long, value_name = "TIME", default_value = "3", value_parser = capacity_time, allow_negative_numbers = true)]
    time: Duration,
    /// Write the kernel settings that are too low to FILE [default: /etc/sysctl.d/20-farhaul.conf]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = settings::FILE, hide_default_value = true)]
    fix_sysctl: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
    #[command(flatten)]
    ssh: cp::Through,
    #[command(flatten)]
    blocked: cp::Blocked,
}

fn capacity_time(text: &str) -> Result<Duration, String> {
    let time = bare_seconds(text)?;
    if time > Duration::from_mins(1) || !time.is_zero() && time < Duration::from_millis(100) {
        return Err("give 0, or 100ms to 60s".into());
    }
    Ok(time)
}

const SEE: &str = "something does not work at all: see the lines that begin with BAD";

/// Tests and reports. A machine that could be better is not a failure; one that cannot work is.
pub(crate) fn run(args: &Args, console: &Arc<dyn Console>) -> Result<(), Failure> {
    let (object, notes) = examine(args, console)?;
    if args.json {
        out::json(&object);
    } else {
        out::line(match notes {
            0 => "\nnothing to fix".to_string(),
            1 => "\n1 thing could be better".to_string(),
            n => format!("\n{n} things could be better"),
        });
    }
    Ok(())
}

/// Tests; the object of `--json`, and the number of findings that could be better.
pub(crate) fn examine(args: &Args, console: &Arc<dyn Console>) -> Result<(Value, usize), Failure> {
    let named = args.host.as_deref().map(target::parse).transpose()?;
    let host = Host::read();
    let mut report = Report {
        // The object alone, where another program has the output.
        json: args.json || console.is_inside(),
        findings: Vec::new(),
        path: Value::Null,
        disk: None,
        settings: doctor::settings(),
        written: None,
        failure: None,
    };
    report.say(&format!("{host}\n"));
    for finding in doctor::examine(&host) {
        report.add(finding);
    }
    if let Some(folder) = &args.disk {
        let wait = (!args.json).then(|| Wait::start(|_| "measuring the disk".into()));
        let (finding, speed) = doctor::disk(folder);
        drop(wait);
        match speed {
            Ok(speed) => report.disk = Some(speed),
            Err(e) => {
                let exit = match e.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Exit::NoSpace,
                    _ => Exit::DestError,
                };
                let failure = Failure::new(exit, format!("disk: {}", finding.text));
                let fix = finding.fix.clone().unwrap_or_default();
                report.failure = Some(failure.fix(fix));
            }
        }
        report.add(finding);
    }
    if let Some(named) = named {
        report.say("");
        match named.open(args, console) {
            Ok(mut target) => path::examine(args, &mut target, &mut report, &**console),
            Err(failure) => {
                report.fail("reached", failure);
            }
        }
    }
    settings::conclude(args.fix_sysctl.as_deref(), &mut report);
    finish(report, &host)
}

fn finish(mut report: Report, host: &Host) -> Result<(Value, usize), Failure> {
    let bad = report.findings.iter().any(|f| f.grade == Grade::Bad);
    if report.failure.is_none() && bad {
        report.failure = Some(Failure::new(Exit::NetSetup, SEE));
    }
    let mut object = json!({
        "schema": "farhaul.doctor/1",
        "ok": report.failure.is_none(),
        "host": host,
        "findings": report.findings,
        "path": report.path,
        "disk": report.disk,
        "settings": report.settings,
        "settings_file": report.written,
    });
    if let Some(failure) = report.failure {
        object["error"] = json!(failure.text);
        object["exit"] = exit::object(failure.exit);
        // For people its text was printed where it belongs.
        let failure = if bad && !report.json {
            Failure::new(failure.exit, SEE)
        } else {
            failure
        };
        return Err(failure.with_object(object));
    }
    let notes = report.findings.iter().filter(|f| f.grade > Grade::Good);
    Ok((object, notes.count()))
}
