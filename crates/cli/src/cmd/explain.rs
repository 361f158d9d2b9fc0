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

/// Meaning and remedy of the reasons for which a sender waits, in the order of [`Why::HOLDS`].
const REASONS: [(&str, &str); Why::HOLDS.len()] = [
    (
        "no session yet: the peer is asked, answers, and proves who it is",
        "nothing, unless it is much of the time: then the transfer is short, or handshakes are lost",
    ),
    (
        "the path carries no more: the sender keeps to the rate that its congestion control allows, or to a rate that was set",
        "nothing if that is the link's rate; else look for loss, other traffic and --max-rate along the path",
    ),
    (
        "as much is in flight as congestion control allows, and its acknowledgements have not arrived",
        "as for network; soon after the start it is the round-trip time",
    ),
    (
        "the receiver has no room: its disk or its processor is slower than the network",
        "a faster disk at the receiver, or more lanes (-P) if one of its cores is busy and others are idle",
    ),
    (
        "nothing to send: reading or hashing the files is slower than the network, or all was sent",
        "a faster disk at the sender, or more lanes (-P) if one of its cores is busy and others are idle",
    ),
];

/// The reasons for which a sender waits, with what to do about each.
fn reasons() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let all = Why::HOLDS.into_iter().zip(REASONS);
    all.map(|(why, (meaning, fix))| (why.name(), meaning, fix))
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
