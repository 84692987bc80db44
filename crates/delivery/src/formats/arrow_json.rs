//! Writes a value of an Arrow array as JSON, for a payload (rule D1).
//!
//! - Booleans, numbers and text become the JSON values of that kind. Decimals are numbers and keep their digits
//!   (`1.50`). Binary is base64 text.
//! - Dates, times of day and timestamps become ISO 8601 text. Timestamps with a zone become RFC 3339 in UTC (`...Z`).
//! - Structs, and maps with text keys, become objects. Lists become arrays. A null inside them is `null`.
//! - A value without such a form is [`Unfit`]: NaN, infinity, times outside the years 0 to 9999, a name that occurs
//!   twice, and all other types (durations, intervals, unions). A `VARIANT` of Parquet is one: a struct of two binary
//!   values, in an encoding of its own.
//! - A value that is too large is [`Unfit`] too. In Arrow, a thousand million nulls or copies of a text take no
//!   memory.

use std::io::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Fields, TimeUnit};

use crate::base::display::{cut, with_commas};
use crate::base::error::BadRecord;
use crate::base::json::write_base64;
use crate::base::json::write_text;
use crate::base::times::date_of_day;
use crate::formats::arrow_values::{binary, decimal, float, inner, integer, is_null, span, text, timestamp, value};

const ALLOWED: &str =
    "text, finite numbers, booleans, binary, times from year 0 to 9999, and structs, lists and maps of these";

/// A value that is too large is shown so, with all that it is a part of.
const LARGE: &str = "a large value";

/// Why a value has no form in JSON, and a short text that shows the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    why: String,
    pub(crate) shown: String,
}

impl Unfit {
    pub(crate) fn new(why: impl Into<String>, shown: impl Into<String>) -> Self {
        Self { why: why.into(), shown: shown.into() }
    }

    /// The error of a record whose column `name` holds the value.
    pub(crate) fn bad(&self, name: &str) -> BadRecord {
        BadRecord::new(format!("{name} can't be JSON: {}", self.why), ALLOWED)
    }
}

/// Appends a value. `max` bounds the length of `out`. After an error, `out` may hold a part of the value.
pub(crate) fn write_json(out: &mut Vec<u8>, array: &dyn Array, at: usize, max: usize) -> Result<(), Unfit> {
    write(out, array, at, How { max, shows_unfit: false })
}

/// Appends a value for people. Each part of it without a form in JSON becomes a text that shows it.
pub(crate) fn show_json(out: &mut Vec<u8>, array: &dyn Array, at: usize, max: usize) {
    let start = out.len();
    if let Err(Unfit { shown, .. }) = write(out, array, at, How { max, shows_unfit: true }) {
        out.truncate(start);
        write_text(out, &shown);
    }
}

/// How values are written. `max` bounds the length of what is written.
#[derive(Clone, Copy)]
struct How {
    max: usize,
    shows_unfit: bool,
}

fn write(out: &mut Vec<u8>, array: &dyn Array, at: usize, how: How) -> Result<(), Unfit> {
    if out.len() > how.max {
        return Err(Unfit::new(format!("it has more than {} bytes", with_commas(how.max)), LARGE));
    }
    let start = out.len();
    match write_value(out, array, at, how) {
        Err(Unfit { shown, .. }) if how.shows_unfit && shown != LARGE => {
            out.truncate(start);
            write_text(out, &shown);
            Ok(())
        }
        written => written,
    }
}

fn write_value(out: &mut Vec<u8>, array: &dyn Array, at: usize, how: How) -> Result<(), Unfit> {
    if is_null(array, at) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    if let Some(text) = text(array, at) {
        write_text(out, text);
    } else if let Some(bytes) = binary(array, at) {
        out.push(b'"');
        write_base64(out, bytes);
        out.push(b'"');
    } else if let Some(value) = integer(array, at) {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    } else if let Some(value) = float(array, at) {
        write_float(out, value)?;
    } else if let Some(digits) = decimal(array, at) {
        out.extend_from_slice(digits.as_bytes());
    } else if let Some((values, at)) = inner(array, at) {
        write(out, values, at, how)?;
    } else {
        write_other(out, array, at, how)?;
    }
    Ok(())
}

