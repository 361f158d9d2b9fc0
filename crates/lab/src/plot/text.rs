//! Measures the width of a text and makes the text fit, with the font that is built in, which is
//! also the one of the PNGs. A browser's sans-serif is about as wide.

use std::sync::LazyLock;

use plotters::style::{FontDesc, FontFamily, FontStyle, IntoFont as _, register_font};

/// The family as an SVG names it; the built-in font is registered by the same name.
const FAMILY: &str = "Helvetica, Arial, sans-serif";
/// Browsers' fonts may be wider than ours.
const SLACK: f64 = 1.05;
/// Measured at a large size, since widths are counted in whole pixels.
const MEASURED_AT: f64 = 1_000.0;

static FONT: &[u8] = include_bytes!("../../assets/plot-sans.ttf");
static REGISTERED: LazyLock<bool> =
    LazyLock::new(|| register_font(FAMILY, FontStyle::Normal, FONT).is_ok());

/// The font, of `em` px.
pub(super) fn font(em: f64) -> FontDesc<'static> {
    assert!(*REGISTERED, "the built-in font is valid");
    (FontFamily::Name(FAMILY), em * EM).into_font()
}

/// The size that `plotters` takes for one em; its SVG divides by this.
pub(super) const EM: f64 = 1.24;

/// Width of `text` at `em` px.
pub(super) fn width(text: &str, em: f64) -> f64 {
    let measured = font(MEASURED_AT).box_size(text).map_or(0, |(w, _)| w);
    f64::from(measured) / MEASURED_AT * em * SLACK
}

/// `text` as it may stand in XML and on one line: control characters are left out.
pub(super) fn plain(text: &str) -> String {
    let spaced = text.chars().map(|c| match c {
        '\n' | '\r' | '\t' => ' ',
        c => c,
    });
    spaced
        .filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'))
        .collect()
}

/// `text`, or as much of its beginning as fits, with an ellipsis.
pub(super) fn fit(text: &str, em: f64, space: f64) -> String {
    if width(text, em) <= space {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let cut = |n: usize| {
        let kept: String = chars[..n].iter().collect();
        format!("{}…", kept.trim_end())
    };
    let (mut fits, mut too_long) = (0, chars.len());
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if width(&cut(middle), em) <= space {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    if fits == 0 { String::new() } else { cut(fits) }
}

/// `text` on at most `most` lines, broken at spaces; what does not fit is cut.
pub(super) fn wrap(text: &str, em: f64, space: f64, most: usize) -> Vec<String> {
    let text = plain(text);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = lines.len() >= most;
        match lines.last_mut() {
            Some(line) if full || width(&format!("{line} {word}"), em) <= space => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| fit(line, em, space)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_wrapped_to_their_space() {
        assert!(width("goodput", 12.0) > 30.0 && width("goodput", 12.0) < 60.0);
        assert_eq!(fit("goodput", 12.0, 100.0), "goodput");
        let cut = fit("goodput of nine flows", 12.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 12.0) <= 60.0, "{cut}");
        assert_eq!(fit("goodput", 12.0, 1.0), "");
        let lines = wrap("goodput of nine flows in one link", 12.0, 70.0, 2);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|l| width(l, 12.0) <= 70.0), "{lines:?}");
        assert_eq!(wrap("", 12.0, 70.0, 2), [""; 0]);
    }

    #[test]
    fn control_characters_are_left_out() {
        assert_eq!(plain("a\u{1}b\nc\u{ffff}"), "ab c");
    }
}
