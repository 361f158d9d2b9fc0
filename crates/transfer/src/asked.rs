//! What may a server list? Only what the client requested; anything else that is listed ends the transfer
//! before something of that name is written.
//!
//! - A source is listed under its last component; one that ends in a slash as what is in it.
//! - The server does not choose what its answer means: a single file is a single name, the requested one.
//! - The client's filter is applied to what arrives, not only to what is listed.

use crate::{
    error::TransferError,
    filter::Filter,
    message::{Entry, Kind},
    path,
};

/// Sources listed in an error.
const TOLD: usize = 5;

/// True if the path denotes the contents of a folder, not the folder: only then may names follow that were
/// not typed.
pub fn means_contents(typed: &[u8]) -> bool {
    matches!(path::split(typed).1, b"" | b"." | b"..")
}

/// What a peer may list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Option<Limits>);

#[derive(Clone, Debug)]
struct Limits {
    /// As typed.
    server: String,
    /// Under which names the sources are listed; an empty one has anything in it.
    roots: Vec<Vec<u8>>,
    filter: Filter,
    /// The only entry is a file.
    one_file: bool,
}

impl Asked {
    /// Whatever is to go beneath the destination: the peer named that itself.
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
        let mut inside = limits.roots.iter().filter_map(|root| below(root, entry));
        let Some(path) = inside.find(|path| limits.permits(path, entry)) else {
            let text = format!(
                "{} listed '{}', but {} requested",
                limits.who(),
                path::show(&entry.path),
                limits.what()
            );
            return Err(TransferError::protocol(text).fix(DISTRUST));
        };
        let fits = entry.kind != Kind::File || limits.filter.takes(path, Some(entry.size));
        Ok((!fits).then_some("its size is outside the requested bounds: left out"))
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

    fn permits(&self, path: &[u8], entry: &Entry) -> bool {
        if self.one_file && (entry.kind == Kind::Dir || entry.path != self.roots[0]) {
            return false;
        }
        match entry.kind {
            Kind::Dir => self.filter.enters(path),
            Kind::File | Kind::Symlink | Kind::HardLink => self.filter.takes(path, None),
        }
    }
}

/// The path within the source that is listed as `root`, as its filter sees it.
fn below<'a>(root: &[u8], entry: &'a Entry) -> Option<&'a [u8]> {
    if root.is_empty() {
        return Some(&entry.path);
    }
    match entry.path.strip_prefix(root)? {
        b"" if entry.kind == Kind::Dir => Some(b""),
        b"" => Some(&entry.path),
        rest => rest.strip_prefix(b"/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, path: &str, size: u64) -> Entry {
        Entry {
            kind,
            path: path.into(),
            mode: 0o777,
            mtime: 0,
            mtime_nanos: 0,
            size,
            allocated: size,
            target: Vec::new(),
            facts: None,
        }
    }

    fn asked(typed: &[&str], filter: Filter) -> Asked {
        Asked::of("host:1", typed.iter().map(|t| t.as_bytes()), filter)
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
            let asked = asked(typed, Filter::default());
            for path in good {
                assert_eq!(
                    asked.check(&entry(Kind::Dir, path, 0)),
                    Ok(None),
                    "{typed:?} {path}"
                );
            }
            for path in bad {
                let e = asked.check(&entry(Kind::Dir, path, 0)).unwrap_err();
                assert!(e.text.contains("host:1") && e.text.contains(path), "{e}");
            }
        }
        let e = asked(&["a/report"], Filter::default());
        let e = e
            .check(&entry(Kind::File, ".ssh/authorized_keys", 1))
            .unwrap_err();
        let text =
            "the server host:1 listed '.ssh/authorized_keys', but only 'report' was requested";
        assert_eq!(e.text, text);
    }

    #[test]
    fn a_single_file_is_one_name_whatever_the_server_sends() {
        let one = |typed: &[&str]| asked(typed, Filter::default()).with_reply(true);
        for typed in [&["dir/"][..], &[""], &["a", "b"]] {
            assert!(one(typed).is_err(), "{typed:?}");
        }
        let one = one(&["a/f"]).unwrap();
        assert_eq!(one.check(&entry(Kind::File, "f", 1)), Ok(None));
        assert_eq!(one.check(&entry(Kind::Symlink, "f", 0)), Ok(None));
        for (kind, path) in [(Kind::Dir, "f"), (Kind::File, "f/x"), (Kind::File, "g")] {
            assert!(one.check(&entry(kind, path, 1)).is_err(), "{path}");
        }
        assert_eq!(
            Asked::anything().check(&entry(Kind::File, "x", 1)),
            Ok(None)
        );
    }

    #[test]
    fn the_filter_is_applied_to_what_arrives() {
        let filter =
            || Filter::new(&["*.key".into(), "/top/".into()], &[], (None, Some(9))).unwrap();
        let named = asked(&["a/d"], filter());
        let contents = asked(&["a/d/"], filter());
        for (kind, path, good) in [
            (Kind::File, "x", true),
            (Kind::File, "x/y.key", false),
            (Kind::Symlink, "y.key", false),
            (Kind::Dir, "top", false),
            (Kind::File, "top/x", false),
            (Kind::File, "x/top", true),
        ] {
            assert_eq!(
                contents.check(&entry(kind, path, 1)).is_ok(),
                good,
                "{path}"
            );
            let path = format!("d/{path}");
            assert_eq!(named.check(&entry(kind, &path, 1)).is_ok(), good, "{path}");
        }
        assert!(named.check(&entry(Kind::Dir, "d", 0)).is_ok());
        assert!(
            asked(&["z.key"], filter())
                .check(&entry(Kind::File, "z.key", 1))
                .is_err()
        );
        assert!(
            named
                .check(&entry(Kind::File, "d/x", 10))
                .unwrap()
                .is_some()
        );
    }
}
