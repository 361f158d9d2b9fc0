//! `farhaul _man FOLDER`, for packages: the manual pages, from the definition of the command line, the table of exit codes and
//! the tables of files and variables below.

use std::{fs, path::PathBuf};

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{
    exit::{Exit, Failure, exits},
    line::Line,
};

/// Files of farhaul, and what they hold.
const FILES: [[&str; 2]; 6] = [
    [
        "`/etc/farhaul/config.toml`, `farhaul config path`",
        "defaults of flags; `farhaul config show` prints values and origin",
    ],
    [
        "`~/.config/farhaul` (`$XDG_CONFIG_HOME`)",
        "your key (0600), `known_servers`, `tickets.json`",
    ],
    [
        "`~/.cache/farhaul/paths.json` (`$XDG_CACHE_HOME`)",
        "rates of 256 paths for a day, readable by you only",
    ],
    [
        "`.farhaul-journal-...`, `.NAME....-part`, `.NAME....farhaul-stripes` at the destination",
        "state of incomplete copies",
    ],
    [
        "`serve-PORT.sock`",
        "control socket of a server, for `farhaul top` and `farhaul ctl`",
    ],
    ["`lab/runs/NAME`", "stored runs and pages of a study"],
];
/// Variables of the environment, and what they stand for.
const VARIABLES: [[&str; 2]; 3] = [
    [
        "`FARHAUL_CP_MAX_RATE` and others",
        "a flag of a command: `FARHAUL_COMMAND_FLAG`. farhaul refuses one that names no flag",
    ],
    ["`FARHAUL_TICKET`", "the ticket for the place `ticket:`"],
    [
        "`FARHAUL_SSH`, `FARHAUL_REMOTE_BIN`",
        "`--ssh`, `--remote-bin`",
    ],
];

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder that exists
    folder: PathBuf,
    /// Date of the release, for the foot of each page
    #[arg(long, default_value = "")]
    date: String,
}

/// Writes a page for each command.
pub(crate) fn run(args: &Args, line: &Line) -> Result<(), Failure> {
    let mut definition = line.definition().disable_help_subcommand(true);
    definition.build();
    write(&definition, args)
}

fn write(command: &Command, args: &Args) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write(below, args)?;
    }
    // Flags that the short help leaves out belong to the page.
    let shown = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let man = Man::new(shown)
        .date(&args.date)
        .source(concat!("farhaul ", env!("CARGO_PKG_VERSION")))
        .manual("farhaul");
    let name = man.get_filename();
    let mut page = Vec::new();
    let rendered = man
        .render(&mut page)
        .and_then(|()| tables().to_writer(&mut page));
    rendered
        .and_then(|()| fs::write(args.folder.join(name), page))
        .map_err(|e| {
            let text = format!("cannot write to {}: {e}", args.folder.display());
            Failure::new(Exit::DestError, text)
        })
}

/// Sections that every page has.
fn tables() -> Roff {
    let mut roff = Roff::default();
    let mut rows = |title: &str, rows: Vec<(String, String)>| {
        roff.control("SH", [title]);
        for (name, meaning) in rows {
            roff.control("TP", []);
            roff.text([bold(name)]);
            roff.text([roman(meaning)]);
        }
    };
    let plain = |table: &[[&str; 2]]| {
        let row = |[name, meaning]: &[&str; 2]| (name.replace('`', ""), meaning.replace('`', ""));
        table.iter().map(row).collect()
    };
    let code = |exit: crate::exit::ExitRow| {
        let meaning = format!("{}: {}", exit.name, exit.meaning);
        (exit.code.to_string(), meaning)
    };
    rows("EXIT STATUS", exits().map(code).collect());
    rows("FILES", plain(&FILES));
    rows("ENVIRONMENT", plain(&VARIABLES));
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_those_of_the_reference() {
        let page = include_str!("../../../../docs/reference.md");
        for (head, table) in [
            ("| file | holds |", &FILES[..]),
            ("| variable | stands for |", &VARIABLES[..]),
        ] {
            let rows = page.lines().skip_while(|line| *line != head).skip(2);
            let rows: Vec<_> = rows.take_while(|line| line.starts_with('|')).collect();
            let ours = table.iter().map(|[a, b]| format!("| {a} | {b} |"));
            assert_eq!(rows, ours.collect::<Vec<_>>());
        }
    }
}
