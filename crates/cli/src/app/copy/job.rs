//! Parses sources and destination of a copy; exactly one side is on a server.

use std::{
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt as _, fs::FileTypeExt as _},
    path::{Path, PathBuf},
    slice,
};

use farhaul_transfer::{TransferError, client::Remote};

use crate::{
    exit::{Exit, Failure},
    place::{self, Far, Place, Server},
    read,
    ticket::Ticket,
};

/// Stands for the ticket that was given by a file or the environment; a path below its place may follow.
const TICKET: &str = "ticket:";

/// Places that were typed, in order.
pub(crate) fn places(paths: &[OsString], ticket: Option<&Ticket>) -> Result<Vec<Place>, Failure> {
    let place = |path: &OsString| {
        match (below_ticket(path), ticket) {
        (Some(below), Some(ticket)) => {
            place::below(ticket.clone().into(), below).map(Place::Far)
        }
        (Some(_), None) => Err(Failure::usage("there is no ticket").fix(
            "name its file with --ticket-file, or put it into FARHAUL_TICKET; a host of ssh that is called so is written USER@ticket:PATH",
        )),
        (None, _) => place::parse(path),
    }
    };
    paths.iter().map(place).collect()
}

/// True if `ticket:` is among them.
pub(crate) fn has_ticket(paths: &[OsString]) -> bool {
    paths.iter().any(|path| below_ticket(path).is_some())
}

/// Path after `ticket:` in a place that is written so.
fn below_ticket(path: &OsString) -> Option<&[u8]> {
    path.as_bytes().strip_prefix(TICKET.as_bytes())
}

/// Error of the place, unless the mistake is that a file here has a name like a host's and a path
/// there.
pub(crate) fn or_local(e: Failure, paths: &[OsString]) -> Failure {
    let sources = paths.split_last().map_or(&[][..], |(_, sources)| sources);
    let is_meant = |path: &&OsString| {
        matches!(place::parse(path), Ok(Place::Far(_))) && Path::new(path).exists()
    };
    let Some(file) = sources.iter().find(is_meant) else {
        return e;
    };
    let name = place::local(Path::new(file));
    Failure::usage(format!("{name} is taken for a place on another host"))
        .fix(format!("the local file of this name is written ./{name}"))
}

/// Sources that are on one server.
pub(crate) fn of_one_server(from: Vec<Far>) -> Result<(Server, Vec<Remote>), Failure> {
    let mut server = None;
    let mut remotes = Vec::new();
    for far in from {
        let first = server.get_or_insert_with(|| far.server.clone());
        if !first.is(&far.server) {
            return Err(Failure::usage(format!(
                "the sources are on different servers ({first} and {}): give each server a command of its own",
                far.server
            )));
        }
        remotes.push(far.remote);
    }
    let server = server.ok_or_else(|| Failure::usage("name a source"))?;
    Ok((server, remotes))
}

/// Sources and destination.
pub(crate) enum Job {
    /// Copies from here to a server.
    Put(Vec<PathBuf>, Far),
    /// Copies from one server, at least one path there, to this machine.
    Get(Server, Vec<Remote>, PathBuf),
    /// Copies from the standard input to a file on a server.
    PutPipe(Far),
    /// Copies from a file on a server to the standard output.
    GetPipe(Far),
}

/// The error of a command that names no other host. Perhaps the destination is one, and its colon was forgotten.
fn all_here(to: &Path) -> Failure {
    let name = to.to_string_lossy();
    let is_name = !name.contains('/') && name != "." && name != ".." && !to.exists();
    let host = if is_name { &name } else { "HOST" };
    let text = "neither side names another host";
    Failure::usage(text).fix(format!(
        "for host {host} write {host}:PATH (ssh) or {host}::SHARE (a server); use cp(1) for copies on this machine"
    ))
}

