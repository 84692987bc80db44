//! Reads CSV: turns the rows of a file into messages, by the one schema (rule D1).
//!
//! - The header names the columns. A row has as many cells as the header. A header that can't be used is one bad record,
//!   and no row is read.
//! - An empty cell is absent, except in a payload. In a cancel, a reschedule or an event, every empty cell is absent.
//! - A payload of JSON stays unchanged. Any other payload becomes a JSON string. If a file has both columns,
//!   `payload` and `payload_base64`, an empty cell in one of them is absent.
//! - Digits in `due` are epoch milliseconds. If there is no payload, the other columns make up the payload, as text.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::due_times::integer_of;
use crate::base::error::BadRecord;
use crate::base::json::{Refused, json_or_text, value_of, write_text};
use crate::formats::csv_split::CsvSplit;
use crate::formats::lines::Block;
use crate::formats::ndjson::number_of;
use crate::message::columns::{EVENT, MISSED, REMEMBER_MS, TZ, UNTIL_EVENT, VALUES};
use crate::message::fields::{Fields, Payload, Schema, Value};
use crate::message::incoming::Origin;
use crate::message::parsed::Parsed;

/// The columns of a file, by their place in its rows.
#[derive(Clone, Debug)]
struct CsvHeader {
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
    fn new(cells: Result<&[String], BadRecord>, schema: &Schema) -> Result<Self, BadRecord> {
        let names = cells.map_err(|BadRecord { reason, allowed }| {
            BadRecord::new(format!("the header can't be read: {reason}"), allowed)
        })?;
        let columns = &schema.columns;
        let texts: Vec<&str> = names.iter().map(String::as_str).collect();
        columns.fault("header", &texts).map_or(Ok(()), Err)?;
        let place_of = |name: &str| names.iter().position(|other| other == name);
        let parts = columns.values().map(place_of);
        let payload = place_of(columns.payload());
        let known = columns.known();
        let others = (0..names.len()).filter(|at| !known.contains(&names[*at].as_str())).collect();
        Ok(Self { names: names.to_vec(), parts, payload, others })
    }

    /// The fields of a row.
    ///
    /// # Errors
    /// The row has other cells than the header.
    fn fields<'c>(&'c self, cells: &'c [String]) -> Result<Fields<'c>, BadRecord> {
        let CsvHeader { names, parts, payload, others } = self;
        if cells.len() != names.len() {
            let reason = format!("the row has {} cells", cells.len());
            return Err(BadRecord::new(reason, format!("{}, as the header", names.len())));
        }
        let cell = |place: Option<usize>| place.map(|at| cells[at].as_str());
        let [id, key, due, delay_ms, expires, op, mut base64, traceparent, every, cron, destination, tenant] =
            parts.map(cell);
        let mut payload = cell(*payload);
        let is_control = matches!(op, Some("cancel" | "reschedule" | "event"));
        if is_control {
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
        let others = others.iter().map(|at| (names[*at].as_str(), cells[*at].as_str()));
        // In a file with rules or events, the other rows leave these cells empty.
        let has_rules = every.is_some() || cron.is_some();
        let is_left_out = |name: &str| {
            let of_events = name == UNTIL_EVENT || op.is_some() && [EVENT, REMEMBER_MS].contains(&name);
            is_control || of_events || has_rules && [TZ, MISSED].contains(&name)
        };
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
            text(destination),
            text(tenant),
        ];
        let payload = payload.map(|bytes| Payload { bytes, is_json: true });
        Ok(Fields { others: others.collect(), ..Fields::of(values, payload) })
    }
}

/// A reader of one input.
#[derive(Debug)]
pub struct Csv {
    source: Arc<str>,
    schema: Schema,
    after: u64,
    /// How many lines were read.
    lines: u64,
    split: CsvSplit,
    header: Option<CsvHeader>,
    /// Whether the header can't be used. Then nothing more is read.
    pub is_refused: bool,
}

impl Csv {
    /// `source`: the name of the input, for dead letters. `after`: rows that begin at this line or before it are
    /// skipped, because an earlier run has accepted them.
    #[must_use]
    pub fn new(source: &str, schema: Schema, after: u64) -> Self {
        let split = CsvSplit::new(schema.max_record(), schema.columns.id());
        Self { source: source.into(), schema, after, lines: 0, split, header: None, is_refused: false }
    }

    /// Reads the items of the rows that end with these lines, in order. No bytes are the end of the input. About 1 µs
    /// each. `left_out`: bytes of the last line that are missing, because the line is too long. `now_ns`: the wall time
    /// from which a `delay_ms` counts; `None` in a replay.
    pub fn read(&mut self, lines: &[u8], left_out: usize, now_ns: Option<i64>) -> Vec<Parsed> {
        let block = Block { bytes: lines, first_line: self.lines + 1, left_out };
        let end = lines.is_empty().then_some(None);
        let mut found = Vec::new();
        for line in block.lines(self.schema.max_record()).map(Some).chain(end) {
            self.lines = line.map_or(self.lines, |line| line.number);
            let row = match line {
                Some(line) => self.split.add(&line),
                None => self.split.end(),
            };
            let Some(row) = row.filter(|_| !self.is_refused) else { continue };
            let origin = || Origin {
                source: Arc::clone(&self.source),
                line: row.line,
                record: Some(Bytes::copy_from_slice(row.data)),
            };
            if let Some(header) = &self.header {
                if row.line > self.after {
                    let read = row.cells.and_then(|cells| self.schema.check(&header.fields(cells)?, now_ns));
                    found.push(Parsed::of(read, true, origin));
                }
                continue;
            }
            match CsvHeader::new(row.cells, &self.schema) {
                Ok(header) => self.header = Some(header),
                Err(BadRecord { reason, allowed }) => {
                    self.is_refused = true;
                    let allowed = format!("{allowed}; no row of the file is read");
                    found.push(Parsed::Bad(BadRecord::new(reason, allowed), origin()));
                }
            }
        }
        found
    }
}

/// Digits become an integer.
fn instant(cell: Option<&str>) -> Value<'_> {
    match text(cell) {
        Value::Text(text) => integer_of(&text).map_or(Value::Text(text), Value::Integer),
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
