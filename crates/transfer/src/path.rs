//! May this name be written? Paths on the wire are bytes, relative, `/`-separated; the receiver
//! accepts nothing that could leave its tree or collide with its own temporary files.

use crate::digest::Hash;

/// Longest name of one file.
pub(crate) const NAME_MAX: usize = 255;
/// Longest path.
pub(crate) const PATH_MAX: usize = 4096;
/// End of the name of a file that is not complete.
const PART: &[u8] = b".farhaul-part";
/// Start of the name of a journal.
const JOURNAL: &[u8] = b".farhaul-journal-";

/// Why a path is refused, or `None`. The empty path (the base itself) is fine.
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

/// Why a symbolic link at `link` (relative to the tree) may not point to `target`, or `None`. It may
/// only be relative and stay, read as text, inside the tree.
pub(crate) fn link_refusal(link: &[u8], target: &[u8]) -> Option<&'static str> {
    if target.is_empty() || target.len() > PATH_MAX || target.contains(&0) {
        return Some("malformed link");
    }
    if target[0] == b'/' {
        return Some("absolute link");
    }
    let mut depth = link.split(|b| *b == b'/').count() - 1;
    for name in target.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." if depth == 0 => return Some("link leaves the tree"),
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    None
}

/// The directory and the name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (b"", path),
    }
}

/// `dir` / `name`, either of which may be empty.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        (b"", p) | (p, b"") => p.to_vec(),
        _ => [dir, b"/", name].concat(),
    }
}

/// The hidden name beside `name` under which its content is collected by the transfer `id`.
pub(crate) fn part_name(name: &[u8], id: Tag) -> Vec<u8> {
    let tag = hex(&id[..4]);
    let room = NAME_MAX - PART.len() - tag.len() - 2;
    let mut out = vec![b'.'];
    if name.len() <= room {
        out.extend_from_slice(name);
    } else {
        // Two long names may share their beginning.
        let hash: Hash = blake3::hash(name).into();
        out.extend_from_slice(&name[..room - 17]);
        out.push(b'~');
        out.extend_from_slice(hex(&hash[..8]).as_bytes());
    }
    out.push(b'.');
    out.extend_from_slice(tag.as_bytes());
    out.extend_from_slice(PART);
    out
}

/// The name under which content that stayed wrong is kept.
pub(crate) fn bad_name(name: &[u8]) -> Vec<u8> {
    let mut out = name[..name.len().min(NAME_MAX - 4)].to_vec();
    out.extend_from_slice(b".bad");
    out
}

/// Names one transfer at one destination: the same command gives the same tag.
pub(crate) type Tag = [u8; 8];

/// The journal of transfer `id`.
pub(crate) fn journal_name(id: Tag) -> Vec<u8> {
    [JOURNAL, hex(&id).as_bytes()].concat()
}

/// True for the files that a transfer makes for itself; they are never sent.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name.starts_with(JOURNAL) || (name.starts_with(b".") && name.ends_with(PART))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").expect("a String takes everything");
        s
    })
}

/// For people: control characters escaped, other bytes as UTF-8 where they are.
pub(crate) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path)
        .chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

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
        assert_eq!(link_refusal(b"a/link", b"../x/../y"), None);
        assert_eq!(link_refusal(b"link", b"a/./b"), None);
        for (link, target) in [
            (&b"link"[..], &b"../x"[..]),
            (b"a/link", b"b/../../../x"),
            (b"a/link", b"/etc/passwd"),
            (b"a/link", b""),
        ] {
            assert!(link_refusal(link, target).is_some());
        }
    }

    #[test]
    fn temporary_names_fit_and_differ() {
        let a = [vec![b'a'; 254], vec![b'1']].concat();
        let b = [vec![b'a'; 254], vec![b'2']].concat();
        let id = [7; 8];
        assert_ne!(part_name(&a, id), part_name(&b, id));
        for name in [&a[..], &b, b"x"] {
            let part = part_name(name, id);
            assert!(part.len() <= NAME_MAX && is_own(&part));
            assert_ne!(part, part_name(name, [8; 8]));
        }
        assert!(is_own(&journal_name(id)));
        assert_eq!(show(b"a\x1b[1mb"), "a\\u{1b}[1mb");
    }
}