impl Job {
    /// Sorts out the two sides.
    pub(crate) fn of(mut places: Vec<Place>) -> Result<Self, Failure> {
        let to = places
            .pop()
            .ok_or_else(|| Failure::usage("name a source and a destination"))?;
        if to == Place::Pipe || places.contains(&Place::Pipe) {
            return Self::piped(places, to);
        }
        let mut near = Vec::new();
        let mut far = Vec::new();
        for place in places {
            match place {
                Place::Local(path) => near.push(path),
                Place::Far(place) => far.push(place),
                Place::Pipe => {}
            }
        }
        match (to, far.first(), near.first()) {
            (Place::Far(to), None, _) => Ok(Self::Put(near, to)),
            (Place::Far(to), Some(from), _) => Err(Failure::usage(format!(
                "some sources are on this machine and some on {}: give each machine a command of its own, for {to}",
                from.server
            ))),
            (Place::Local(to), None, _) => Err(all_here(&to)),
            (Place::Pipe, None, _) => Err(all_here(Path::new("HOST"))),
            (Place::Local(_) | Place::Pipe, Some(far), Some(near)) => Err(Failure::usage(format!(
                "{} is on this machine and {far} is not: give the sources on {} a command of their own, and use cp(1) for those here",
                place::local(near),
                far.server
            ))),
            (Place::Local(to), Some(_), None) => Self::get(far, to),
            (Place::Pipe, Some(_), None) => Err(Failure::usage("name a source")),
        }
    }

    /// Job of a copy with a pipe at one end: then there is one source.
    fn piped(sources: Vec<Place>, to: Place) -> Result<Self, Failure> {
        let mut sources = sources.into_iter();
        let file = "a file called - is written ./-";
        match (sources.next(), sources.next(), to) {
            (Some(Place::Pipe), None, Place::Far(to)) => Ok(Self::PutPipe(to)),
            (Some(Place::Far(from)), None, Place::Pipe) => Ok(Self::GetPipe(from)),
            (_, Some(_), Place::Pipe) => Err(Failure::usage(
                "several sources cannot be written to one pipe: give each a command of its own",
            )),
            (_, Some(_), _) => Err(Failure::usage(
                "- (the standard input) is the only source of its command",
            )
            .fix(file)),
            _ => Err(Failure::usage(
                "- stands for a pipe on this machine: the other side is on a server",
            )
            .fix(file)),
        }
    }

    fn get(from: Vec<Far>, to: PathBuf) -> Result<Self, Failure> {
        let (server, remotes) = of_one_server(from)?;
        Ok(Self::Get(server, remotes, to))
    }

    pub(super) const fn server(&self) -> &Server {
        match self {
            Self::Put(_, Far { server, .. })
            | Self::Get(server, ..)
            | Self::PutPipe(Far { server, .. })
            | Self::GetPipe(Far { server, .. }) => server,
        }
    }

    /// The server, and all paths on it.
    pub(super) const fn far_mut(&mut self) -> (&mut Server, &mut [Remote]) {
        match self {
            Self::Put(_, far) | Self::PutPipe(far) | Self::GetPipe(far) => {
                (&mut far.server, slice::from_mut(&mut far.remote))
            }
            Self::Get(server, remotes, _) => (server, remotes.as_mut_slice()),
        }
    }

