//! Checks JSON text and writes it without any change but the line ends.
//!
//! - Strict RFC 8259 in UTF-8. Half of a surrogate pair is refused, because no UTF-8 text can hold it.
//! - Values are nested at most [`MAX_DEPTH`] levels, so that a reader by recursion can read them.
//! - A carriage return or newline between values becomes a space, because it would split a line of the output. JSON
//!   allows neither inside a string, so the meaning stays the same.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::{memchr, memchr2};
use serde_json::value::RawValue;

/// The most levels of nested arrays and objects.
pub(crate) const MAX_DEPTH: usize = 900;

/// Why a text is refused as JSON.
#[derive(Debug)]
pub enum Refused {
    /// Too many levels. The rest of the text was not read.
    TooDeep,
    /// The parser's message.
    Syntax(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => f.write_str("it is nested too deep"),
            Self::Syntax(text) => f.write_str(text),
        }
    }
}

impl Refused {
    /// The byte counts from the start of `json`. The parser counts it from the start of a line.
    pub(crate) fn at(json: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        let before: usize = json.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let byte = before + error.column();
        Self::Syntax(if byte == 0 { what.to_owned() } else { format!("{what}, at byte {byte}") })
    }
}

/// Checks one value, without the white space around it.
pub(crate) fn value_of(text: &str) -> Result<&str, Refused> {
    check_depth(text)?;
    let value: &RawValue = serde_json::from_str(text).map_err(|error| Refused::at(text, &error))?;
    check_surrogates(text)?;
    Ok(value.get())
}

/// Checks JSON and puts it on one line. `None`: the text is on one line already.
///
/// # Errors
/// The bytes are not JSON in UTF-8.
pub fn on_one_line(bytes: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Refused::Syntax(format!("byte {} is not UTF-8", error.valid_up_to() + 1)))?;
    value_of(text)?;
    Ok(match without_line_ends(bytes) {
        Cow::Borrowed(_) => None,
        Cow::Owned(bytes) => Some(bytes),
    })
}

/// Puts JSON on one line. The caller has checked the JSON.
pub(crate) fn without_line_ends(json: &[u8]) -> Cow<'_, [u8]> {
    if memchr2(b'\r', b'\n', json).is_none() {
        return Cow::Borrowed(json);
    }
    Cow::Owned(json.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect())
}

/// Refuses text with too many nested levels before a parser reads it. The text need not be valid JSON.
pub(crate) fn check_depth(text: &str) -> Result<(), Refused> {
    let bytes = text.as_bytes();
    if bytes.len() <= MAX_DEPTH {
        return Ok(()); // each level takes a byte
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = next_mark(&bytes[at..]) {
        at += found;
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(Refused::TooDeep);
                }
            }
            _ => depth = depth.saturating_sub(1),
        }
        at = (at + 1).min(bytes.len());
    }
    Ok(())
}

fn next_mark(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| matches!(byte, b'"' | b'[' | b'{' | b']' | b'}'))
}

/// Finds the quote at the end of a string that begins at `start`, or the end of the text.
pub(crate) fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

/// Refuses half of a surrogate pair. The caller has checked the syntax of the JSON.
pub(crate) fn check_surrogates(text: &str) -> Result<(), Refused> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &bytes[at..]) {
        at += found;
        let Some(code) = code_at(bytes, at) else {
            at = (at + 2).min(bytes.len());
            continue;
        };
        at += 6;
        let is_pair = match code {
            0xD800..=0xDBFF => matches!(code_at(bytes, at), Some(0xDC00..=0xDFFF)),
            0xDC00..=0xDFFF => false,
            _ => continue,
        };
        if !is_pair {
            return Err(Refused::Syntax(format!("half of a surrogate pair, at byte {}", at - 5)));
        }
        at += 6;
    }
    Ok(())
}

/// The code of an escape such as `\u00e9`.
fn code_at(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Appends text as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a vector takes all bytes");
}

/// JSON is kept unchanged, but on one line. Any other text becomes a JSON string. Too deeply nested JSON is an error.
pub(crate) fn json_or_text(text: &str) -> Result<Cow<'_, [u8]>, Refused> {
    match value_of(text) {
        Ok(value) => Ok(without_line_ends(value.as_bytes())),
        Err(Refused::TooDeep) => Err(Refused::TooDeep),
        Err(Refused::Syntax(_)) => {
            let mut out = Vec::with_capacity(text.len() + 2);
            write_text(&mut out, text);
            Ok(Cow::Owned(out))
        }
    }
}

/// Appends the base64 of these bytes.
pub(crate) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).expect("base64 takes four bytes for three");
    out.truncate(start + written);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_as_it_is_on_one_line_and_other_text_is_a_string__d1() {
        for (text, kept) in [
            ("{\"b\" : 1,  \"a\":{}}", "{\"b\" : 1,  \"a\":{}}"),
            (" 1.50 ", "1.50"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("\"\\u00e9\"", "\"\\u00e9\""),
            ("[1,\r\n2]", "[1,  2]"),
            ("é", "\"é\""),
            ("NaN", "\"NaN\""),
            ("", "\"\""),
            ("two\r\nlines", "\"two\\r\\nlines\""),
            ("\t\u{8}\u{c}\u{1f}\u{7f}\"\\/", "\"\\t\\b\\f\\u001f\u{7f}\\\"\\\\/\""),
            ("\"\\ud800\"", "\"\\\"\\\\ud800\\\"\""),
        ] {
            assert_eq!(String::from_utf8_lossy(&json_or_text(text).unwrap()), kept, "{text}");
        }
    }

    #[test]
    fn levels_are_counted_outside_of_strings__d2() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(value_of(&nested(MAX_DEPTH)).is_ok());
        assert!(matches!(value_of(&nested(MAX_DEPTH + 1)), Err(Refused::TooDeep)));
        assert!(matches!(json_or_text(&"[".repeat(MAX_DEPTH + 1)), Err(Refused::TooDeep)));
        assert!(value_of(&format!("\"\\\"{}\"", "[".repeat(5000))).is_ok());
        assert!(value_of(&format!("[{}1]", "[],".repeat(5000))).is_ok());
        assert!(matches!(value_of(&format!("\"{}", "x".repeat(5000))), Err(Refused::Syntax(_))));
    }

    #[test]
    fn half_of_a_surrogate_pair_is_refused_wherever_it_stands__d2() {
        for good in ["\\ud83d\\ude00", "\\\\ud800", "\\u00e9\\n", "\\\\\\ud83d\\ude00"] {
            assert!(value_of(&format!("\"{good}\"")).is_ok(), "{good}");
        }
        for bad in ["\\ud800", "\\ude00", "\\ud800x", "\\ud800\\n", "\\ud800\\ud800", "\\ude00\\ud83d", "\\\\\\uDC00"] {
            let error = value_of(&format!("\"{bad}\"")).unwrap_err().to_string();
            assert!(error.starts_with("half of a surrogate pair, at byte "), "{bad}: {error}");
        }
    }

    #[test]
    fn an_error_says_what_and_where() {
        assert_eq!(value_of("[1,]").unwrap_err().to_string(), "expected value, at byte 4");
        assert_eq!(value_of("[1,\n2,\r\n ]").unwrap_err().to_string(), "expected value, at byte 10");
        assert_eq!(on_one_line(b"\"\xff\"").unwrap_err().to_string(), "byte 2 is not UTF-8");
        assert_eq!(on_one_line(b"[1,\n2]").unwrap(), Some(b"[1, 2]".to_vec()));
        assert_eq!(on_one_line(b"[1, 2]").unwrap(), None);
    }
}
