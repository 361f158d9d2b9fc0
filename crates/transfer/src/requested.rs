//! Limits what a server may list to what the client requested. Anything else that is listed ends
//! the transfer before something of that name is written.
//!
//! - A source is listed under its last component; one that ends in a slash is listed as its
//!   content.
//! - The server does not choose what its answer means: a single file is a single name, the requested one.
//! - The client's filter is applied to what arrives as well as to what is listed.

use crate::{
    error::TransferError,
    filter::Filter,
    wire::{Entry, Kind, path},
};

/// Sources listed in an error.
const TOLD: usize = 5;

/// True if the path denotes the contents of a folder, not the folder: only then may names follow that were
/// not typed.
pub fn means_contents(typed: &[u8]) -> bool {
    matches!(path::split(typed).1, b"" | b"." | b"..")
}

/// Limits on what a peer may list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requested(Option<Limits>);

#[derive(Clone, Debug)]
struct Limits {
    /// Name of the server, as typed.
    server: String,
    /// Names under which the sources are listed; an empty one has anything in it.
    roots: Vec<Vec<u8>>,
    filter: Filter,
    /// True if the only entry is a file.
    one_file: bool,
}

impl Requested {
    /// Allows anything: the peer named itself what is to go beneath the destination.
    pub(crate) const fn anything() -> Self {
        Self(None)
    }

    /// The sources `typed`, as far as `filter` selects them, of `server`.
    pub(crate) fn of<'a>(
        server: &str,
        typed: impl IntoIterator<Item = &'a [u8]>,
        filter: Filter,
    ) -> Self {
        let root = |typed: &[u8]| match path::split(typed).1 {
            _ if means_contents(typed) => Vec::new(),
            name => name.to_vec(),
        };
        Self(Some(Limits {
            server: server.to_owned(),
            roots: typed.into_iter().map(root).collect(),
            filter,
            one_file: false,
        }))
    }

    /// The server announces whether it sends a single file.
    pub(crate) fn with_reply(mut self, one_file: bool) -> Result<Self, TransferError> {
        if let Some(limits) = self.0.as_mut().filter(|_| one_file) {
            let single = matches!(&limits.roots[..], [root] if !root.is_empty());
            if !single {
                let text = format!(
                    "{} announced a single file, but {} requested",
                    limits.who(),
                    limits.what()
                );
                return Err(TransferError::protocol(text).fix(DISTRUST));
            }
            limits.one_file = true;
        }
        Ok(self)
    }

    /// An error if `entry` was not requested; why it is left out, if only its size is not.
    pub(crate) fn check(&self, entry: &Entry) -> Result<Option<&'static str>, TransferError> {
        let Some(limits) = &self.0 else {
            return Ok(None);
        };
        let path = limits.inside(&entry.path, entry.kind)?;
        let fits = entry.kind != Kind::File || limits.filter.takes(path, Some(entry.size));
        Ok((!fits).then_some("its size is outside the requested bounds: left out"))
    }

    /// An error if what the source has under `path`, and does not list, was not requested. Only links are
    /// left out so.
    pub(crate) fn check_kept(&self, path: &[u8]) -> Result<(), TransferError> {
        self.0.as_ref().map_or(Ok(()), |limits| {
            limits.inside(path, Kind::Symlink).map(|_| ())
        })
    }
}

const DISTRUST: &str = "a farhaul that works does not do this: nothing of that name was written; do not trust this server";

impl Limits {
    fn who(&self) -> String {
        match &self.server[..] {
            "" => "the server".into(),
            name => format!("the server {name}"),
        }
    }

    fn what(&self) -> String {
        let named = self.roots.iter().take(TOLD).map(|root| match &root[..] {
            b"" => "the contents of a folder".into(),
            name => format!("'{}'", path::show(name)),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match self.roots.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let filter = if self.filter.is_empty() {
            ""
        } else {
            ", with a filter,"
        };
        let verb = if self.roots.len() == 1 { "was" } else { "were" };
        format!("only {named}{more}{filter} {verb}")
    }

    /// The path within a source that was requested, as its filter sees it; an error if there is none.
    fn inside<'a>(&self, listed: &'a [u8], kind: Kind) -> Result<&'a [u8], TransferError> {
        let mut inside = self.roots.iter().filter_map(|r| below(r, listed, kind));
        let permits = |path: &&[u8]| match kind {
            Kind::Dir => !self.one_file && self.filter.enters(path),
            Kind::File | Kind::Symlink | Kind::HardLink => {
                (!self.one_file || listed == self.roots[0]) && self.filter.takes(path, None)
            }
        };
        inside.find(permits).ok_or_else(|| {
            let text = format!(
                "{} listed '{}', but {} requested",
                self.who(),
                path::show(listed),
                self.what()
            );
            TransferError::protocol(text).fix(DISTRUST)
        })
    }
}

