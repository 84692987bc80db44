//! Reads rows of Arrow record batches, from Parquet files and Arrow IPC streams, by the one schema (rule D1).
//!
//! - `id`, `key`, `op`, `payload_base64` and `traceparent` are text. `delay_ms` and `every` are numbers of any
//!   type. In any column, null means absent.
//! - `due` and `expires` may have three forms: a timestamp with a zone, rounded up to the millisecond; an integer of
//!   epoch milliseconds, also one of a float or a decimal; text as in CSV.
//! - If a payload of text or bytes is JSON, it stays unchanged. Other text becomes a JSON string, and other bytes
//!   stay bytes.
//! - `arrow_json` turns payloads of other types into JSON. If there is no payload, it does the same with the columns
//!   that make up the payload.
//! - A column of UUIDs is a column of their text. Inside lists and structs a UUID is its bytes.
//! - An error in the schema makes every row a bad record. The record of a bad row is the row as a line of NDJSON.
//!
//! The arrays must be valid. The reader of Arrow IPC streams checks them; for all other sources the caller must do
//! so. A text column is valid only if all its values are UTF-8. The caller may pass an invalid one as bytes, see
//! [`ArrowRows::as_bytes`].

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow_schema::DataType;

use crate::base::due_times::integer_of;
use crate::base::error::BadRecord;
use crate::base::json::write_base64;
use crate::base::json::{json_or_text, write_text};
use crate::base::times::divided_up;
use crate::formats::arrow_json::{Unfit, date, iso_8601, show_json, write_json};
use crate::formats::arrow_values::{binary, decimal, float, inner, integer, is_null, text, timestamp};
use crate::formats::lines::KEPT;
use crate::formats::ndjson::number_of;
use crate::message::columns::{DUE_AT, EXPIRES_AT, VALUES};
use crate::message::fields::{Fields, Payload, Request, Schema, Value};
use crate::message::incoming::Origin;
use crate::message::parsed::Parsed;

/// The extension type of a column, in its metadata.
const EXTENSION: &str = "ARROW:extension:name";
const UUID: &str = "arrow.uuid";

/// A reader of batches with one schema.
#[derive(Clone, Debug)]
pub struct ArrowRows<'a> {
    /// The name of the input, for dead letters.
    pub source: Arc<str>,
    /// The schema of its records.
    pub schema: &'a Schema,
    /// The wall time from which a `delay_ms` counts; `None` in a replay.
    pub now_ns: Option<i64>,
    /// Whether messages keep their origin.
    pub keeps_origin: bool,
    /// Text columns passed as bytes, because some values are not UTF-8. A row with such a value is a bad record.
    pub as_bytes: &'a [String],
    /// An error found by the caller, which makes every row a bad record.
    pub fault: Option<&'a BadRecord>,
}

