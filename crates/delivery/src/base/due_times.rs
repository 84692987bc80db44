//! A due time as records give it: text, or whole milliseconds since 1970 (rule D1). For a number in another unit, the
//! error names the unit.
//!
//! Example: 1769846400 is refused, because it looks like seconds. The error shows 1769846400000, the same time in
//! milliseconds.

use std::ops::Range;

use jiff::tz::TimeZone;

use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::base::times::{ALLOWED, MAX_DUE_MS, NO_TIME, NO_ZONE, date_of_day, due_in_range, time_from_text};

const OF_A_ZONE: &str = "for the local times of a file, the option --zone with their zone, such as Europe/Berlin";

/// The days from 1997 to 2173, as a spreadsheet counts them: from 1899-12-30.
const DAYS: Range<i128> = 35_500..100_000;
const DAYS_UNTIL_1970: i64 = 25_569;
/// 10^11 seconds end in the year 5138, 10^11 milliseconds in 1973.
const SECONDS: Range<i128> = 0..100_000_000_000;
/// 10^17 microseconds end in the year 5138 too.
const MICROSECONDS: Range<i128> = MAX_DUE_MS as i128 + 1..100_000_000_000_000_000;
const NANOSECONDS: Range<i128> = MICROSECONDS.end..100_000_000_000_000_000_000;

/// The epoch milliseconds of a due time given as text. `name` is the name of the field, for the error. `zone` is that of
/// times without an offset; without it they are refused.
///
/// # Errors
/// The text is not RFC 3339, has no zone, or is out of range.
pub(crate) fn due_from_text(text: &str, name: &str, zone: Option<&TimeZone>) -> Result<i64, BadRecord> {
    time_from_text(text, zone).map_or_else(
        |why| {
            let number = if why == NO_TIME { number_as_text(text, name) } else { None };
            let allowed = if why == NO_ZONE { format!("{ALLOWED}; {OF_A_ZONE}") } else { ALLOWED.to_owned() };
            Err(number.unwrap_or_else(|| BadRecord::new(format!("{name} {why}: {}", quoted(text, 60)), allowed)))
        },
        |due_ms| due_in_range(due_ms, name),
    )
}

/// A due time from CSV or the command line, where every value is text. Digits are epoch milliseconds.
///
/// # Errors
/// The text is not a due time, or the time is out of range.
pub fn due_from_digits_or_text(text: &str, name: &str) -> Result<i64, BadRecord> {
    match integer_of(text) {
        Some(value) => due_from_integer(value, name),
        None => due_from_text(text, name, None),
    }
}

/// Checks a due time given as an integer. It may have any size, because JSON has no bound.
///
/// # Errors
/// The time is out of range, or has another unit.
pub(crate) fn due_from_integer(value: i128, name: &str) -> Result<i64, BadRecord> {
    match other_unit(value, value.saturating_mul(1_000)) {
        Some(looks) => Err(BadRecord::new(format!("{name} is {value}, which {looks}"), ALLOWED)),
        None => due_in_range(i64::try_from(value).unwrap_or(i64::MAX), name),
    }
}

/// Checks a due time given as a number with a decimal point. A float holds each whole number of milliseconds exactly.
///
/// # Errors
/// The number is not whole, the time is out of range, or it has another unit.
pub(crate) fn due_from_float(value: f64, name: &str) -> Result<i64, BadRecord> {
    if !value.is_finite() {
        return Err(BadRecord::new(format!("{name} is {value}, which is no number"), ALLOWED));
    }
    if value.fract() == 0.0 {
        return due_from_integer(value as i128, name);
    }
    let looks = other_unit(value as i128, (value * 1000.0).ceil() as i128);
    let looks = looks.unwrap_or_else(|| "is no whole number of milliseconds".into());
    Err(BadRecord::new(format!("{name} is {value}, which {looks}"), ALLOWED))
}

/// A number in text. A point with zeros behind it may follow the digits, as tables write a whole float.
pub(crate) fn integer_of(text: &str) -> Option<i128> {
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    };
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let fits = (1..=30).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if fits { whole.parse().ok() } else { None }
}

