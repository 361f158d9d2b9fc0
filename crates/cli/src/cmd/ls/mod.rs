//! `farhaul ls HOST::SHARE/PATH`: lists what can be fetched, by the dry run of a copy that would
//! fetch it. For `HOST::` lists the names of its shares.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{FromArgMatches as _, error::ErrorKind};

mod each;
mod reads;
mod shares;

pub(crate) use reads::read;

use super::{Command, cp};
use crate::{
    Cli, config,
    exit::{Exit, Failure},
    place::{self, Place},
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
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
    fn as_copy(&self, places: &[OsString], nowhere: &Path) -> Result<cp::Args, Failure> {
        let words = self.words(places, nowhere);
        let bare = crate::definition();
        let host = bare.clone().try_get_matches_from(&words).ok();
        let host = host.and_then(|matches| config::host_of(&matches));
        let settings = config::effective(&bare, host.as_deref())?;
        let matches = config::apply(bare, &settings).try_get_matches_from(words);
        let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
        match cli.map(|cli| cli.command) {
            Ok(Command::Cp(copy)) => Ok(*copy),
            Ok(_) => Err(Failure::usage(ErrorKind::InvalidSubcommand.to_string())),
            Err(e) => Err(Failure::usage(crate::plain(&e.to_string()))),
        }
    }

    /// Command line of the copy, as it would be typed.
    fn words(&self, places: &[OsString], nowhere: &Path) -> Vec<OsString> {
        let mut words = cp::Words(["farhaul", "cp", "--dry-run"].map(Into::into).into());
        for (flag, given) in [
            ("--trust-any", self.trust_any),
            ("--json", self.json),
            ("--ipv4", self.ipv4),
            ("--ipv6", self.ipv6),
        ] {
            words.flag(flag, given);
        }
        // Entries of the listed folders are not listed.
        words.values("--exclude", (!self.recursive).then_some("/*/*"));
        // Of several places that are listed one by one it is for those that are it.
        let is_for_others = |all: &[OsString]| cp::has_ticket(all) && !cp::has_ticket(places);
        let ticket = self.ticket_file.as_ref();
        let ticket = ticket.filter(|_| !is_for_others(&self.places));
        words.values("--ticket-file", ticket);
        words.values("--identity", &self.identity);
        self.ssh.typed(&mut words);
        self.blocked.typed(&mut words);
        let mut words = words.0;
        words.push("--".into());
        words.extend(places.iter().cloned());
        words.push(nowhere.into());
        words
    }
}

/// Prints the list.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let [place] = &args.places[..]
        && let Some(server) = place::parse_server(place)?
    {
        shares::refuse_needless(&server)?;
        return shares::list(&args.as_copy(&args.places, Path::new("."))?, &server);
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
        return cp::list(&args.as_copy(&args.places, nowhere.path())?, args.long);
    }
    each::list(args, nowhere.path())
}