impl ArrowRows<'_> {
    /// Reads the items of a batch, in order. `first_line` is the number of the batch's first row in the input, from
    /// 1. If it is 0, the rows have no order and all get the number 0.
    pub fn read(&self, batch: &RecordBatch, first_line: u64) -> impl Iterator<Item = Parsed> {
        let columns = Columns::of(batch, self);
        (0..batch.num_rows()).map(move |at| {
            let line = if first_line == 0 { 0 } else { first_line + at as u64 };
            let origin = |record| Origin { source: Arc::clone(&self.source), line, record };
            match self.request(&columns, at) {
                Err(bad) => {
                    let record = self.keeps_origin.then(|| self.shown(batch, at).into());
                    Parsed::Bad(bad, origin(record))
                }
                read => {
                    let is_event = matches!(read, Ok(Request::Event(_))); // it may become a dead letter
                    let record = (is_event && self.keeps_origin).then(|| self.shown(batch, at).into());
                    Parsed::of(read, self.keeps_origin, || origin(record))
                }
            }
        })
    }

    fn request(&self, columns: &Columns<'_>, at: usize) -> Result<Request, BadRecord> {
        let max = self.schema.max_record();
        if let Some(fault) = &columns.fault {
            return Err(fault.clone());
        }
        if let Some((name, _)) = columns.not_text.iter().find(|(_, rows)| rows.contains(&at)) {
            return Err(BadRecord::new(format!("{name} is not UTF-8"), "text in UTF-8; other bytes as payload_base64"));
        }
        let mut values: [Value<'_>; VALUES] = Default::default();
        for (place, (value, array)) in values.iter_mut().zip(&columns.parts).enumerate() {
            let read = if [DUE_AT, EXPIRES_AT].contains(&place) { due_of } else { plain };
            *value = array.as_ref().map_or(Value::Absent, |array| read(array, at));
        }
        let name = self.schema.columns.payload();
        let payload = columns.payload.as_ref().map_or(Ok(None), |array| payload_of(array, at, max));
        let mut fields = Fields::of(values, payload.map_err(|unfit| unfit.bad(name))?);
        let mut left = max; // for all of them together: there may be thousands
        for (name, array) in &columns.others {
            if !is_null(array, at) {
                let mut json = Vec::new();
                write_json(&mut json, array, at, left).map_err(|unfit| unfit.bad(name))?;
                left = left.saturating_sub(json.len());
                fields.others.push((Cow::Borrowed(name), json.into()));
            }
        }
        self.schema.check(&fields, self.now_ns)
    }

    /// Writes a row as a line of NDJSON, for the dead letters. A long row is cut.
    fn shown(&self, batch: &RecordBatch, at: usize) -> Vec<u8> {
        let max = self.schema.max_record();
        let mut out = b"{".to_vec();
        let mut seen = HashMap::<&str, usize>::new();
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let same = seen.entry(field.name()).and_modify(|count| *count += 1).or_default();
            if is_null(array, at) {
                continue;
            }
            if out.len() > max {
                break; // the rest is cut
            }
            if out.len() > 1 {
                out.push(b',');
            }
            let name = format!("{}{}", field.name(), " again".repeat((*same).min(100)));
            let is_payload = name == self.schema.columns.payload();
            let payload = if is_payload { payload_of(array, at, max).ok().flatten() } else { None };
            match payload {
                Some(Payload { bytes, is_json: false }) => {
                    if let Ok(text) = std::str::from_utf8(&bytes) {
                        write_text(&mut out, &name); // too long to be read
                        out.push(b':');
                        write_text(&mut out, text);
                    } else {
                        out.extend_from_slice(b"\"payload_base64\":\"");
                        write_base64(&mut out, &bytes);
                        out.push(b'"');
                    }
                }
                payload => {
                    write_text(&mut out, &name);
                    out.push(b':');
                    match payload {
                        Some(payload) => out.extend_from_slice(&payload.bytes),
                        None => show_json(&mut out, array, at, max),
                    }
                }
            }
        }
        out.push(b'}');
        if out.len() > max {
            let text = String::from_utf8_lossy(&out[..KEPT]);
            out = text.trim_end_matches('\u{fffd}').as_bytes().to_vec();
        }
        out
    }
}

/// The columns of a batch by their meaning.
struct Columns<'a> {
    /// In the order of `columns::Columns::values`.
    parts: [Option<ArrayRef>; VALUES],
    payload: Option<ArrayRef>,
    others: Vec<(&'a str, ArrayRef)>,
    /// Columns with rows whose text is not UTF-8.
    not_text: Vec<(&'a str, HashSet<usize>)>,
    fault: Option<BadRecord>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch, reader: &ArrowRows<'_>) -> Self {
        let names: Vec<&str> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
        let columns = &reader.schema.columns;
        let known = columns.known();
        let mut arrays = batch.columns().to_vec();
        let mut not_text = Vec::new();
        for (field, array) in batch.schema_ref().fields().iter().zip(&mut arrays) {
            if field.metadata().get(EXTENSION).is_some_and(|name| name == UUID)
                && let Some(uuids) = array.as_fixed_size_binary_opt().filter(|uuids| uuids.value_length() == 16)
            {
                *array = Arc::new(text_of_uuids(uuids));
            }
        }
        for (name, array) in names.iter().zip(&mut arrays) {
            if *name != columns.payload() && reader.as_bytes.iter().any(|other| other == name) {
                let rows;
                (*array, rows) = text_of_bytes(array);
                not_text.push((*name, rows));
            }
        }
        let of = |name: &str| names.iter().position(|other| *other == name).map(|at| Arc::clone(&arrays[at]));
        let others = names.iter().zip(&arrays).filter(|(name, _)| !known.contains(*name));
        Self {
            parts: columns.values().map(of),
            payload: of(columns.payload()),
            others: others.map(|(name, array)| (*name, Arc::clone(array))).collect(),
            not_text,
            fault: reader.fault.cloned().or_else(|| columns.fault("schema", &names)),
        }
    }
}

