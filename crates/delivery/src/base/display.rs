//! How errors show values: text in quotes on one line, numbers with commas, and a short reason that is never empty.

use std::fmt::Write;

/// The most characters of a reason. The store keeps reasons, and a send may have a reason for each of its messages.
pub const LONGEST_REASON: usize = 1_000;

/// The first `max` characters of a text, in quotes. A character that does not print is written as an escape.
pub(crate) fn quoted(text: &str, max: usize) -> String {
    let quote =
        if text.chars().take(max).any(|c| c == '\'') && !text.chars().take(max).any(|c| c == '"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars().take(max) {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if c > '~' && c.escape_debug().len() == 1 => out.push(c),
            c => push_escape(&mut out, c),
        }
    }
    out.push(quote);
    out
}

fn push_escape(out: &mut String, c: char) {
    let _ = match u32::from(c) {
        code @ 0..=0xff => write!(out, "\\x{code:02x}"),
        code @ 0x100..=0xffff => write!(out, "\\u{code:04x}"),
        code => write!(out, "\\U{code:08x}"),
    };
}

/// Whether a terminal obeys this character, or one text looks like another with it: it can't be seen, or changes the direction of
/// writing. `python/tickwheel/_printable.py` has the same ones.
pub(crate) fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Appends bytes as a part of an address: plain ones as they are, and others as in `%2F`.
pub(crate) fn write_percent(out: &mut String, bytes: &[u8], is_plain: impl Fn(u8) -> bool) {
    for byte in bytes {
        if is_plain(*byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}"); // a string takes everything
        }
    }
}

/// A number with a comma between each three digits.
#[must_use]
pub fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The first `max` characters of a text.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// A reason as it is shown and stored: the first [`LONGEST_REASON`] characters of the text.
pub(crate) fn reason(text: &str) -> &str {
    if text.trim().is_empty() { "no reason was given" } else { cut(text, LONGEST_REASON) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_on_one_line_and_cut() {
        assert_eq!(quoted("it's", 60), "\"it's\"");
        assert_eq!(quoted("a'\"\\", 60), "'a\\'\"\\\\'");
        assert_eq!(quoted("é\n\u{7f}\u{a0}\u{2028}\u{e0001}", 60), "'é\\n\\x7f\\xa0\\u2028\\U000e0001'");
        assert_eq!(quoted("éééé", 3), "'ééé'");
        assert_eq!(cut("éé", 1), "é");
        assert_eq!(cut("éé", 2), "éé");
    }

    #[test]
    fn a_reason_is_neither_empty_nor_long() {
        assert_eq!([reason(""), reason(" \n"), reason("no")], ["no reason was given", "no reason was given", "no"]);
        assert_eq!(reason(&"é".repeat(2_000)), "é".repeat(LONGEST_REASON));
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!([0, 999, 1000, 1_048_577].map(with_commas), ["0", "999", "1,000", "1,048,577"]);
    }
}
