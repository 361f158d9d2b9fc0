//! Patterns of gitignore(5), matched as git's `wildmatch` matches them. Each is a regular
//! expression, so the patterns of a peer take time that is linear in the path.

use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::{error::TransferError, wire::Exit};

/// Bytes that compiled patterns may take.
const MOST: usize = 64 << 20;

/// Lines of patterns. The last that matches decides.
#[derive(Debug)]
pub(super) struct Patterns {
    set: RegexSet,
    lines: Vec<Line>,
}

/// The meaning of one pattern, beside what it matches.
#[derive(Debug)]
struct Line {
    /// True if the pattern excludes; else it is an exception.
    excludes: bool,
    /// True if the pattern is for folders only.
    folders: bool,
}

impl Patterns {
    /// Compiles lines; an error names the one that matches nothing.
    pub(super) fn new(texts: impl Iterator<Item = String>) -> Result<Self, TransferError> {
        let wrong =
            |text: String| TransferError::new(Exit::Usage, text).fix("write it as in .gitignore");
        let (mut expressions, mut lines) = (Vec::new(), Vec::new());
        for text in texts {
            let parsed = parse(&text).map_err(|why| wrong(format!("pattern '{text}' {why}")))?;
            if let Some((expression, line)) = parsed {
                expressions.push(expression);
                lines.push(line);
            }
        }
        let set = RegexSetBuilder::new(&expressions).size_limit(MOST).build();
        let set = set.map_err(|e| wrong(format!("the patterns cannot be used: {e}")))?;
        Ok(Self { set, lines })
    }

    /// True if the last pattern that matches this path excludes it; none may.
    fn decide(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let matches = self.set.matches(path);
        let mut matching = matches.iter().rev().map(|at| &self.lines[at]);
        let last = matching.find(|line| is_folder || !line.folders)?;
        Some(last.excludes)
    }

    /// True if a path is excluded, or a folder above it: nothing in there is looked at, whatever
    /// the exceptions.
    pub(super) fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        above(path).any(|folder| self.decide(folder, true) == Some(true))
            || self.decide(path, is_folder) == Some(true)
    }
}

/// The folders above a path, from the top.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

/// Reason that a pattern matches nothing, if it is malformed.
pub(super) fn fault(text: &str) -> Option<&'static str> {
    parse(text).err()
}

/// The expression of a line, and what else it means; nothing for a comment and for an empty line.
fn parse(text: &str) -> Result<Option<(String, Line)>, &'static str> {
    let text = without_blanks(text.as_bytes());
    if text.is_empty() || text.starts_with(b"#") {
        return Ok(None);
    }
    let pattern = text.strip_prefix(b"!").unwrap_or(text);
    let whole = pattern.strip_suffix(b"/").unwrap_or(pattern);
    let line = Line {
        excludes: pattern.len() == text.len(),
        folders: whole.len() < pattern.len(),
    };
    let is_name = !whole.contains(&b'/');
    let whole = whole.strip_prefix(b"/").unwrap_or(whole);
    Ok(Some((expression(whole, is_name)?, line)))
}

/// A line without the blanks at its end that no backslash keeps.
fn without_blanks(line: &[u8]) -> &[u8] {
    let (mut at, mut end) = (0, 0);
    while let Some(byte) = line.get(at) {
        at += if *byte == b'\\' { 2 } else { 1 };
        if *byte != b' ' {
            end = at;
        }
    }
    &line[..end.min(line.len())]
}

/// Expression of a pattern: for a path, or without a slash, for a name in any folder.
fn expression(pattern: &[u8], is_name: bool) -> Result<String, &'static str> {
    let mut out = String::from(if is_name {
        r"(?s-u)\A(?:.*/)?"
    } else {
        r"(?s-u)\A"
    });
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        at += 1;
        match byte {
            b'\\' => {
                let kept = pattern.get(at).ok_or("ends in a backslash")?;
                literal(&mut out, *kept);
                at += 1;
            }
            b'?' => out.push_str("[^/]"),
            b'*' => at = stars(&mut out, pattern, at - 1, is_name),
            b'[' => at = class(&mut out, pattern, at)?,
            byte => literal(&mut out, byte),
        }
    }
    out.push_str(r"\z");
    Ok(out)
}

/// Stars from `from` on; the position after them. Two that are all there is between slashes match folders, too.
fn stars(out: &mut String, pattern: &[u8], from: usize, is_name: bool) -> usize {
    let count = pattern[from..]
        .iter()
        .take_while(|byte| **byte == b'*')
        .count();
    let rest = &pattern[from + count..];
    let begins = from == 0 || pattern[from - 1] == b'/';
    let ends = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
    if is_name || count < 2 || !begins || !ends {
        out.push_str("[^/]*");
    } else if rest.starts_with(b"/") {
        out.push_str("(?:.*/)?");
        return from + count + 1;
    } else {
        out.push_str(".*");
    }
    from + count
}

