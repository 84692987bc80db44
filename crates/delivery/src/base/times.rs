//! Reads and writes wall times (rule D1): RFC 3339 text, and integer milliseconds since 1970-01-01T00:00:00Z.
//!
//! - Text always has a zone. Fractions finer than a millisecond are rounded up, so no message is early (D3).
//! - An integer below [`SECONDS_BELOW`] is refused. In milliseconds it would be before March 1973, so seconds are
//!   almost certainly meant. Text may name any time from 1970 on.
//!
//! Example: `1970-01-01T01:00:00.0001+01:00` is 1 ms, and is written as `1970-01-01T00:00:00.001Z`.

use crate::base::display::quoted;
use crate::base::error::BadRecord;

/// 9999-12-31T23:59:59.999Z, the last time that RFC 3339 can write.
pub const MAX_DUE_MS: i64 = 253_402_300_799_999;

/// An integer due time below this looks like seconds: 10^11 seconds end in the year 5138, 10^11 ms in 1973.
pub(crate) const SECONDS_BELOW: i64 = 100_000_000_000;

/// The allowed due times, for errors.
pub(crate) const ALLOWED: &str = "RFC 3339 with an offset, such as 2026-01-31T08:00:00.000Z or 2026-01-31T09:00:00+01:00, or an \
                           integer of epoch milliseconds, from 1970 to 9999";

const MS_PER_DAY: i64 = 86_400_000;

/// The epoch milliseconds of a due time given as text. `name` is the name of the field, for the error.
///
/// # Errors
/// The text is not RFC 3339, has no zone, or is out of range.
pub(crate) fn due_from_text(text: &str, name: &str) -> Result<i64, BadRecord> {
    match epoch_ms(text.as_bytes()) {
        Ok(due_ms) => due_in_range(due_ms, name),
        Err(why) => Err(BadRecord::new(format!("{name} {why}: {}", quoted(text, 60)), ALLOWED)),
    }
}

/// Checks a due time given as an integer. It may have any size, because JSON has no bound.
///
/// # Errors
/// The time is out of range, or looks like seconds.
pub(crate) fn due_from_integer(value: i128, name: &str) -> Result<i64, BadRecord> {
    if (0..i128::from(SECONDS_BELOW)).contains(&value) {
        return Err(BadRecord::new(
            format!("{name} is {value}, which looks like seconds; in milliseconds it is {}", value * 1000),
            ALLOWED,
        ));
    }
    due_in_range(i64::try_from(value).unwrap_or(i64::MAX), name)
}

/// A due time from CSV or the command line, where every value is text. Digits are epoch milliseconds.
///
/// # Errors
/// The text is not a due time, or the time is out of range.
pub fn due_from_digits_or_text(text: &str, name: &str) -> Result<i64, BadRecord> {
    match integer_of(text) {
        Some(value) => due_from_integer(value.into(), name),
        None => due_from_text(text, name),
    }
}

/// Checks a due time that is known to be in milliseconds: the program computed it, or its type says so.
///
/// # Errors
/// The time is before 1970 or after 9999.
pub(crate) fn due_in_range(due_ms: i64, name: &str) -> Result<i64, BadRecord> {
    if (0..=MAX_DUE_MS).contains(&due_ms) {
        Ok(due_ms)
    } else {
        Err(BadRecord::new(format!("{name} is out of range"), ALLOWED))
    }
}

/// Checks a delay in milliseconds. A delay below 0 makes the message overdue.
///
/// # Errors
/// The delay is not a number, or is longer than any due time can be away.
pub(crate) fn delay_in_range(delay_ms: f64) -> Result<f64, BadRecord> {
    if delay_ms.abs() <= MAX_DUE_MS as f64 {
        return Ok(delay_ms);
    }
    let allowed = "delay_ms: milliseconds, with a due time before year 10000";
    Err(BadRecord::new("delay_ms is not a number in range", allowed))
}

