//! Rules of rsync's filter. Rules that choose files are patterns here; other rules are answered with what to write.

/// Names of a rule that is no pattern, and what to write for that rule.
const OTHERS: &[(&[&str], &str)] = &[
    (&["exclude"], "write - GLOB"),
    (&["include"], "write + GLOB"),
    (
        &["merge", "."],
        "write --exclude-from FILE, whose lines are + GLOB or - GLOB",
    ),
    (
        &["dir-merge", ":"],
        "farhaul reads no rules from the folders that it copies: write them to one FILE for --exclude-from",
    ),
    (
        &["protect", "P"],
        "write --exclude GLOB: --delete keeps excluded files, and farhaul does not send them either",
    ),
    (
        &["hide", "H"],
        "write --exclude GLOB; --delete-excluded deletes such files at the destination",
    ),
    (
        &["show", "S", "risk", "R"],
        "write --include GLOB before the --exclude that it makes an exception to",
    ),
    (
        &["-", "+"],
        "write - GLOB or + GLOB, with nothing between the sign and the blank",
    ),
];

/// The rule of a `-f` or `--filter` in one word or two; whether the rule is part of this word.
pub(super) fn given<'a>(word: &'a str, next: Option<&'a str>) -> Option<(&'a str, bool)> {
    if matches!(word, "-f" | "--filter") {
        return Some((next?, false));
    }
    let short = || {
        word.strip_prefix("-f")
            .filter(|rule| signed(rule).is_some())
    };
    let attached = word.strip_prefix("--filter=").or_else(short);
    attached.map(|rule| (rule, true))
}

/// A rule that chooses files as a pattern of rsync, whose sign says what it does.
pub(super) fn signed(rule: &str) -> Option<String> {
    let (name, pattern) = rule.split_once([' ', '_'])?;
    let sign = match name {
        "-" | "exclude" => '-',
        "+" | "include" => '+',
        _ => return None,
    };
    Some(format!("{sign} {pattern}"))
}

/// Says how to write a rule that does something else than `- GLOB` and `+ GLOB`, if the text is such a rule.
pub(crate) fn other(rule: &str) -> Option<&'static str> {
    let (word, _) = rule.split_once(' ')?;
    let name = word.split(',').next()?;
    let modifiers = |rest: &str| rest.chars().all(|c| "!/-+CEenprswx".contains(c));
    let sign = name.split_at_checked(1);
    let sign = sign.filter(|(sign, rest)| ".:-+".contains(sign) && modifiers(rest));
    let mut all = OTHERS.iter();
    let found = all.find(|(names, _)| {
        names
            .iter()
            .any(|n| *n == name || sign.is_some_and(|(sign, _)| sign == *n))
    });
    found.map(|(_, fix)| *fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_patterns_or_are_answered() {
        for (rule, pattern) in [
            ("- *.o", "- *.o"),
            ("-_*.o", "- *.o"),
            ("exclude a b", "- a b"),
            ("include_x", "+ x"),
        ] {
            assert_eq!(signed(rule).as_deref(), Some(pattern), "{rule}");
        }
        for (rule, fix) in [
            ("merge rules", "--exclude-from"),
            (".n rules", "--exclude-from"),
            ("dir-merge,- .gitignore", "no rules from the folders"),
            (":- .gitignore", "no rules from the folders"),
            ("P x", "keeps excluded"),
            ("-! *.c", "nothing between"),
        ] {
            assert_eq!(signed(rule), None, "{rule}");
            assert!(other(rule).is_some_and(|text| text.contains(fix)), "{rule}");
        }
        for name in ["*.o", "Pictures x", ".my x", "x", "-x", "é x"] {
            assert_eq!(other(name), None, "{name}");
        }
    }
}