fn literal(out: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || byte == b'/' {
        out.push(char::from(byte));
    } else {
        use std::fmt::Write as _;
        // To a string, which takes everything.
        let _taken = write!(out, r"\x{byte:02x}");
    }
}

/// A class of characters, from behind its `[` on; the position behind its `]`.
fn class(out: &mut String, pattern: &[u8], from: usize) -> Result<usize, &'static str> {
    const OPEN: &str = "has a [ without a ]";
    let negated = matches!(pattern.get(from), Some(b'!' | b'^'));
    let mut set = [false; 256];
    let mut at = from + usize::from(negated);
    let mut before = None;
    // The first is taken as it is, also a `]`.
    let begin = at;
    loop {
        let byte = *pattern.get(at).ok_or(OPEN)?;
        at += 1;
        if byte == b']' && at - 1 > begin {
            break;
        }
        let next = |at: usize| pattern.get(at).copied().ok_or(OPEN);
        match (byte, before) {
            (b'\\', _) => {
                before = Some(next(at)?);
                set[usize::from(next(at)?)] = true;
                at += 1;
            }
            (b'-', Some(least)) if next(at)? != b']' => {
                let mut most = next(at)?;
                if most == b'\\' {
                    at += 1;
                    most = next(at)?;
                }
                at += 1;
                (least..=most).for_each(|byte| set[usize::from(byte)] = true);
                before = None;
            }
            (b'[', _) if next(at)? == b':' => {
                let name = &pattern[at + 1..];
                let end = name.iter().position(|byte| *byte == b']').ok_or(OPEN)?;
                if let Some(name) = name[..end].strip_suffix(b":") {
                    let holds = named(name).ok_or("has a class that does not exist")?;
                    (0..=u8::MAX).for_each(|byte| set[usize::from(byte)] |= holds(byte));
                    at += end + 2;
                    before = None;
                } else {
                    set[usize::from(b'[')] = true;
                    before = Some(b'[');
                }
            }
            (byte, _) => {
                set[usize::from(byte)] = true;
                before = Some(byte);
            }
        }
    }
    let taken = |byte: u8| byte != b'/' && set[usize::from(byte)] != negated;
    if !(0..=u8::MAX).any(taken) {
        return Err("has a class that no character is in");
    }
    out.push('[');
    let mut bytes = (0..=u8::MAX).filter(|byte| taken(*byte)).peekable();
    while let Some(first) = bytes.next() {
        let mut last = first;
        while let Some(next) = bytes.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        literal(out, first);
        out.push('-');
        literal(out, last);
    }
    out.push(']');
    Ok(at)
}

/// The class of a name, as git has it: of ASCII.
fn named(name: &[u8]) -> Option<fn(u8) -> bool> {
    Some(match name {
        b"alnum" => |b| b.is_ascii_alphanumeric(),
        b"alpha" => |b| b.is_ascii_alphabetic(),
        b"blank" => |b| b == b' ' || b == b'\t',
        b"cntrl" => |b| b.is_ascii_control(),
        b"digit" => |b| b.is_ascii_digit(),
        b"graph" => |b| b.is_ascii_graphic(),
        b"lower" => |b| b.is_ascii_lowercase(),
        b"print" => |b| b.is_ascii_graphic() || b == b' ',
        b"punct" => |b| b.is_ascii_punctuation(),
        b"space" => |b| b" \t\n\r".contains(&b),
        b"upper" => |b| b.is_ascii_uppercase(),
        b"xdigit" => |b| b.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_at_the_end_go_unless_a_backslash_keeps_them() {
        for (line, kept) in [
            ("a  ", "a"),
            ("a\\  ", "a\\ "),
            ("a \\ b ", "a \\ b"),
            ("  a", "  a"),
            ("a\t", "a\t"),
            (" ", ""),
            ("a\\", "a\\"),
            ("a\\\\ ", "a\\\\"),
        ] {
            assert_eq!(without_blanks(line.as_bytes()), kept.as_bytes(), "{line:?}");
        }
    }

    #[test]
    fn what_matches_nothing_is_named() {
        for bad in [
            "[",
            "a[!]",
            "[]",
            "*.[ch",
            "[a][",
            "[^",
            "[[:nope:]]",
            "a\\",
            "[a\\",
        ] {
            assert!(fault(bad).is_some(), "{bad}");
        }
        for fine in [
            "[ch]",
            "[]]",
            "[!]x]",
            "\\[",
            "a/",
            "!a",
            "*",
            "[[]",
            "# a [ in a comment",
            "",
            "[z-ab]",
        ] {
            assert_eq!(fault(fine), None, "{fine}");
        }
    }

    #[test]
    fn expressions_are_linear_and_bounded() {
        let hostile = "*a".repeat(8_000);
        let patterns = Patterns::new(std::iter::once(hostile)).expect("compiles");
        assert!(!patterns.excludes(&[b'a'; 4_000], false));
    }
}
