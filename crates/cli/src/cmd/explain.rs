//! `farhaul explain`: explains a code or a word that the program printed, and what to do about it.

use farhaul_congestion::nearest;

use crate::{
    exit::{Exit, ExitRow, Failure},
    out,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An exit code by number or name, or a word of the output: a reason of "limited by", an action of a dry run, an
    /// event; by default all
    what: Option<String>,
}

/// A word that is printed: where, what it means, and what to do.
#[derive(Clone, Copy)]
struct Word(&'static str, &'static str, &'static str, &'static str);

const LIMITED: &str = "limited by";
const WOULD: &str = "would";
const PATH: &str = "path";
const PHASE: &str = "phase";
const EVENT: &str = "event";
const NOTHING: &str = "nothing";

/// Words that are no exit code's name.
const WORDS: &[Word] = &[
    Word(
        LIMITED,
        "handshake",
        "no session yet: the peer is asked, answers, and proves who it is",
        "nothing, unless it is much of the time: then the transfer is short, or handshakes are lost",
    ),
    Word(
        LIMITED,
        "network",
        "the path carries no more: the sender keeps to the rate that its congestion control allows, or to a rate that was set",
        "nothing if that is the link's rate; else look for loss, other traffic and --max-rate along the path",
    ),
    Word(
        LIMITED,
        "window",
        "as much is in flight as congestion control allows, and its acknowledgements have not arrived",
        "as for network; soon after the start it is the round-trip time",
    ),
    Word(
        LIMITED,
        "peer",
        "the receiver has no room: its disk or its processor is slower than the network",
        "a faster disk at the receiver, or more lanes (-P) if one of its cores is busy and others are idle",
    ),
    Word(
        LIMITED,
        "application",
        "nothing to send: reading or hashing the files is slower than the network, or all was sent",
        "a faster disk at the sender, or more lanes (-P) if one of its cores is busy and others are idle",
    ),
    Word(
        LIMITED,
        "silent",
        "nothing was heard from the other end, or of what was sent, for 5 s and longer",
        "look for what stops UDP in one direction or both: a firewall, a link that fails",
    ),
    Word(
        LIMITED,
        "sending",
        "nothing held the sender up: its core is busy, and the path could carry more",
        "more lanes (-P) if other cores are idle",
    ),
    Word(
        WOULD,
        "send",
        "a file that is not there would be sent",
        NOTHING,
    ),
    Word(
        WOULD,
        "replace",
        "a file would be sent and replace another",
        "--ignore-existing or --update keep what is there, --backup its old content",
    ),
    Word(
        WOULD,
        "compare",
        "the size is the same, and only the content can tell: it would be compared, and sent only if it differs",
        NOTHING,
    ),
    Word(WOULD, "keep", "what is there would stay", NOTHING),
    Word(WOULD, "make", "a folder would be made", NOTHING),
    Word(WOULD, "link", "a link would be made", NOTHING),
    Word(
        WOULD,
        "fail",
        "it could not be done, for the reason behind it",
        "correct that before the copy",
    ),
    Word(
        WOULD,
        "exclude",
        "the filter leaves it out",
        "--include before that --exclude makes an exception",
    ),
    Word(
        WOULD,
        "delete",
        "it would be deleted, since the source lacks it",
        "leave --delete out, or protect it with --exclude",
    ),
    Word(PATH, "udp", "datagrams, as they should", NOTHING),
    Word(
        PATH,
        "tcp",
        "UDP is blocked, and the datagrams go over TCP",
        "open the UDP port both ways in every firewall between",
    ),
    Word(
        PATH,
        "ssh",
        "UDP is blocked, and the datagrams go through ssh",
        "open the UDP port both ways in every firewall between",
    ),
    Word(
        PATH,
        "direct",
        "from one of two other hosts to the other",
        NOTHING,
    ),
    Word(
        PATH,
        "relayed",
        "through the machine that ordered the copy, since UDP between both hosts is blocked",
        "open the UDP ports between them",
    ),
    Word(PHASE, "connecting", "there is no session yet", NOTHING),
    Word(
        PHASE,
        "waiting",
        "the other end has the request and has not answered it: it may wait for the end of another copy of the same files",
        NOTHING,
    ),
    Word(PHASE, "moving", "files are copied", NOTHING),
    Word(
        PHASE,
        "finishing",
        "everything was sent; the receiver verifies it and gives it its name",
        NOTHING,
    ),
    Word(PHASE, "done", "the copy is over", NOTHING),
    Word(
        EVENT,
        "silent",
        "nothing is received from the other end, which should have answered",
        "wait; if it stays so, the copy ends, or goes on through ssh or TCP",
    ),
    Word(EVENT, "answering", "the other end answers again", NOTHING),
    Word(
        EVENT,
        "files_missed",
        "so many files were over while nobody read the events",
        "read them faster; the last object counts all files",
    ),
    Word(
        EVENT,
        "retry",
        "an attempt ended, and another one begins after a pause, since --retry was given",
        "wait, or end it: the same command continues later",
    ),
];

