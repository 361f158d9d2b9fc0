//! Checks names before they are written. Paths on the wire are bytes, relative, `/`-separated. The
//! receiver accepts nothing that could leave its tree or collide with its own temporary files.
//! The names of those hold the 64 bits of their transfer's tag.

use crate::wire::{Exit, Hash};

/// Longest name of one file.
pub(crate) const NAME_MAX: usize = 255;
/// Longest path.
pub(crate) const PATH_MAX: usize = 4096;
/// End of the name of a file that is not complete.
pub(crate) const PART: &[u8] = b".farhaul-part";
/// End of the name of a file in which several transfers collect stripes.
pub(crate) const STRIPES: &[u8] = b".farhaul-stripes";
/// Start of the name of a journal.
pub(crate) const JOURNAL: &[u8] = b".farhaul-journal-";

/// Advice about links that a share does not take.
pub(crate) const LINK_ADVICE: &str = "give --links=follow or --links=skip";

/// Reason that a path is refused, or `None`. The empty path (the base itself) is fine.
pub(crate) fn refusal(path: &[u8]) -> Option<&'static str> {
    if path.is_empty() {
        return None;
    }
    if path.len() > PATH_MAX {
        return Some("path longer than 4096 bytes");
    }
    if path[0] == b'/' {
        return Some("absolute path");
    }
    if path.contains(&0) {
        return Some("NUL in name");
    }
    path.split(|b| *b == b'/').find_map(|name| match name {
        b"" => Some("empty name"),
        b"." | b".." => Some("'.' or '..' in path"),
        _ if name.len() > NAME_MAX => Some("name longer than 255 bytes"),
        _ => None,
    })
}

/// Reason that no peer may remove, move or make an entry of this path, or `None`.
pub(crate) fn unchangeable(path: &[u8]) -> Option<&'static str> {
    if path.is_empty() {
        return Some("the share itself stays as it is");
    }
    let own = |name: &[u8]| reserved(name, true).is_some();
    let own = path.split(|b| *b == b'/').any(own);
    refusal(path).or_else(|| own.then_some(RESERVED))
}

/// The error for a name under which copies keep their state.
pub(crate) const RESERVED: &str =
    "such names are reserved for the state of copies: rename the file";

/// A symbolic link that is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRefusal {
    why: &'static str,
    /// True for a proper link, refused for its target.
    pub(crate) leads_out: bool,
}

impl LinkRefusal {
    /// The outcome for the copy: it is not complete.
    pub(crate) const CODE: Exit = Exit::Partial;

    /// The reason, with what the link points to.
    pub(crate) fn of(self, target: &[u8]) -> String {
        let (why, target) = (self.why, show(target));
        if self.leads_out {
            format!("{why} ({target}), which a share does not take: skipped; {LINK_ADVICE}")
        } else {
            format!("{why} ({target}): skipped")
        }
    }
}

/// Reason that a symbolic link at `link` (relative to the tree) may not point to `target`, or
/// `None`. A target may only be relative, go up first, no further than to the tree's top, and then
/// down.
///
/// So no link leads out through another. The way up passes real directories, since a link is made
/// in one. Every name on the way down is a directory or a link for which the same holds.
pub(crate) fn link_refusal(link: &[u8], target: &[u8]) -> Option<LinkRefusal> {
    let leads_out = |why| LinkRefusal {
        why,
        leads_out: true,
    };
    if target.is_empty() || target.len() > PATH_MAX || target.contains(&0) {
        let (why, leads_out) = ("malformed link", false);
        return Some(LinkRefusal { why, leads_out });
    }
    if target[0] == b'/' {
        return Some(leads_out("absolute link"));
    }
    let depth = link.split(|b| *b == b'/').count() - 1;
    let mut names = target
        .split(|b| *b == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .peekable();
    let mut up = 0;
    while names.next_if(|name| *name == b"..").is_some() {
        up += 1;
    }
    if up > depth {
        return Some(leads_out("link leaves the tree"));
    }
    names
        .any(|name| name == b"..")
        .then(|| leads_out("link has .. after a name, which may be a link itself"))
}

/// The directory and the name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (b"", path),
    }
}

/// `dir` / `name`, each of them possibly empty.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", p) | (p, b"") => p.to_vec(),
        _ => [dir, b"/", name].concat(),
    }
}

/// True if this is the name of a file that copies keep beside others until they are over, which is
/// not sent.
pub fn is_state(name: &[u8]) -> bool {
    Own::of(name).is_some()
}

/// Names one transfer at one destination: the same command gives the same tag.
pub(crate) type Tag = [u8; 8];