fn write_other(out: &mut Vec<u8>, array: &dyn Array, at: usize, how: How) -> Result<(), Unfit> {
    match array.data_type() {
        DataType::Boolean => out.extend_from_slice(if array.as_boolean().value(at) { b"true" } else { b"false" }),
        DataType::Timestamp(_, zone) => {
            let (value, per_second) = timestamp(array, at).unwrap_or_default();
            let zone = if zone.is_some() { "Z" } else { "" };
            let text = iso_8601(value, per_second).ok_or_else(|| out_of_range(value))?;
            let _ = write!(out, "\"{text}{zone}\"");
        }
        DataType::Date32 | DataType::Date64 => {
            let text = date(array, at).ok_or_else(|| out_of_range(days_of(array, at)))?;
            let _ = write!(out, "\"{text}\"");
        }
        DataType::Time32(TimeUnit::Second) => write_time(out, value::<Time32SecondType>(array, at).into(), 1)?,
        DataType::Time32(_) => write_time(out, value::<Time32MillisecondType>(array, at).into(), 1_000)?,
        DataType::Time64(TimeUnit::Microsecond) => {
            write_time(out, value::<Time64MicrosecondType>(array, at), 1_000_000)?;
        }
        DataType::Time64(_) => write_time(out, value::<Time64NanosecondType>(array, at), 1_000_000_000)?,
        DataType::Struct(fields) if is_variant(fields, array, at) => {
            return Err(Unfit::new("it is a VARIANT, so write it to the file as JSON in text", "a VARIANT"));
        }
        DataType::Struct(_) => {
            let row = array.as_struct();
            let names = row.column_names().into_iter().map(|name| Ok(name.to_owned()));
            write_object(out, names, |out, member| write(out, row.column(member), at, how))?;
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(at);
            check_count(entries.len(), how)?;
            let (keys, values) = (entries.column(0), entries.column(1));
            let names = (0..entries.len()).map(|key| {
                let name = text(keys, key).filter(|_| keys.is_valid(key));
                name.map(str::to_owned).ok_or_else(|| Unfit::new("a map has a key that is not text", "a map"))
            });
            write_object(out, names, |out, member| write(out, values, member, how))?;
        }
        DataType::List(_) => write_list(out, &array.as_list::<i32>().value(at), how)?,
        DataType::LargeList(_) => write_list(out, &array.as_list::<i64>().value(at), how)?,
        DataType::FixedSizeList(..) => write_list(out, &array.as_fixed_size_list().value(at), how)?,
        DataType::ListView(_) => write_list(out, &array.as_list_view::<i32>().value(at), how)?,
        DataType::LargeListView(_) => write_list(out, &array.as_list_view::<i64>().value(at), how)?,
        other => {
            let kind = shown(other);
            return Err(Unfit::new(format!("a {kind} has no form in it"), span(array, at).unwrap_or(kind)));
        }
    }
    Ok(())
}

/// Whether the struct holds a `VARIANT`: the binary `metadata` of one, beside a binary `value`.
fn is_variant(fields: &Fields, array: &dyn Array, at: usize) -> bool {
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    let is_known = names.iter().all(|name| ["metadata", "value", "typed_value"].contains(name));
    let member = |name| array.as_struct().column_by_name(name);
    let is_binary = member("value").is_some_and(|value| binary(value, at).is_some());
    is_known && is_binary && member("metadata").and_then(|it| binary(it, at)).is_some_and(is_metadata)
}

