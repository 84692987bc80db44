//! Reads and writes wall times (rule D1): RFC 3339 text, and milliseconds since 1970-01-01T00:00:00Z.
//!
//! - Text has an offset, unless the user has named the zone of times without one. The offset may be as short as `+01`,
//!   and the seconds may be missing. Fractions finer than a millisecond are rounded up, so no message is early (D3).
//! - `due_times` has the rules for numbers. Text may name any time from 1970 on.
//!
//! Example: `1970-01-01T01:00:00.0001+01:00` is 1 ms, and is written as `1970-01-01T00:00:00.001Z`.

use jiff::tz::TimeZone;

use crate::base::error::BadRecord;
use crate::base::zones::epoch_ms_of;

/// 9999-12-31T23:59:59.999Z, the last time that RFC 3339 can write.
pub const MAX_DUE_MS: i64 = 253_402_300_799_999;

/// The allowed due times, for errors.
pub(crate) const ALLOWED: &str = "RFC 3339 with an offset, such as 2026-01-31T08:00:00.000Z or 2026-01-31T09:00:00+01:00, or an \
                           integer of epoch milliseconds, from 1970 to 9999";

pub(crate) const NO_TIME: &str = "is not a time";
pub(crate) const NO_ZONE: &str = "has no zone";

const MS_PER_DAY: i64 = 86_400_000;

/// The epoch milliseconds of a time given as text, or an error text. `zone` is that of times without an offset; without
/// it they are refused.
pub(crate) fn time_from_text(text: &str, zone: Option<&TimeZone>) -> Result<i64, String> {
    let shown = epoch_ms(text.as_bytes())?;
    match (shown.offset_minutes, zone) {
        (Some(minutes), _) => Ok(shown.ms - minutes * 60_000),
        (None, Some(zone)) => epoch_ms_of(shown.ms, zone),
        (None, None) => Err(NO_ZONE.to_owned()),
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

/// A time as a clock shows it: milliseconds since 1970 on that clock, and the clock's offset from UTC.
struct Shown {
    ms: i64,
    offset_minutes: Option<i64>,
}

/// Reads `YYYY-MM-DDThh:mm[:ss[.fraction]][Z|+hh:mm|+hhmm|+hh]`, or returns an error text.
fn epoch_ms(text: &[u8]) -> Result<Shown, &'static str> {
    const SHAPE: &[u8; 19] = b"dddd-dd-ddTdd:dd:dd";
    const DATE: usize = 10;
    const MINUTE: usize = 16;
    let has_seconds = text.get(MINUTE) == Some(&b':');
    let end = if has_seconds { SHAPE.len() } else { MINUTE };
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => byte == shape,
    };
    if !text.iter().zip(&SHAPE[..end]).all(fits) || text.len() < end {
        let is_date = text.len() == DATE && text.iter().zip(SHAPE).all(fits);
        return Err(if is_date { "is a date without a time of day" } else { NO_TIME });
    }
    let (fraction_ms, zone) = match text[end..].split_first() {
        Some((b'.', rest)) if has_seconds => {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
            if end == 0 {
                return Err(NO_TIME);
            }
            (ms_rounded_up(&rest[..end]), &rest[end..])
        }
        _ => (0, &text[end..]),
    };
    let offset_minutes = offset_of(zone)?;
    let pair = |at: usize| i64::from(text[at] - b'0') * 10 + i64::from(text[at + 1] - b'0');
    let (year, month, day) = (pair(0) * 100 + pair(2), pair(5), pair(8));
    let (hour, minute, second) = (pair(11), pair(14), if has_seconds { pair(17) } else { 0 });
    if year == 0 || day == 0 || day > days_in(year, month) || hour > 23 || minute > 59 || second > 59 {
        return Err("is not on the calendar");
    }
    let minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute;
    Ok(Shown { ms: (minutes * 60 + second) * 1000 + fraction_ms, offset_minutes })
}

fn ms_rounded_up(fraction: &[u8]) -> i64 {
    let (whole, finer) = fraction.split_at(fraction.len().min(3));
    let digit = |at: usize| whole.get(at).map_or(0, |byte| i64::from(byte - b'0'));
    digit(0) * 100 + digit(1) * 10 + digit(2) + i64::from(finer.iter().any(|byte| *byte != b'0'))
}

fn offset_of(zone: &[u8]) -> Result<Option<i64>, &'static str> {
    let (sign, zone) = match zone {
        [] => return Ok(None),
        [b'Z' | b'z'] => return Ok(Some(0)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(NO_TIME),
    };
    let (a, b, c, d) = match zone {
        [a, b, b':', c, d] | [a, b, c, d] => (a, b, c, d),
        [a, b] => (a, b, &b'0', &b'0'),
        _ => return Err(NO_TIME),
    };
    if ![a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) {
        return Err(NO_TIME);
    }
    let pair = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let (hours, minutes) = (pair(*a, *b), pair(*c, *d));
    if hours > 23 || minutes > 59 {
        return Err("has no such offset");
    }
    Ok(Some(sign * (hours * 60 + minutes)))
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
