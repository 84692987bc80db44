//! What few messages have beside their name, their due time and their payload.

use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::message::recurrence::Recurrence;

/// What is allowed as `traceparent`, for errors.
const TRACEPARENT: &str = "traceparent: version, trace, span and flags as W3C Trace Context has them, such as \
                           00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The parts that most messages do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Past this it is not delivered, in milliseconds since 1970.
    pub expires_ms: Option<i64>,
    /// The trace and the span in which it was made, as W3C Trace Context writes them.
    pub traceparent: Option<Box<str>>,
    /// It is due then at the latest, however often it is put off, in milliseconds since 1970.
    pub latest_ms: Option<i64>,
    /// Its name had its outcome before it came, and this is its number: destinations know it by another digest than the one
    /// that was sent before. It stays the same when the message is moved.
    pub again: Option<i64>,
    /// It comes again and again: it is never sent itself, its occurrences are.
    pub recurrence: Option<Box<Recurrence>>,
}

impl Extras {
    /// Bytes in memory, about.
    pub(super) fn size(&self) -> usize {
        let recurrence = self.recurrence.as_ref().map_or(0, |it| it.size());
        size_of::<Self>() + self.traceparent.as_ref().map_or(0, |text| text.len()) + recurrence
    }
}

/// Checks a `traceparent`.
///
/// # Errors
/// It is none.
pub fn check_traceparent(text: &str) -> Result<(), BadRecord> {
    if is_traceparent(text) {
        return Ok(());
    }
    Err(BadRecord::new(format!("{} is no traceparent", quoted(text, 80)), TRACEPARENT))
}

/// By version 00, which later versions only add to, at the end.
fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, digits| is_hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = text.split('-').take(5).collect();
    match parts[..] {
        [version, trace, span, flags, ref rest @ ..] => {
            is_hex(version, 2)
                && version != "ff"
                && is_id(trace, 32)
                && is_id(span, 16)
                && is_hex(flags, 2)
                && (rest.is_empty() || version != "00")
                && text.len() <= 512
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_one_of_w3c__d15() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good));
        assert!(is_traceparent(&good.replacen("00", "cc", 1).replace("-01", "-01-what-comes-later")));
        for bad in [
            "",
            "00",
            &good.replacen("00", "ff", 1),
            &good.to_uppercase(),
            &format!("{good}-x"),
            &good[1..],
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é",
            &format!("cc{}-{}", &good[2..], "x".repeat(500)),
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
        assert!(check_traceparent("x\ny").unwrap_err().reason.contains("is no traceparent"));
    }
}
