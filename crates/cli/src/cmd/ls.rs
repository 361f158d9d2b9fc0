//! `farhaul ls HOST::SHARE/PATH`: what is there to be fetched? The dry run of a copy that would fetch all of it.

use std::{ffi::OsString, path::PathBuf};

use clap::{FromArgMatches as _, error::ErrorKind};

use super::{Command, cp};
use crate::{
    Cli, config,
    exit::{Exit, Failure},
    place::{self, Place},
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to list, with everything below it: a path on a server, in one of the forms that cp takes
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
    #[arg(long, value_name = "FILE", help = cp::TICKETS)]
    ticket_file: Option<PathBuf>,
    /// Accept an unknown server, whatever its key; a known one must have its known key
    #[arg(long)]
    trust_any: bool,
    /// This user's key file; through ssh, that of ssh
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

/// Lists.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    for place in &args.places {
        let text = match place::parse(place)? {
            Place::Local(path) if path.exists() => {
                format!("{} is on this machine: use ls(1)", path.display())
            }
            Place::Local(path) => format!("{} is no path on a server", path.display()),
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
    let mut words: Vec<OsString> = ["farhaul", "cp", "--dry-run"].map(Into::into).into();
    words.extend(args.trust_any.then(|| "--trust-any".into()));
    words.extend(args.json.then(|| "--json".into()));
    if let Some(file) = &args.ticket_file {
        words.extend(["--ticket-file".into(), file.clone().into_os_string()]);
    }
    if let Some(identity) = &args.identity {
        words.extend(["--identity".into(), identity.clone().into_os_string()]);
    }
    words.push("--".into());
    words.extend(args.places.iter().cloned());
    words.push(nowhere.path().into());
    // With what is configured for `cp`: other keys, another ssh.
    let bare = crate::definition();
    let host = bare.clone().try_get_matches_from(&words).ok();
    let host = host.and_then(|matches| config::host_of(&matches));
    let settings = config::effective(&bare, host.as_deref())?;
    let matches = config::apply(bare, &settings).try_get_matches_from(words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    match cli.map(|cli| cli.command) {
        Ok(Command::Cp(copy)) => cp::list(&copy),
        Ok(_) => Err(Failure::usage(ErrorKind::InvalidSubcommand.to_string())),
        Err(e) => Err(Failure::usage(crate::plain(&e.to_string()))),
    }
}