    /// Refuses sources here if this user may read none of them, before anything is connected or
    /// made.
    pub(super) fn readable(&self) -> Result<(), TransferError> {
        let Self::Put(sources, _) = self else {
            return Ok(());
        };
        if let [pipe] = &sources[..]
            && is_pipe(pipe)
        {
            let text = format!("{} is a pipe", place::local(pipe));
            return Err(TransferError::new(Exit::Usage, text)
                .fix("write - in its place, alone, and redirect: farhaul cp - DST < PIPE"));
        }
        let (mut problems, mut forbidden) = (Vec::new(), false);
        for path in sources {
            // A link is sent as it is, whatever it leads to.
            let contents = path.as_os_str().as_bytes().ends_with(b"/");
            let e = match path.symlink_metadata() {
                Ok(meta) if meta.is_symlink() && !contents => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => e,
                _ => match read::forbidden(path) {
                    Some(e) => {
                        forbidden = true;
                        e
                    }
                    // One that can be read, or whose error the transfer reports.
                    None => return Ok(()),
                },
            };
            if problems.len() < 10 {
                problems.push(format!("{}: {e}", place::local(path)));
            }
        }
        if !forbidden {
            return Ok(());
        }
        let more = match sources.len() - problems.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let text = format!("no source can be read: {}{more}", problems.join("; "));
        Err(TransferError::new(Exit::SourceMissing, text)
            .fix("check the spelling and the permissions"))
    }

    /// The destination, for messages.
    pub(super) fn destination(&self) -> String {
        match self {
            Self::Get(_, _, to) => place::local(to),
            Self::Put(_, far) | Self::PutPipe(far) => far.to_string(),
            Self::GetPipe(_) => "the standard output".into(),
        }
    }

    pub(crate) const fn is_put(&self) -> bool {
        matches!(self, Self::Put(..) | Self::PutPipe(_))
    }

    /// True if one end is the standard input or output.
    pub(crate) const fn is_piped(&self) -> bool {
        matches!(self, Self::PutPipe(_) | Self::GetPipe(_))
    }
}

/// True for a pipe, or a path that the shell or the system names one by: such links lead nowhere
/// that can be opened by name.
fn is_pipe(path: &Path) -> bool {
    let meta = if path.starts_with("/dev") || path.starts_with("/proc") {
        path.metadata()
    } else {
        path.symlink_metadata()
    };
    meta.is_ok_and(|meta| meta.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn sort(paths: &[&str]) -> Result<Job, Failure> {
        let paths: Vec<_> = paths.iter().map(OsString::from).collect();
        Job::of(places(&paths, None)?)
    }

    #[test]
    fn exactly_one_side_is_far() {
        assert!(matches!(sort(&["a", "b", "h::s/x"]), Ok(Job::Put(near, _)) if near.len() == 2));
        for (far, count) in [
            (&["h::s/x", "here"][..], 1),
            (&["h::s/a", "farhaul://H/t/b", "h:17992::s/", "here"], 3),
            (&["me@h:a", "me@h:", "here"], 2),
        ] {
            assert!(
                matches!(sort(far), Ok(Job::Get(_, from, _)) if from.len() == count),
                "{far:?}"
            );
        }
        assert!(matches!(sort(&["-", "h::s/x"]), Ok(Job::PutPipe(_))));
        assert!(matches!(sort(&["h:x", "-"]), Ok(Job::GetPipe(_))));
        for (bad, hint) in [
            (&["a", "b"][..], "cp(1)"),
            (&["-", "a", "h::s/b"], "only source"),
            (&["a", "-", "h::s/b"], "only source"),
            (&["h::s/a", "h::s/b", "-"], "several sources"),
            (&["-", "-"], "other side is on a server"),
            (&["-", "here"], "other side is on a server"),
            (&["here", "-"], "other side is on a server"),
            (&["a", "h::s", "i::s"], "each machine a command"),
            (&["a", "h::s/b", "here"], "the sources on h:17992 a command"),
            (&["h::s/a", "i::s/b", "here"], "h:17992 and i:17992"),
            (&["h::s/a", "h:5::s/b", "here"], "each server a command"),
            (&["h::s/a", "h:b", "here"], "h:17992 and h)"),
            (&["me@h:a", "h:b", "here"], "me@h and h)"),
        ] {
            let refused = sort(bad).err().unwrap();
            assert_eq!(refused.exit, Exit::Usage, "{bad:?}");
            assert!(refused.text.contains(hint), "{bad:?}: {refused}");
        }
    }
}