/// UUIDs in their usual form.
fn text_of_uuids(uuids: &FixedSizeBinaryArray) -> StringArray {
    let text = |bytes: &[u8]| {
        let hex = format!("{:032x}", u128::from_be_bytes(bytes.try_into().ok()?));
        Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
    };
    uuids.iter().map(|bytes| bytes.and_then(text)).collect()
}

/// Turns bytes into text. Values that are not UTF-8 become null; the set holds their rows.
fn text_of_bytes(array: &ArrayRef) -> (ArrayRef, HashSet<usize>) {
    let mut not_text = HashSet::new();
    let texts = (0..array.len()).map(|at| {
        let (values, place) = inner(array, at).unwrap_or((array, at));
        let bytes = (!is_null(array, at)).then(|| binary(values, place)).flatten()?;
        let text = std::str::from_utf8(bytes).ok();
        if text.is_none() {
            not_text.insert(at);
        }
        text
    });
    let texts: StringArray = texts.collect();
    (Arc::new(texts), not_text)
}

fn plain(array: &dyn Array, at: usize) -> Value<'_> {
    if is_null(array, at) {
        Value::Absent
    } else if let Some(text) = text(array, at) {
        Value::Text(Cow::Borrowed(text))
    } else if let Some(value) = integer(array, at) {
        Value::Integer(value)
    } else if let Some(value) = float(array, at) {
        Value::Float(value)
    } else if let Some(digits) = decimal(array, at) {
        number_of(&digits).unwrap_or(Value::Other)
    } else {
        inner(array, at).map_or(Value::Other, |(values, at)| plain(values, at))
    }
}

fn due_of(array: &dyn Array, at: usize) -> Value<'_> {
    if is_null(array, at) {
        return Value::Absent;
    }
    if let Some((values, at)) = inner(array, at) {
        return due_of(values, at);
    }
    match array.data_type() {
        DataType::Timestamp(_, zone) => {
            let (value, per_second) = timestamp(array, at).unwrap_or_default();
            if zone.is_some() {
                return Value::Instant(milliseconds_up(value, per_second));
            }
            let text = iso_8601(value, per_second);
            Value::Text(text.unwrap_or_else(|| format!("<value out of range: {value}>")).into())
        }
        DataType::Date32 | DataType::Date64 => date(array, at).map_or(Value::Other, |date| Value::Text(date.into())),
        _ => match plain(array, at) {
            Value::Text(text) => integer_of(&text).map_or(Value::Text(text), Value::Integer),
            other => other,
        },
    }
}

fn milliseconds_up(value: i64, per_second: i64) -> i64 {
    match per_second / 1000 {
        0 => value.saturating_mul(1000),
        per_ms => divided_up(value, per_ms),
    }
}

fn payload_of(array: &dyn Array, at: usize, max: usize) -> Result<Option<Payload<'_>>, Unfit> {
    if is_null(array, at) {
        return Ok(None);
    }
    if let Some((values, at)) = inner(array, at) {
        return payload_of(values, at, max);
    }
    let kept = match (text(array, at), binary(array, at)) {
        (Some(text), _) => Some(text),
        (None, Some(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(_) => return Ok(Some(Payload { bytes: bytes.into(), is_json: false })),
        },
        (None, None) => None,
    };
    let bytes = if let Some(text) = kept {
        if text.len() > max {
            return Ok(Some(Payload { bytes: text.as_bytes().into(), is_json: false })); // the schema refuses it without reading it
        }
        json_or_text(text).map_err(|_| Unfit::new("the JSON is nested too deep", "deep JSON"))?
    } else {
        let mut json = Vec::new();
        write_json(&mut json, array, at, max)?;
        json.into()
    };
    Ok(Some(Payload { bytes, is_json: true }))
}

#[cfg(test)]
mod tests;
