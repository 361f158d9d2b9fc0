//! Selects files by patterns as in `.gitignore` (git's manual, gitignore(5)) and by bounds of size.
//! Both are applied to every entry before it is listed; a folder that is left out is not even
//! opened.
//!
//! - An excluded entry stays out, unless an include matches it. Includes alone exclude everything
//!   else.
//! - Paths are relative to the source, so that a pattern that begins with `/` means its top.

use std::sync::Arc;

use farhaul_core::codec::VARINT_MAX;

use crate::{
    error::TransferError,
    wire::{Exit, FilterSpec, MOST_PATTERN_BYTES, Mirror},
};

#[cfg(test)]
mod git;
mod pattern;
use pattern::Patterns;

/// Selects files.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    spec: FilterSpec,
    rules: Option<Arc<Patterns>>,
    only: Option<Arc<Patterns>>,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Filter {
    /// Makes a filter of lines as in `.gitignore` that exclude, of patterns that include, and of
    /// the sizes of files in bytes. An error names the invalid pattern.
    pub fn new(
        exclude: &[String],
        include: &[String],
        (least, most): (Option<u64>, Option<u64>),
    ) -> Result<Self, TransferError> {
        if let Some(bad) = include.iter().find(|p| p.starts_with('!')) {
            let e = TransferError::new(Exit::Usage, format!("'{bad}' cannot be included"));
            return Err(e.fix("use --exclude for what is not wanted"));
        }
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(VARINT_MAX));
        if least > most {
            let text = "no file is as large as the least size and as small as the most";
            return Err(TransferError::new(Exit::Usage, text));
        }
        Self::from_spec(FilterSpec {
            exclude: exclude.join("\n"),
            include: include.join("\n"),
            least,
            most,
        })
    }

    pub(crate) fn from_spec(spec: FilterSpec) -> Result<Self, TransferError> {
        let rules = if spec.exclude.is_empty() {
            None
        } else {
            let excluded = spec.exclude.lines().map(str::to_owned);
            let excepted = spec.include.lines().map(|line| format!("!{line}"));
            Some(Arc::new(Patterns::new(excluded.chain(excepted))?))
        };
        let only = if rules.is_some() || spec.include.is_empty() {
            None
        } else {
            Some(Arc::new(Patterns::new(
                spec.include.lines().map(str::to_owned),
            )?))
        };
        Ok(Self { spec, rules, only })
    }

    /// True if the filter selects everything.
    pub fn is_empty(&self) -> bool {
        self.spec == FilterSpec::default()
    }

    /// True if files are selected by their sizes.
    pub(crate) const fn is_of_sizes(&self) -> bool {
        self.spec.least > 0 || self.spec.most < VARINT_MAX
    }

    /// Encodes the filter for a message; an error if it is too long for that.
    pub(crate) fn to_send(&self) -> Result<FilterSpec, TransferError> {
        if self.spec.exclude.len() + self.spec.include.len() > MOST_PATTERN_BYTES {
            let text = format!(
                "patterns of more than {MOST_PATTERN_BYTES} bytes cannot be sent to a server"
            );
            return Err(TransferError::new(Exit::Usage, text).fix("use fewer, or copy in parts"));
        }
        Ok(self.spec.clone())
    }

    /// True if folders are only made for their content.
    pub(crate) const fn is_choosy(&self) -> bool {
        self.only.is_some()
    }

    /// Reason that a pattern can match nothing, if it is malformed.
    pub fn fault(pattern: &str) -> Option<&'static str> {
        pattern::fault(pattern)
    }

    /// True if the file or link at `path`, relative to the source, is selected. `size` is that of a
    /// file.
    pub(crate) fn takes(&self, path: &[u8], size: Option<u64>) -> bool {
        let fits = size.is_none_or(|n| (self.spec.least..=self.spec.most).contains(&n));
        let matches = |patterns: &Patterns| patterns.excludes(path, false);
        fits && !self.rules.as_deref().is_some_and(matches)
            && self.only.as_deref().is_none_or(matches)
    }

    /// True if anything in the folder at `path` may be selected.
    pub(crate) fn enters(&self, path: &[u8]) -> bool {
        let matches = |patterns: &Patterns| patterns.excludes(path, true);
        path.is_empty() || !self.rules.as_deref().is_some_and(matches)
    }

    /// Error for a copy of `folders` that cannot delete, whatever it finds. Some of the folders stand
    /// for their content (`true`).
    pub(crate) fn check_delete(
        &self,
        mirror: &Mirror,
        folders: &[bool],
    ) -> Result<(), TransferError> {
        let (text, fix) = if mirror.delete.is_none() {
            return Ok(());
        } else if folders.is_empty() {
            (
                "--delete needs a folder as a source: a single file has nothing beside it",
                "name the folder, or omit --delete",
            )
        } else if self.is_of_sizes() {
            (
                "--delete cannot be combined with --min-size or --max-size: files of other sizes would be deleted",
                "omit one of them, or use --exclude",
            )
        } else if folders.len() > 1 && folders.contains(&true) && !self.is_empty() {
            (
                "--delete and a filter are ambiguous for several sources of which one ends in /: patterns begin in each",
                "copy them one by one",
            )
        } else {
            return Ok(());
        };
        Err(TransferError::new(Exit::Usage, text).fix(fix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(exclude: &[&str], include: &[&str]) -> Filter {
        let owned = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(exclude), &owned(include), (None, None)).unwrap()
    }

    #[test]
    fn patterns_mean_what_they_mean_to_git() {
        let f = filter(&["*.tmp", "/top", "build/", "# a comment"], &[]);
        for (path, taken) in [
            (&b"a/b.tmp"[..], false),
            (b"a/b.tmp2", true),
            (b"top", false),
            (b"a/top", true),
            (b"a/build/x", false),
            (b"build", true),
            (b"odd\xff.tmp", false),
            (b"# a comment", true),
        ] {
            assert_eq!(f.takes(path, Some(1)), taken, "{path:?}");
        }
        assert!(!f.enters(b"a/build") && f.enters(b"a") && f.enters(b""));
        let f = filter(&["a/", "{x,y}"], &["keep"]);
        assert!(
            !f.takes(b"a/keep", None) && f.takes(b"b/keep", None),
            "nothing in there is looked at"
        );
        assert!(f.takes(b"x", None) && !f.takes(b"{x,y}", None));
        assert!(!f.is_choosy());
    }

    #[test]
    fn includes_are_exceptions_or_all_there_is() {
        let f = filter(&["*.log"], &["keep.log"]);
        assert!(f.takes(b"a/keep.log", None) && !f.takes(b"a/b.log", None));
        assert!(f.takes(b"a/b", None));
        let f = filter(&[], &["*.bam", "/all/"]);
        assert!(f.takes(b"x/y.bam", None) && f.takes(b"all/x/y", None));
        assert!(!f.takes(b"x/y", None) && !f.takes(b"x/all/y", None));
        assert!(f.enters(b"x") && f.is_choosy());
    }

    #[test]
    fn sizes_are_bounds_of_files() {
        let f = Filter::new(&[], &[], (Some(2), Some(4))).unwrap();
        let taken: Vec<u64> = (0..7).filter(|n| f.takes(b"f", Some(*n))).collect();
        assert_eq!(taken, [2, 3, 4]);
        assert!(f.takes(b"link", None) && f.enters(b"dir"));
        assert!(Filter::new(&[], &[], (Some(2), Some(1))).is_err());
    }

    #[test]
    fn invalid_values_are_named() {
        let e = Filter::new(&["a[".into()], &[], (None, None)).unwrap_err();
        assert_eq!(e.code, Exit::Usage);
        assert!(e.text.contains("'a['"), "{}", e.text);
        assert!(Filter::new(&[], &["!x".into()], (None, None)).is_err());
        let long = filter(&["x".repeat(20_000).as_str()], &[]);
        assert_eq!(long.to_send().unwrap_err().code, Exit::Usage);
        assert!(Filter::default().is_empty());
        let is_ambiguous = |line: &str| filter(&[line], &["*.bam"]).spec.is_ambiguous();
        for line in ["run{1,2}", "[ab]", "a\\ ", "a**", "x/**y/z"] {
            assert!(is_ambiguous(line), "{line}");
        }
        for line in ["*.tmp", "/top", "a/**/b", "!**", "# {", "a?"] {
            assert!(!is_ambiguous(line), "{line}");
        }
    }
}
