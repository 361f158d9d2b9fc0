//! Flags of a copy where one end is a pipe.

use std::{
    io::{self, IsTerminal as _},
    os::unix::ffi::OsStrExt as _,
};

use super::Args;
use crate::{
    app::{
        console::{Console, Level},
        copy::Job,
    },
    exit::Failure,
    place::Far,
};

/// Refuses flags that mean nothing beside a pipe, and gives what comes through it a name.
pub(super) fn prepare(args: &Args, job: &mut Job, console: &dyn Console) -> Result<(), Failure> {
    match (args.name.as_ref(), &mut *job) {
        (Some(name), Job::PutPipe(far)) => name_it(far, name.as_bytes())?,
        (Some(_), _) => {
            return Err(Failure::usage(
                "--name is for the source - (the standard input)",
            ));
        }
        (None, Job::PutPipe(far)) if matches!(far.remote.path.last(), None | Some(b'/')) => {
            let text = format!("{far} is a folder, and what comes through a pipe has no name");
            return Err(Failure::usage(text)
                .fix("give it one with --name, or at the end of the destination"));
        }
        (None, _) => {}
    }
    if !job.is_piped() {
        return Ok(());
    }
    if let Some(flag) = args.means_nothing_beside_a_pipe(job.is_put()) {
        return Err(Failure::usage(format!(
            "{flag} means nothing where one end is a pipe (-)"
        )));
    }
    if !job.is_put()
        && args
            .max_rate
            .as_ref()
            .is_some_and(|rate| rate.always().is_none())
    {
        let text = "--max-rate by the time of day is not kept by what is received for a pipe";
        return Err(Failure::usage(text).fix("give one rate, which the server keeps"));
    }
    if !job.is_put() && args.for_programs() {
        let text = "--json prints to the standard output, where the content goes";
        return Err(
            Failure::usage(text).fix("omit it: the exit code says whether all of it is right")
        );
    }
    if job.is_put() && io::stdin().is_terminal() {
        console.message(
            Level::Warning,
            "hint: reading from the terminal until Ctrl-D",
        );
    }
    Ok(())
}

/// Gives the file this name, if the destination is a folder.
fn name_it(far: &mut Far, name: &[u8]) -> Result<(), Failure> {
    if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
        return Err(Failure::usage("--name: a name of a file, without a slash"));
    }
    let path = &mut far.remote.path;
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Ok(())
}