/// The error for text that is a number, but no whole number that can be trusted. `None` for other text.
fn number_as_text(text: &str, name: &str) -> Option<BadRecord> {
    let is_number =
        text.len() <= 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    let value: f64 = text.parse().ok().filter(|_| is_number)?;
    if text.contains(['e', 'E']) {
        let allowed = format!("all digits of the number, or {ALLOWED}");
        return Some(BadRecord::new(format!("{name} is {text}, which may be rounded"), allowed));
    }
    if integer_of(text).is_some() {
        let allowed = format!("the number without quotes, or {ALLOWED}");
        return Some(BadRecord::new(format!("{name} is text of digits: '{text}'"), allowed));
    }
    due_from_float(value, name).err()
}

/// The unit that a number of no milliseconds is probably in. `thousandfold`: the number times 1000, rounded up.
fn other_unit(value: i128, thousandfold: i128) -> Option<String> {
    let up = |per_ms: i128| value / per_ms + i128::from(value % per_ms > 0);
    Some(match value {
        0 if thousandfold == 0 => "is no due time: a field that was never set has this value".into(),
        _ if DAYS.contains(&value) => {
            format!("looks like days: in a spreadsheet it is {}", date_of_day(value as i64 - DAYS_UNTIL_1970)?)
        }
        _ if SECONDS.contains(&value) => format!("looks like seconds; in milliseconds it is {thousandfold}"),
        _ if MICROSECONDS.contains(&value) => {
            format!("looks like microseconds; in milliseconds it is {}", up(1_000))
        }
        _ if NANOSECONDS.contains(&value) => {
            format!("looks like nanoseconds; in milliseconds it is {}", up(1_000_000))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(found: Result<i64, BadRecord>) -> String {
        found.unwrap_err().reason
    }

    #[test]
    fn a_number_in_another_unit_is_refused_with_its_unit__d1() {
        assert_eq!(
            due_from_integer(1_769_846_400, "due").unwrap_err(),
            BadRecord::new("due is 1769846400, which looks like seconds; in milliseconds it is 1769846400000", ALLOWED)
        );
        for (value, looks) in [
            (0, "is no due time: a field that was never set has this value"),
            (5, "looks like seconds; in milliseconds it is 5000"),
            (45_292, "looks like days: in a spreadsheet it is 2024-01-01"),
            (99_999_999_999, "looks like seconds; in milliseconds it is 99999999999000"),
            (253_402_300_800_000, "looks like microseconds; in milliseconds it is 253402300800"),
            (1_769_846_400_000_001, "looks like microseconds; in milliseconds it is 1769846400001"),
            (1_769_846_400_000_000_000, "looks like nanoseconds; in milliseconds it is 1769846400000"),
        ] {
            assert_eq!(reason(due_from_integer(value, "due")), format!("due is {value}, which {looks}"));
        }
        assert_eq!(due_from_integer(100_000_000_000, "due"), Ok(100_000_000_000));
        for value in [-1, i128::from(u64::MAX) * 100, i128::MAX, i128::MIN] {
            assert_eq!(reason(due_from_integer(value, "due")), "due is out of range", "{value}");
        }
    }

    #[test]
    fn a_whole_float_is_the_integer_and_any_other_is_refused__d1() {
        assert_eq!(due_from_float(1_700_000_000_005.0, "due"), Ok(1_700_000_000_005));
        assert_eq!(
            reason(due_from_float(5.5, "due")),
            "due is 5.5, which looks like seconds; in milliseconds it is 5500"
        );
        let fraction = reason(due_from_float(1_700_000_000_005.5, "due"));
        assert_eq!(fraction, "due is 1700000000005.5, which is no whole number of milliseconds");
        assert_eq!(reason(due_from_float(1e300, "due")), "due is out of range");
        assert_eq!(reason(due_from_float(f64::NAN, "due")), "due is NaN, which is no number");
    }

    #[test]
    fn digits_are_a_number_and_rounded_ones_are_refused__d1() {
        for (text, value) in
            [("5", Some(5)), ("-5.0", Some(-5)), ("5.", None), ("5.50", None), ("1e3", None), ("", None)]
        {
            assert_eq!(integer_of(text), value, "{text}");
        }
        assert_eq!(integer_of(&"9".repeat(31)), None);
        assert_eq!(number_as_text("1.76985E+12", "due").unwrap().reason, "due is 1.76985E+12, which may be rounded");
        assert_eq!(number_as_text("1700000000005", "due").unwrap().reason, "due is text of digits: '1700000000005'");
        for text in ["", "soon", "2026-01-31", "infinity", &"9".repeat(41)] {
            assert_eq!(number_as_text(text, "due"), None, "{text}");
        }
    }
}
