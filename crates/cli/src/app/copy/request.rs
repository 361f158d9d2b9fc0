//! Request of a copy: what goes where, and how.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use farhaul_io::Stop;
use farhaul_transfer::client::Options;

use super::{DryRun, Job, Printed, job};
use crate::{
    connect::{Family, Ways},
    exit::Failure,
    paths,
    place::Place,
    ssh::{Call, Met},
    timetable::Timetable,
};

/// Request of a copy between this machine and another.
pub struct Request {
    pub(crate) job: Job,
    /// Options of every attempt.
    pub(crate) options: Options,
    pub(crate) call: Call,
    /// Family of the addresses that count.
    pub(crate) family: Family,
    pub(crate) ways: Ways,
    /// Key file of this side.
    pub(crate) identity: Option<PathBuf>,
    pub(crate) trust_any: bool,
    pub(crate) path_memory: paths::Place,
    /// Highest rate by time of day.
    pub(crate) max_rate: Option<Timetable>,
    pub(crate) max_time: Option<Duration>,
    /// Longest time without progress in which attempts are repeated.
    pub(crate) retry: Duration,
    /// Silence of the far end after which the session is lost.
    pub(crate) idle: Option<Duration>,
    /// A dry run, and its lines.
    pub(crate) plan: Option<(DryRun, Printed)>,
    /// Parties that ssh made known to each other.
    pub(crate) met: Option<Met>,
    /// Order of another machine for this copy.
    pub(crate) ordered: Option<Ordered>,
}

/// Order of the machine that ordered this copy.
pub(crate) struct Ordered {
    /// Set when it is gone.
    pub(crate) gone: Stop,
    /// Name that it has for this machine.
    pub(crate) called: String,
}

impl Request {
    /// Copies `sources` to `destination`, places as they are typed for `farhaul cp`. One side is on this machine.
    ///
    /// # Errors
    /// A place is malformed, or not exactly one side is on this machine.
    pub fn new(
        sources: impl IntoIterator<Item = impl Into<OsString>>,
        destination: impl Into<OsString>,
    ) -> Result<Self, Failure> {
        let sources = sources.into_iter().map(Into::into);
        let paths: Vec<OsString> = sources.chain([destination.into()]).collect();
        if paths.len() < 2 {
            return Err(Failure::usage("name a source"));
        }
        let places = job::places(&paths, None)?;
        if places.contains(&Place::Pipe) {
            return Err(Failure::usage(
                "- is the standard input or output of a command",
            ));
        }
        let job = Job::of(places).map_err(|e| job::or_local(e, &paths))?;
        Ok(Self::of(job, Options::default()))
    }

    pub(crate) fn of(job: Job, options: Options) -> Self {
        Self {
            job,
            options,
            call: Call::new(None, Vec::new(), None, None, None),
            family: Family::Any,
            ways: Ways::default(),
            identity: None,
            trust_any: false,
            path_memory: paths::Place::Never,
            max_rate: None,
            max_time: None,
            retry: Duration::ZERO,
            idle: None,
            plan: None,
            met: None,
            ordered: None,
        }
    }

    /// Names the key file of this side, in place of the user's.
    #[must_use]
    pub fn identity(mut self, file: impl Into<PathBuf>) -> Self {
        self.identity = Some(file.into());
        self
    }

    /// Accepts any key of an unknown server; a known server must show its known key.
    #[must_use]
    pub const fn trust_any(mut self) -> Self {
        self.trust_any = true;
        self
    }

    /// Options of the transfer: which files, what of existing files, how fast. The copy sets those that connect it
    /// (`cancel`, `wake`, `server`, `control`, `check`, `open`), and leaves `plan` to the command line.
    pub const fn options(&mut self) -> &mut Options {
        &mut self.options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn one_side_is_here_and_no_side_is_a_stream() {
        assert!(Request::new(["a", "b"], "h::s/").is_ok_and(|r| r.job.is_put()));
        assert!(Request::new(["h::s/a"], "here").is_ok_and(|r| !r.job.is_put()));
        for (sources, to, text) in [
            (&["a"][..], "b", "neither side"),
            (&["-"], "h::s/", "standard input"),
            (&["h::s/a"], "-", "standard input"),
            (&[], "h::s/", "name a source"),
        ] {
            let refused = Request::new(sources, to).err().unwrap();
            assert_eq!(refused.exit, Exit::Usage, "{sources:?}");
            assert!(refused.text.contains(text), "{sources:?}: {refused}");
        }
    }
}
