//! `farhaul ls HOST::SHARE/PATH`: lists what can be fetched, by the dry run of a copy that would
//! fetch it. For `HOST::` lists the names of its shares.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{FromArgMatches as _, error::ErrorKind};
use farhaul_transfer::Shared;
use serde_json::Value;

mod each;
mod reads;
mod shares;

pub(crate) use reads::read;

use super::cp;
use crate::{
    app::{console::Console, copy::has_ticket},
    config,
    exit::{Exit, Failure},
    given::{self, Given},
    line::{self, Line},
    out,
    place::{self, Place},
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
    // The first, since those that follow take what is theirs.
    #[command(flatten)]
    given: Given<Self>,
    /// Places to list, written as for cp; `HOST::` lists the shares that you may use
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    #[arg(long, value_name = "FILE", help = cp::TICKETS)]
    ticket_file: Option<PathBuf>,
    /// Accept any key of an unknown server; a known server must show its known key
    #[arg(long)]
    trust_any: bool,
    /// Your key file; through ssh, the key file that ssh uses
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// List everything below the place, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
    /// Show permissions and times of modification (UTC), too
    #[arg(short = 'l', long)]
    long: bool,
    #[command(flatten)]
    ssh: cp::Through,
    #[command(flatten)]
    blocked: cp::Blocked,
}

impl Args {
    /// The copy that would fetch the places to an empty folder, with the configuration of `cp`:
    /// other keys, another ssh.
    fn as_copy(
        &self,
        places: &[OsString],
        nowhere: &Path,
        line: &Line,
    ) -> Result<cp::Args, Failure> {
        let words = self.words(places, nowhere);
        let bare = line.definition();
        let host = bare.clone().try_get_matches_from(&words).ok();
        let host = host.and_then(|matches| config::host_of(&matches));
        let settings = config::effective(&bare, host.as_deref())?;
        let matches = config::apply(bare, &settings, &line.off).try_get_matches_from(words);
        let copy = matches.and_then(|matches| match matches.subcommand_matches("cp") {
            Some(copy) => cp::Args::from_arg_matches(copy),
            None => Err(clap::Error::new(ErrorKind::InvalidSubcommand)),
        });
        copy.map_err(|e| Failure::usage(line::plain(&e)))
    }

    /// Command line of the copy, as it would be typed.
    fn words(&self, places: &[OsString], nowhere: &Path) -> Vec<OsString> {
        // Of several places that are listed one by one the ticket is for those that are it.
        let is_for_others = has_ticket(&self.places) && !has_ticket(places);
        let mut words = ["farhaul", "cp", "--dry-run"].map(Into::into).to_vec();
        words.extend(self.given.words(|flag| match flag {
            "recursive" => false,
            "ticket-file" => !is_for_others,
            flag => given::has::<cp::Args>(flag),
        }));
        // Entries of the listed folders are not listed.
        words.extend((!self.recursive).then(|| "--exclude=/*/*".into()));
        words.push("--".into());
        words.extend(places.iter().cloned());
        words.push(nowhere.into());
        words
    }
}

/// Prints the list.
pub(crate) fn run(args: &Args, line: &Line, console: &Arc<dyn Console>) -> Result<(), Failure> {
    match list(args, line, console)? {
        List::Entries(report) => report.print(),
        list if args.json => out::json(&list.object()),
        List::Shares(shares) => shares::print(&shares),
        List::Places(object) => each::print(&object, args.places.len()),
    }
    Ok(())
}

/// Lists what can be fetched, or the shares.
pub(crate) fn list(args: &Args, line: &Line, console: &Arc<dyn Console>) -> Result<List, Failure> {
    if let [place] = &args.places[..]
        && let Some(server) = place::parse_server(place)?
    {
        shares::refuse_needless(args, &server)?;
        let copy = args.as_copy(&args.places, Path::new("."), line)?;
        return shares::list(&copy, &server, &**console).map(List::Shares);
    }
    for place in &args.places {
        let text = match place::parse(place)? {
            Place::Local(path) if path.exists() => {
                format!("{} is on this machine: use ls(1)", place::local(&path))
            }
            Place::Local(path) => format!("{} is no path on a server", place::local(&path)),
            Place::Pipe => "- is a pipe, which has nothing to list".into(),
            Place::Far(_) => continue,
        };
        let fix = "name a share as HOST::SHARE/PATH, or a path through ssh as HOST:PATH";
        return Err(Failure::usage(text).fix(fix));
    }
    let nowhere = tempfile::tempdir().map_err(|e| {
        let text = format!("no empty folder to compare with: {e}");
        Failure::new(Exit::DestError, text).fix("set TMPDIR to a folder that can be written")
    })?;
    if let [_] = &args.places[..] {
        let copy = args.as_copy(&args.places, nowhere.path(), line)?;
        let report = cp::list(&copy, args.long, console)?;
        return Ok(List::Entries(Box::new(report)));
    }
    each::list(args, nowhere.path(), line, console).map(List::Places)
}

/// Shares of a server, or entries of places.
pub(crate) enum List {
    Shares(Vec<Shared>),
    /// The entries at one place.
    Entries(Box<cp::Report>),
    /// The object of several places.
    Places(Value),
}

impl List {
    /// The object of `--json`.
    pub(crate) fn object(self) -> Value {
        match self {
            Self::Shares(shares) => shares::object(&shares),
            Self::Entries(report) => report.object(),
            Self::Places(object) => object,
        }
    }
}
