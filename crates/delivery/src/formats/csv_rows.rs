//! Turns rows of CSV into messages, by the one schema (rule D1). The caller has split the rows into cells.
//!
//! - The header names the columns. A row has as many cells as the header.
//! - An empty cell is absent, except in a payload. In a cancel or a reschedule, every empty cell is absent.
//! - A payload of JSON stays unchanged. Any other payload becomes a JSON string. If a file has both columns,
//!   `payload` and `payload_base64`, an empty cell in one of them is absent.
//! - Digits in `due` are epoch milliseconds. If there is no payload, the other columns make up the payload, as text.

use std::borrow::Cow;
use std::sync::Arc;

use crate::base::error::BadRecord;
use crate::base::json::{Refused, json_or_text, value_of, write_text};
use crate::base::times::integer_of;
use crate::formats::lines::Line;
use crate::formats::ndjson::number_of;
use crate::message::columns::{MISSED, TZ, VALUES};
use crate::message::fields::{Fields, Payload, Schema, Value};
use crate::message::origin::{Origin, Record};
use crate::message::parsed::Parsed;

/// A row of the input.
#[derive(Clone, Debug)]
pub struct CsvRow<'a, S> {
    /// The number of its first line, from 1.
    pub line: u64,
    /// Its bytes, without the newline at the end.
    pub data: &'a [u8],
    /// The cells, or why there are none.
    pub content: CsvContent<'a, S>,
}

/// The caller's result of splitting a row.
#[derive(Clone, Debug)]
pub enum CsvContent<'a, S> {
    /// Its cells.
    Cells(&'a [S]),
    /// No cells, because a line is too long or not UTF-8. The number is the size of the row in bytes, including bytes
    /// that were not kept.
    Unread(usize),
    /// The row is not CSV.
    Broken(BadRecord),
}

impl<'a, S> CsvRow<'a, S> {
    /// Its cells.
    ///
    /// # Errors
    /// It could not be split.
    pub fn cells(&self, max_record: usize) -> Result<&'a [S], BadRecord> {
        match &self.content {
            CsvContent::Cells(cells) => Ok(cells),
            CsvContent::Broken(bad) => Err(bad.clone()),
            CsvContent::Unread(size) => {
                let line = Line { number: self.line, data: self.data, start: 0, size: *size };
                line.text(max_record)?;
                Err(BadRecord::new("the row could not be split", "RFC 4180"))
            }
        }
    }
}

/// The columns of a file, by their place in its rows.
#[derive(Clone, Debug)]
pub struct CsvHeader {
    names: Vec<String>,
    /// In the order of `Columns::values`.
    parts: [Option<usize>; VALUES],
    payload: Option<usize>,
    others: Vec<usize>,
}

impl CsvHeader {
    /// The columns of a header.
    ///
    /// # Errors
    /// No message can be read with these columns.
    pub fn new(names: Vec<String>, schema: &Schema) -> Result<Self, BadRecord> {
        let columns = &schema.columns;
        if let Some(fault) = columns.fault("header", &names.iter().map(String::as_str).collect::<Vec<_>>()) {
            return Err(fault);
        }
        let place_of = |name: &str| names.iter().position(|other| other == name);
        let parts = columns.values().map(place_of);
        let payload = place_of(columns.payload());
        let known = columns.known();
        let others = (0..names.len()).filter(|at| !known.contains(&names[*at].as_str())).collect();
        Ok(Self { names, parts, payload, others })
    }
}

/// A reader of the rows below one header.
#[derive(Clone, Debug)]
pub struct CsvRows<'a> {
    /// The name of the input, for dead letters.
    pub source: Arc<str>,
    /// The schema of its records.
    pub schema: &'a Schema,
    /// Its columns.
    pub header: &'a CsvHeader,
    /// The wall time from which a `delay_ms` counts; `None` in a replay.
    pub now_ns: Option<i64>,
}

impl CsvRows<'_> {
    /// The item of a row. About 1 µs.
    #[must_use]
    pub fn read<S: AsRef<str>>(&self, row: &CsvRow<'_, S>) -> Parsed {
        let record = Some(Record::from(row.data));
        let origin = Origin { source: Arc::clone(&self.source), line: row.line, record };
        let cells = row.cells(self.schema.max_record());
        let read = cells.and_then(|cells| self.schema.check(&self.fields(cells)?, self.now_ns));
        Parsed::of(read, true, || origin)
    }

    fn fields<'c, S: AsRef<str>>(&'c self, cells: &'c [S]) -> Result<Fields<'c>, BadRecord> {
        let CsvHeader { names, parts, payload, others } = self.header;
        if cells.len() != names.len() {
            let reason = format!("the row has {} cells", cells.len());
            return Err(BadRecord::new(reason, format!("{}, as the header", names.len())));
        }
        let cell = |place: Option<usize>| place.map(|at| cells[at].as_ref());
        let [id, key, due, delay_ms, expires, op, mut base64, traceparent, every, cron] = parts.map(cell);
        let mut payload = cell(*payload);
        let has_no_payload = matches!(op, Some("cancel" | "reschedule"));
        if has_no_payload {
            payload = payload.filter(|cell| !cell.is_empty());
            base64 = base64.filter(|cell| !cell.is_empty());
        } else if base64 == Some("") && payload.is_some() {
            base64 = None;
        } else if payload == Some("") && base64.is_some() {
            payload = None;
        }
        let payload = payload.map(json_or_text).transpose().map_err(|refused| match refused {
            Refused::TooDeep => BadRecord::new("the JSON is nested too deep", "a few hundred levels"),
            Refused::Syntax(text) => BadRecord::new(text, "JSON, or text"),
        })?;
        let others = others.iter().map(|at| (names[*at].as_str(), cells[*at].as_ref()));
        // In a file with rules, rows that do not recur leave these cells empty.
        let has_rules = every.is_some() || cron.is_some();
        let is_left_out = |name: &str| has_no_payload || has_rules && [TZ, MISSED].contains(&name);
        let others = others.filter(|(name, cell)| !cell.is_empty() || !is_left_out(name)).map(|(name, cell)| {
            let mut json = Vec::with_capacity(cell.len() + 2);
            write_text(&mut json, cell);
            (Cow::Borrowed(name), Cow::Owned(json))
        });
        let values = [
            text(id),
            text(key),
            instant(due),
            delay_ms.map_or(Value::Absent, number),
            instant(expires),
            text(op),
            base64.map_or(Value::Absent, |cell| Value::Text(cell.into())),
            text(traceparent),
            every.map_or(Value::Absent, number),
            text(cron),
        ];
        let payload = payload.map(|bytes| Payload { bytes, is_json: true });
        Ok(Fields { others: others.collect(), ..Fields::of(values, payload) })
    }
}

/// Digits become an integer.
fn instant(cell: Option<&str>) -> Value<'_> {
    match text(cell) {
        Value::Text(text) => integer_of(&text).map_or(Value::Text(text), |value| Value::Integer(value.into())),
        absent => absent,
    }
}

fn text(cell: Option<&str>) -> Value<'_> {
    cell.filter(|cell| !cell.is_empty()).map_or(Value::Absent, |cell| Value::Text(cell.into()))
}

fn number(cell: &str) -> Value<'_> {
    if cell.is_empty() {
        return Value::Absent;
    }
    match value_of(cell) {
        Ok(json) if matches!(json.as_bytes(), [b'-' | b'0'..=b'9', ..]) => number_of(json).unwrap_or(Value::Other),
        _ => Value::Text(cell.into()),
    }
}

#[cfg(test)]
mod tests;
