//! `farhaul _man FOLDER`, for packages: the manual pages, from the definition of the command line, the table of exit codes and
//! the tables of files and variables in the reference.

use std::{
    fs, iter,
    path::{Path, PathBuf},
};

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{
    exit::{Exit, Failure, exits},
    line::Line,
    read,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder that exists
    folder: PathBuf,
    /// The page with the tables of files and variables
    #[arg(long, value_name = "FILE")]
    reference: PathBuf,
    /// Date of the release, for the foot of each page
    #[arg(long, default_value = "")]
    date: String,
}

/// Writes a page for each command.
pub(crate) fn run(args: &Args, line: &Line) -> Result<(), Failure> {
    let mut definition = line.definition().disable_help_subcommand(true);
    definition.build();
    write(&definition, args, &tables(&args.reference)?)
}

fn write(command: &Command, args: &Args, tables: &Roff) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write(below, args, tables)?;
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
        .and_then(|()| tables.to_writer(&mut page));
    rendered
        .and_then(|()| fs::write(args.folder.join(name), page))
        .map_err(|e| {
            let text = format!("cannot write to {}: {e}", args.folder.display());
            Failure::new(Exit::DestError, text)
        })
}

/// Sections that every page has.
fn tables(reference: &Path) -> Result<Roff, Failure> {
    let text = read::settings(reference)
        .map_err(|e| Failure::new(Exit::SourceMissing, format!("{}: {e}", reference.display())))?;
    let mut roff = Roff::default();
    let mut rows = |title: &str, rows: &mut dyn Iterator<Item = (String, String)>| {
        roff.control("SH", [title]);
        for (name, meaning) in rows {
            roff.control("TP", []);
            roff.text([bold(name)]);
            roff.text([roman(meaning)]);
        }
    };
    let mut codes = exits().map(|exit| {
        let meaning = format!("{}: {}", exit.name, exit.meaning);
        (exit.code.to_string(), meaning)
    });
    rows("EXIT STATUS", &mut codes);
    for (title, head) in [
        ("FILES", "| file | holds |"),
        ("ENVIRONMENT", "| variable | stands for |"),
    ] {
        let table = text.lines().skip_while(|line| *line != head).skip(2);
        let mut table = table.map_while(|line| {
            let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
            let (name, meaning) = row.split_once(" | ")?;
            Some((name.replace('`', ""), meaning.replace('`', "")))
        });
        let first = table.next().ok_or_else(|| {
            let text = format!("{} has no table {head}", reference.display());
            Failure::usage(text).fix("name docs/reference.md")
        })?;
        rows(title, &mut iter::once(first).chain(table));
    }
    Ok(roff)
}