/// The path within the source that is listed as `root`, as its filter sees it.
fn below<'a>(root: &[u8], path: &'a [u8], kind: Kind) -> Option<&'a [u8]> {
    if root.is_empty() {
        return Some(path);
    }
    match path.strip_prefix(root)? {
        b"" if kind == Kind::Dir => Some(b""),
        b"" => Some(path),
        rest => rest.strip_prefix(b"/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(typed: &[&str], filter: Filter) -> Requested {
        Requested::of("host:1", typed.iter().map(|t| t.as_bytes()), filter)
    }

    #[test]
    fn only_what_was_requested_may_be_listed() {
        for (typed, good, bad) in [
            (
                &["a/report"][..],
                &["report", "report/x"][..],
                &["", "a", "a/report", "reports", ".ssh", "x/report"][..],
            ),
            (
                &["report", "b/c"],
                &["report", "c", "c/report"],
                &["", "b", "b/c"],
            ),
            (&["dir/"], &["", "x", "y/z"], &[]),
            (&[""], &["", "x"], &[]),
            (&["dir/."], &["x"], &[]),
            (&["dir/.."], &["x"], &[]),
            (&["..hidden"], &["..hidden"], &["x", ""]),
            (&["dir/", "f"], &["", "x"], &[]),
        ] {
            let requested = requested(typed, Filter::default());
            for path in good {
                assert_eq!(
                    requested.check(&Entry::of(Kind::Dir, path, 0)),
                    Ok(None),
                    "{typed:?} {path}"
                );
            }
            for path in bad {
                let e = requested.check(&Entry::of(Kind::Dir, path, 0)).unwrap_err();
                assert!(e.text.contains("host:1") && e.text.contains(path), "{e}");
            }
        }
        let e = requested(&["a/report"], Filter::default());
        let e = e
            .check(&Entry::of(Kind::File, ".ssh/authorized_keys", 1))
            .unwrap_err();
        let text =
            "the server host:1 listed '.ssh/authorized_keys', but only 'report' was requested";
        assert_eq!(e.text, text);
    }

    #[test]
    fn a_single_file_is_one_name_whatever_the_server_sends() {
        let one = |typed: &[&str]| requested(typed, Filter::default()).with_reply(true);
        for typed in [&["dir/"][..], &[""], &["a", "b"]] {
            assert!(one(typed).is_err(), "{typed:?}");
        }
        let one = one(&["a/f"]).unwrap();
        assert_eq!(one.check(&Entry::of(Kind::File, "f", 1)), Ok(None));
        assert_eq!(one.check(&Entry::of(Kind::Symlink, "f", 0)), Ok(None));
        for (kind, path) in [(Kind::Dir, "f"), (Kind::File, "f/x"), (Kind::File, "g")] {
            assert!(one.check(&Entry::of(kind, path, 1)).is_err(), "{path}");
        }
        assert_eq!(
            Requested::anything().check(&Entry::of(Kind::File, "x", 1)),
            Ok(None)
        );
    }

    #[test]
    fn the_filter_is_applied_to_what_arrives() {
        let filter =
            || Filter::new(&["*.key".into(), "/top/".into()], &[], (None, Some(9))).unwrap();
        let named = requested(&["a/d"], filter());
        let contents = requested(&["a/d/"], filter());
        for (kind, path, good) in [
            (Kind::File, "x", true),
            (Kind::File, "x/y.key", false),
            (Kind::Symlink, "y.key", false),
            (Kind::Dir, "top", false),
            (Kind::File, "top/x", false),
            (Kind::File, "x/top", true),
        ] {
            assert_eq!(
                contents.check(&Entry::of(kind, path, 1)).is_ok(),
                good,
                "{path}"
            );
            let path = format!("d/{path}");
            assert_eq!(
                named.check(&Entry::of(kind, &path, 1)).is_ok(),
                good,
                "{path}"
            );
        }
        assert!(named.check(&Entry::of(Kind::Dir, "d", 0)).is_ok());
        for good in ["d/x", "d"] {
            assert!(named.check_kept(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["", "x", "dd/x", "d/x.key"] {
            assert!(named.check_kept(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(
            requested(&["z.key"], filter())
                .check(&Entry::of(Kind::File, "z.key", 1))
                .is_err()
        );
        assert!(
            named
                .check(&Entry::of(Kind::File, "d/x", 10))
                .unwrap()
                .is_some()
        );
    }
}
