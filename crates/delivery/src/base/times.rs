//! Reads and writes wall times (rule D1): RFC 3339 text, and milliseconds since 1970-01-01T00:00:00Z.
//!
//! - Text has an offset, unless the user has named the zone of times without one. The offset may be as short as `+01`,
//!   and the seconds may be missing. Fractions finer than a millisecond are rounded up, so no message is early (D3).
//! - `due_times` has the rules for numbers. Text may name any time from 1970 on.
//! - Zones have names of the IANA database (rule D19). The folder of the system has names that are no place's zone, and
//!   these are refused: `localtime` differs from machine to machine, and `right/Europe/Berlin` counts leap seconds.
//!
//! Example: `1970-01-01T01:00:00.0001+01:00` is 1 ms, and is written as `1970-01-01T00:00:00.001Z`. 2026-10-25 02:30 comes
//! twice in Europe/Berlin, and 2026-03-29 02:30 never. Both are refused, because no rule could know which moment is meant.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::display::quoted;
use crate::base::error::BadRecord;

/// 9999-12-31T23:59:59.999Z, the last time that RFC 3339 can write.
pub const MAX_DUE_MS: i64 = 253_402_300_799_999;

/// The allowed due times, for errors.
pub(crate) const ALLOWED: &str = "RFC 3339 with an offset, such as 2026-01-31T08:00:00.000Z or 2026-01-31T09:00:00+01:00, or an \
                           integer of epoch milliseconds, from 1970 to 9999";

pub(crate) const NO_TIME: &str = "is not a time";
pub(crate) const NO_ZONE: &str = "has no zone";

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

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

/// Checks when a pause is to end by itself.
///
/// # Errors
/// The wall clock has passed the time.
pub fn checked_pause_end(until_ms: i64) -> Result<i64, BadRecord> {
    if until_ms * 1_000 > SystemWallTime.now_us() {
        return Ok(until_ms);
    }
    let until = String::from_utf8_lossy(&rfc_3339(until_ms)).into_owned();
    Err(BadRecord::new(
        format!("until is {until}, which is over, so nothing was changed"),
        "a time that is still to come",
    ))
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

/// Divides a time, and rounds up: no message is early (D3).
pub(crate) fn divided_up(time: i64, by: i64) -> i64 {
    time.div_euclid(by) + i64::from(time.rem_euclid(by) > 0)
}

/// Formats a time in UTC with milliseconds, as in every output. A time before 1970 is written as the start of 1970,
/// and a time after 9999 as the end of 9999.
#[must_use]
pub fn rfc_3339(epoch_ms: i64) -> [u8; 24] {
    let time = EPOCH + SignedDuration::from_millis(epoch_ms.clamp(0, MAX_DUE_MS));
    let mut out = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, value: i16| {
        out[at] = b'0' + (value / 10) as u8;
        out[at + 1] = b'0' + (value % 10) as u8;
    };
    put(0, time.year() / 100);
    put(2, time.year() % 100);
    put(5, time.month().into());
    put(8, time.day().into());
    put(11, time.hour().into());
    put(14, time.minute().into());
    put(17, time.second().into());
    put(20, time.millisecond() / 10);
    out[22] = b'0' + (time.millisecond() % 10) as u8;
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
    let pair = |at: usize| ((text[at] - b'0') * 10 + (text[at + 1] - b'0')) as i8;
    let year = i16::from(pair(0)) * 100 + i16::from(pair(2));
    let second = if has_seconds { pair(17) } else { 0 };
    match DateTime::new(year, pair(5), pair(8), pair(11), pair(14), second, 0) {
        Ok(time) if year > 0 => {
            Ok(Shown { ms: time.duration_since(EPOCH).as_millis() as i64 + fraction_ms, offset_minutes })
        }
        _ => Err("is not on the calendar"),
    }
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

/// The date of a day since 1970, or before. `None` outside the years 0 to 9999.
pub(crate) fn date_of_day(days: i64) -> Option<Date> {
    let since = SignedDuration::from_secs(days.checked_mul(24 * 60 * 60)?);
    EPOCH.date().checked_add(since).ok().filter(|date| date.year() >= 0)
}

const A_ZONE: &str = "a name of the IANA database, such as Europe/Berlin or UTC";
const NO_PLACE: [&str; 4] = ["factory", "localtime", "posixrules", "etc/unknown"];
const NO_PLACES: [&str; 2] = ["posix/", "right/"];

/// The zone of this name. `field` is the name of the field, for the error.
///
/// # Errors
/// There is no such zone here, or it is no place's zone.
pub(crate) fn zone_named(name: &str, field: &str) -> Result<TimeZone, BadRecord> {
    let plain = name.to_ascii_lowercase();
    let is_a_place = !NO_PLACE.contains(&&*plain) && !NO_PLACES.iter().any(|folder| plain.starts_with(folder));
    let found = if is_a_place { TimeZone::get(name).ok() } else { None };
    found.ok_or_else(|| {
        let reason = format!("{field} is {}: no time zone of this name is known here", quoted(name, 60));
        BadRecord::new(reason, format!("{field}: {A_ZONE}"))
    })
}

/// Milliseconds since 1970 of a time that the clocks of a zone show. `shown_ms` is that time as if the zone were UTC.
///
/// # Errors
/// The clocks never show the time, or they show it twice.
pub(crate) fn epoch_ms_of(shown_ms: i64, zone: &TimeZone) -> Result<i64, String> {
    let name = zone.iana_name().unwrap_or("this zone");
    let shown = Timestamp::from_millisecond(shown_ms).map_err(|_| "is not on the calendar".to_owned())?;
    let shown = zone.to_ambiguous_timestamp(TimeZone::UTC.to_datetime(shown));
    match shown.offset() {
        AmbiguousOffset::Gap { .. } => Err(format!("is at no time in {name}, whose clock is put forward there")),
        AmbiguousOffset::Fold { .. } => Err(format!("is twice in {name}, whose clock is put back there")),
        AmbiguousOffset::Unambiguous { .. } => {
            shown.unambiguous().map(Timestamp::as_millisecond).map_err(|_| "is not on the calendar".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
