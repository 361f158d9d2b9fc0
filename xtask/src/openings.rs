//! Checks how comments begin. A file header is a statement and no question; a doc comment does not
//! begin with a pronoun or a question word. Source: CONTRIBUTING.md, Style.

/// First words that say nothing without their context.
const WORDS: [&str; 13] = [
    "It", "They", "This", "That", "These", "Those", "What", "Which", "How", "Who", "Where", "Why",
    "Whether",
];

/// Complaints about the comments in `text`, the file `name` below the root.
pub(crate) fn check(text: &str, name: &str) -> Vec<String> {
    let mut complaints = docs(text, name);
    complaints.extend(header(text, name));
    complaints
}

/// Complaint about a file header whose first sentence is a question or begins with one of [`WORDS`].
fn header(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph: Vec<&str> = lines
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let paragraph = paragraph.join(" ");
    let asks = first_sentence(&paragraph).ends_with('?');
    (asks || WORDS.contains(&first_word(&paragraph))).then(|| {
        format!("{name}: the header is a question or begins with a pronoun: say what the file is or does")
    })
}

/// Complaints about doc comments that begin with one of [`WORDS`], each with its line.
fn docs(text: &str, name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("///");
        let word = comment.map_or("", first_word);
        if !inside && WORDS.contains(&word) {
            complaints.push(format!(
                "{name}:{}: a comment that begins with \"{word}\": say what the item is or does",
                at + 1
            ));
        }
        inside = comment.is_some();
    }
    complaints
}

/// First word of `text`, without marks of code, links and emphasis.
fn first_word(text: &str) -> &str {
    let text = text.trim_start().trim_start_matches(['`', '[', '*', '(']);
    let end = text
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(text.len());
    &text[..end]
}

/// Text up to the first full stop or question mark before a blank or the end.
fn first_sentence(text: &str) -> &str {
    let end = text.char_indices().find_map(|(at, c)| {
        let after = at + c.len_utf8();
        let ends =
            matches!(c, '.' | '?') && !text[after..].starts_with(|c: char| !c.is_whitespace());
        ends.then_some(after)
    });
    end.map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_pronouns_are_found_with_their_line() {
        let text = "//! How fast is\n//! it? Very.\n\n/// The rate.\n/// It is in bit/s.\n\n    /// What is sent.\n";
        assert_eq!(
            docs(text, "x"),
            ["x:7: a comment that begins with \"What\": say what the item is or does"]
        );
        assert!(header(text, "x").is_some());
        assert!(header("//! Is there a 2.5 in it? Yes.\n", "x").is_some());
        assert_eq!(check(text, "crates/core/src/x.rs").len(), 2);
    }

    #[test]
    fn statements_pass() {
        let text = "//! Sends at 2.5 Gbit/s. Why? So.\n\n/// Itself, `This` and [`That`] apart.\n";
        assert!(check(text, "xtask/src/x.rs").is_empty());
    }
}