/// The tag of what `first` and these say.
pub(crate) fn tag(first: &[u8], parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Tag {
    let mut hasher = blake3::Hasher::new();
    hasher.update(first);
    for part in parts {
        hasher.update(&(part.as_ref().len() as u64).to_be_bytes());
        hasher.update(part.as_ref());
    }
    let mut tag = Tag::default();
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    tag
}

/// Files that a transfer keeps for itself under such a name, and the tag of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Journal(Tag),
    Part(Tag),
    Stripes(Tag),
}

impl Own {
    /// Recognises the name alone, which a user's file may have as well.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        if let Some(tag) = name.strip_prefix(JOURNAL) {
            return unhex(tag).map(Self::Journal);
        }
        let hidden = name.strip_prefix(b".")?;
        let tag = |middle: &[u8]| {
            let dot = middle.iter().rposition(|b| *b == b'.')?;
            unhex(&middle[dot + 1..])
        };
        match hidden.strip_suffix(PART) {
            Some(middle) => tag(middle).map(Self::Part),
            None => tag(hidden.strip_suffix(STRIPES)?).map(Self::Stripes),
        }
    }

    pub(crate) const fn tag(self) -> Tag {
        match self {
            Self::Journal(tag) | Self::Part(tag) | Self::Stripes(tag) => tag,
        }
    }
}

/// Decodes a tag of lower-case hexadecimal.
fn unhex(digits: &[u8]) -> Option<Tag> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut tag = Tag::default();
    if digits.len() != 2 * tag.len() {
        return None;
    }
    for (byte, pair) in tag.iter_mut().zip(digits.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(tag)
}

/// Digest of a path; names that differ only in case have the same if it `folds`.
pub(crate) fn folded_digest(path: &[u8], folds: bool) -> [u8; 8] {
    if folds {
        digest(String::from_utf8_lossy(path).to_lowercase().as_bytes())
    } else {
        digest(path)
    }
}

/// The first bytes of the hash of `path`.
pub(crate) fn digest(path: &[u8]) -> [u8; 8] {
    let hash: Hash = blake3::hash(path).into();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    first
}

/// Purpose for which copies reserve this name, if they do: the name of a listed file, or one derived from it, as of a
/// backup. With `any_case`, names that differ only in case are the same.
pub(crate) fn reserved(name: &[u8], any_case: bool) -> Option<Own> {
    let folded = any_case.then(|| name.to_ascii_lowercase());
    Own::of(folded.as_deref().unwrap_or(name))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").expect("a String takes everything");
        s
    })
}

/// Path for people.
pub(crate) use farhaul_core::text::shown as show;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_tree_are_refused() {
        let long = vec![b'a'; 256];
        let deep = b"a/".repeat(2048);
        let deep = &deep[..deep.len() - 1];
        for good in [
            &b""[..],
            b"a",
            b"a/b",
            b"..a/b..",
            b"\xff\xfe",
            &long[..255],
            deep,
        ] {
            assert_eq!(refusal(good), None, "{}", show(good));
        }
        for bad in [
            &b"/"[..],
            b"/a",
            b"..",
            b"a/../b",
            b"a//b",
            b"a/",
            b"./a",
            b"a\0b",
            &long,
            &[b'a'; 4097],
        ] {
            assert!(refusal(bad).is_some(), "{}", show(bad));
        }
    }

    #[test]
    fn links_stay_inside() {
        assert_eq!(link_refusal(b"a/b/link", b"../c"), None);
        assert_eq!(link_refusal(b"a/b/link", b".././../c/d/"), None);
        assert_eq!(link_refusal(b"a/link", b".."), None);
        assert_eq!(link_refusal(b"link", b"a/./b..c"), None);
        for (link, target) in [
            (&b"link"[..], &b"../x"[..]),
            (b"a/link", b"b/../../../x"),
            (b"a/link", b"../x/../y"),
            (b"a/link", b"./../.."),
            (b"link", b"a/.."),
            (b"a/link", b"/etc/passwd"),
            (b"a/link", b""),
        ] {
            assert!(link_refusal(link, target).is_some());
        }
    }

    #[test]
    fn what_users_call_their_files_is_not_ours() {
        for users in [
            &b".farhaul-journal-"[..],
            b".farhaul-journal-0",
            b".farhaul-journal-07070707070707070",
            b".farhaul-journal-070707070707070G",
            b".x.farhaul-part",
            b".x.00000000.farhaul-part",
            b"x.0707070707070707.farhaul-part",
            b".farhaul-part",
        ] {
            assert_eq!(Own::of(users), None, "{}", show(users));
        }
        assert_eq!(show(b"a\x1b[1mb"), "a\\u{1b}[1mb");
    }
}
