//! Guesses what people meant to type: the nearest of the known names, if any is near.

/// The one of `names` nearest to `typed`, unless it takes more than half of its letters to get
/// there.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    names
        .into_iter()
        .map(|name| (distance(&typed, name), name))
        .min()
        .filter(|(d, name)| *d * 2 <= name.len().max(typed.len()))
        .map(|(_, name)| name)
}

/// Levenshtein's distance, in bytes.
pub fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_recognised_and_strangers_are_not() {
        let names = ["haul", "udt", "rbudp"];
        assert_eq!(nearest("hual", names), Some("haul"));
        assert_eq!(nearest("hau", names), Some("haul"));
        assert_eq!(nearest("Haull", names), Some("haul"));
        assert_eq!(nearest("rbdup", names), Some("rbudp"));
        assert_eq!(nearest("tcp", names), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
