//! The parts that few messages have beside the name, the due time and the payload.

use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::message::recurrence::Recurrence;

/// The allowed form of a `traceparent`, for errors.
const TRACEPARENT: &str = "traceparent: version, trace, span and flags as W3C Trace Context has them, such as \
                           00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The parts that most messages do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// When the message expires, in milliseconds since 1970. After this time it is not delivered.
    pub expires_ms: Option<i64>,
    /// The trace and the span in which the message was made, as W3C Trace Context writes them.
    pub traceparent: Option<Box<str>>,
    /// The limit of a series of replacements with `at_latest_ms`, in milliseconds since 1970. A replacement with
    /// `at_latest_ms` is not due later.
    pub latest_ms: Option<i64>,
    /// The number of the message, if an earlier message had the same name. The number is part of the digest for
    /// destinations, so they do not take one message for the other. A reschedule does not change it.
    pub again: Option<i64>,
    /// The rule of a recurring message. The message itself is never sent, only its occurrences are.
    pub recurrence: Option<Box<Recurrence>>,
}

impl Extras {
    /// The approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        let recurrence = self.recurrence.as_ref().map_or(0, |it| it.size());
        size_of::<Self>() + self.traceparent.as_ref().map_or(0, |text| text.len()) + recurrence
    }
}

/// Checks a `traceparent`.
///
/// # Errors
/// The text is not a `traceparent`.
pub fn check_traceparent(text: &str) -> Result<(), BadRecord> {
    if is_traceparent(text) {
        return Ok(());
    }
    Err(BadRecord::new(format!("{} is no traceparent", quoted(text, 80)), TRACEPARENT))
}

/// Checks by version 00. Later versions only add parts at the end.
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
