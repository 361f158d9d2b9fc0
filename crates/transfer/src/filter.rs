//! Which files are selected? Patterns as in `.gitignore` (git's manual, gitignore(5)) and bounds of size,
//! applied to every entry before it is listed; a folder that is left out is not even opened.
//!
//! - What is excluded stays out, unless an include matches it. Includes alone mean: nothing else.
//! - Paths are relative to the source, so that a pattern that begins with `/` means its top.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use farhaul_core::codec::VARINT_MAX;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{Code, TransferError};

/// The most bytes of patterns that travel to a server.
pub(crate) const MOST: usize = 16 << 10;

/// A filter as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Lines.
    pub(crate) exclude: String,
    /// Lines.
    pub(crate) include: String,
    /// Files smaller than this are left out, bytes.
    pub(crate) least: u64,
    /// And those larger than this.
    pub(crate) most: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            exclude: String::new(),
            include: String::new(),
            least: 0,
            most: VARINT_MAX,
        }
    }
}

/// Selects files.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    spec: Spec,
    rules: Option<Arc<Gitignore>>,
    only: Option<Arc<Gitignore>>,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Filter {
    /// A filter of lines as in `.gitignore` that exclude, of patterns that include, and of the sizes
    /// of files in bytes; an error names the invalid pattern.
    pub fn new(
        exclude: &[String],
        include: &[String],
        (least, most): (Option<u64>, Option<u64>),
    ) -> Result<Self, TransferError> {
        if let Some(bad) = include.iter().find(|p| p.starts_with('!')) {
            let e = TransferError::new(Code::Usage, format!("'{bad}' cannot be included"));
            return Err(e.fix("use --exclude for what is not wanted"));
        }
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(VARINT_MAX));
        if least > most {
            let text = "no file is as large as the least size and as small as the most";
            return Err(TransferError::new(Code::Usage, text));
        }
        Self::from_spec(Spec {
            exclude: exclude.join("\n"),
            include: include.join("\n"),
            least,
            most,
        })
    }

    pub(crate) fn from_spec(spec: Spec) -> Result<Self, TransferError> {
        let rules = if spec.exclude.is_empty() {
            None
        } else {
            let excluded = spec.exclude.lines().map(str::to_owned);
            let excepted = spec.include.lines().map(|line| format!("!{line}"));
            Some(compile(excluded.chain(excepted))?)
        };
        let only = if rules.is_some() || spec.include.is_empty() {
            None
        } else {
            Some(compile(spec.include.lines().map(str::to_owned))?)
        };
        Ok(Self { spec, rules, only })
    }

    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.spec == Spec::default()
    }

    /// Files are selected by their sizes.
    pub(crate) const fn is_of_sizes(&self) -> bool {
        self.spec.least > 0 || self.spec.most < VARINT_MAX
    }

    /// As it travels; an error if it is too long for that.
    pub(crate) fn to_send(&self) -> Result<Spec, TransferError> {
        if self.spec.exclude.len() + self.spec.include.len() > MOST {
            let text = format!("patterns of more than {MOST} bytes cannot be sent to a server");
            return Err(TransferError::new(Code::Usage, text).fix("use fewer, or copy in parts"));
        }
        Ok(self.spec.clone())
    }

    /// Folders are only made for what is in them.
    pub(crate) const fn is_choosy(&self) -> bool {
        self.only.is_some()
    }

    /// Is the file or link at `path`, relative to the source, selected? `size` is that of a file.
    pub(crate) fn takes(&self, path: &[u8], size: Option<u64>) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let fits = size.is_none_or(|n| (self.spec.least..=self.spec.most).contains(&n));
        let out = |rules: &Gitignore| rules.matched_path_or_any_parents(path, false).is_ignore();
        fits && !self.rules.as_deref().is_some_and(out) && self.only.as_deref().is_none_or(out)
    }

    /// May anything in the folder at `path` be selected?
    pub(crate) fn enters(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let out = |rules: &Gitignore| rules.matched_path_or_any_parents(path, true).is_ignore();
        path.as_os_str().is_empty() || !self.rules.as_deref().is_some_and(out)
    }
}

fn compile(lines: impl Iterator<Item = String>) -> Result<Arc<Gitignore>, TransferError> {
    let wrong = |line: &str, e: &ignore::Error| {
        let text = format!("pattern '{line}': {e}");
        TransferError::new(Code::Usage, text).fix("write it as in .gitignore")
    };
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        builder
            .add_line(None, &line)
            .map_err(|e| wrong(&line, &e))?;
    }
    let built = builder.build().map_err(|e| wrong("", &e))?;
    Ok(Arc::new(built))
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
        let e = Filter::new(&["[z-a]".into()], &[], (None, None)).unwrap_err();
        assert_eq!(e.code, Code::Usage);
        assert!(e.text.contains("[z-a]"), "{}", e.text);
        assert!(Filter::new(&[], &["!x".into()], (None, None)).is_err());
        let long = filter(&["x".repeat(20_000).as_str()], &[]);
        assert_eq!(long.to_send().unwrap_err().code, Code::Usage);
        assert!(Filter::default().is_empty());
    }
}
