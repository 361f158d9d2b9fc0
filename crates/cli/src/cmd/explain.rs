//! `farhaul explain`: what do exit codes and the reasons in `limited by` mean, and what can be done?

use farhaul_core::stats::Why;
use farhaul_lab::nearest;

use crate::{
    exit::{Exit, Failure, Row},
    out,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An exit code by number or name, or a reason of "limited by"; by default all
    what: Option<String>,
}

/// The reasons for which a sender waits, with what to do about each.
fn reasons() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    Why::HOLDS.into_iter().map(|why| {
        let (meaning, fix) = why.explained();
        (why.name(), meaning, fix)
    })
}

/// The codes, those of signals among them.
fn codes() -> impl Iterator<Item = Row> {
    let signals = [1, 2, 15].map(Exit::Signal);
    Exit::ALL.into_iter().chain(signals).map(Exit::row)
}

/// Prints what was asked for.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(what) = args.what.as_deref() else {
        out::line("exit codes (\"again\": trying again may help)");
        for Row(code, name, again, meaning, _) in codes() {
            let again = if again { "again" } else { "" };
            out::line(format!("{code:>5}  {name:<16} {again:<6} {meaning}"));
        }
        out::line("\nreasons in \"limited by\"");
        for (name, meaning, _) in reasons() {
            out::line(format!("       {name:<16}        {meaning}"));
        }
        return Ok(());
    };
    let name = what.to_lowercase().replace('-', "_");
    if let Some(Row(code, name, again, meaning, fix)) =
        codes().find(|row| row.1 == name || row.0.to_string() == name)
    {
        let again = if again {
            "may help"
        } else {
            "will not help by itself"
        };
        out::line(format!(
            "exit code {code}, {name}: {meaning}\nwhat to do: {fix}\ntrying again {again}"
        ));
        return Ok(());
    }
    if let Some((name, meaning, fix)) = reasons().find(|(reason, ..)| *reason == name) {
        out::line(format!("limited by {name}: {meaning}\nwhat to do: {fix}"));
        return Ok(());
    }
    let known: Vec<_> = codes()
        .map(|row| row.1)
        .chain(reasons().map(|r| r.0))
        .collect();
    let hint = nearest(&name, known.iter().copied());
    let hint = hint.map(|near| format!("did you mean '{near}'?"));
    let fix = hint.unwrap_or_else(|| "`farhaul explain` lists all".into());
    Err(Failure::usage(format!("'{what}' is no exit code and no reason")).fix(fix))
}