/// Parses an integer of at most 18 digits, with an optional minus sign. `None` for any other text.
pub(crate) fn integer_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let fits = (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// Formats a time in UTC with milliseconds, as in every output. A time before 1970 is written as the start of 1970,
/// and a time after 9999 as the end of 9999.
#[must_use]
pub fn rfc_3339(epoch_ms: i64) -> [u8; 24] {
    let epoch_ms = epoch_ms.clamp(0, MAX_DUE_MS) as u64;
    let (days, in_day) = (epoch_ms / MS_PER_DAY as u64, epoch_ms % MS_PER_DAY as u64);
    let (year, month, day) = date_of(days as u32);
    let mut out = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, value: u32| {
        out[at] = b'0' + (value / 10) as u8;
        out[at + 1] = b'0' + (value % 10) as u8;
    };
    let (seconds, ms) = ((in_day / 1000) as u32, (in_day % 1000) as u32);
    put(0, year / 100);
    put(2, year % 100);
    put(5, month);
    put(8, day);
    put(11, seconds / 3600);
    put(14, seconds / 60 % 60);
    put(17, seconds % 60);
    put(20, ms / 10);
    out[22] = b'0' + (ms % 10) as u8;
    out
}

/// Epoch milliseconds of `YYYY-MM-DDThh:mm:ss[.fraction](Z|+hh:mm|-hh:mm)`, or an error text.
fn epoch_ms(text: &[u8]) -> Result<i64, &'static str> {
    const SHAPE: &[u8; 19] = b"dddd-dd-ddTdd:dd:dd";
    const NO_TIME: &str = "is not a time";
    if text.len() < SHAPE.len() {
        return Err(NO_TIME);
    }
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => byte == shape,
    };
    if !text.iter().zip(SHAPE).all(fits) {
        return Err(NO_TIME);
    }
    let (fraction_ms, zone) = match text[19..].split_first() {
        Some((b'.', rest)) => {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
            if end == 0 {
                return Err(NO_TIME);
            }
            (ms_rounded_up(&rest[..end]), &rest[end..])
        }
        _ => (0, &text[19..]),
    };
    let offset_minutes = offset_of(zone)?;
    let pair = |at: usize| i64::from(text[at] - b'0') * 10 + i64::from(text[at + 1] - b'0');
    let (year, month, day) = (pair(0) * 100 + pair(2), pair(5), pair(8));
    let (hour, minute, second) = (pair(11), pair(14), pair(17));
    if year == 0 || day == 0 || day > days_in(year, month) || hour > 23 || minute > 59 || second > 59 {
        return Err("is not on the calendar");
    }
    let minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - offset_minutes;
    Ok((minutes * 60 + second) * 1000 + fraction_ms)
}

fn ms_rounded_up(fraction: &[u8]) -> i64 {
    let (whole, finer) = fraction.split_at(fraction.len().min(3));
    let digit = |at: usize| whole.get(at).map_or(0, |byte| i64::from(byte - b'0'));
    digit(0) * 100 + digit(1) * 10 + digit(2) + i64::from(finer.iter().any(|byte| *byte != b'0'))
}

fn offset_of(zone: &[u8]) -> Result<i64, &'static str> {
    let (sign, zone) = match zone {
        [] => return Err("has no zone"),
        [b'Z' | b'z'] => return Ok(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err("is not a time"),
    };
    let [a, b, b':', c, d] = zone else { return Err("is not a time") };
    if ![a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a time");
    }
    let pair = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let (hours, minutes) = (pair(*a, *b), pair(*c, *d));
    if hours > 23 || minutes > 59 {
        return Err("has no such offset");
    }
    Ok(sign * (hours * 60 + minutes))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days in a month; 0 for a month that does not exist.
fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}

// If a year begins in March, its leap day is at its end. Then (153 * month + 2) / 5 days of the year lie before a
// month. 400 such years have 146,097 days. 1970-01-01 is day 719,468, counted from the first of March of year 0.

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
        - 1
        - 719_468
}

/// Year, month and day of a day since 1970, up to the year 9999.
fn date_of(days: u32) -> (u32, u32, u32) {
    let days = days + 719_468;
    let (era, in_era) = (days / 146_097, days % 146_097);
    let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

/// Year, month and day of a day, which may be before 1970. `None` outside the years 0 to 9999.
pub(crate) fn date_of_day(days: i64) -> Option<(u32, u32, u32)> {
    let days_of_2000_years = 5 * 146_097; // the calendar repeats every 400 years
    let (year, month, day) =
        date_of(u32::try_from(days.checked_add(days_of_2000_years)?).ok().filter(|d| *d < 5_000_000)?);
    Some((year.checked_sub(2000).filter(|year| *year <= 9999)?, month, day))
}

#[cfg(test)]
mod tests;