/// The codes, those of signals among them.
fn codes() -> impl Iterator<Item = ExitRow> {
    let signals = [1, 2, 13, 15].map(Exit::Signal);
    Exit::ALL.into_iter().chain(signals).map(ExitRow::from)
}

/// Prints what was asked for.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(what) = args.what.as_deref() else {
        out::line("exit codes (\"again\": trying again may help)");
        for row in codes() {
            let again = if row.retryable { "again" } else { "" };
            let (code, name) = (row.code, row.name);
            out::line(format!("{code:>5}  {name:<16} {again:<6} {}", row.meaning));
        }
        out::line("\nother words");
        for Word(place, name, meaning, _) in WORDS {
            out::line(format!(
                "       {:<31} {meaning}",
                format!("{place} {name}")
            ));
        }
        return Ok(());
    };
    let name = what.to_lowercase().replace(['-', ' '], "_");
    let found = explained(&name);
    for text in &found {
        out::line(text);
    }
    if !found.is_empty() {
        return Ok(());
    }
    let known: Vec<_> = codes()
        .map(|row| row.name)
        .chain(WORDS.iter().map(|word| word.1))
        .collect();
    let hint = nearest(&name, known.iter().copied());
    let hint = hint.map(|near| format!("did you mean '{near}'?"));
    let fix = hint.unwrap_or_else(|| "`farhaul explain` lists all".into());
    let text = format!("'{what}' is no exit code and no word that farhaul prints");
    Err(Failure::usage(text).fix(fix))
}

/// Explanations of a name.
fn explained(name: &str) -> Vec<String> {
    let of_code = |row: ExitRow| {
        let again = if row.retryable {
            "may help"
        } else {
            "will not help by itself"
        };
        let (code, name, meaning) = (row.code, row.name, row.meaning);
        let head = format!("exit code {code}, {name}: {meaning}");
        format!("{head}\nwhat to do: {}\ntrying again {again}", row.fix)
    };
    let of_word = |Word(place, name, meaning, fix): &Word| {
        format!("{place} {name}: {meaning}\nwhat to do: {fix}")
    };
    let codes = codes().filter(|row| row.name == name || row.code.to_string() == name);
    let words = WORDS.iter().filter(|word| word.1 == name);
    codes.map(of_code).chain(words.map(of_word)).collect()
}

#[cfg(test)]
mod tests {
    use farhaul_core::stats::Why;
    use farhaul_transfer::{Action, Phase};

    use super::*;
    use crate::{app::copy::events::EVENTS, connect::Carrier};

    #[test]
    fn every_code_and_every_word_is_known() {
        for number in 0..=u8::MAX {
            if let Some(code) = Exit::from_number(number) {
                assert!(!explained(&number.to_string()).is_empty(), "{number}");
                assert!(!explained(code.name()).is_empty(), "{}", code.name());
            }
        }
        let holds = Why::HOLDS.map(Why::name);
        let actions = Action::ALL.map(Action::name);
        let phases = Phase::ALL.map(Phase::name);
        let words = holds.iter().chain(&actions).chain(&phases);
        for word in words
            .chain(&Carrier::ALL.map(Carrier::name))
            .chain(&EVENTS)
            .chain(&["sending", "direct", "141", "int"])
        {
            assert!(!explained(word).is_empty(), "{word}");
        }
        for path in Carrier::ALL.map(Carrier::name) {
            let told = explained(path);
            let of_path = told.iter().any(|text| text.starts_with("path "));
            assert!(of_path, "{path}: {told:?}");
        }
        for word in WORDS {
            assert!(!word.2.is_empty() && !word.3.is_empty(), "{}", word.1);
        }
        assert!(explained("21").is_empty());
    }
}