/// Whether the bytes are a header of version 1, the number of names, where each begins and the last ends, and the names.
/// A text can begin with the same header.
fn is_metadata(bytes: &[u8]) -> bool {
    let [header, rest @ ..] = bytes else { return false };
    let width = usize::from(header >> 6) + 1;
    let number = |place: usize| {
        let from = place.checked_mul(width)?;
        let bytes = rest.get(from..from.checked_add(width)?)?;
        Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    let names = number(0).unwrap_or(usize::MAX);
    let end = names.checked_add(1).and_then(number);
    header & 0x0f == 1 && end.is_some_and(|end| end == rest.len() - (names + 2) * width)
}

/// The name of a refused type, as Arrow's own documents write it.
fn shown(kind: &DataType) -> String {
    match kind {
        DataType::Duration(TimeUnit::Second) => "duration[s]".into(),
        DataType::Duration(TimeUnit::Millisecond) => "duration[ms]".into(),
        DataType::Duration(TimeUnit::Microsecond) => "duration[us]".into(),
        DataType::Duration(TimeUnit::Nanosecond) => "duration[ns]".into(),
        DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano) => "month_day_nano_interval".into(),
        other => cut(&other.to_string(), 60).to_owned(),
    }
}

fn write_list(out: &mut Vec<u8>, items: &ArrayRef, how: How) -> Result<(), Unfit> {
    check_count(items.len(), how)?;
    out.push(b'[');
    for at in 0..items.len() {
        if at > 0 {
            out.push(b',');
        }
        write(out, items, at, how)?;
    }
    out.push(b']');
    Ok(())
}

/// An item takes at least two bytes, with its comma.
fn check_count(count: usize, how: How) -> Result<(), Unfit> {
    let most = how.max / 2;
    if count > most {
        Err(Unfit::new(format!("it has more than {} items", with_commas(most)), "a long list"))
    } else {
        Ok(())
    }
}

fn write_object(
    out: &mut Vec<u8>,
    names: impl Iterator<Item = Result<String, Unfit>>,
    mut write_member: impl FnMut(&mut Vec<u8>, usize) -> Result<(), Unfit>,
) -> Result<(), Unfit> {
    let mut seen = std::collections::HashSet::new();
    out.push(b'{');
    for (at, name) in names.enumerate() {
        let name = name?;
        if at > 0 {
            out.push(b',');
        }
        write_text(out, &name);
        out.push(b':');
        if !seen.insert(name) {
            return Err(Unfit::new("a name occurs twice in it", "an object"));
        }
        write_member(out, at)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_float(out: &mut Vec<u8>, value: f64) -> Result<(), Unfit> {
    if let Some(number) = serde_json::Number::from_f64(value) {
        let _ = write!(out, "{}", number.to_string().replace("e+", "e"));
        return Ok(());
    }
    let shown = value.to_string().to_lowercase();
    Err(Unfit::new(format!("{shown} is not finite"), shown))
}

fn out_of_range(value: i64) -> Unfit {
    Unfit::new("a time out of range", value.to_string())
}

/// The text of a date, in the years 0 to 9999.
pub(crate) fn date(array: &dyn Array, at: usize) -> Option<String> {
    Some(date_of_day(days_of(array, at))?.to_string())
}

/// The days since 1970 of a date.
fn days_of(array: &dyn Array, at: usize) -> i64 {
    match array.data_type() {
        DataType::Date32 => value::<Date32Type>(array, at).into(),
        _ => value::<Date64Type>(array, at).div_euclid(86_400_000),
    }
}

fn write_time(out: &mut Vec<u8>, value: i64, per_second: i64) -> Result<(), Unfit> {
    if !(0..86_400 * per_second).contains(&value) {
        return Err(out_of_range(value));
    }
    let _ = write!(out, "\"{}\"", time_of_day(value, per_second));
    Ok(())
}

fn time_of_day(value: i64, per_second: i64) -> String {
    let (seconds, fraction) = (value / per_second, value % per_second);
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    match per_second {
        1 => whole,
        1_000 => format!("{whole}.{fraction:03}"),
        1_000_000 => format!("{whole}.{fraction:06}"),
        _ => format!("{whole}.{fraction:09}"),
    }
}

/// A timestamp without its zone, in the years 0 to 9999.
pub(crate) fn iso_8601(value: i64, per_second: i64) -> Option<String> {
    let per_day = 86_400 * per_second;
    let date = date_of_day(value.div_euclid(per_day))?;
    Some(format!("{date}T{}", time_of_day(value.rem_euclid(per_day), per_second)))
}

#[cfg(test)]
mod tests;
